"""Verbs that train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.app import Quiet, app, examples, talker
from headway.errors import UsageError


@app.command(
    epilog=examples(
        "headway train tiny",
        "headway train tiny data.train=book.txt train.minutes=5",
        "headway train tiny model.norm=dyt model.positions=rope seed=1",
        "headway train --resume last",
    )
)
def train(
    recipe: Annotated[str, typer.Argument(help="a recipe: its name, or a .toml file", metavar="RECIPE")] = "",
    settings: Annotated[list[str] | None, typer.Argument(help="settings on top", metavar="KEY=VALUE…")] = None,
    resume: Annotated[str, typer.Option(help="go on with a run: its folder, or last", metavar="RUN")] = "",
    quiet: Quiet = False,
) -> None:
    """Train a model: from a recipe, or on from where a run stopped."""
    from headway.recipe import load_recipe

    if bool(recipe) == bool(resume):
        raise UsageError("U001", "give a recipe, or --resume RUN", "try: headway train tiny")
    named = None if resume else load_recipe(recipe, settings or [])
    say = talker(quiet)
    say("loading …", end="\r")
    from headway.progress import Display
    from headway.train import run as runs

    if named is None:
        folder = runs.last_folder(Path("runs")) if resume == "last" else Path(resume)
        run = runs.resume(folder, lambda path, why: say(f"passed over {path}: {why}"))
    else:
        run = runs.start(*named)
    runs.train(run, Display(quiet).report)
    if run.loop.stop_signal:
        say(f"stopped at step {run.loop.progress.step} and saved. next: headway train --resume {run.folder}")
        raise typer.Exit(128 + run.loop.stop_signal)
    print(run.folder)
    say(f'next: headway run last "The import statement"   headway check {run.folder}')
