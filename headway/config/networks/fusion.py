"""The config of a model that reads an image and a sound together. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from headway.config.model import (
    ClassifyHeadConfig,
    InitConfig,
    ModelConfig,
    PatchesConfig,
    SpecialTokens,
    StackConfig,
)
from headway.config.networks.without import WithoutDecoder
from headway.errors import ConfigError

FusionMode = Literal["early", "late", "image", "sound"]


@dataclass(frozen=True, kw_only=True)
class FusionConfig(WithoutDecoder):
    """A model that gives a label to an image with its sound."""

    fusion: FusionMode = "early"
    """early: one stack reads the tokens of both; late: each has an encoder, and further blocks attend from the image to
    the sound; image and sound: an encoder of one alone, to compare with."""
    image: PatchesConfig
    sound: PatchesConfig
    encoder: StackConfig
    """The stack of both, or of each."""
    joint: StackConfig | None = None
    """Blocks with cross-attention, of late fusion."""
    classify: ClassifyHeadConfig = field(default_factory=ClassifyHeadConfig)
    labels: tuple[str, ...] = ()
    init: InitConfig = field(default_factory=InitConfig)
    special: SpecialTokens = field(default_factory=SpecialTokens)
    family: ClassVar[str] = "headway"

    def __post_init__(self) -> None:
        if (self.image.holds, self.sound.holds) != ("images", "log_mel"):
            raise ConfigError("C004", "fusion needs patches of an image and of the log-mel spectrogram of a sound")
        if (self.joint is not None) != (self.fusion == "late"):
            raise ConfigError(
                "C004", f'fusion = "{self.fusion}": late fusion needs joint blocks, and no other has them'
            )
        if self.joint is not None and (not self.joint.cross or self.joint.d_model != self.encoder.d_model):
            raise ConfigError("C004", "joint blocks need cross-attention and the width of the encoders")
        self.image_encoder, self.sound_encoder  # noqa: B018  # their own checks

    @property
    def image_encoder(self) -> ModelConfig:
        """The encoder of an image alone."""
        return ModelConfig(encoder=self.encoder, source=self.image, init=self.init)

    @property
    def sound_encoder(self) -> ModelConfig:
        """The encoder of a sound alone."""
        return ModelConfig(encoder=self.encoder, source=self.sound, init=self.init)

    @property
    def fronts(self) -> tuple[PatchesConfig, PatchesConfig]:
        return self.image, self.sound

    @property
    def source(self) -> PatchesConfig:
        return self.sound if self.fusion == "sound" else self.image

    @property
    def output_stack(self) -> StackConfig:
        return self.joint or self.encoder

    @property
    def output_front(self) -> PatchesConfig:
        return self.source

    @property
    def tokens(self) -> int:
        """Of one example."""
        counts = {"image": self.image.count + self.image.leading, "sound": self.sound.count + self.sound.leading}
        return counts.get(self.fusion, sum(counts.values()))

    max_length: ClassVar[None] = None
    tag: ClassVar[None] = None
