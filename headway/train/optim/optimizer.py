"""Optimizers and learning rates. A schedule is a pure function of how far a run is: plotted and tested alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headway.config.recipe import TrainConfig
from headway.model.attention import Attention
from headway.model.model import Model
from headway.model.stack import FeedForward, Stack
from headway.train.optim.muon import Muon


def lr_factor(config: TrainConfig, step: int, progress: float, warm: float) -> float:
    """Share of the peak learning rate at a step, the first of which is 0.

    `progress` runs from 0 to 1 over the budget, and is `warm` where the warm-up ends: from there the rate decays, so
    that it has no jump. The rates are those of `transformers` for schedules of the same name.
    """
    if step < config.warmup:
        return step / config.warmup
    if config.schedule == "rsqrt":  # Vaswani et al. 2017, scaled to peak at 1 when the warm-up ends
        return math.sqrt(max(1, config.warmup) / max(1, step))
    left = (1 - min(1.0, progress)) / (1 - warm) if warm < 1 else 0.0
    return _decayed(config, min(1.0, left))


def _decayed(config: TrainConfig, left: float) -> float:
    """After the warm-up; `left` runs from 1 to 0."""
    floor = config.final_lr
    if config.schedule == "cosine":
        return floor + (1 - floor) * 0.5 * (1 - math.cos(math.pi * left))
    if config.schedule == "linear":
        return floor + (1 - floor) * left
    if config.schedule == "wsd":  # warm up, stay, decay over the last fifth
        return floor + (1 - floor) * min(1.0, left / 0.2)
    return 1.0


def lr_factor_from_start(config: TrainConfig, step: int, progress: float) -> float:
    """The rule of runs whose checkpoints say `decay_from_start`: decay is counted from the first step, so that the rate
    jumps where the warm-up ends. They end as they began."""
    if config.schedule == "rsqrt":
        at, warm = step + 1, max(1, config.warmup)
        return min(at / warm, math.sqrt(warm / at))
    if step < config.warmup:
        return (step + 1) / config.warmup
    return _decayed(config, 1 - min(1.0, progress))


def peak_lr(config: TrainConfig, width: int) -> float:
    """As given, or by width: wide models want smaller steps."""
    return config.lr if config.lr is not None else min(3e-3, 0.4 / width)


def unfrozen_depth(config: TrainConfig, step: int) -> int | None:
    """How far below the heads weights learn at a step; None where all do."""
    return step // config.unfreeze if config.unfreeze else None


BLOCK = re.compile(r"(encoder|decoder)\.blocks\.(\d+)\.")


def depths(model: Model, names: Iterable[str]) -> dict[str, int]:
    """How far below the heads each parameter is: 0 for heads, 1 for the top block, most for the embeddings."""
    above = {"decoder": 0, "encoder": model.config.decoder.n_layers if model.config.decoder else 0}
    layers = {name: stack.n_layers for name in above if (stack := getattr(model.config, name)) is not None}
    bottom = 1 + sum(layers.values())
    found = {}
    for name in names:
        block = BLOCK.match(name)
        if block is not None:
            found[name] = above[block[1]] + layers[block[1]] - int(block[2])
        else:
            found[name] = bottom if name.startswith(("source.", "target.")) else 0
    return found


class Optimizer:
    """One or two of torch's optimizers as one; every tensor they update has a name, which checkpoints use."""

    def __init__(self, parts: list[torch.optim.Optimizer], named: dict[str, Tensor], views: list[_View]) -> None:
        self.parts, self.named, self._views = parts, named, views

    @property
    def groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts for group in part.param_groups]

    def set_rate(self, peaks: list[float], factor: float, deepest: int | None = None) -> None:
        """Each group's learning rate, as a share of its peak; none for those below the deepest that learns."""
        for group, peak in zip(self.groups, peaks, strict=True):
            if deepest is not None and group["depth"] > deepest:
                peak = 0.0
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(peak * factor)
            else:
                group["lr"] = peak * factor

    def step(self) -> None:
        for view in self._views:
            view.take_gradient()
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)
        for view in self._views:
            view.whole.grad = None

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Moments and counters by name, as they are: not copies."""
        for name, tensor in self.named.items():
            for part in self.parts:
                for key, value in part.state.get(tensor, {}).items():
                    yield f"{name}:{key}", torch.as_tensor(value)

    def owner(self, tensor: Tensor) -> torch.optim.Optimizer:
        return next(p for p in self.parts for g in p.param_groups if any(tensor is t for t in g["params"]))


class _View:
    """Rows of a fused matrix that are a matrix of their own: queries, keys, values; gate and up."""

    def __init__(self, whole: nn.Parameter, begin: int, end: int) -> None:
        self.whole, self.rows = whole, slice(begin, end)
        self.part = nn.Parameter(whole.data[self.rows], requires_grad=whole.requires_grad)

    def take_gradient(self) -> None:
        self.part.grad = None if self.whole.grad is None else self.whole.grad[self.rows]


def make_optimizer(model: Model, config: TrainConfig, width: int) -> Optimizer:
    """Matrices decay, norms and biases do not; AdamW is that of Loshchilov & Hutter 2019."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rate = peak_lr(config, width)
    parts: list[torch.optim.Optimizer] = []
    views: list[_View] = []
    if config.optimizer == "muon":
        matrices, views = _matrices(model, named)
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
    return Optimizer(parts, named | (matrices if config.optimizer == "muon" else {}), views)


def _by_depth(
    model: Model, config: TrainConfig, rate: float, named: Mapping[str, Tensor]
) -> list[tuple[int, float, list[Tensor]]]:
    """Weights by how deep they are, with the peak learning rate of each depth; all together where it is the same."""
    if config.layer_decay == 1.0 and not config.unfreeze:
        return [(0, rate, list(named.values()))]
    place = depths(model, named)
    return [
        (depth, rate * config.layer_decay**depth, [p for name, p in named.items() if place[name] == depth])
        for depth in sorted(set(place.values()))
    ]


def _rate(rate: float, model: nn.Module) -> float | Tensor:
    """A learning rate as a number on the GPU, where a recorded step will find it changed."""
    device = next(model.parameters()).device
    return torch.tensor(rate, device=device) if device.type == "cuda" else rate


def _matrices(model: nn.Module, named: dict[str, nn.Parameter]) -> tuple[dict[str, Tensor], list[_View]]:
    """The blocks' matrices by name, fused ones parted: orthogonalised together, they would not stay apart."""
    matrices: dict[str, Tensor] = {}
    views: list[_View] = []
    stacks = [(name, module) for name, module in model.named_modules() if isinstance(module, Stack)]
    sizes: dict[str, list[int]] = {}
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            q, kv = module.heads * module.width, module.groups * module.width
            sizes |= {f"{name}.qkv.weight": [q, kv, kv], f"{name}.kv.weight": [kv, kv]}
        elif isinstance(module, FeedForward) and module.gated:
            sizes[f"{name}.up.weight"] = [module.up.out_features // 2] * 2
    for name, parameter in named.items():
        if parameter.ndim != 2 or not any(name.startswith(f"{stack}.blocks.") for stack, _ in stacks):
            continue
        begin = 0
        for rows in sizes.get(name, [len(parameter)]):
            if rows == len(parameter):
                matrices[name] = parameter
                continue
            views.append(_View(parameter, begin, begin + rows))
            matrices[f"{name}[{begin}:{begin + rows}]"] = views[-1].part
            begin += rows
    return matrices, views
