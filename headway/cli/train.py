"""`headway train`: train a model from a recipe, or resume a run."""

from __future__ import annotations

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

from headway.cli.app import EXIT_FILE, Quiet, ReportedExit, app, examples, progress_printer
from headway.config.recipe import RUNS
from headway.errors import ConfigError, UsageError, counted
from headway.tasks.recipe import recipe_names


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
    recipe: Annotated[
        str, typer.Argument(help=f"a .toml file, or a name: {', '.join(recipe_names())}", metavar="RECIPE")
    ] = "",
    settings: Annotated[
        list[str] | None, typer.Argument(help="settings that replace those of the recipe", metavar="KEY=VALUE…")
    ] = None,
    resume: Annotated[str, typer.Option(help="resume a run: its folder, its name, or last", metavar="RUN")] = "",
    accept_changed_data: Annotated[
        bool, typer.Option("--accept-changed-data", help="resume although the data have changed")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train a model from a recipe, or resume a run."""
    from headway.tasks.recipe import load_recipe

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
    say("loading …", end="\r")
    from headway.hub.run_names import resolve_run
    from headway.progress import Display
    from headway.train import run as runs
    from headway.train.distributed import close_distributed

    if named is None:
        folder = resolve_run(resume, Path(RUNS))
        if not args:
            _leave_finished(folder, say)
        run = runs.resume(
            folder,
            lambda path, why: say(f"checkpoint {path} is not used: {why}"),
            args,
            accept_changed_data=accept_changed_data,
        )
        for note in run.notes:
            say(note)
    else:
        run = runs.start(*named)
    try:
        runs.train(run, Display(quiet).report)
    finally:
        close_distributed()
    if not run.loop.world.first:
        raise typer.Exit(128 + run.loop.stop_signal if run.loop.stop_signal else 0)
    _afterwards(run, say)


def _leave_finished(folder: Path, say: Callable[..., None]) -> None:
    """Do not touch a run that has finished and has its weights."""
    from headway.runs.history import read_run

    told = read_run(folder)
    if told.status == "finished" and not told.problem:
        say(f"{folder} has finished its {counted(told.facts.steps, 'steps')}; train.steps=MORE trains further")
        raise typer.Exit


def _processes(args: list[str]) -> int:
    """The number of processes for a resumed run."""
    from headway.config.toml import parse_overrides
    from headway.tasks.recipe import read_recipe

    asked = parse_overrides(args).get("gpus", 1)
    return read_recipe({"gpus": asked}).gpus


def _afterwards(run: Any, say: Callable[..., None]) -> None:
    if run.loop.stop_signal:
        say(f"stopped at step {run.loop.progress.step} and saved. next: headway train --resume {run.folder}")
        raise typer.Exit(ReportedExit(128 + run.loop.stop_signal))
    from headway.report.model_card import write_card
    from headway.report.report import write_report
    from headway.tasks.registry import get_task

    write_card(run.folder)
    report = write_report(run.folder)
    print(run.folder)
    say(f"report: {report}")
    task = get_task(run.recipe.task)
    second = f' {task.second}="…"' if task.second == "pair" and task.wants_second(run.model.config) else ""
    first = task.tries.own if run.recipe.data.train else task.tries.made_up
    name = "last" if run.recipe.out == RUNS else shlex.quote(str(run.folder))
    first = first.replace("headway run last", f"headway run {name}")
    say(f"next: headway run {name} {first}{second}   headway eval {name}   headway check {run.folder}")


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
        raise typer.Exit(int(exit_file.read_text()) if exit_file.exists() else code or 1)
