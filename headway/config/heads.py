"""Configs of heads: what is computed from hidden states. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headway.config.ranges import MAX_VOCAB, Activation, conflict, in_range


@dataclass(frozen=True, kw_only=True)
class LMHeadConfig:
    """Hidden states to logits over the vocabulary."""

    tied: bool = True
    """The output matrix is the token embedding (Press & Wolf 2017)."""
    transform: Activation | None = None
    """BERT: a dense layer, this activation and a norm before the output matrix."""
    dense_bias: bool = True
    bias: Literal["none", "trained", "fixed"] = "none"
    """fixed: BART's and Marian's logit bias, which is not trained."""
    scale: float = 1.0
    """T5 1.0 multiplies the hidden states by d_model^-1/2 before its tied matrix."""
    softcap: float | None = None
    """Logits are cap · tanh(logit / cap) (Gemma 2)."""

    def __post_init__(self) -> None:
        in_range(self, scale=(-1e6, 1e6), softcap=(1e-6, 1e6))


@dataclass(frozen=True, kw_only=True)
class BeforeOutput:
    """What a head has before its output layer."""

    dense: Activation | None = None
    """A dense layer and this activation."""
    dense_bias: bool = True
    dense_norm: bool = False
    """ModernBERT: a norm after the activation."""


@dataclass(frozen=True, kw_only=True)
class ClassifyHeadConfig(BeforeOutput):
    """One vector per sequence to label logits; with 0 labels it is the pooler alone."""

    labels: int = 2
    pool: Literal["first", "last", "mean", "max", "first_mean"] = "first"
    """first_mean: the class token and the mean of the patches (DINOv2)."""
    bias: bool = True
    dropout: float = 0.0
    distilled: bool = False
    """DeiT: a second output layer on the distillation token; the logits are the mean of both."""
    several: bool = False
    """Multi-label: each label is a yes/no decision of its own."""
    pairs: bool | None = None
    """Whether it was trained on pairs of texts; None: unknown."""

    def __post_init__(self) -> None:
        in_range(self, labels=(0, MAX_VOCAB), dropout=(0.0, 1.0))


@dataclass(frozen=True, kw_only=True)
class TagHeadConfig(BeforeOutput):
    """Label logits for every token."""

    labels: int = 2
    dropout: float = 0.0
    binary: bool = False
    """ELECTRA's discriminator has one output for two labels: the logit of the second, and that of the first is 0."""

    def __post_init__(self) -> None:
        in_range(self, labels=(1, MAX_VOCAB), dropout=(0.0, 1.0))
        if self.binary and self.labels != 2:
            raise conflict("binary = true", f"labels = {self.labels}", "one output tells two labels apart")


@dataclass(frozen=True, kw_only=True)
class SpanHeadConfig(BeforeOutput):
    """Start and end logits for every token."""

    ffn: bool = False
    """BigBird: a feed-forward layer with residual and norm before the output layer."""
    dropout: float = 0.0

    def __post_init__(self) -> None:
        in_range(self, dropout=(0.0, 1.0))


@dataclass(frozen=True, kw_only=True)
class DenoiseHeadConfig:
    """Hidden states of patches back to the pixels of an image (DiT)."""

    patch: int = 2
    channels: int = 3
    objective: Literal["v", "epsilon", "flow"] = "v"
    """What the pixels mean: noise and image together, the noise, or the velocity from image to noise."""
    schedule: Literal["cosine", "linear"] = "cosine"
    """How images became noise in training."""

    def __post_init__(self) -> None:
        in_range(self, patch=(1, 1 << 14), channels=(1, 1 << 12))
