"""Runs as Python objects: `Run` is one, `Runs` a list of them. No torch here until a model is asked for."""

from __future__ import annotations

import html
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from headway.api.tables import Results, frame, html_table, text_table
from headway.api.training import resume_run
from headway.errors import NotFoundError, counted, nearest
from headway.progress import printable
from headway.runs.compare import NOT_METRICS, final_metrics
from headway.runs.events import as_float, smooth
from headway.runs.history import History, read_run

if TYPE_CHECKING:
    import pandas

    from headway.api.bundle import Bundle
    from headway.report.advice.suggestion import Suggestion

LIST_HEAD = ("name", "status", "task", "steps", "model", "loss", "valid", "best", "bits/byte", "time", "size", "when")
"""Columns of `headway runs`."""
TABLE = ("name", "status", "task", "steps", "model", "loss", "valid", "best", "time", "when")
"""Columns of a list of runs in Python."""


class Run(os.PathLike[str]):
    """A training run: its numbers, its model, its report. `headway.train` returns one, `headway.run("last")` finds one.

    run.metrics, run.history.to_frame(), run.model.generate("Once"), run.report(), run.resume(steps=500)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._read: tuple[tuple[int, int] | None, History] | None = None

    @property
    def record(self) -> History:
        """All that the folder says, read again when its log has grown: `run.record.setting("train.lr")`."""
        try:
            told = (self.folder / "run" / "log.jsonl").stat()
            stamp: tuple[int, int] | None = (told.st_mtime_ns, told.st_size)
        except OSError:
            stamp = None
        if self._read is None or stamp is None or self._read[0] != stamp:
            self._read = stamp, read_run(self.folder)
        return self._read[1]

    @property
    def name(self) -> str:
        """The name of the run, as `headway runs` lists it: `tiny-0001`."""
        return self.record.name

    @property
    def status(self) -> str:
        """running, finished, stopped, diverged or broken."""
        return self.record.status

    @property
    def task(self) -> str:
        """What the model is trained for: `classify`, `lm`, …"""
        return self.record.task

    @property
    def recipe(self) -> dict[str, Any]:
        """The settings of the run, as nested dicts: `run.recipe["train"]["lr"]`."""
        return self.record.recipe

    @property
    def metrics(self) -> dict[str, float]:
        """The final metrics: on the test data, or else of the weights that were kept: `run.metrics["accuracy"]`."""
        return final_metrics(self.record)

    @property
    def history(self) -> Results[dict[str, Any]]:
        """A row for each evaluation: step, training loss, metrics. `run.history.to_frame().plot("step", "valid")`."""
        record = self.record
        steps, losses = record.steps["step"], smooth(record.steps["loss"])
        rows: Results[dict[str, Any]] = Results()
        for event in record.evals:
            step = as_float(event.get("step"))
            near = losses[steps <= step] if step is not None else losses[:0]
            loss = {"loss": float(near[-1])} if len(near) else {}
            rows.append({"step": event.get("step"), **loss, **{k: v for k, v in event.items() if k not in NOT_METRICS}})
        return rows

    @property
    def suggestions(self) -> list[Suggestion]:
        """What to try next, each with its reason; empty for a run without flaws: `run.suggestions[0].advice`."""
        from headway.report.advice.rules import suggestions

        return suggestions(self.record)

    @cached_property
    def model(self) -> Bundle:
        """The trained model, loaded when it is first asked for: `run.model.generate("Once")`."""
        from headway.api.bundle import load

        return load(self.folder)

    def report(self) -> Path:
        """Write the report of the run, one HTML page, and return its path: `run.report()`."""
        from headway.report.report import write_report

        return write_report(self.folder)

    def resume(self, *, quiet: bool = False, accept_changed_data: bool = False, **settings: Any) -> Run:
        """Train further from the last checkpoint, with settings on top: `run.resume(steps=500)`. Returns the run."""
        resume_run(self.folder, settings, accept_changed_data=accept_changed_data, quiet=quiet)
        self.__dict__.pop("model", None)  # its weights are those of before
        return self

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the run as plain values, the same as `headway runs --json`."""
        return run_numbers(self.record)

    def __fspath__(self) -> str:
        return str(self.folder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.folder == other.folder

    def __hash__(self) -> int:
        return hash(self.folder)

    def __repr__(self) -> str:
        record = self.record
        told = [record.status, record.task, counted(record.facts.steps, "steps")]
        told += [f"{name} {value:.4g}" for name, value in list(self.metrics.items())[:3]]
        return f"Run({str(self.folder)!r}, {', '.join(told)})"

    def _repr_html_(self) -> str:
        from headway.report.curves import loss_curve

        record = self.record
        title = f"<b>{html.escape(record.name)}</b> {record.status}, {html.escape(record.task)}"
        told = f"{title}, {counted(record.facts.steps, 'steps')}<br><code>{html.escape(str(self.folder))}</code>"
        metrics = html_table(list(self.metrics), [list(self.metrics.values())]) if self.metrics else ""
        advice = "".join(f"<li>{html.escape(each.advice)}</li>" for each in self.suggestions)
        return f"<div>{told}{metrics}{loss_curve(record)}{f'<ul>{advice}</ul>' if advice else ''}</div>"


class Runs(list[Run]):
    """Runs, newest first. `headway.runs()["tiny-0001"]`, `headway.runs().to_frame()`."""

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Run: ...
    @overload
    def __getitem__(self, key: slice) -> Runs: ...
    def __getitem__(self, key: SupportsIndex | str | slice) -> Run | Runs:
        """By place, or by name: `headway.runs()["tiny-0001"]`."""
        if isinstance(key, str):
            found = {run.folder.name: run for run in self}
            if key not in found:
                raise NotFoundError("F001", f"no run {key}{nearest(key, found)}", "headway.runs() lists them")
            return found[key]
        return Runs(super().__getitem__(key)) if isinstance(key, slice) else super().__getitem__(key)

    def to_dicts(self) -> list[dict[str, Any]]:
        """The numbers of each run as plain values: `headway.runs().to_dicts()`."""
        return [run.to_dict() for run in self]

    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame with a row for each run: `headway.runs().to_frame()`."""
        return frame(self.to_dicts())

    def __repr__(self) -> str:
        return text_table(TABLE, self._lines()) if self else "no runs"

    def _repr_html_(self) -> str:
        return html_table(TABLE, self._lines())

    def _lines(self) -> list[tuple[str, ...]]:
        rows = [dict(zip(LIST_HEAD, list_row(run.record), strict=True)) for run in self]
        return [tuple(row[name] for name in TABLE) for row in rows]


def list_row(run: History) -> tuple[str, ...]:
    """A run as a line of `headway runs`, in the order of LIST_HEAD."""
    from headway.report import format as w

    facts = run_numbers(run)
    numbers = (w.fixed(facts["loss"]), w.fixed(facts["valid"]), best_metric(facts), w.fixed(facts["bits_per_byte"]))
    spent = (w.duration(facts["seconds"]), w.size(facts["bytes"]), w.moment(facts["started"]))
    first = (printable(run.name), run.status, printable(run.task), w.count(facts["steps"]))
    return *first, _model(facts), *numbers, *spent


def _model(facts: dict[str, Any]) -> str:
    """Which weights `headway run NAME` uses: those of the end, or of the last checkpoint."""
    from headway.report import format as w

    return "final" if facts["final"] else f"@{facts['checkpoints'][-1]}" if facts["checkpoints"] else w.ABSENT


def best_metric(facts: dict[str, Any]) -> str:
    """The primary metric and its best value; the validation loss has a column of its own."""
    from headway.report import format as w

    return w.ABSENT if facts["goal"] == "valid" else f"{w.metric_title(facts['goal'])} {w.fixed(facts['best'])}"


def run_numbers(run: History) -> dict[str, Any]:
    """The numbers of a run as one flat object."""
    from headway.hub.checkpoint import run_steps
    from headway.hub.run_names import has_model
    from headway.report.report import json_value

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
