"""`headway train`: train a model from a recipe, or resume a run."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from headway import progress
from headway.api.training import finished_note, resumed, write_documents
from headway.cli.app import (
    Json,
    Quiet,
    RecipeName,
    RecipeSettings,
    ReportedExit,
    app,
    examples,
)
from headway.cli.complete import complete_run
from headway.config.recipe import RUNS
from headway.errors import ConfigError, UsageError, counted
from headway.progress import progress_printer
from headway.runs.process import EXIT_FILE, PART


@app.command(
    epilog=examples(
        "headway train tiny",
        "headway train lm data.train=book.txt model.depth=6 train.minutes=10",
        "headway train lm data.train=notes.jsonl model.from=org/name model.lora=8",
        "headway train tiny model.norm=dyt model.positions=rope seed=1",
        "headway train --resume last",
        "headway train --resume last train.steps=8000",
    )
)
def train(
    recipe: RecipeName = "",
    settings: RecipeSettings = None,
    resume: Annotated[
        str,
        typer.Option(help="resume a run: its folder, its name, or last", metavar="RUN", autocompletion=complete_run),
    ] = "",
    accept_changed_data: Annotated[
        bool, typer.Option("--accept-changed-data", help="resume although the data have changed")
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model from a recipe, or resume a run."""
    from headway.tasks.recipe import load_recipe
    from headway.tasks.registry import get_task

    args = [recipe, *(settings or [])] if resume and recipe else settings or []
    if bool(recipe) == bool(resume) and not (resume and all("=" in arg for arg in args)):
        raise UsageError("U001", "give a recipe, or --resume RUN", "try: headway train tiny")
    if accept_changed_data and not resume:
        raise UsageError("U001", "--accept-changed-data goes with --resume")
    named = None if resume else load_recipe(recipe, args)
    processes = named[1].gpus if named else _processes(args)
    if processes > 1 and "RANK" not in os.environ:
        _launch(processes, sys.argv[1:], progress_printer(quiet))
    say = progress_printer(quiet)
    with progress.bar("loading"):
        from headway.hub.run_names import resolve_run
        from headway.train import run as runs
        from headway.train.distributed import close_distributed

    if named is None:
        folder = resolve_run(resume, Path(RUNS))
        if not args and (done := finished_note(folder)):
            say(f"{done}; train.steps=MORE trains further")
            if json_:
                _print_json(folder)
            raise typer.Exit
        run = resumed(folder, args, say, accept_changed_data=accept_changed_data)
    else:
        run = runs.start(*named, [recipe, *args])
        for spec in filter(None, (run.recipe.data.train, run.recipe.data.valid, run.recipe.data.test)):
            if not run.recipe.data.raw and (note := get_task(run.recipe.task).left_out(spec)):
                say(f"{spec}: {note}")
    try:
        runs.train(run, progress.Display(quiet).report)
    finally:
        close_distributed()
    if not run.loop.world.first:
        raise typer.Exit(128 + run.loop.stop_signal if run.loop.stop_signal else 0)
    _afterwards(run, say, json_)


def _processes(args: list[str]) -> int:
    """The number of processes for a resumed run."""
    from headway.config.toml import parse_overrides
    from headway.tasks.recipe import read_recipe

    asked = parse_overrides(args).get("gpus", 1)
    return read_recipe({"gpus": asked}).gpus


def _print_json(folder: Path) -> None:
    """The numbers of a run as `headway runs list --json` has them, its test metrics, and where its report is."""
    from headway.api.past_runs import run_numbers
    from headway.report.report import json_value
    from headway.runs.history import read_run

    run = read_run(folder)
    test = {key: value for key, value in run.last_event("test").items() if key not in ("event", "time", "step")}
    report = folder / "run" / "report.html"
    found = {**run_numbers(run), "test": json_value(test) or None, "report": str(report) if report.exists() else None}
    print(json.dumps(found, allow_nan=False))


def _afterwards(run: Any, say: Callable[..., None], json_: bool) -> None:
    if run.loop.stop_signal:
        if json_:
            _print_json(run.folder)
        again = shlex.join(["headway", "train", "--resume", str(run.folder)])
        if not os.environ.get(PART):
            say(f"stopped at step {run.loop.progress.step} and saved. next: {again}")
        raise typer.Exit(ReportedExit(128 + run.loop.stop_signal))
    report = write_documents(run.folder)
    if json_:
        _print_json(run.folder)
    else:
        print(run.folder)
    if os.environ.get(PART):
        return
    say(f"report: {report}")
    _advise(run.folder, report, say)
    name = "last" if run.recipe.out == RUNS else shlex.quote(str(run.folder))
    use = f"headway run {name} {words}   " if (words := _tries(run)) else ""
    say(f"next: {use}headway eval {name}   headway check {name}")


def _tries(run: Any) -> str:
    """What to type after `headway run MODEL`: an example of the user's data, or one that fits the made-up data.

    Empty where there is nothing to type.
    """
    from headway.tasks.registry import get_task

    task = get_task(run.recipe.task)
    if run.recipe.data.raw:  # bytes cannot be typed, and what a model writes of them is no text
        return "" if task.generates else shlex.join(["--file", str(run.folder / "config.json")])
    if not run.recipe.data.train:
        return task.tries.made_up
    words = run.task.tries
    return shlex.join(words) if all(words) and words else task.tries.own


def _advise(folder: Path, report: Path, say: Callable[..., None]) -> None:
    """Say what could be better: the most important suggestions of the report, each with its command."""
    from headway.report.advice.rules import MOST, suggestions
    from headway.runs.history import read_run

    found = suggestions(read_run(folder))
    for number, suggestion in enumerate(found[:MOST], start=1):
        first, *rest = suggestion.lines
        say("\n".join([f"advice {number}: {first}", *(f"  {line}" for line in rest)]))
    if len(found) > MOST:
        say(f"{len(found) - MOST} more in {report}")


def _check_gpus(processes: int, say: Callable[..., None]) -> None:
    """Refuse more processes than GPUs; without any GPU, say that the processes share the CPU."""
    import torch

    if not (there := torch.cuda.device_count()):
        say(f"no GPU here: gpus={processes} starts {processes} processes that share the CPU, which is not faster")
    elif processes > there:
        what = f"gpus = {processes}, but this machine has {counted(there, 'GPUs')}"
        raise ConfigError("C004", what, f"set gpus={there}" if there > 1 else "leave gpus out")


def _launch(processes: int, arguments: list[str], say: Callable[..., None]) -> None:
    """Run the same command in several processes; exit with the code of the first one that failed."""
    from headway.train.distributed import torchrun_line

    line = torchrun_line(processes, arguments)
    _check_gpus(processes, say)
    say(" ".join(["torchrun", *line[3:]]))
    with tempfile.TemporaryDirectory(prefix="headway-") as folder:
        exit_file = Path(folder) / "exit"
        threads = str(max(1, (os.cpu_count() or 1) // processes))
        env = {"OMP_NUM_THREADS": threads, **os.environ, EXIT_FILE: str(exit_file)}
        child = subprocess.Popen(line, env=env, start_new_session=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda got, frame: os.killpg(child.pid, got))
        code = child.wait()
        raise typer.Exit(int(exit_file.read_text().partition("\n")[0]) if exit_file.exists() else code or 1)
