"""Optimizers: AdamW, SGD, or Muon for the blocks' matrices with AdamW for the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headway.config.recipe import TrainConfig
from headway.joint.towers import TwoTowers
from headway.model.attention import Attention
from headway.model.feed_forward import Experts, FeedForward
from headway.model.model import Model
from headway.model.stack import Stack
from headway.train.optim.muon import Muon
from headway.train.optim.schedule import peak_lr

FRONTS = ("source.", "target.", "condition.", "patches.", "positions")
"""Names of what comes before the blocks."""
BLOCK = re.compile(r"(encoder|decoder)\.blocks\.(\d+)\.")


def depths(model: Model, names: Iterable[str]) -> dict[str, int]:
    """The depth of each parameter: 0 for heads, 1 for the top block, and so on down to the embeddings."""
    if isinstance(model, TwoTowers):
        parts = {name: name.partition(".") for name in names}
        towers = {"image": model.image, "text": model.text}
        return {n: depths(towers[p[0]], [p[2]])[p[2]] if p[0] in towers else 0 for n, p in parts.items()}
    above = {"decoder": 0, "encoder": model.config.decoder.n_layers if model.config.decoder else 0}
    layers = {name: stack.n_layers for name in above if (stack := getattr(model.config, name)) is not None}
    bottom = 1 + sum(layers.values())
    found = {}
    for name in names:
        block = BLOCK.match(name)
        if block is not None:
            found[name] = above[block[1]] + layers[block[1]] - int(block[2])
        else:
            found[name] = bottom if name.startswith(FRONTS) else 0
    return found


class Optimizer:
    """One or two torch optimizers behind one interface. Checkpoints store their state under the tensors' names."""

    def __init__(
        self, parts: list[torch.optim.Optimizer], named: dict[str, Tensor], fused_parts: list[_FusedPart]
    ) -> None:
        self.parts, self.named, self._fused_parts = parts, named, fused_parts

    @property
    def groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts for group in part.param_groups]

    def set_rate(self, peaks: list[float], factor: float, deepest: int | None = None) -> None:
        """Set each group's learning rate to a share of its peak, and to 0 below the deepest unfrozen block."""
        for group, peak in zip(self.groups, peaks, strict=True):
            if deepest is not None and group["depth"] > deepest:
                peak = 0.0
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(peak * factor)
            else:
                group["lr"] = peak * factor

    def step(self) -> None:
        for fused in self._fused_parts:
            fused.take_gradient()
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)
        for fused in self._fused_parts:
            fused.parameter.grad = None

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Moments and step counters by name; the tensors themselves, not copies."""
        for name, tensor in self.named.items():
            for part in self.parts:
                for key, value in part.state.get(tensor, {}).items():
                    yield f"{name}:{key}", torch.as_tensor(value)

    def owner(self, tensor: Tensor) -> torch.optim.Optimizer:
        return next(p for p in self.parts for g in p.param_groups if any(tensor is t for t in g["params"]))


class _FusedPart:
    """One matrix inside a fused one, such as the queries of qkv or the gate of gate-and-up."""

    def __init__(self, fused: nn.Parameter, begin: int, end: int) -> None:
        self.parameter, self.rows = fused, slice(begin, end)
        self.part = nn.Parameter(fused.data[self.rows], requires_grad=fused.requires_grad)

    def take_gradient(self) -> None:
        self.part.grad = None if self.parameter.grad is None else self.parameter.grad[self.rows]


def make_optimizer(model: Model, config: TrainConfig, width: int) -> Optimizer:
    """A recipe's optimizer. Weight decay applies to matrices, not to norms and biases (Loshchilov & Hutter 2019)."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rate = peak_lr(config, width)
    parts: list[torch.optim.Optimizer] = []
    fused_parts: list[_FusedPart] = []
    if config.optimizer == "muon":
        matrices, fused_parts = _matrices(model, named)
        for name in matrices:
            named.pop(name.partition("[")[0], None)
        by_depth = _by_depth(model, config, rate, matrices)
        parts.append(
            Muon(
                [{"params": v, "lr": _rate(lr, model), "depth": depth} for depth, lr, v in by_depth],
                lr=rate,
                weight_decay=config.weight_decay,
                adjust_lr_fn="match_rms_adamw",  # so that one learning rate serves both (Liu et al. 2025)
            )
        )
    rest = list(named.values())
    groups: list[dict[str, Any]] = []
    for depth, lr, values in _by_depth(model, config, rate, named):
        for chosen, decay in (
            ([p for p in values if p.ndim >= 2], config.weight_decay),
            ([p for p in values if p.ndim < 2], 0.0),
        ):
            groups.append({"params": chosen, "weight_decay": decay, "lr": _rate(lr, model), "depth": depth})
    groups = [group for group in groups if group["params"]]
    first, second = config.betas
    if config.optimizer == "sgd":
        parts.append(torch.optim.SGD(groups, lr=rate, momentum=first, fused=True))
    elif groups:
        on_gpu = rest[0].is_cuda
        parts.append(torch.optim.AdamW(groups, lr=rate, betas=(first, second), fused=True, capturable=on_gpu))
    return Optimizer(parts, named | (matrices if config.optimizer == "muon" else {}), fused_parts)


def _by_depth(
    model: Model, config: TrainConfig, rate: float, named: Mapping[str, Tensor]
) -> list[tuple[int, float, list[Tensor]]]:
    """Groups of (depth, peak learning rate, weights); one group if all depths have the same rate."""
    if config.layer_decay == 1.0 and not config.unfreeze:
        return [(0, rate, list(named.values()))]
    place = depths(model, named)
    return [
        (depth, rate * config.layer_decay**depth, [p for name, p in named.items() if place[name] == depth])
        for depth in sorted(set(place.values()))
    ]


def _rate(rate: float, model: nn.Module) -> float | Tensor:
    """A tensor on a GPU, because a captured CUDA graph cannot see a Python number change."""
    device = next(model.parameters()).device
    return torch.tensor(rate, device=device) if device.type == "cuda" else rate


def _matrices(model: nn.Module, named: dict[str, nn.Parameter]) -> tuple[dict[str, Tensor], list[_FusedPart]]:
    """The blocks' matrices by name. Fused ones are split: Muon would mix queries, keys and values, or experts."""
    matrices: dict[str, Tensor] = {}
    fused_parts: list[_FusedPart] = []
    stacks = [(name, module) for name, module in model.named_modules() if isinstance(module, Stack)]
    sizes: dict[str, list[int]] = {}
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            q, kv = module.heads * module.width, module.groups * module.width
            sizes |= {f"{name}.qkv.weight": [q, kv, kv], f"{name}.kv.weight": [kv, kv]}
        elif isinstance(module, FeedForward) and module.gated:
            sizes[f"{name}.up.weight"] = [module.up.out_features // 2] * 2
        elif isinstance(module, Experts):
            count = module.config.count * (2 if module.gated else 1)
            sizes[f"{name}.up.weight"] = [module.config.d_ff] * count
            sizes[f"{name}.down.weight"] = [len(module.down.weight) // module.config.count] * module.config.count
    for name, parameter in named.items():
        if parameter.ndim != 2 or not any(name.startswith(f"{stack}.blocks.") for stack, _ in stacks):
            continue
        begin = 0
        for rows in sizes.get(name, [len(parameter)]):
            if rows == len(parameter):
                matrices[name] = parameter
                continue
            fused_parts.append(_FusedPart(parameter, begin, begin + rows))
            matrices[f"{name}[{begin}:{begin + rows}]"] = fused_parts[-1].part
            begin += rows
    return matrices, fused_parts
