"""The verb that looks at data."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.app import Json, Quiet, app, examples, talker

if TYPE_CHECKING:
    from headway.data.survey import Survey

File = Annotated[
    str,
    typer.Argument(
        help="a file, a folder, a glob in quotes or a hub dataset: org/name[@revision][:split]", metavar="FILE"
    ),
]


@app.command(
    epilog=examples(
        "headway data reviews.csv",
        "headway data train.jsonl.gz valid.jsonl.gz --column text",
        'headway data "corpus/*.txt" --tokenizer runs/tiny-0001',
        "headway data org/name:train --json",
        "headway data reviews.csv --bad",
    )
)
def data(
    file: File,
    valid: Annotated[str, typer.Argument(help="data to evaluate on: how much of it is in FILE?", metavar="VALID")] = "",
    column: Annotated[str, typer.Option(help="the column that holds the text", metavar="NAME")] = "",
    tokenizer: Annotated[Path | None, typer.Option(help="count its tokens too", metavar="FOLDER")] = None,
    bad: Annotated[bool, typer.Option("--bad", help="list every bad line, and nothing else")] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look at a dataset: rows, columns, lengths, labels, duplicates, bad lines with file and line."""
    say = talker(quiet)
    say("reading …", end="\r")
    from headway.data.survey import survey

    keep = sys.maxsize if bad else 20
    found = survey(file, column=column, valid=valid or None, tokenizer=tokenizer, keep=keep)
    if json_:
        print(json.dumps(found.as_dict()))
    else:
        for line in found.bad_lines if bad else found.lines():
            print(line)
    say(f"next: {_next(found)}")


def _next(found: Survey) -> str:
    """What a person does now: train, or look at what stands in the way."""
    if not found.texts:
        return shlex.join(["headway", "data", found.spec]) + (" --bad" if found.bad else " --column NAME")
    words = ["headway", "train", "lm", f"data.train={found.spec}"]
    if found.overlap:
        words.append(f"data.valid={found.overlap.valid}")
    if found.column and not found.sure:
        words.append(f"data.text={found.column}")
    if found.bad:
        words.append("data.bad_rows=skip")
    return shlex.join(words)
