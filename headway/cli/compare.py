"""`headway compare`: train one recipe with several values and seeds, and compare the results."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any

import typer

from headway.cli.app import Json, Quiet, RecipeName, ReportedExit, app, examples, print_table
from headway.cli.complete import complete_recipe_settings
from headway.progress import progress_printer


@app.command(
    epilog=examples(
        "headway compare tiny model.norm=layernorm,dyt seeds=3",
        "headway compare lm model.kind=elman,gru,lstm,transformer train.minutes=2",
        "headway compare translate model.kind+model.attention=gru+none,gru+additive,conv+none seeds=1,2,3",
    )
)
def compare(
    recipe: RecipeName,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            help="settings; KEY=A,B compares values, seeds=3 repeats each",
            metavar="KEY=A,B… KEY=VALUE…",
            autocompletion=complete_recipe_settings,
        ),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a recipe with several values, and compare the results.

    Finished runs are not trained again.
    """
    from headway.api.comparison import Stopped, compare_recipe
    from headway.runs.compare import grid

    say = progress_printer(quiet)
    try:
        done = compare_recipe(recipe, grid(settings or []), say, quiet=quiet)
    except Stopped as stopped:
        say("stopped and saved; the same command resumes")
        raise typer.Exit(ReportedExit(128 + stopped.signal)) from None
    if json_:
        print(json.dumps(done.to_dict(), allow_nan=False))
    else:
        _show(done.to_dict())
    say(f"page: {done.page}\nnext: headway runs list --out {shlex.quote(str(done.folder))}")


def _show(found: dict[str, Any]) -> None:
    from headway.report.comparison import length_rows, rows

    for head, lines in (rows(found), length_rows(found)):
        if not lines:
            continue
        print_table(head, lines, left=(0,))
        print()
