"""TwoTowers: an encoder of images and an encoder of texts whose vectors share one space, as in CLIP.

Letters: B batch, T tokens, M width of a tower, P width of the shared space, N images, K texts.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import ModelConfig, StackConfig
from headway.config.networks.towers import TwoTowersConfig
from headway.joint.encoding import EncodingModel
from headway.kernels.linear import Linear
from headway.model.attention import Attention, AttentionBias, Backend, Hook, attend, scoped
from headway.model.feed_forward import FeedForward
from headway.model.model import Output, Transformer
from headway.model.norms import LayerNorm
from headway.model.positions import token_positions

LARGEST_SCALE = 100.0
"""The largest factor on cosines, which keeps training stable (Radford et al. 2021)."""


class TwoTowers(EncodingModel):
    """Two encoders, a map from each into the shared space, and the learned temperature of their cosines."""

    gives = "a model of two towers compares images and texts"

    def __init__(self, config: TwoTowersConfig) -> None:
        super().__init__()
        self.config: TwoTowersConfig = config
        self.image, self.text = Transformer(config.image), Transformer(config.text)
        if config.image_pool == "probe":
            self.image_probe = Probe(config.image.output_stack)
        else:
            self.image_projection = _projection(config.image, config.projection)
        self.text_projection = _projection(config.text, config.projection, bias=config.text_bias)
        self.logit_scale = nn.Parameter(torch.full((1,), config.logit_scale))
        bias = config.logit_bias
        self.logit_bias = None if bias is None else nn.Parameter(torch.full((1,), bias))

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
        """(B, P) of normalised images: the class token in the shared space, or what the probe gathers."""
        hidden = self.image.encode(images).hidden
        probed = self.config.image_pool == "probe"
        features: Tensor = self.image_probe(hidden) if probed else self.image_projection(hidden[:, 0])
        return features

    def text_features(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(B, P) of token ids (B, T), which end with an end token: what it has gathered, in the shared space."""
        if self.config.text_pool == "last":
            ids, attention_mask = self._filled(ids, attention_mask), None
        hidden = self.text.encode(ids, attention_mask=attention_mask).hidden
        # An end token may stand for padding too, so the first one counts; argmax gives the first of equals.
        if self.config.text_pool == "highest":
            place = ids.argmax(1)
        elif self.config.text_pool == "last":
            place = torch.full_like(ids[:, 0], ids.shape[1] - 1)
        else:
            place = (ids == self.config.special.eos_ids[0]).int().argmax(1)
        features: Tensor = self.text_projection(hidden[torch.arange(len(ids), device=ids.device), place])
        return features

    def _filled(self, ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The same texts padded on the right to the model's length, with tokens that it reads like others."""
        real = torch.ones_like(ids, dtype=torch.bool) if attention_mask is None else attention_mask != 0
        assert self.config.special.pad is not None and self.config.max_length is not None
        length = max(ids.shape[1], self.config.max_length)
        filled = ids.new_full((len(ids), length + 1), self.config.special.pad)  # padding goes to a column of its own
        return filled.scatter(1, token_positions(real).masked_fill(~real, length), ids)[:, :length]

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """Logits (N, K) of every image with every text, from features: cosines times the learned factor, plus bias."""
        with torch.autocast(images.device.type, enabled=False):  # differences of cosines are small
            cosines = F.normalize(images.float(), dim=-1) @ F.normalize(texts.float(), dim=-1).T
            scale = self.logit_scale.float().exp()
            logits = cosines * (scale.clamp(max=LARGEST_SCALE) if self.training else scale)
            return logits if self.logit_bias is None else logits + self.logit_bias.float()

    def vocabulary_rows(self) -> Iterator[tuple[Tensor, int]]:
        yield from self.text.vocabulary_rows()


class Probe(nn.Module):
    """A learned query attends to all patches, and a feed-forward network with residual follows (SigLIP)."""

    def __init__(self, stack: StackConfig) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(stack.d_model).normal_(std=stack.d_model**-0.5))
        self.attention, self.ffn = Attention(stack), FeedForward(stack)
        self.norm = LayerNorm(stack.d_model, stack.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, M) to (B, M)."""
        whole = torch.cat([self.query.to(x.dtype).expand(len(x), 1, -1), x], 1)
        packed = self.attention.qkv(whole).unflatten(-1, (-1, self.attention.width)).transpose(1, 2)
        q, k, v = packed.chunk(3, 1)
        y = attend(q[:, :, :1], k[:, :, 1:], v[:, :, 1:], AttentionBias(), self.attention.scale)
        y = self.attention.out(y.transpose(1, 2).flatten(1))
        found: Tensor = y + self.ffn(self.norm(y))
        return found


def _projection(tower: ModelConfig, width: int, *, bias: bool = False) -> nn.Linear:
    linear = Linear(tower.output_stack.d_model, width, bias=bias)
    nn.init.normal_(linear.weight, std=tower.output_stack.d_model**-0.5)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
