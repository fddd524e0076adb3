"""Training from Python: settings to a recipe, a run with its progress, what is written when it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.api.inputs import kept_rows
from headway.api.settings import recipe_words, run_words
from headway.errors import ConfigError
from headway.progress import progress_printer
from headway.tasks.recipe import Recipe, load_recipe, load_run_recipe

if TYPE_CHECKING:
    from headway.train import run as trainer


def write_documents(folder: Path) -> Path:
    """The model card and the report of a run that has ended. Returns the path of the report."""
    from headway.report.model_card import write_card
    from headway.report.report import write_report

    write_card(folder)
    return write_report(folder)


def train_recipe(
    recipe: str, given: tuple[str | Mapping[str, Any], ...], more: Mapping[str, Any], *, quiet: bool
) -> Path:
    """Train a recipe with settings on top; returns the folder of the run."""
    out = Path(str(more.get("out", Recipe.out)))
    words = recipe_words(recipe, given, kept_rows(dict(more), out))
    name, made = load_recipe(recipe, words)
    if made.gpus > 1 and "RANK" not in os.environ:
        line = " ".join(["headway train", recipe, f"gpus={made.gpus}"])
        raise ConfigError("C004", f"gpus = {made.gpus} needs several processes", f"in a terminal: {line}")
    from headway.train import run as trainer

    return _train(trainer.start(name, made, [recipe, *words]), quiet)


def resume_run(folder: Path, more: Mapping[str, Any], *, accept_changed_data: bool, quiet: bool) -> None:
    """Train a run further, from its last checkpoint, with settings on top of its recipe."""
    say, written = progress_printer(quiet), load_run_recipe(folder)
    if not more and (done := finished_note(folder)):
        say(f"{done}; .resume(steps=…) trains further")
        return
    words = run_words(written.task, kept_rows(dict(more), folder.parent))
    _train(resumed(folder, words, say, accept_changed_data=accept_changed_data), quiet)


def resumed(folder: Path, words: Sequence[str], say: Callable[..., None], *, accept_changed_data: bool) -> trainer.Run:
    """A run at its last good checkpoint; says which checkpoints are not used, and what has changed since."""
    from headway.train import run as trainer

    run = trainer.resume(
        folder,
        lambda path, why: say(f"checkpoint {path} is not used: {why}"),
        words,
        accept_changed_data=accept_changed_data,
    )
    for note in run.notes:
        say(note)
    return run


def finished_note(folder: Path) -> str:
    """Why a run need not be resumed: it has finished and has its weights. Empty if it should be."""
    from headway.runs.history import read_run

    told = read_run(folder)
    if told.status != "finished" or told.problem:
        return ""
    return f"{folder} has finished its {told.facts.steps:,} steps"


def _train(run: trainer.Run, quiet: bool) -> Path:
    """Train with progress. Ctrl-C saves and returns; a request to end the process is obeyed after saving."""
    from headway.progress import Display
    from headway.train import run as trainer
    from headway.train.distributed import close_distributed

    try:
        trainer.train(run, Display(quiet).report)
    finally:
        close_distributed()
    if run.loop.stop_signal == signal.SIGINT:
        progress_printer(quiet)(f"stopped at step {run.loop.progress.step:,} and saved; .resume() goes on")
    elif run.loop.stop_signal:
        raise SystemExit(128 + run.loop.stop_signal)
    elif run.loop.world.first:
        write_documents(run.folder)
    return run.folder
