"""Heads: hidden states to scores. Letters: B batch, T tokens, M width of the model, V vocabulary, L labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import ClassifyHeadConfig, LMHeadConfig, SpanHeadConfig, StackConfig, TagHeadConfig
from headway.model.norms import LayerNorm
from headway.model.transformer import FeedForward, activation


class LMHead(nn.Module):
    """Scores over the vocabulary. Takes any selection of positions: only those that are needed should pass."""

    def __init__(self, config: LMHeadConfig, stack: StackConfig, vocab: int, table: nn.Embedding) -> None:
        super().__init__()
        self.config, self.vocab = config, vocab
        if config.transform is not None:
            self.dense = nn.Linear(stack.d_model, stack.d_model)
            self.norm = LayerNorm(stack.d_model, stack.norm_eps)
        self.output = nn.Linear(stack.d_model, table.num_embeddings, bias=config.bias != "none")
        if config.tied:
            self.output.weight = table.weight
        if config.bias == "fixed":
            self.output.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """(…, M) to (…, V)."""
        x = self.features(x)
        if self._bias_is_zero():
            return F.linear(x, self.output.weight)[..., : self.vocab]
        logits: Tensor = self.output(x)[..., : self.vocab]
        return logits

    def _bias_is_zero(self) -> bool:
        """Whether there is a bias of zeros only, as Marian's models have it: a CPU spends a fifth of the time on it."""
        bias = self.output.bias
        fixed = self.config.bias == "fixed" and type(self.output) is nn.Linear and not self.training
        return fixed and bias.device.type == "cpu" and not bool(bias.any())

    def padded_logits(self, x: Tensor) -> Tensor:
        """The same scores, and -inf for the rows that round the table up: for losses, which then copy nothing."""
        logits: Tensor = self.output(self.features(x))
        if logits.shape[-1] == self.vocab:
            return logits
        spare = torch.arange(logits.shape[-1], device=x.device) >= self.vocab
        return logits.masked_fill(spare, -torch.inf)

    def features(self, x: Tensor) -> Tensor:
        """What the output matrix multiplies."""
        if self.config.transform is not None:
            x = self.norm(activation(self.config.transform, self.dense(x)))
        return x * self.config.scale if self.config.scale != 1.0 else x


class ClassifyHead(nn.Module):
    """One vector per sequence: pooled, through a dense layer where the family has one, to label scores."""

    def __init__(self, config: ClassifyHeadConfig, stack: StackConfig) -> None:
        super().__init__()
        self.config = config
        width = stack.d_model * (2 if config.pool == "first_mean" else 1)
        self.dense = nn.Linear(width, stack.d_model) if config.dense else None
        width = stack.d_model if config.dense else width
        self.output = nn.Linear(width, config.labels, bias=config.bias) if config.labels else None

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(B, T, M) to (B, L), or to (B, M) when the head is a bare pooler."""
        x = pool(x, attention_mask, self.config.pool)
        if self.dense is not None and self.config.dense is not None:
            x = activation(self.config.dense, self.dense(x))
        x = F.dropout(x, self.config.dropout, self.training)
        return x if self.output is None else self.output(x)


def pool(x: Tensor, attention_mask: Tensor | None, how: str) -> Tensor:
    """(B, T, M) to (B, M) over real tokens; first_mean gives (B, 2M)."""
    if how == "first_mean":  # images: no padding
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


class TagHead(nn.Module):
    """Label scores for every token: (B, T, M) to (B, T, L)."""

    def __init__(self, config: TagHeadConfig, stack: StackConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.output = nn.Linear(stack.d_model, config.labels)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.output(F.dropout(x, self.dropout, self.training))
        return logits


class SpanHead(nn.Module):
    """Start and end scores for every token: (B, T, M) to (B, T, 2)."""

    def __init__(self, config: SpanHeadConfig, stack: StackConfig) -> None:
        super().__init__()
        if config.ffn:
            self.ffn, self.norm = FeedForward(stack), LayerNorm(stack.d_model, stack.norm_eps)
        self.config = config
        self.output = nn.Linear(stack.d_model, 2)

    def forward(self, x: Tensor) -> Tensor:
        if self.config.ffn:
            x = self.norm(x + self.ffn(x))
        logits: Tensor = self.output(x)
        return logits
