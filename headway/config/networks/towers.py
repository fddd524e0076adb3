"""The config of two towers: an encoder of images and an encoder of texts. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headway.config.model import MAX_WIDTH, FrontConfig, ModelConfig, SpecialTokens, StackConfig
from headway.config.networks.without import WithoutDecoder, WithoutHeads
from headway.config.ranges import conflict, in_range
from headway.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TwoTowersConfig(WithoutHeads, WithoutDecoder):
    """An encoder of images and an encoder of texts with one space for both: CLIP (Radford et al. 2021), SigLIP."""

    image: ModelConfig
    text: ModelConfig
    projection: int = 512
    """Width of the shared space."""
    logit_scale: float = 2.6592
    """Initial logarithm of the factor on cosines: that of 1/0.07."""
    logit_bias: float | None = None
    """Initial bias of the logits, where each pair is a decision of its own (SigLIP; Zhai et al. 2023)."""
    image_pool: Literal["class", "probe"] = "class"
    """What stands for an image: the class token, mapped into the shared space, or what a learned probe gathers from
    all patches by attention and a feed-forward network (SigLIP); the shared space is then that of the images."""
    text_pool: Literal["eos", "highest", "last"] = "eos"
    """The token that stands for a text: the first end token, or the highest id, as in the first files of CLIP; or the
    last one after padding to full length, which attends to the padding too (SigLIP)."""
    text_bias: bool = False
    """Whether the map of texts has a bias."""
    special: SpecialTokens = field(default_factory=SpecialTokens)
    """Of texts; the config of the tower itself has none."""
    family: str = "clip"

    def __post_init__(self) -> None:
        in_range(self, projection=(1, MAX_WIDTH), logit_scale=(-10.0, 10.0), logit_bias=(-1e3, 1e3))
        for name, kind in (("image", "patches"), ("text", "tokens")):
            tower: ModelConfig = getattr(self, name)
            if tower.kind != "encoder" or tower.output_front.kind != kind:
                raise ConfigError("C004", f"the {name} tower has to be an encoder of {kind}")
        if self.text_pool == "eos" and len(self.special.eos_ids) != 1:
            raise ConfigError("C004", 'text_pool = "eos" needs one end token: special.eos')
        if self.text_pool == "last" and (self.special.pad is None or self.max_length is None):
            raise ConfigError("C004", 'text_pool = "last" needs a padding token, special.pad, and learned positions')
        width = self.image.output_stack.d_model
        if self.image_pool == "probe" and width != self.projection:
            raise conflict('image_pool = "probe"', f"projection = {self.projection}", f"the images are {width} wide")

    @property
    def fronts(self) -> tuple[FrontConfig, FrontConfig]:
        """The front ends of both towers."""
        return self.image.output_front, self.text.output_front

    @property
    def encoder(self) -> StackConfig:
        return self.image.output_stack

    @property
    def source(self) -> FrontConfig:
        return self.image.output_front

    @property
    def output_stack(self) -> StackConfig:
        return self.encoder

    @property
    def output_front(self) -> FrontConfig:
        return self.source

    @property
    def max_length(self) -> int | None:
        """The most tokens of a text; None if nothing limits them."""
        return self.text.max_length
