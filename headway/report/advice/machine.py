"""Rule about the machine: a run that became slower."""

from __future__ import annotations

import numpy as np

from headway.report.advice.evidence import Evidence, throughput
from headway.report.advice.suggestion import Suggestion, headway_command
from headway.report.format import count

SLOWER = 0.7
"""Throughput at the end, relative to the median, below which the machine was slowed down."""
LONG = 600.0
"""Seconds of training above which that matters."""


def slowed_down(e: Evidence) -> Suggestion | None:
    """The last tenth of the run was much slower than the rest."""
    rates = throughput(e.run)
    rates = rates[np.isfinite(rates)]
    if len(rates) < 100 or (e.run.facts.train_seconds or 0.0) < LONG:
        return None
    usual, end = float(np.median(rates)), float(np.median(rates[-len(rates) // 10 :]))
    if end >= SLOWER * usual:
        return None
    return Suggestion(
        advice="Check what else the machine was doing, and its temperature.",
        reason=f"Throughput was {count(end)} tokens/s at the end and {count(usual)} in the middle.",
        command=headway_command("doctor"),
    )
