"""The parts of a model in the order in which an input goes through them, with their sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from headway.config.model import StackConfig
from headway.inspect.parts import Part, parts_of
from headway.model.heads import HEADS
from headway.model.model import Model


def overview(model: Model) -> dict[str, Any]:
    """Front ends, stacks and heads; the parameters of each, and of the whole model."""
    config = model.config
    stacks = {part.path: part for part in parts_of(model).values() if part.stack is not None and not part.cross}
    found: list[dict[str, Any]] = []
    for part in stacks.values():
        front = front_of(model, part)
        if front is not None:
            facts = front_facts(front.config) if hasattr(front, "config") else {}
            found.append({"part": "front", "of": part.kind, **facts, **_size(front)})
        found.append({"part": "stack", "of": part.kind, **stack_facts(part.config), **_size(part.whole)})
    found += _heads(model)
    return {
        "kind": config.kind,
        "family": getattr(config, "family", "headway"),
        "parameters": model.parameter_count(),
        "max_length": config.max_length,
        "labels": list(config.labels),
        "parts": found,
    }


def front_of(model: Model, part: Part) -> nn.Module | None:
    """The front end of a stack; None if it stands elsewhere, as in a model of images with sounds."""
    tower, _, name = part.path.rpartition(".")
    module = model.get_submodule(tower) if tower else model
    front: nn.Module | None = getattr(module, {"encoder": "source", "decoder": "target"}.get(name, ""), None)
    return front


def front_facts(front: Any) -> dict[str, Any]:
    """What a front end makes vectors of."""
    kind = getattr(front, "kind", type(front).__name__.removesuffix("Config").lower())  # of a graph: nodes
    found: dict[str, Any] = {"reads": kind}
    if kind == "tokens":
        found |= {"vocab": front.vocab, "segments": front.segments, "scale": front.scale, "norm": front.norm}
    if kind == "patches":
        found |= {"shape": list(front.shape), "patch": list(front.patch_shape), "count": front.count}
    positions = getattr(front, "positions", "none")
    found["positions"] = positions if isinstance(positions, str) else positions.kind
    if not isinstance(positions, str) and positions.kind == "learned":
        found["length"] = positions.length
    return found


def stack_facts(config: StackConfig) -> dict[str, Any]:
    """What a stack is made of."""
    names = ("d_model", "d_ff", "n_heads", "causal", "cross", "norm", "norm_at", "activation", "gated", "window")
    rotary = any(config.layer(number).rope for number in range(config.n_layers))
    positions = "rotary" if rotary else "relative" if config.relative else "alibi" if config.alibi else "none"
    return {
        "layers": config.n_layers,
        **{name: getattr(config, name) for name in names},
        "n_kv_heads": config.kv_heads,
        "d_head": config.head_width,
        "positions": positions,
        "final_norm": config.final_norm,
        "shared": config.shared,
        "experts": None if config.experts is None else config.experts.count,
    }


def _heads(model: Model) -> Iterator[dict[str, Any]]:
    for name in HEADS:
        head = getattr(model.config, name, None)
        if head is None:
            continue
        found: dict[str, Any] = {"part": "head", "of": name, **_size(getattr(model, name))}
        if name == "lm":
            found |= {"answers": model.lm.vocab, "tied": head.tied}
        elif hasattr(head, "labels"):
            found["answers"] = head.labels
        yield found


def _size(module: nn.Module) -> dict[str, Any]:
    """Parameters; those that another part shares (a tied matrix) count in both."""
    buffers = [b for name, b in module.named_buffers() if name.endswith("weight")]  # int8 matrices are buffers
    return {"parameters": sum(p.numel() for p in [*module.parameters(), *buffers])}
