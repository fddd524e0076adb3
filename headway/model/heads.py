"""Heads: hidden states to logits, and the one table of heads.

Letters: B batch, T tokens, M width of the model, V vocabulary, L labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.heads import BeforeOutput
from headway.config.model import (
    ClassifyHeadConfig,
    DenoiseHeadConfig,
    LMHeadConfig,
    ModelConfig,
    SpanHeadConfig,
    StackConfig,
    TagHeadConfig,
)
from headway.front.build import Front
from headway.front.tokens import TokenEmbedding
from headway.kernels.linear import Linear, linear
from headway.model.feed_forward import FeedForward, activation
from headway.model.norms import LayerNorm


class LMHead(nn.Module):
    """Logits over the vocabulary, for any selection of positions: pass only those that are needed."""

    def __init__(self, config: LMHeadConfig, stack: StackConfig, vocab: int, table: nn.Embedding) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        width = table.embedding_dim
        if config.transform is not None:
            self.dense = Linear(stack.d_model, width, bias=config.dense_bias)
            self.norm = LayerNorm(width, stack.norm_eps, stack.norm_bias)
        self.project = None
        if width != stack.d_model and config.transform is None:
            self.project = Linear(stack.d_model, width, bias=False)
        self.output = Linear(width, table.num_embeddings, bias=config.bias != "none")
        if config.tied:
            self.output.weight = table.weight
        if config.bias == "fixed":
            self.output.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """(…, M) to (…, V)."""
        x = self.features(x)
        logits = linear(x, self.output.weight) if self._bias_is_zero() else self.output(x)
        return self._capped(logits[..., : self.vocab])

    def _bias_is_zero(self) -> bool:
        """Whether the bias may be skipped. Marian's is all zeros, and adding it takes a fifth of a CPU's time."""
        bias = self.output.bias
        fixed = self.config.bias == "fixed" and type(self.output) is Linear and not self.training
        return fixed and bias.device.type == "cpu" and not bool(bias.any())

    def padded_logits(self, x: Tensor) -> Tensor:
        """Logits with -inf for the rows that round the vocabulary up: losses use them, since they copy nothing."""
        x, rows = self.features(x), self.output.out_features
        spare, bias = torch.arange(rows, device=x.device) >= self.vocab, self.output.bias
        capped = self.config.softcap is not None
        if type(self.output) is Linear and bias is not None and not capped:  # a bias is short, and logits are large
            return linear(x, self.output.weight, bias.masked_fill(spare, -torch.inf))
        logits = self._capped(self.output(x))
        return logits if rows == self.vocab else logits.masked_fill(spare, -torch.inf)

    def _capped(self, logits: Tensor) -> Tensor:
        cap = self.config.softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def features(self, x: Tensor) -> Tensor:
        """The vectors that the output matrix multiplies."""
        if self.config.transform is not None:
            x = self.norm(activation(self.config.transform, self.dense(x)))
        elif self.project is not None:
            x = self.project(x)
        return x * self.config.scale if self.config.scale != 1.0 else x


class BeforeOutputLayer(nn.Module):
    """A dense layer, an activation and a norm, each where the family has it."""

    def __init__(self, config: BeforeOutput, stack: StackConfig, width: int) -> None:
        super().__init__()
        self.kind = config.dense
        self.dense = Linear(width, stack.d_model, bias=config.dense_bias) if config.dense else None
        normed = config.dense is not None and config.dense_norm
        self.dense_norm = LayerNorm(stack.d_model, stack.norm_eps, stack.norm_bias) if normed else None

    def before(self, x: Tensor) -> Tensor:
        if self.dense is not None and self.kind is not None:
            x = activation(self.kind, self.dense(x))
        return x if self.dense_norm is None else self.dense_norm(x)


class ClassifyHead(BeforeOutputLayer):
    """Pools a sequence to one vector, then a dense layer where the family has one, then logits of labels."""

    def __init__(self, config: ClassifyHeadConfig, stack: StackConfig) -> None:
        width = stack.d_model * (2 if config.pool == "first_mean" else 1)
        super().__init__(config, stack, width)
        self.config = config
        width = stack.d_model if config.dense else width
        self.output = Linear(width, config.labels, bias=config.bias) if config.labels else None
        self.second = Linear(stack.d_model, config.labels, bias=config.bias) if config.distilled else None

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(B, T, M) to (B, L), or to (B, M) if the head is only a pooler."""
        other = None if self.second is None else self.second(F.dropout(x[:, 1], self.config.dropout, self.training))
        x = self.before(pool(x, attention_mask, self.config.pool))
        x = F.dropout(x, self.config.dropout, self.training)
        logits: Tensor = x if self.output is None else self.output(x)
        return logits if other is None else (logits + other) / 2


def pool(x: Tensor, attention_mask: Tensor | None, how: str) -> Tensor:
    """(B, T, M) to (B, M) over the real tokens; first_mean gives (B, 2M)."""
    if how == "first_mean":  # of images, which have no padding
        return torch.cat([x[:, 0], x[:, 1:].mean(1)], -1)
    if attention_mask is None:
        return {"first": x[:, 0], "last": x[:, -1], "mean": x.mean(1), "max": x.amax(1)}[how]
    real = attention_mask != 0
    if how == "max":
        return x.masked_fill(~real[..., None], -torch.inf).amax(1)
    if how == "mean":
        weight = real[..., None].to(x.dtype)
        return (x * weight).sum(1) / weight.sum(1).clamp(min=1)
    place = torch.arange(x.shape[1], device=x.device)
    if how == "first":
        place = -place
    chosen = place.masked_fill(~real, -x.shape[1]).argmax(1)
    return x[torch.arange(len(x), device=x.device), chosen]


class TagHead(BeforeOutputLayer):
    """Logits of labels for every token: (B, T, M) to (B, T, L)."""

    def __init__(self, config: TagHeadConfig, stack: StackConfig) -> None:
        super().__init__(config, stack, stack.d_model)
        self.config = config
        self.output = Linear(stack.d_model, 1 if config.binary else config.labels)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.output(F.dropout(self.before(x), self.config.dropout, self.training))
        return F.pad(logits, (1, 0)) if self.config.binary else logits


class SpanHead(BeforeOutputLayer):
    """Logits of start and end for every token: (B, T, M) to (B, T, 2)."""

    def __init__(self, config: SpanHeadConfig, stack: StackConfig) -> None:
        super().__init__(config, stack, stack.d_model)
        if config.ffn:
            self.ffn, self.norm = FeedForward(stack), LayerNorm(stack.d_model, stack.norm_eps)
        self.config = config
        self.output = Linear(stack.d_model, 2)

    def forward(self, x: Tensor) -> Tensor:
        if self.config.ffn:
            x = self.norm(x + self.ffn(x))
        logits: Tensor = self.output(F.dropout(self.before(x), self.config.dropout, self.training))
        return logits


class DenoiseHead(nn.Module):
    """Patches back to pixels (Peebles & Xie 2023): (B, T, M) to images (B, C, height, width), all zeros at first."""

    def __init__(self, config: DenoiseHeadConfig, stack: StackConfig) -> None:
        super().__init__()
        self.patch = config.patch
        self.output = Linear(stack.d_model, config.channels * config.patch**2)

    def forward(self, x: Tensor) -> Tensor:
        side = math.isqrt(x.shape[1])
        pixels = self.output(x).unflatten(2, (-1, self.patch, self.patch)).unflatten(1, (side, side))
        images: Tensor = pixels.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)  # B C rows·patch columns·patch
        return images


@dataclass(frozen=True)
class HeadKind:
    """A kind of head, and what differs in how it is used."""

    module: Callable[..., nn.Module]
    """Made from its config and the config of the stack whose hidden states it reads."""
    pools: bool = False
    """Takes the attention mask as well: one output per sequence."""
    vocabulary: bool = False
    """Predicts tokens of the front end's vocabulary, so it belongs to the base model. Other heads belong to a task:
    a fine-tuning adds them, and trains all of their weights even beside adapters."""


HEADS: dict[str, HeadKind] = {
    "lm": HeadKind(LMHead, vocabulary=True),
    "nsp": HeadKind(ClassifyHead, pools=True),
    "classify": HeadKind(ClassifyHead, pools=True),
    "tag": HeadKind(TagHead),
    "span": HeadKind(SpanHead),
    "denoise": HeadKind(DenoiseHead),
}
"""Every head by the name of its field in ModelConfig, which is also the name of its submodule."""


def make_head(name: str, config: ModelConfig, front: Front) -> nn.Module:
    kind, own, stack = HEADS[name], getattr(config, name), config.output_stack
    if not kind.vocabulary:
        return kind.module(own, stack)
    assert isinstance(front, TokenEmbedding)
    return kind.module(own, stack, front.config.vocab, front.table)
