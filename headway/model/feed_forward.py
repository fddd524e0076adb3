"""The feed-forward network of a block, and experts in its place.

Letters: B batch, T tokens, M width of the model, R tokens of a batch, E experts, K experts of a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import Activation, ExpertsConfig, StackConfig
from headway.kernels.grouped import Grouped
from headway.kernels.linear import Linear


def activation(name: Activation, x: Tensor) -> Tensor:
    if name == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": F.relu,
        "gelu": F.gelu,
        "quick_gelu": lambda y: y * torch.sigmoid(1.702 * y),  # Hendrycks & Gimpel 2016, as in CLIP
        "silu": F.silu,
        "tanh": torch.tanh,
    }
    return table[name](x)


def gated(name: Activation, x: Tensor) -> Tensor:
    """activation(gate) · up of the two halves of x."""
    gate, up = x.chunk(2, -1)
    return activation(name, gate) * up


class FeedForward(nn.Module):
    """The same two-layer network for every token; gate and up share one matrix."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.activation, self.gated = config.activation, config.gated
        self.dropout = config.activation_dropout
        self.up = Linear(config.d_model, config.d_ff * (2 if config.gated else 1), bias=config.ffn_bias)
        self.down = Linear(config.d_ff, config.d_model, bias=config.ffn_bias)

    def forward(self, x: Tensor) -> Tensor:
        x = (gated if self.gated else activation)(self.activation, self.up(x))
        out: Tensor = self.down(F.dropout(x, self.dropout, self.training))
        return out


class Experts(nn.Module):
    """A mixture of experts: each token goes through the feed-forward networks that the router chooses for it."""

    def __init__(self, config: StackConfig, experts: ExpertsConfig) -> None:
        super().__init__()
        self.config, self.activation, self.gated = experts, config.activation, config.gated
        self.dropout = config.activation_dropout
        self.router = Linear(config.d_model, experts.count, bias=False)
        self.up = Grouped(experts.count, config.d_model, experts.d_ff * (2 if config.gated else 1))
        self.down = Grouped(experts.count, experts.d_ff, config.d_model)
        one = replace(config, d_ff=experts.shared, ffn_bias=False, experts=None) if experts.shared else None
        self.shared = None if one is None else FeedForward(one)
        self.shared_gate = Linear(config.d_model, 1, bias=False) if experts.shared_gate else None

    def forward(self, x: Tensor, routes: list[Tensor] | None = None) -> Tensor:
        """(B, T, M) to (B, T, M). The router's logits (R, E) are appended to `routes`."""
        rows = x.flatten(0, -2)
        weights, chosen = self.route(rows, routes)
        order = chosen.flatten().argsort(stable=True)  # of all pairs of a token and one of its experts, by expert
        sizes = torch.zeros(self.config.count, dtype=torch.long, device=x.device)
        sizes.scatter_add_(0, chosen.flatten(), torch.ones_like(order))
        hidden = self.up(rows[order // self.config.top_k], sizes)
        y = self.down(self._activate(hidden), sizes)[order.argsort()]
        out = (y.unflatten(0, (len(rows), -1)) * weights[..., None]).sum(1)  # R K M to R M
        return self._add_shared(out, rows).view_as(x)

    def one_by_one(self, x: Tensor) -> Tensor:
        """The same by its definition: every expert computes all tokens, and most are weighted by zero."""
        rows = x.flatten(0, -2)
        weights, chosen = self.route(rows)
        share = torch.zeros(len(rows), self.config.count, dtype=weights.dtype, device=x.device)
        share.scatter_(1, chosen, weights)
        out = torch.zeros_like(rows)
        for expert in range(self.config.count):
            hidden = self._activate(self.up.of_one(rows, expert))
            out = out + share[:, expert, None] * self.down.of_one(hidden, expert)
        return self._add_shared(out, rows).view_as(x)

    def route(self, rows: Tensor, routes: list[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The weights (R, K) of each token's experts, and which they are."""
        logits = self.router(rows)
        if routes is not None:
            routes.append(logits)
        weights, chosen = logits.float().softmax(-1).topk(self.config.top_k)
        if self.config.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(rows.dtype), chosen

    def _activate(self, hidden: Tensor) -> Tensor:
        hidden = (gated if self.gated else activation)(self.activation, hidden)
        return F.dropout(hidden, self.dropout, self.training)

    def _add_shared(self, out: Tensor, rows: Tensor) -> Tensor:
        if self.shared is None:
            return out
        always: Tensor = self.shared(rows)
        return out + (always if self.shared_gate is None else self.shared_gate(rows).sigmoid() * always)


def balance_loss(routes: Sequence[Tensor], config: ExpertsConfig, attention_mask: Tensor | None) -> Tensor:
    """E · Σ (share of the tokens · mean probability) over experts, of all blocks together (Fedus et al. 2022).

    It is K when all experts are equally busy, and larger otherwise. `routes` has the logits (R, E) of each block.
    """
    probabilities = torch.cat(list(routes)).float().softmax(-1)
    chosen = F.one_hot(probabilities.topk(config.top_k).indices, config.count).sum(1)
    counted = torch.ones(len(probabilities), device=probabilities.device)
    if attention_mask is not None:
        counted = (attention_mask != 0).flatten().repeat(len(routes)).float()
    counted = (counted / counted.sum().clamp(min=1))[:, None]
    return config.count * ((chosen * counted).sum(0) * (probabilities * counted).sum(0)).sum()
