"""Past runs as Python objects. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.runs.history import History


def run_numbers(run: History) -> dict[str, Any]:
    """The numbers of a run as one flat object."""
    from headway.hub.checkpoint import run_steps
    from headway.hub.run_names import has_model
    from headway.report.report import json_value
    from headway.runs.events import as_float

    facts, best, last = run.facts, run.facts.best_eval or {}, run.facts.last_eval or {}
    lowest = facts.lowest_eval or {}
    found: dict[str, Any] = json_value(
        {
            "name": run.name,
            "folder": run.folder,
            "status": run.status,
            "problem": run.problem,
            "task": run.task,
            "steps": facts.steps,
            "final": has_model(run.folder),
            "checkpoints": run_steps(run.folder),
            "loss": facts.loss,
            "valid": as_float(lowest.get("valid")),
            "goal": facts.primary_metric,
            "best": as_float(best.get(facts.primary_metric)),
            "bits_per_byte": as_float(best.get("bits_per_byte")),
            "last_valid": as_float(last.get("valid")),
            "tokens": facts.tokens,
            "tokens_per_second": facts.tokens_per_second,
            "seconds": facts.wall_seconds,
            "bytes": facts.size,
            "parameters": facts.parameters,
            "trained": facts.trained,
            "started": facts.started,
        }
    )
    return found
