"""A run read back from its folder, for the list of runs, the report and the model card. No torch here.

A damaged folder is not an error: the run is listed as broken, and `problem` says why.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from headway.config.toml import read_toml
from headway.errors import HeadwayError, NotFoundError
from headway.hub.run_names import is_running, run_folders
from headway.jsonfile import read_json, show
from headway.runs.events import SESSION_STARTS, Event, EventLog, Series, as_float, read_events, smooth
from headway.tasks.recipe import Recipe, current_settings

Status = Literal["running", "finished", "stopped", "diverged", "broken"]

LOG = "log.jsonl"
"""The log in a run's folder `run`."""
EVALUATION_LIMIT = 4_000_000
"""Bytes of run/evaluation.json."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The numbers of a run; None where the log has no value."""

    steps: int
    tokens: float | None
    loss: float | None
    """The training loss at the end: the last point of the smoothed curve."""
    last_eval: Event | None
    primary_metric: str
    """The metric that selects the best evaluation; `valid` is the validation loss."""
    higher_is_better: bool
    """The direction of the primary metric."""
    best_eval: Event | None
    """The best evaluation by the primary metric."""
    lowest_eval: Event | None
    """The evaluation with the lowest validation loss."""
    tokens_per_second: float | None
    train_seconds: float | None
    """Time inside steps, summed over all sessions."""
    wall_seconds: float | None
    """Time from the first to the last event of each session, summed."""
    started: float | None
    parameters: float | None
    trained: float | None
    """The number of parameters that were not frozen."""
    size: int
    """Bytes of the whole folder."""
    bad_lines: int


@dataclass(frozen=True, kw_only=True)
class History:
    """All that a run's folder says about the run."""

    name: str
    folder: Path
    status: Status
    problem: str
    """Why the run is broken; empty for a run that is not."""
    recipe: dict[str, Any]
    steps: dict[str, Series]
    """The steps, by column of the log: step, tokens, seconds, loss, lr, grad_norm, share."""
    evals: list[Event]
    samples: list[Event]
    events: list[Event]
    """All other events, in the order of the log."""
    facts: Facts

    def events_of(self, kind: str) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.events if event["event"] == kind]

    def last_event(self, kind: str) -> Event:
        """The latest event of a kind; empty if there is none."""
        return next((event for event in reversed(self.events) if event["event"] == kind), {})

    def setting(self, path: str) -> Any:
        """A value of the recipe by its dotted path; None if the recipe does not have it."""
        node: Any = self.recipe
        for key in path.split("."):
            node = node.get(key) if isinstance(node, dict) else None
        return node

    @property
    def task(self) -> str:
        return str(self.recipe.get("task") or Recipe.task)

    @property
    def session(self) -> Event:
        """Device, versions and processes, each from the latest session that logged it."""
        return {key: value for event in self._session_starts for key, value in event.items()}

    @property
    def sessions(self) -> int:
        """How often the run was started or resumed. A start and a restart at the same step count once."""
        same = [a["event"] != b["event"] and a.get("step") == b.get("step") for a, b in pairwise(self._session_starts)]
        return len(self._session_starts) - same.count(True)

    @property
    def _session_starts(self) -> list[Event]:
        return [event for event in self.events if event["event"] in SESSION_STARTS]


def read_run(folder: Path, log: EventLog | None = None, start: int = 0, end: float = math.inf) -> History:
    """Read a run's recipe and log. A `log` that was read before gets the events between two bytes."""
    if not (folder / "run").is_dir():
        raise NotFoundError("F001", f"{show(folder)} is not a run: it has no folder `run`", "headway runs lists them")
    problem, recipe, log = "", {}, log or EventLog()
    try:
        recipe = current_settings(read_toml(folder / "run" / "recipe.toml")[0], note=False)
        log.add_all(read_events(folder / "run" / LOG, start, end))
        if log.lines == log.bad_lines:
            problem = "run/log.jsonl has no event"
    except HeadwayError as error:
        problem = error.message.replace(f"{folder}{os.sep}", "")
    status = _status(folder, log)
    if status == "finished" and not any(folder.glob("*.safetensors")):
        problem = problem or "the log says that the run finished, but the folder has no weights"
    columns = log.columns()
    return History(
        name=folder.name or folder.resolve().name,
        folder=folder,
        status="broken" if problem and status != "running" else status,
        problem=problem,
        recipe=recipe,
        steps=columns,
        evals=list(log.evals),
        samples=list(log.samples),
        events=list(log.events),
        facts=_facts(folder, log, columns),
    )


def read_evaluation(folder: Path) -> dict[str, Any] | None:
    """run/evaluation.json of a finished run; None if it is missing or cannot be read."""
    try:
        return read_json(folder / "run" / "evaluation.json", limit=EVALUATION_LIMIT)
    except HeadwayError:
        return None


def find_runs(out: Path) -> list[History]:
    """All runs of a folder, newest first."""
    return [read_run(path) for path in reversed(run_folders(out))]


def disk_size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder. Links are not followed; files that vanish count as 0."""
    names = [os.path.join(place, name) for place, _, files in os.walk(path) for name in files] or [str(path)]
    total = 0
    for name in names:
        try:
            total += os.lstat(name).st_size
        except OSError:
            continue
    return total


def _facts(folder: Path, log: EventLog, columns: dict[str, Series]) -> Facts:
    step, tokens, seconds = (_last(columns[name]) for name in ("step", "tokens", "seconds"))
    primary_metric, higher_is_better, best = _best(log)
    begun = [event for event in log.events if event["event"] in SESSION_STARTS]
    sizes = {
        name: next((size for e in reversed(begun) if (size := as_float(e.get(name))) is not None), None)
        for name in ("parameters", "trained")
    }
    return Facts(
        steps=int(step or 0),
        tokens=tokens,
        loss=_last(smooth(columns["loss"])),
        last_eval=log.evals[-1] if log.evals else None,
        primary_metric=primary_metric,
        higher_is_better=higher_is_better,
        best_eval=best,
        lowest_eval=_first(log.evals, "valid", higher_is_better=False),
        tokens_per_second=tokens / seconds if tokens is not None and seconds else None,
        train_seconds=seconds,
        wall_seconds=log.wall if log.first_time is not None else None,
        started=log.first_time,
        **sizes,
        size=disk_size(folder),
        bad_lines=log.bad_lines,
    )


def _best(log: EventLog) -> tuple[str, bool, Event | None]:
    """The primary metric, its direction and the best evaluation by it; without one, the lowest validation loss."""
    begun = next((e for e in reversed(log.events) if e["event"] in SESSION_STARTS), {})
    primary_metric, rising = begun.get("goal"), begun.get("rising") is True
    if isinstance(primary_metric, str) and (best := _first(log.evals, primary_metric, higher_is_better=rising)):
        return primary_metric, rising, best
    return "valid", False, _first(log.evals, "valid", higher_is_better=False)


def _first(evals: list[Event], name: str, *, higher_is_better: bool) -> Event | None:
    """The first event with the best value of a metric."""
    known = [(value, event) for event in evals if (value := as_float(event.get(name))) is not None]
    return min(known, key=lambda pair: -pair[0] if higher_is_better else pair[0])[1] if known else None


def _last(values: Series) -> float | None:
    return float(values[-1]) if len(values) and math.isfinite(values[-1]) else None


def _status(folder: Path, log: EventLog) -> Status:
    """How the last session ended."""
    diverged, ended = False, None
    for event in log.events:
        if event["event"] in SESSION_STARTS:
            diverged, ended = False, None
        elif event["event"] == "nan":
            diverged = event.get("action", "stop") == "stop"
        elif event["event"] == "end":
            ended = event
    # Testing the lock takes it for a moment, which could stop a trainer that starts now: only test if needed.
    if ended is None and is_running(folder):
        return "running"
    if diverged:
        return "diverged"
    return "finished" if ended is not None and not ended.get("signal") else "stopped"
