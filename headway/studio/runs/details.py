"""One run for its page: what the report says, as values; all of its samples; the end of its log; what to do next."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from headway.api.past_runs import run_numbers
from headway.config.recipe import RUNS
from headway.config.toml import to_toml
from headway.errors import NotFoundError
from headway.hub.run_names import has_model
from headway.report import sections
from headway.report.advice.suggestion import headway_command, resume_command
from headway.report.evaluation import blocks, metrics_table
from headway.report.report import PICTURE, RECIPE_LETTERS, TEXT_LETTERS, gather, json_value
from headway.runs.events import Event, as_count
from headway.runs.history import LOG, History
from headway.tasks.registry import known_task

SAMPLES = 40
LOG_BYTES, LOG_LINES = 1 << 19, 400
"""The end of a log that is shown."""
VALUE_LETTERS = 200


def details(run: History) -> dict[str, Any]:
    """The values of the page of a run; curves come by themselves."""
    facts = gather(run)
    found = {
        "run": run_numbers(run),
        "about": sections.about(facts),
        "verdict": facts["verdict"],
        "tiles": sections.tiles(facts["numbers"], facts["cost"]),
        "suggestions": facts["suggestions"],
        "evaluations": sections.evaluations(facts),
        "evaluation": _evaluation(facts["details"]),
        "samples": _samples(run),
        "data": [*sections.data(facts)[0], *sections.data(facts)[1]],
        "health": sections.health(facts["health"]),
        "cost": sections.cost(facts["cost"], facts["numbers"]["bytes_on_disk"]),
        "reproduce": sections.reproduce(facts["reproduce"]),
        "commands": _commands(run),
    }
    recipe = sections.truncate(to_toml(run.recipe), RECIPE_LETTERS) if run.recipe else ""
    return {**{key: json_value(value) for key, value in found.items()}, "recipe": recipe}


def pulse(run: History) -> dict[str, Any]:
    """What changes while a run trains: it tells a page what to ask for again."""
    numbers = {
        "status": run.status,
        "steps": run.facts.steps,
        "loss": run.facts.loss,
        "seconds": run.facts.wall_seconds,
    }
    share = float(run.steps["share"][-1]) if len(run.steps["share"]) else None
    heard = len(run.evals), len(run.samples), len(run.events)
    return {"heard": heard, **{key: json_value(value) for key, value in (*numbers.items(), ("share", share))}}


def _evaluation(found: Any) -> dict[str, Any] | None:
    """The last evaluation: its metrics and its blocks, each with its kind."""
    if not isinstance(found, Mapping):
        return None
    on = sections.ON.get(str(found.get("data")), "the data")
    metrics = metrics_table(found.get("figures"))
    parts = [{"kind": type(block).__name__, **asdict(block)} for block in blocks(found.get("details"))]
    known = None if metrics is None else asdict(metrics)
    return {"on": on, "examples": found.get("examples"), "metrics": known, "blocks": parts} if parts or known else None


def _samples(run: History) -> list[dict[str, Any]]:
    """Samples during training; of many, some at equal distances."""
    every = run.samples
    at = np.unique(np.linspace(0, len(every) - 1, min(SAMPLES, len(every))).round().astype(int)).tolist()
    return [_sample(every[i]) for i in at]


def _sample(event: Event) -> dict[str, Any]:
    picture = event.get("picture")
    named = isinstance(picture, str) and PICTURE.fullmatch(picture)
    text = sections.truncate(str(event.get("text", "")).strip("\n").rstrip(), TEXT_LETTERS)
    return {"step": as_count(event.get("step")), "text": text, "picture": Path(str(picture)).stem if named else None}


def picture_of(folder: Path, name: str) -> bytes:
    """The picture of a sample, by the number that is its name."""
    path = f"samples/{name}.png"
    try:
        if PICTURE.fullmatch(path):
            return (folder / "run" / path).read_bytes()
    except OSError:
        pass
    raise NotFoundError("F001", "this sample has no picture")


def _commands(run: History) -> list[tuple[str, str]]:
    """What to do next with a run, each with its command."""
    name = run.name if run.folder.parent == Path(RUNS) else str(run.folder)
    found = []
    if run.status in ("stopped", "diverged"):
        found.append(("Train further", resume_command(run)))
    if has_model(run.folder) or run_numbers(run)["checkpoints"]:
        task = known_task(run.task)
        words = "" if task is None else task.tries.own if run.setting("data.train") else task.tries.made_up
        found += [
            ("Try it", f"{headway_command('run', name)} {words}".rstrip()),
            ("Evaluate it", headway_command("eval", name)),
            ("Check that fast paths equal slow ones", headway_command("check", name)),
            ("Serve it over HTTP", headway_command("serve", name)),
        ]
    return found


def log_lines(folder: Path, steps: bool) -> list[tuple[Any, str, int | None, str]]:
    """The end of the log as it was written, newest first: time, kind, step, the other values."""
    path = folder / "run" / LOG
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            whole = file.read(LOG_BYTES).split(b"\n")
    except OSError as error:
        raise NotFoundError("F001", f"the log cannot be read: {error.strerror or error}") from None
    return list(_told(whole, steps))


def _told(lines: Sequence[bytes], steps: bool) -> list[tuple[Any, str, int | None, str]]:
    found: list[tuple[Any, str, int | None, str]] = []
    for raw in reversed(lines):
        try:
            event = json.loads(raw.decode())
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict) or (event.get("event") == "step" and not steps):
            continue
        rest = {k: v for k, v in event.items() if k not in ("event", "time", "step")}
        words = ", ".join(f"{key} {sections.truncate(_plain(value), VALUE_LETTERS)}" for key, value in rest.items())
        time = json_value(event.get("time"))
        found.append(
            (
                time if isinstance(time, float | int) else None,
                str(event.get("event")),
                as_count(event.get("step")),
                words,
            )
        )
        if len(found) == LOG_LINES:
            break
    return found


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
