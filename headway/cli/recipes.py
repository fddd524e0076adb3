"""`headway recipes`: the recipes by name, and the schema of recipe files."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from shutil import get_terminal_size
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.app import Json, Quiet, app, examples, print_table
from headway.errors import UsageError
from headway.progress import progress_printer

if TYPE_CHECKING:
    from headway.reference.recipes import RecipeFacts

CLAUSE = re.compile(r"(?<=.{12})[:.?(]")
"""Where the short form of a title ends."""
DETAILS = re.compile(r"^[\d,]+ steps in (?:about )?|,.*| for [\d,]+ steps| of (?:a .*CPU|training).*| that .* shared")
"""What is left out of a time."""
LEAST = 24
"""Letters of a title that are shown however narrow the terminal is."""


@app.command(
    epilog=examples(
        "headway recipes",
        "headway explain sst2",
        "headway recipes --schema > recipe.schema.json",
    )
)
def recipes(
    schema: Annotated[
        bool, typer.Option("--schema", help="print the JSON Schema of recipe files, for editors")
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the recipes that come with headway: task and time."""
    from headway.reference.recipes import recipes as known
    from headway.reference.schema import recipe_schema

    if schema and json_:
        raise UsageError("U001", "--schema is JSON already", "leave --json out")
    say = progress_printer(quiet)
    if schema:
        print(json.dumps(recipe_schema(), indent=1, ensure_ascii=False))
        say('in an editor: a first line "#:schema ./recipe.schema.json" of a .toml file')
        return
    found = known()
    if json_:
        print(json.dumps([each.to_dict() for each in found], ensure_ascii=False))
        return
    beside = sum(max(map(len, each)) + 2 for each in _beside(found))
    wide = max(LEAST, min(100, get_terminal_size().columns) - beside)
    rows = [
        (name, shorten(CLAUSE.split(each.title)[0], wide, placeholder="…"), time)
        for each, name, time in zip(found, *_beside(found), strict=True)
    ]
    print_table(("recipe (task)", "", "time"), rows, left=(0, 1, 2))
    say("next: headway explain RECIPE   headway train RECIPE")


def _beside(found: Sequence[RecipeFacts]) -> tuple[list[str], ...]:
    """The columns beside the titles: names with their tasks, and times without what they depend on."""
    times = [DETAILS.sub("", each.time) if each.time[:1].isdigit() else "" for each in found]
    return [each.name if each.name == each.task else f"{each.name} ({each.task})" for each in found], times
