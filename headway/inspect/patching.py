"""Activation patching: which activation of one input, put into the pass of another, makes the model answer as there.

Letters: L layers, H heads, T positions, R runs that share a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.errors import DataError
from headway.inspect.changes import head_columns, head_name
from headway.inspect.parts import Part
from headway.inspect.reading.base import Reading, Token
from headway.inspect.trace import DIGITS, Pass
from headway.model.model import evaluating

if TYPE_CHECKING:
    from headway.inspect.session import Session

AT_ONCE = 32
"""Runs that share a batch."""

Scores = NDArray[np.float64]
Metric = Callable[[Tensor], Tensor]
"""Logits (R, V) at the place that is looked at, to a number for each run."""


@dataclass(frozen=True, kw_only=True)
class Patching:
    """How far each patch moved the answer: 0 is the answer of the first input, 1 that of the second."""

    kind: str
    answers: tuple[str, str]
    """The answers of the first and the second input whose logits are compared."""
    position: int
    """Where the answer is read."""
    tokens: tuple[tuple[Token, ...], tuple[Token, ...]]
    """Of both inputs."""
    positions: Scores
    """(L, T): the residual stream after each layer, at each position."""
    heads: Scores
    """(L, H): each head, at all positions."""

    def to_dict(self) -> dict[str, Any]:
        labels = [[token.label for token in side] for side in self.tokens]
        maps = {name: np.round(getattr(self, name), DIGITS).tolist() for name in ("positions", "heads")}
        return {"kind": self.kind, "answers": list(self.answers), "position": self.position, "tokens": labels, **maps}


def patch_maps(
    session: Session,
    first: Reading,
    second: Reading,
    *,
    kind: str = "",
    position: int | None = None,
    metric: Metric | None = None,
) -> Patching:
    """Run the first input with each activation of the second in turn.

    Without a metric, the logits of two answers are compared: those whose probability differs most between the inputs.
    """
    before, after = session.run(first), session.run(second)
    part = before.part(kind)
    counts = [len(each.tokens_of(part.kind)) for each in (before, after)]
    if counts[0] != counts[1]:
        message = f"{counts[0]} tokens and {counts[1]}: activations are patched from position to position"
        raise DataError("D001", message, "give two inputs of equally many tokens, such as one word exchanged")
    at = place_of(before, position)
    rows = [each.logits()[at] for each in (before, after)]
    change = before.require_readout().chances(rows[1][None])[0] - before.require_readout().chances(rows[0][None])[0]
    answers = (int(change.argmin()), int(change.argmax()))
    measure = metric or (lambda logits: logits[:, answers[1]] - logits[:, answers[0]])
    low, high = (float(measure(row[None])[0]) for row in rows)
    if low == high:
        raise DataError("D001", "both inputs give the same answer, so no patch can change it")
    name = before.require_readout().name

    def scores(edits: Sequence[tuple[Any, ...]], install: Callable[..., Any]) -> Scores:
        found = np.concatenate(list(_runs(session, before, at, measure, edits, install)))
        return (found - low) / (high - low)

    shape = (part.layers, counts[0]), (part.layers, part.config.n_heads)
    cells = [list(np.ndindex(*each)) for each in shape]
    return Patching(
        kind=part.kind,
        answers=(name(answers[0]), name(answers[1])),
        position=at,
        tokens=(before.tokens_of(part.kind), after.tokens_of(part.kind)),
        positions=scores(cells[0], lambda some: _positions(part, after, some)).reshape(shape[0]),
        heads=scores(cells[1], lambda some: _heads(part, after, some)).reshape(shape[1]),
    )


def place_of(seen: Pass, position: int | None) -> int:
    """Where an answer is read: the last position, the last blank of a masked text, the only answer of a classifier."""
    count = len(seen.logits())
    if position is None:
        blanks = [i for i, token in enumerate(seen.tokens) if token.id is not None and token.id == seen.reading.blank]
        return blanks[-1] if blanks and count == len(seen.tokens) else count - 1
    if not -count <= position < count:
        raise DataError("D001", f"no position {position}: there are {count} answers, counted from 0")
    return position % count


def _runs(
    session: Session,
    base: Pass,
    at: int,
    measure: Metric,
    cells: Sequence[tuple[int, ...]],
    install: Callable[[Sequence[tuple[int, ...]]], Any],
) -> Iterator[Scores]:
    """The first input once for each cell, several in a batch, all of one layer."""
    single = any(not isinstance(value, Tensor) for value in base.reading.more.values())
    size, start = 1 if single else AT_ONCE, 0
    readout = base.require_readout()
    while start < len(cells):
        some = [cell for cell in cells[start : start + size] if cell[0] == cells[start][0]]
        handle = install(some)
        try:
            with evaluating(session.model):
                output = session.forward(repeated(base.reading, len(some)))
                logits = readout.logits(output.hidden, output.attention_mask)[:, at].float()
        finally:
            handle.remove()
        yield measure(logits).double().cpu().numpy()
        start += len(some)


def repeated(reading: Reading, rows: int) -> Reading:
    """The input several times in a batch."""
    if rows == 1:
        return reading
    more = {name: value.expand(rows, *value.shape[1:]) for name, value in reading.more.items()}
    return replace(reading, args=tuple(x.expand(rows, *x.shape[1:]) for x in reading.args), more=more)


def _positions(part: Part, source: Pass, cells: Sequence[tuple[int, ...]]) -> Any:
    """Row i of the batch gets the residual stream of the other input at the position of cell i."""
    layer = cells[0][0]
    other = source.activations[part.name(layer)][0]
    rows, places = torch.arange(len(cells)), torch.tensor([place for _, place in cells])

    def edit(x: Tensor) -> Tensor:
        found = x.clone()
        found[rows, places] = other[places].to(x)
        return found

    return part.site(layer).after(edit)


def _heads(part: Part, source: Pass, cells: Sequence[tuple[int, ...]]) -> Any:
    """Row i of the batch gets the output of the head of cell i."""
    layer = cells[0][0]
    other = source.activations[head_name(part, layer)][0]

    def edit(x: Tensor) -> Tensor:
        found = x.clone()
        for row, (_, head) in enumerate(cells):
            columns = head_columns(part, head)
            found[row, :, columns] = other[:, columns].to(x)
        return found

    return part.site(layer, "attention.out").before(edit)
