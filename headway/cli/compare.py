"""`headway compare`: train one recipe with several values and seeds, and compare the results."""

from __future__ import annotations

import json
import shlex
import sys
from shutil import get_terminal_size
from textwrap import shorten
from typing import Annotated, Any

import typer

from headway.cli.app import Json, Quiet, ReportedExit, app, examples, print_table
from headway.cli.complete import complete_comparison, complete_recipe_settings
from headway.errors import UsageError
from headway.progress import progress_printer

NO_TERMINAL = 120
"""Columns of a table that goes into a file."""
TITLE = 66
"""Letters of a title in the list."""


@app.command(
    epilog=examples(
        "headway compare tiny model.norm=layernorm,dyt seeds=3",
        "headway compare lm model.kind=elman,gru,lstm,transformer equal=params seeds=2",
        "headway compare translate model.kind+model.attention=gru+none,gru+additive,conv+none seeds=1,2,3",
        "headway compare recipe=tiny,rnn data.train=book.txt",
        "headway compare --list",
        "headway compare norms seeds=5",
    )
)
def compare(
    recipe: Annotated[
        str,
        typer.Argument(
            help="a recipe by name or file, or a comparison of --list",
            metavar="RECIPE",
            autocompletion=complete_comparison,
        ),
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            help="settings; KEY=A,B compares values, seeds=3 repeats each, equal=params|flops|time compares on equal "
            "terms, against=NAME is the variant to compare with, lengths=64,256 evaluates language models there",
            metavar="KEY=A,B… KEY=VALUE…",
            autocompletion=complete_recipe_settings,
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="list the comparisons that come with headway")] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a recipe with several values, and compare the results.

    Finished runs are not trained again; what was stopped goes on.
    """
    if list_:
        _list(json_)
        return
    if not recipe:
        raise UsageError("U001", "give a recipe", "try: headway compare tiny model.norm=layernorm,dyt")
    from headway.api.comparison import compare_words
    from headway.runs.queue import Stopped

    say = progress_printer(quiet)
    try:
        done = compare_words(recipe, settings or [], say, quiet=quiet)
    except Stopped as stopped:
        say("stopped and saved; the same command resumes")
        raise typer.Exit(ReportedExit(128 + stopped.signal)) from None
    if json_:
        print(json.dumps(done.to_dict(), allow_nan=False))
    else:
        _show(done.to_dict())
    say(f"page: {done.page}\nnext: headway runs list --out {shlex.quote(str(done.folder))}")
    if done.failed:
        raise typer.Exit(ReportedExit(1))


def _show(found: dict[str, Any]) -> None:
    from headway.report.comparison import length_rows, problem_lines, rows, verdict_lines

    width = get_terminal_size((NO_TERMINAL, 24)).columns if sys.stdout.isatty() else NO_TERMINAL
    for head, cells in (rows(found, width), length_rows(found)):
        if cells:
            print_table(head, cells, left=(0,))
            print()
    terms = [f"{v['name']}: {v['terms']}" for v in found["variants"] if v["terms"]]
    for title, lines in ((f"equal {found['equal']}:", terms), ("", verdict_lines(found)), ("", problem_lines(found))):
        if lines:
            print("\n".join([*([title] if title else []), *(f"{'  ' * bool(title)}{line}" for line in lines)]))
            print()


def _list(json_: bool) -> None:
    """Name, title and size of each shipped comparison."""
    from headway.runs.shipped import read_shipped, shipped_names

    found = {name: read_shipped(name) for name in shipped_names()}
    if json_:
        print(json.dumps([{"name": name, **vars(file), "size": file.size} for name, file in found.items()]))
        return
    rows = [(name, shorten(file.title, TITLE, placeholder="…"), file.size) for name, file in found.items()]
    print_table(("comparison", "", "trains"), rows, left=(0, 1, 2))
