"""TwoTowers: an encoder of images and an encoder of texts whose vectors share one space, as in CLIP.

Letters: B batch, T tokens, M width of a tower, P width of the shared space, N images, K texts.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import ModelConfig
from headway.config.networks.towers import TwoTowersConfig
from headway.joint.encoding import EncodingModel
from headway.kernels.linear import Linear
from headway.model.attention import Backend, Hook, scoped
from headway.model.model import Output, Transformer

LARGEST_SCALE = 100.0
"""The largest factor on cosines, which keeps training stable (Radford et al. 2021)."""


class TwoTowers(EncodingModel):
    """Two encoders, a linear map from each into the shared space, and the learned temperature of their cosines."""

    gives = "a model of two towers compares images and texts"

    def __init__(self, config: TwoTowersConfig) -> None:
        super().__init__()
        self.config: TwoTowersConfig = config
        self.image, self.text = Transformer(config.image), Transformer(config.text)
        self.image_projection = _projection(config.image, config.projection)
        self.text_projection = _projection(config.text, config.projection)
        self.logit_scale = nn.Parameter(torch.full((1,), config.logit_scale))

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        target_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """Hidden states of images, or of token ids; the type of the numbers tells which tower reads them."""
        name = "image" if inputs.is_floating_point() else "text"
        tower: Transformer = getattr(self, name)
        mask = None if name == "image" else attention_mask
        return tower.encode(inputs, attention_mask=mask, backend=backend, hook=scoped(hook, name))

    def image_features(self, images: Tensor) -> Tensor:
        """(B, P) of normalised images: the class token in the shared space."""
        features: Tensor = self.image_projection(self.image.encode(images).hidden[:, 0])
        return features

    def text_features(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(B, P) of token ids (B, T), which end with an end token: what it has gathered, in the shared space."""
        hidden = self.text.encode(ids, attention_mask=attention_mask).hidden
        # An end token may stand for padding too, so the first one counts; argmax gives the first of equals.
        if self.config.text_pool == "highest":
            place = ids.argmax(1)
        else:
            place = (ids == self.config.special.eos_ids[0]).int().argmax(1)
        features: Tensor = self.text_projection(hidden[torch.arange(len(ids), device=ids.device), place])
        return features

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """Logits (N, K) of every image with every text, from features: cosines times the learned factor."""
        with torch.autocast(images.device.type, enabled=False):  # differences of cosines are small
            cosines = F.normalize(images.float(), dim=-1) @ F.normalize(texts.float(), dim=-1).T
            scale = self.logit_scale.float().exp()
            return cosines * (scale.clamp(max=LARGEST_SCALE) if self.training else scale)

    def vocabulary_rows(self) -> Iterator[tuple[Tensor, int]]:
        yield from self.text.vocabulary_rows()


def _projection(tower: ModelConfig, width: int) -> nn.Linear:
    linear = Linear(tower.output_stack.d_model, width, bias=False)
    nn.init.normal_(linear.weight, std=tower.output_stack.d_model**-0.5)
    return linear
