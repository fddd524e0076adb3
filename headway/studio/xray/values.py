"""The values inside a pass that X-ray draws: embeddings, neurons, heads, answers before and after a change.

Letters: L layers, H heads, T positions, M width of the model, N neurons of a feed-forward network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from headway.errors import DataError
from headway.front.tokens import TokenEmbedding
from headway.inspect.capture import capture
from headway.inspect.changes import Change, changed, checked_position
from headway.inspect.patching import place_of
from headway.inspect.readout import Readout
from headway.inspect.session import Session
from headway.inspect.trace import Pass
from headway.model.model import Output, evaluating
from headway.studio.xray.packed import packed_maps, packed_picture, packed_thumbs, short

ANSWERS = 8
"""Answers shown at a position."""
ROWS = 64
"""Positions whose vectors are sent at a time."""
COLUMNS = 64
"""Numbers of a vector that are sent: its first ones."""
NEURONS = 512
"""Neurons that are sent: the first ones."""
STRONGEST = 12


def pass_values(seen: Pass) -> dict[str, Any]:
    """What a page needs to draw a pass; maps are asked for later, one by one."""
    found: dict[str, Any] = {
        "input": seen.reading.text,
        "medium": seen.reading.medium,
        "target": seen.reading.target,
        "kinds": {kind: _kind(seen, kind) for kind in seen.kinds},
        "output": seen.part().kind,
        "picture": None if seen.reading.picture is None else packed_picture(seen.reading.picture),
    }
    if seen.readout is not None:
        answers = seen.predictions(ANSWERS)
        found["head"] = seen.readout.head
        found["place"] = place_of(seen, None)
        found["predictions"] = [[answer.to_dict() for answer in row] for row in answers]
        found["probabilities"] = [None if p is None else round(p, 6) for p in seen.probabilities()]
    return found


def _kind(seen: Pass, kind: str) -> dict[str, Any]:
    part, grid = seen.part(kind), seen.grid(kind)
    found: dict[str, Any] = {
        "layers": part.layers,
        "heads": part.config.n_heads,
        "causal": part.config.causal and not part.cross,
        "cross": part.cross,
        "tokens": [token.to_dict() for token in seen.tokens_of(kind)],
        "keys": [token.to_dict() for token in seen.keys_of(kind)] if part.cross else None,
        "grid": None if grid is None or part.cross else dict(vars(grid)),
    }
    if not part.cross:
        found["norms"] = {name: short(values, 3) for name, values in seen.norms(kind).items()}
    return found


def head_values(seen: Pass, kind: str) -> dict[str, Any]:
    """Small pictures of all heads of a kind, and what each of them looks at."""
    return {
        "thumbs": packed_thumbs(seen.attention(kind)),
        "stats": [stats.to_dict() for stats in seen.head_stats(kind)],
    }


def map_values(seen: Pass, kind: str, layer: int, head: int | None, rolled: bool) -> dict[str, Any]:
    """One map (T, S): of a head, the mean of a layer's heads, or the attention rollout up to a layer."""
    if rolled:
        seen.part(kind).block(layer)
        return packed_maps(seen.rollout(kind)[layer])
    found = seen.attention(kind, layer, head)
    return packed_maps(found.mean(0) if head is None else found)


def looks(seen: Pass, kind: str, position: int) -> list[list[float]]:
    """(L, S): where a position looks in each layer, as the mean over the heads."""
    part = seen.part(kind)
    checked_position(position, len(seen.tokens_of(kind)))
    found: list[list[float]] = short([seen.attention(kind, i).mean(0)[position] for i in range(part.layers)])
    return found


def embeddings(session: Session, seen: Pass, kind: str) -> dict[str, Any]:
    """The vectors that enter a stack; for tokens also the two parts that are added: of the token, of its position."""
    part = seen.part(kind)
    entering = seen.residual(kind)[0, :ROWS]
    found: dict[str, Any] = {"width": entering.shape[1], "sum": short(entering[:, :COLUMNS])}
    front = _front(session, part.path)
    tokens = seen.tokens_of(kind)[:ROWS]
    if isinstance(front, TokenEmbedding) and all(token.id is not None for token in tokens):
        device = entering.device
        ids = torch.tensor([token.id for token in tokens], device=device)
        with torch.no_grad():
            found["token"] = short(front.table(ids)[:, :COLUMNS] * front.config.scale)
            if front.positions is not None:
                places = torch.arange(len(ids), device=device)[None]
                found["position"] = short(front.positions(places)[0, :, :COLUMNS])
    return found


def _front(session: Session, path: str) -> Any:
    """The front end of a stack, which stands beside it."""
    tower, _, name = path.rpartition(".")
    return getattr(session.model.get_submodule(tower), "source" if name == "encoder" else "target", None)


def neurons(session: Session, seen: Pass, kind: str, layer: int, position: int) -> dict[str, Any]:
    """The hidden values of a feed-forward network at one position, and the neurons that add most."""
    part = seen.part(kind)
    ffn: Any = part.block(layer).ffn
    checked_position(position, len(seen.tokens_of(kind)))
    if not hasattr(ffn, "down"):
        raise DataError("D001", "the feed-forward network of this model has no single neurons")
    name = part.name(layer, "ffn") + ".down.input"
    with evaluating(session.model), _from_layer(seen, (kind, layer)), capture(session.model, name) as found:
        session.forward(seen.reading)
    values = found[name][0, position].float()  # N
    added = values.abs() * ffn.down.weight.detach().float().norm(dim=0)
    top = added.topk(min(STRONGEST, len(added))).indices.tolist()
    return {
        "width": len(values),
        "values": short(values[:NEURONS]),
        "active": float((values > 0).float().mean()),
        "top": [{"neuron": i, "value": float(values[i]), "adds": float(added[i])} for i in top],
    }


def before_and_after(session: Session, seen: Pass, changes: Sequence[Change], position: int) -> dict[str, Any]:
    """The likeliest answers at a position without and with changes, and how far the probabilities moved."""
    readout, paths = seen.require_readout(), [part.path for part in seen.parts.values()]
    first = min(((paths.index(seen.part(each.kind).path), each.layer) for each in changes), default=(0, 0))
    lowest = list(seen.parts)[first[0]], first[1]
    with evaluating(session.model), changed(session.parts, changes), _from_layer(seen, lowest):
        other = session.forward(seen.reading)
    rows = [_chances(readout, output, position) for output in (seen.output, other)]
    best = [row.topk(min(ANSWERS, len(row))).indices.tolist() for row in rows]
    ids = sorted(dict.fromkeys([*best[0], *best[1]]), key=lambda i: -float(rows[0][i]))
    moved = None
    if not (readout.number or readout.several):
        old, new = (row.double().clamp(min=1e-12) for row in rows)
        moved = float((old * (old.log() - new.log())).sum())
    return {
        "position": position,
        "answers": [
            {"id": i, "label": readout.name(i), "before": float(rows[0][i]), "after": float(rows[1][i])} for i in ids
        ],
        "divergence": moved,
    }


@contextmanager
def _from_layer(seen: Pass, first: tuple[str, int]) -> Iterator[None]:
    """Layers before this one (a kind, a number) give what they gave in the pass, without computing it again."""
    parts = {part.path: part for part in seen.parts.values() if not part.cross}
    paths = list(parts)  # in the order of modules: an encoder comes before its decoder
    start = paths.index(seen.part(first[0]).path), first[1]
    stood_in: list[Any] = []
    try:
        for number, part in enumerate(parts.values()):
            shared = part.layers > 1 and part.block(0) is part.block(1)  # one block cannot stand for some of its layers
            for layer in range(part.layers):
                if (number, layer) < start and not shared:
                    block = part.block(layer)
                    block.forward = _giving(seen.activations[part.name(layer)])  # type: ignore[method-assign]
                    stood_in.append(block)
        yield
    finally:
        for block in stood_in:
            del block.forward


def _giving(value: Tensor) -> Callable[..., Tensor]:
    return lambda *_: value


def _chances(readout: Readout, output: Output, position: int) -> Tensor:
    """(V,) at a position. A head that reads each position alone is asked for this one alone: vocabularies are large."""
    hidden, mask = output.hidden, output.attention_mask
    with torch.no_grad():
        if readout.head in ("lm", "tag"):
            checked_position(position, hidden.shape[1])
            hidden, mask, position = hidden[:, position : position + 1], None, 0
        logits = readout.logits(hidden, mask)[0].float()
        checked_position(position, len(logits))
        return readout.chances(logits)[position]
