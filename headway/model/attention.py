"""Attention: the formula, its kernels, the attention bias, and the module with its projections.

Letters: B batch, T queries, S keys, H heads, G key-value heads, D width of a head, M width of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from headway.config.model import StackConfig
from headway.kernels.distances import distance_scores
from headway.kernels.linear import Linear
from headway.model.cache import KVCacheLike
from headway.model.norms import make_norm
from headway.model.positions import rotate

Backend = Literal["fused", "eager"]
"""fused: torch's kernel, or for long sequences one that computes the visible pairs alone; eager: the formula."""

FEW_QUERIES = 4
"""Up to so many queries, a CPU computes the formula faster than torch's kernel, which is made for many."""

Hook = Callable[[str, Callable[..., Tensor]], None]
"""Called with the name of an activation and a function that computes it, so that only wanted activations cost time.

Names end in `weights` or `scores`, the weights before the softmax (the function takes `heads`, a list of head numbers,
or computes all), in `queries`, `keys`, `values`, as they are compared, or in `residual`.
"""


def scoped(hook: Hook | None, name: str) -> Hook | None:
    """The same hook for a submodule: names get the submodule's name as a prefix."""
    if hook is None:
        return None
    return lambda inner, make: hook(f"{name}.{inner}", make)


def parameter_free_attention(x: Tensor) -> Tensor:
    """Y = softmax(X Xᵀ) X: every row becomes a mean of all rows, weighted by their similarity to it."""
    return torch.softmax(x @ x.transpose(-1, -2), -1) @ x


Kernel = Callable[[Tensor, Tensor, Tensor, float, float], Tensor]
"""Attention output (B, H, T, D) of queries, keys, values, the scale of the scores, and dropout."""


@dataclass(frozen=True)
class AttentionBias:
    """Which keys each query may see and what is added to its attention scores; and the kernel that computes it."""

    tensor: Tensor | None = None
    """(B, H, T, S); B and H may be 1. Boolean: true where visible. Float: added to the scores, -inf where hidden."""
    causal: bool = False
    """The plain causal mask of a square: kernels have a flag for it and need no tensor."""
    backend: Backend = "fused"
    softcap: float | None = None
    """Bounds the scores before all that is added to them. Only the formula knows it."""
    distances: tuple[Tensor, Tensor] | None = None
    """Vectors of distances, and the row of each pair: what they add follows from the queries and keys of a block."""
    kernel: Kernel | None = None
    """Computes the attention in place of the kernels, with its own bias: over few pairs of a long sequence."""


def attention_weights(q: Tensor, k: Tensor, bias: AttentionBias, scale: float | None = None) -> Tensor:
    """softmax(q·kᵀ·scale + bias), (B, H, T, S): the attention map, which fused kernels never return."""
    return attention_scores(q, k, bias, scale).softmax(-1).to(q.dtype)


def attention_scores(q: Tensor, k: Tensor, bias: AttentionBias, scale: float | None = None) -> Tensor:
    """q·kᵀ·scale + bias in float32; -inf for keys that a query does not see."""
    k = _expand_groups(q, k)
    scores = (q @ k.transpose(-1, -2)).float() * (scale or 1 / math.sqrt(q.shape[-1]))
    if bias.softcap is not None:
        scores = bias.softcap * torch.tanh(scores / bias.softcap)
    return _biased(scores, bias)


def _biased(scores: Tensor, bias: AttentionBias) -> Tensor:
    if bias.causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf, device=scores.device).triu(1)
    if bias.tensor is not None and bias.tensor.dtype == torch.bool:
        scores = scores.masked_fill(~bias.tensor, -torch.inf)
    elif bias.tensor is not None:
        scores = scores + bias.tensor
    return scores


def _expand_groups(q: Tensor, k: Tensor) -> Tensor:
    """Keys or values for every query head, (B, H, S, D); copied only in grouped-query attention."""
    return k if q.shape[1] == k.shape[1] else k.repeat_interleave(q.shape[1] // k.shape[1], 1)


def _select_heads(
    q: Tensor, k: Tensor, bias: AttentionBias, heads: list[int] | None
) -> tuple[Tensor, Tensor, AttentionBias]:
    """Queries, keys and bias of the wanted heads: the others are never computed."""
    if heads is None:
        return q, k, bias
    k = _expand_groups(q, k)[:, heads]
    mask = bias.tensor
    if mask is not None and mask.shape[1] > 1:
        bias = replace(bias, tensor=mask[:, heads])
    return q[:, heads], k, bias


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: AttentionBias, scale: float | None = None, dropout: float = 0.0
) -> Tensor:
    """Attention output (B, H, T, D): means of the values, weighted by the attention map."""
    if bias.kernel is not None:
        return bias.kernel(q, _expand_groups(q, k), _expand_groups(q, v), scale or q.shape[-1] ** -0.5, dropout)
    if bias.backend == "eager" or bias.softcap is not None or (bias.backend == "fused" and _few_queries(q, k)):
        weights = F.dropout(attention_weights(q, k, bias, scale), dropout)
        return weights @ _expand_groups(q, v)
    grouped = q.shape[1] != k.shape[1]
    mask = bias.tensor
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q.dtype)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=bias.causal, scale=scale, dropout_p=dropout, enable_gqa=grouped
    )


def _few_queries(q: Tensor, k: Tensor) -> bool:
    """Whether the formula is the faster way: on a CPU, with the one or two queries of a decoding step."""
    return (
        q.device.type == "cpu" and q.shape[2] <= FEW_QUERIES and q.shape[1] == k.shape[1] and q.dtype == torch.float32
    )


def step_kernels() -> AbstractContextManager[None]:
    """Kernels for training steps of one shape: cuDNN's attention first, because its backward pass is faster.

    cuDNN makes a new plan for every new shape, so decoding and batches of varying shapes do without it.
    """
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(order, set_priority=True)


class Attention(nn.Module):
    """Multi-head attention: one matrix for queries, keys and values; cross-attention has two, q and kv."""

    def __init__(self, config: StackConfig, cross: bool = False) -> None:
        super().__init__()
        self.scale, self.dropout = config.scale, config.attention_dropout
        self.heads, self.groups, self.width = config.n_heads, config.kv_heads, config.head_width
        self.key_bias = config.key_bias or not config.qkv_bias
        queries, keys = self.heads * self.width, self.groups * self.width
        if cross:
            self.q = Linear(config.d_model, queries, bias=config.qkv_bias)
            self.kv = Linear(config.d_model, 2 * keys, bias=config.qkv_bias)
        else:
            self.qkv = Linear(config.d_model, queries + 2 * keys, bias=config.qkv_bias)
        self.out = Linear(queries, config.d_model, bias=config.out_bias)
        self.whole = config.qk_norm == "whole"
        if config.qk_norm != "none" and not cross:
            widths = (queries, keys) if self.whole else (self.width, self.width)
            self.q_norm, self.k_norm = (make_norm(config, width) for width in widths)

    def forward(
        self,
        x: Tensor,
        bias: AttentionBias,
        angles: tuple[Tensor, Tensor] | None = None,
        cache: tuple[KVCacheLike, int] | None = None,
        hook: Hook | None = None,
    ) -> Tensor:
        """Self-attention of x (B, T, M); with a cache, over the cached tokens too."""
        sizes = [self.heads, self.groups, self.groups]
        packed = self._project(x, self.qkv, skip=self.heads).unflatten(-1, (-1, self.width))  # B T H+2G D
        q, k, v = packed.transpose(1, 2).split(sizes, 1)
        if hasattr(self, "q_norm"):
            q, k = self._normed(q, self.q_norm), self._normed(k, self.k_norm)
        if angles is not None:
            q, k = rotate(q, angles), rotate(k, angles)
        if cache is not None:
            k, v = cache[0].update(cache[1], k, v)
        if bias.distances is not None:
            bias = self._with_distances(q, k, bias, *bias.distances)
        return self._finish(q, k, v, bias, hook)

    def _with_distances(
        self, q: Tensor, k: Tensor, bias: AttentionBias, vectors: Tensor, rows: Tensor
    ) -> AttentionBias:
        """The bias plus the scores between content and distance."""
        packed = self._project(vectors.to(q.dtype), self.qkv, skip=self.heads).unflatten(-1, (-1, self.width))
        far_q, far_k, _ = packed.transpose(0, 1).chunk(3)  # H P D
        scores = distance_scores(q, k, far_q, far_k, rows) * (self.scale or self.width**-0.5)
        return replace(bias, tensor=_biased(scores, bias), causal=False, distances=None)

    def _normed(self, x: Tensor, norm: nn.Module) -> Tensor:
        """The norm of each head of x (B, H, T, D), or of all heads together."""
        if not self.whole:
            return norm(x)  # type: ignore[no-any-return]
        return norm(x.transpose(1, 2).flatten(2)).unflatten(-1, (-1, self.width)).transpose(1, 2)  # type: ignore[no-any-return]

    def cross_attend(
        self, x: Tensor, memory: tuple[Tensor, Tensor], bias: AttentionBias, hook: Hook | None = None
    ) -> Tensor:
        """Cross-attention of x (B, T, M) to the keys and values of the encoder's output.

        Neighbouring rows that share a source, as beams do, share its keys and values: their queries are one row.
        """
        q = self.q(x).unflatten(-1, (-1, self.width))  # B T H D
        rows, each = len(memory[0]), len(x) // len(memory[0])
        q = q.view(rows, each * q.shape[1], *q.shape[2:]).transpose(1, 2)
        return self._finish(q, *memory, bias, hook).view_as(x)

    def project_kv(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, G, S, D) of the encoder's output: computed once for all decoding steps."""
        kv = self._project(memory, self.kv, skip=0).unflatten(-1, (-1, self.width)).transpose(1, 2)
        keys, values = kv.chunk(2, 1)
        return keys, values

    def _project(self, x: Tensor, linear: nn.Linear, skip: int) -> Tensor:
        """The linear map. Without a key bias, the bias of the keys (which follow `skip` heads) is taken away again."""
        out: Tensor = linear(x)
        if self.key_bias:
            return out
        keys = torch.zeros(linear.out_features, device=x.device, dtype=out.dtype)
        keys[skip * self.width : (skip + self.groups) * self.width] = 1
        return out - linear.bias * keys

    def _finish(self, q: Tensor, k: Tensor, v: Tensor, bias: AttentionBias, hook: Hook | None) -> Tensor:
        if hook is not None:
            hook("weights", lambda heads=None: attention_weights(*_select_heads(q, k, bias, heads), self.scale))
            hook("scores", lambda heads=None: attention_scores(*_select_heads(q, k, bias, heads), self.scale))
            for name, value in (("queries", q), ("keys", k), ("values", v)):
                hook(name, lambda value=value: value)
        y = attend(q, k, v, bias, self.scale, self.dropout if self.training else 0.0)
        out: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return out
