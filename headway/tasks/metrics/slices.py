"""An evaluation taken apart: the same figures for some of the examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from headway.data.batching.permutation import Index

QUARTERS = 4

MetricsOf = Callable[[Index], dict[str, float]]
"""Of the examples with these numbers."""


def by_size(sizes: Sequence[int], metrics: MetricsOf, slices: int = QUARTERS) -> list[dict[str, Any]]:
    """From the shortest to the longest, in parts of about as many examples."""
    values = np.asarray(sizes)
    tops = np.unique(np.quantile(values, np.linspace(0, 1, slices + 1)[1:], method="nearest")).tolist()
    found = []
    for below, top in pairwise([int(values.min()) - 1, *tops]):
        here = np.flatnonzero((values > below) & (values <= top))
        found.append({"from": below + 1, "to": top, "examples": len(here), **metrics(here)})
    return found


def by_kind(kinds: Sequence[str], metrics: MetricsOf) -> list[dict[str, Any]]:
    """For each kind of example, the most frequent first."""
    names = sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))
    groups = {name: np.array([i for i, kind in enumerate(kinds) if kind == name]) for name in names}
    return [{"kind": name, "examples": len(rows), **metrics(rows)} for name, rows in groups.items()]
