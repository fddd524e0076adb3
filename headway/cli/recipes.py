"""`headway recipes`: the recipes by name, and the schema of recipe files."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.app import Json, Quiet, app, examples, print_rows
from headway.errors import UsageError
from headway.progress import progress_printer

if TYPE_CHECKING:
    from headway.reference.recipes import RecipeFacts


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
    """List the recipes that come with headway: task, time, score."""
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
    rows = [((each.name, each.title), (f"  {each.task}", "; ".join(filter(None, _told(each))))) for each in found]
    print_rows(list(chain.from_iterable(rows)))
    say("next: headway explain RECIPE   headway train RECIPE")


def _told(facts: RecipeFacts) -> tuple[str, str]:
    """Time and score; a score that tells the time already is not told twice."""
    return "" if facts.time in facts.score else facts.time, facts.score
