"""`headway compare`: train one recipe with several values and seeds, and compare the results."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from headway.api.comparison import Stopped, compare_recipe
from headway.cli.app import Json, Quiet, ReportedExit, app, examples, print_table, progress_printer


@app.command(
    epilog=examples(
        "headway compare tiny model.norm=layernorm,dyt seeds=3",
        "headway compare lm model.kind=elman,gru,lstm,transformer train.minutes=2",
        "headway compare translate model.kind+model.attention=gru+none,gru+additive,conv+none seeds=1,2,3",
    )
)
def compare(
    recipe: Annotated[str, typer.Argument(help="a recipe: its name, or a .toml file", metavar="RECIPE")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="settings; KEY=A,B compares values, seeds=3 repeats each", metavar="KEY=A,B… KEY=VALUE…"),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a recipe with several values, and compare the results.

    Finished runs are not trained again.
    """
    from headway.runs.compare import grid

    say = progress_printer(quiet)
    try:
        folder, found = compare_recipe(recipe, grid(settings or []), say, quiet=quiet)
    except Stopped as stopped:
        say("stopped and saved; the same command resumes")
        raise typer.Exit(ReportedExit(128 + stopped.signal)) from None
    if json_:
        print(json.dumps(found, allow_nan=False))
    else:
        _show(found)
    say(f"page: {folder / 'compare.html'}\nnext: headway runs list --out {folder}")


def _show(found: dict[str, Any]) -> None:
    from headway.report.comparison import length_rows, rows

    for head, lines in (rows(found), length_rows(found)):
        if not lines:
            continue
        print_table(head, lines, left=(0,))
        print()
