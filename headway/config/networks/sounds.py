"""Configs of front ends that read the samples of a sound. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headway.config.ranges import in_range
from headway.errors import ConfigError

MOST = 1 << 14
"""Of channels and kernels: a bound no real model comes near."""


class OverSamples:
    """Convolutions over samples, without padding."""

    @property
    def convolutions(self) -> tuple[tuple[int, int], ...]:
        """Kernel and stride of each."""
        raise NotImplementedError

    def span(self, convolutions: int | None = None) -> tuple[int, int]:
        """How many samples one value after the first convolutions, or after all, depends on, and their stride."""
        width, stride = 1, 1
        for kernel, step in self.convolutions[:convolutions]:
            width, stride = width + (kernel - 1) * stride, stride * step
        return width, stride


@dataclass(frozen=True, kw_only=True)
class SamplesConfig(OverSamples):
    """Front end for the samples of a sound: three convolutions without padding (Moonshine; Jeffries et al. 2024)."""

    kind: Literal["samples"] = "samples"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        in_range(self, dropout=(0.0, 1.0))

    @property
    def convolutions(self) -> tuple[tuple[int, int], ...]:
        """Together a position for every 384 samples, 24 milliseconds at 16 kHz."""
        return (127, 64), (7, 3), (3, 2)


@dataclass(frozen=True, kw_only=True)
class WavesConfig(OverSamples):
    """Front end for the samples of a sound: convolutions, a linear map, positions by convolution (wav2vec 2.0).

    Baevski et al. 2020. Positions are what a grouped convolution over all vectors gives, so no table limits them.
    """

    kind: Literal["waves"] = "waves"
    channels: tuple[int, ...] = (512,) * 7
    kernels: tuple[int, ...] = (10, 3, 3, 3, 3, 2, 2)
    strides: tuple[int, ...] = (5, 2, 2, 2, 2, 2, 2)
    bias: bool = False
    """Whether the convolutions over samples have a bias."""
    norm_in: Literal["first", "all"] = "first"
    """first: after the first convolution, of each channel over time; all: after each of them, over the channels."""
    project_norm: bool = True
    """A norm before the linear map; some models of HuBERT have none."""
    place_kernel: int = 128
    place_groups: int = 16
    """Of the convolution that gives the positions."""
    norm: bool = True
    """A norm after the positions, where the blocks have theirs last."""
    norm_eps: float = 1e-5
    mask_token: bool = False
    """A learned vector in place of masked positions."""
    project_dropout: float = 0.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        in_range(self, norm_eps=(0.0, 1.0), project_dropout=(0.0, 1.0), dropout=(0.0, 1.0))
        in_range(self, place_kernel=(1, MOST), place_groups=(1, MOST))
        sizes = (self.channels, self.kernels, self.strides)
        if not self.channels or len({len(each) for each in sizes}) > 1:
            raise ConfigError("C004", "channels, kernels and strides: give a number for each convolution, in all three")
        if any(not 1 <= number <= MOST for each in sizes for number in each):
            raise ConfigError("C003", f"channels, kernels and strides have to be in 1 … {MOST}")

    @property
    def convolutions(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self.kernels, self.strides, strict=True))
