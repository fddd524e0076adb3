"""A run as far as its first steps, without a folder of its own: what is chosen, what it needs, how long it takes.

The same functions assemble a run that is trained, so an estimate is one of that very run.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.data.files.locate import on_disk
from headway.progress import bar
from headway.resources import memory_errors
from headway.studio.new.seen import views
from headway.tasks.defaults.choose import choose
from headway.tasks.recipe import Recipe, batch_size, load_recipe
from headway.tasks.registry import get_task
from headway.train.distributed import init_distributed
from headway.train.footprint import memory_advice
from headway.train.log.cost import seconds_left
from headway.train.run import Prepared, Run, make, parameters_of, prepare, with_absolute_paths

MEASURED = 3
"""Steps that are timed, after one that warms up."""
SECONDS = 4.0
"""Seconds after which no further step is timed."""
LARGE = 100_000_000
"""Bytes of data from which on somebody has to ask for them to be read."""
HEAVY = 3 << 30
"""Bytes from which on a run is not tried out: the studio shares the machine with other runs."""
SAMPLES = 3
Tell = Callable[[dict[str, Any]], None]


def rehearse(
    recipe: str, words: Sequence[str], tell: Tell, *, first: int = 0, measure: bool = True, large: bool = True
) -> None:
    """Tell what a run would be, part by part: `chosen`, `facts`, `seen` from sample `first` on, and its `time`.

    Without `large` it ends after the first of these where there are many bytes of data, and tells how many.
    """
    _, made = load_recipe(recipe, words)
    made = with_absolute_paths(made)
    with bar("choosing settings"):
        chosen = choose(made)
    tell({"chosen": dict(chosen.settings), "line": str(chosen) if chosen.settings else ""})
    if not large and (size := _data_bytes(made)) > LARGE:
        tell({"large": size})
        return
    world = init_distributed()
    with tempfile.TemporaryDirectory(prefix="headway-") as folder, memory_errors(lambda: memory_advice(chosen.recipe)):
        (Path(folder) / "run").mkdir()
        with bar("reading the data"):
            prepared = prepare(Path(folder), chosen.recipe, world)
        tell({"facts": _facts(chosen.recipe, prepared)})
        size = _size(prepared)
        tell({"seen": {"first": first % size, "of": size, "samples": views(prepared.task, _samples(first, size))}})
        if measure and prepared.task.by_gradient and (prepared.footprint is None or prepared.footprint.step < HEAVY):
            with bar("timing the first steps"):
                tell({"time": _timed(make(Path(folder), chosen.recipe, world, prepared))})


def _data_bytes(recipe: Recipe) -> int:
    specs = filter(None, (recipe.data.train, recipe.data.valid, recipe.data.test))
    return sum(on_disk(path).stat().st_size for spec in specs for path in get_task(recipe.task).files(spec))


def _size(prepared: Prepared) -> int:
    return max(1, int(prepared.task.facts["samples"]))


def _samples(first: int, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(first % size, min(first % size + SAMPLES, size))


def _facts(recipe: Recipe, prepared: Prepared) -> dict[str, Any]:
    """The data and the size of a run."""
    train = recipe.train
    steps = train.steps
    if train.epochs is not None:
        steps = max(1, round(train.epochs * prepared.plan.steps_per_epoch))
    data = {key: value for key, value in prepared.task.facts.items() if isinstance(value, int | float | str)}
    return {
        "data": data,
        "batch": batch_size(recipe),
        "steps": steps,
        "minutes": train.minutes,
        "epochs": train.epochs if steps is None else steps / max(prepared.plan.steps_per_epoch, 1e-9),
        "memory": _memory(prepared),
    }


def _memory(prepared: Prepared) -> dict[str, Any] | None:
    """The model, and the least memory and disk that it needs; None if only loading can tell."""
    if prepared.planned is None or (need := prepared.footprint) is None:
        return None
    parameters, trained = parameters_of(prepared.task, prepared.planned)
    return {
        "parameters": parameters,
        "trained": trained,
        "step": need.step,
        "parts": need.parts(),
        "checkpoint": need.checkpoint,
    }


def _timed(run: Run) -> dict[str, Any] | None:
    """How long the steps of a run take on this machine, by the first ones; None if the run is over by then."""
    loop, took = run.loop, 0.0
    run.model.train()
    try:
        loop.step()  # it may compile, and counts for nothing
        begin, spent = loop.progress.step, loop.budget_spent
        while loop.budget_spent < 1 and loop.progress.step - begin < MEASURED and took < SECONDS:
            start = time.perf_counter()
            loop.step()
            passed = time.perf_counter() - start
            took, loop.progress.seconds = took + passed, loop.progress.seconds + passed
        share = loop.budget_spent
    finally:
        loop.close()
    return None if share <= spent else seconds_left(loop.progress.step - begin, took, spent, share)
