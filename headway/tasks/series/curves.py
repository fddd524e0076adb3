"""A series and what a model predicts to follow, as curves to draw. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headway.data.series.plot import Curves
from headway.tasks.series.task import SeriesExample

BEFORE = 3
"""How many times as much of the past as of the future is drawn."""


def drawn_curves(example: SeriesExample, result: Mapping[str, Any]) -> list[Curves]:
    """One for each column, from a prediction as `to_dict` gives it."""
    found, quantiles = [], list(result.get("quantiles", {}).values())
    for place, (name, numbers) in enumerate(result["forecast"].items()):
        known = place < len(example.table.columns)
        before = example.table.values[-BEFORE * len(numbers) :, place] if known else np.zeros(0)
        bounds = (np.array(quantiles[0][name]), np.array(quantiles[-1][name])) if quantiles else None
        true = result.get("true", {}).get(name)
        found.append(Curves(name, before, np.array(numbers), None if true is None else np.array(true), bounds))
    return found
