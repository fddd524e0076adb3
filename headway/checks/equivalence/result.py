"""The result of a check, and the comparison of two tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""The largest allowed difference, relative to the largest logit or to 1, whichever is larger."""


class Outcome(NamedTuple):
    """What a check found."""

    difference: float | None
    """The largest absolute difference; None if the check does not apply, and `note` says why."""
    limit: float = 0.0
    note: str = ""


def skip(note: str) -> Outcome:
    """The outcome of a check that does not apply."""
    return Outcome(None, note=note)


@dataclass(frozen=True)
class CheckResult:
    """One line of the table that `headway check` prints: an outcome with its name."""

    name: str
    difference: float | None
    limit: float = 0.0
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.difference is None or self.difference <= self.limit


def max_difference(a: Tensor, b: Tensor) -> float:
    """The largest absolute difference; infinite if there is a NaN."""
    difference = (a.double().cpu() - b.double().cpu()).abs()
    if difference.numel() == 0:
        return 0.0
    return float("inf") if difference.isnan().any() else float(difference.max())
