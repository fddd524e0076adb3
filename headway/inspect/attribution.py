"""Attribution: how much each token, patch or frame speaks for an answer, by gradients.

Letters: B batch, T positions, V answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.config.model import FramesConfig, PatchesConfig, TokensConfig
from headway.errors import ConfigError, DataError
from headway.front.tokens import TokenEmbedding
from headway.inspect.patching import place_of, repeated
from headway.inspect.reading.base import Reading, Token
from headway.inspect.trace import DIGITS, array

if TYPE_CHECKING:
    from headway.inspect.session import Session

Method = Literal["gradient_x_input", "integrated"]
METHODS = ("gradient_x_input", "integrated")
AT_ONCE = 16
"""Points of the path that share a batch."""
POINTS, MOST_POINTS = 16, 512
"""Points of the first sum along the path, and of the last: they are doubled until the sum is complete."""
COMPLETE = 0.01
"""How far the sum of integrated gradients may be from the difference of the logits."""


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """How much each position speaks for an answer, or, if negative, against it."""

    method: Method
    answer: str
    position: int
    """Where the answer is read."""
    tokens: tuple[Token, ...]
    values: NDArray[np.float32]
    """One for each token."""
    logit: float
    baseline: float
    """The logit of the answer for an input that says nothing: every token the mean of all tokens, pixels of grey."""
    points: int
    """Points of the path along which gradients were summed."""

    @property
    def gap(self) -> float:
        """How far the values are from summing to the difference of the logits, as a share of it."""
        wanted = self.logit - self.baseline
        return abs(float(self.values.sum()) - wanted) / max(abs(wanted), 1e-9)

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "answer": self.answer,
            "position": self.position,
            "tokens": [token.label for token in self.tokens],
            "values": np.round(self.values.astype(np.float64), DIGITS).tolist(),
            "logit": round(self.logit, DIGITS),
            "baseline": round(self.baseline, DIGITS),
            "gap": round(self.gap, DIGITS) if self.method == "integrated" else None,
            "points": self.points,
        }


def attribute(
    session: Session, reading: Reading, method: Method, answer: str | int | None, position: int | None
) -> Attribution:
    """Gradients of the logit of an answer, by default the likeliest one, back to the input.

    Integrated gradients (Sundararajan et al. 2017) are summed along the straight line from a baseline without meaning.
    """
    if method not in METHODS:
        raise ConfigError("C003", f"method = {method!r}", f"there are: {', '.join(METHODS)}")
    if session.model.config.quantization != "none":
        raise DataError(
            "D001", "attribution needs gradients, and this model is quantized", "use the model it came from"
        )
    seen = session.run(reading)
    at, readout = place_of(seen, position), seen.require_readout()
    wanted = int(seen.logits()[at].argmax()) if answer is None else readout.answer(answer)
    path = _Path(session, reading, at, wanted)
    ends = path.logits(torch.tensor([0.0, 1.0]))
    if method == "gradient_x_input":
        values, points = path.end * path.gradients(np.ones(1), np.ones(1)), 1
    else:
        values, points = _integrated(path, float(ends[1] - ends[0]))
    kind = next(iter(seen.parts))
    tokens, per_token = path.summed(values, seen.tokens_of(kind))
    return Attribution(
        method=method,
        answer=readout.name(wanted),
        position=at,
        tokens=tokens,
        values=per_token,
        logit=float(ends[1]),
        baseline=float(ends[0]),
        points=points,
    )


def _integrated(path: _Path, wanted: float) -> tuple[Tensor, int]:
    """Double the points of the sum until it is complete."""
    points = POINTS
    while True:
        places, weights = np.polynomial.legendre.leggauss(points)
        values = (path.end - path.start) * path.gradients((places + 1) / 2, weights / 2)
        gap = abs(float(values.double().sum()) - wanted)
        if gap <= COMPLETE / 2 * abs(wanted) or points >= MOST_POINTS:
            return values, points
        points *= 2


class _Path:
    """The straight line from a baseline to an input: vectors of tokens, or the numbers of a picture or sound."""

    def __init__(self, session: Session, reading: Reading, at: int, answer: int) -> None:
        self.session, self.reading, self.at, self.answer = session, reading, at, answer
        x = reading.args[0]
        model = session.model
        front = model.config.source or model.config.output_front
        self.front = front
        self.table = None
        if isinstance(front, TokensConfig):
            module = model.source if model.config.source is not None else model.target
            assert isinstance(module, TokenEmbedding)
            self.table = module.table
            mean = module.table.weight[: front.vocab].detach().float().mean(0)
            self.end = module.table(x).detach()
            self.start = mean.to(self.end).expand_as(self.end)
        elif x.is_floating_point() and x.numel():
            self.end, self.start = x, torch.zeros_like(x)
        else:
            raise DataError("D001", "the input of this model has no numbers to take gradients of")

    def logits(self, places: Tensor) -> Tensor:
        """(B,): the logit of the answer at places of the path, from 0 to 1."""
        with torch.no_grad():
            return self._logits(self._points(places))

    def gradients(self, places: NDArray[np.float64], weights: NDArray[np.float64]) -> Tensor:
        """The weighted sum of the gradients at places of the path."""
        total = torch.zeros_like(self.end, dtype=torch.float64)
        for first in range(0, len(places), AT_ONCE):
            some = torch.from_numpy(places[first : first + AT_ONCE])
            x = self._points(some).requires_grad_()
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(self._logits(x).sum(), x)
            by = torch.from_numpy(weights[first : first + AT_ONCE]).to(total)
            total += (gradient.double() * by.view(-1, *[1] * (x.ndim - 1))).sum(0, keepdim=True)
        return total.to(self.end.dtype)

    def _points(self, places: Tensor) -> Tensor:
        by = places.to(self.end).view(-1, *[1] * (self.end.ndim - 1))
        found: Tensor = (self.start + by * (self.end - self.start)).detach()
        return found

    def _logits(self, x: Tensor) -> Tensor:
        model, reading = self.session.model, repeated(self.reading, len(x))
        was_training = model.training
        model.eval()
        try:
            with self._given(reading, x) as changed:
                output = self.session.forward(changed)
        finally:
            model.train(was_training)
        readout = self.session.readout
        assert readout is not None
        logits: Tensor = readout.logits(output.hidden, output.attention_mask)[:, self.at, self.answer].float()
        return logits

    @contextmanager
    def _given(self, reading: Reading, x: Tensor) -> Iterator[Reading]:
        """The input with x in the place of its numbers; of a text, in the place of the vectors of its tokens."""
        if self.table is None:
            yield replace(reading, args=(x, *reading.args[1:]))
            return
        ids = reading.args[0]
        # encoder and decoder may share the table: only the ids of the input are replaced
        handle = self.table.register_forward_hook(lambda module, inputs, output: x if inputs[0] is ids else output)
        try:
            yield reading
        finally:
            handle.remove()

    def summed(self, values: Tensor, tokens: tuple[Token, ...]) -> tuple[tuple[Token, ...], NDArray[np.float32]]:
        """Values of numbers added up for each position; for each time step where positions are none of the input's."""
        x, front = values[0], self.front
        if isinstance(front, PatchesConfig):
            high, wide = front.patch_shape
            x = x[:, : x.shape[1] // high * high, : x.shape[2] // wide * wide]
            flat = x.unflatten(2, (-1, wide)).unflatten(1, (-1, high)).sum((0, 2, 4)).flatten()
            return tokens[front.leading : front.leading + len(flat)], array(flat)
        if isinstance(front, FramesConfig):
            return tokens, array(x.sum(0)[: 2 * len(tokens)].unflatten(0, (-1, 2)).sum(1))
        flat = x.flatten(1).sum(1) if x.ndim > 1 else x
        return (tokens if len(tokens) == len(flat) else tuple(Token(label=str(i)) for i in range(len(flat)))), array(
            flat
        )
