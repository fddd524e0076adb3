"""Muon for all matrices of one shape at once; torch's own launches hundreds of small kernels."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor


class Muon(torch.optim.Muon):
    """torch.optim.Muon with fewer kernels: Nesterov momentum, and a learning rate on the scale of AdamW's."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: defaultdict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[p.shape].append((p, p.grad))
            for shape, pairs in by_shape.items():
                parameters, gradients = (list(side) for side in zip(*pairs, strict=True))
                self._update(parameters, gradients, shape, group)

    def _update(
        self, parameters: list[Tensor], gradients: list[Tensor], shape: torch.Size, group: dict[str, Any]
    ) -> None:
        for p in parameters:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        moments = [self.state[p]["momentum_buffer"] for p in parameters]
        rate, decay = group["lr"], group["weight_decay"]
        torch._foreach_lerp_(moments, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, moments, group["momentum"])
        updates = orthogonal(torch.stack(ahead), group["ns_coefficients"], group["ns_steps"], group["eps"])
        torch._foreach_mul_(parameters, 1 - rate * decay)
        torch._foreach_sub_(parameters, list((updates.float() * (rate * 0.2 * math.sqrt(max(shape)))).unbind()))


def orthogonal(x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Orthogonalise matrices (N, R, C) by a quintic Newton–Schulz iteration (Jordan et al. 2024)."""
    a, b, c = coefficients
    tall = x.shape[1] > x.shape[2]
    x = x.bfloat16()
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
