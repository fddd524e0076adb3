"""`headway eval`: score a model on a text, on data of its task, or on multiple-choice questions."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.api.evaluation import CHOICES, check_settings, evaluate_model
from headway.cli.app import Device, Json, Model, Quiet, app, examples, load_bundle
from headway.cli.evaluation import show
from headway.errors import UsageError
from headway.progress import progress_printer

SETTING = re.compile(r"[A-Za-z_][\w.-]*=")
"""How a word begins that is a setting and not a file."""


@app.command(
    name="eval",
    epilog=examples(
        "headway eval last",
        "headway eval last book.txt",
        "headway eval ./model book.txt --against org/name",
        "headway eval last reviews.csv data.text=body out=predictions.jsonl",
        "headway eval smollm2 quiz.jsonl task=choices shots=4 template='{question}\\nAnswer:'",
    ),
)
def evaluate(
    model: Model,
    args: Annotated[
        list[str] | None,
        typer.Argument(
            help="text, csv, jsonl, parquet …; a run knows its own; task=… and its settings", metavar="DATA"
        ),
    ] = None,
    against: Annotated[str, typer.Option(help="another model, on the same text", metavar="MODEL")] = "",
    column: Annotated[str, typer.Option(help="column that holds the text")] = "",
    length: Annotated[int, typer.Option(help="tokens read at a time; 0: as trained")] = 0,
    overlap: Annotated[int, typer.Option(help="of these, tokens read again as context; -1: as trained")] = -1,
    device: Device = "auto",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a model on a text or on data of its task, with intervals.

    --against compares it with another model; task=choices asks multiple-choice questions.
    """
    task, settings = _parse_args(args or [])
    options = {"against": against, "column": column, "length": length or "", "overlap": "" if overlap < 0 else overlap}
    for name, value in options.items():
        if value != "" and (task == CHOICES.name or (task and name == "overlap")):
            raise UsageError("U001", f"--{name} is for a text, not for task={task}")
        settings |= {} if value == "" else {name: value}
    check_settings(task, settings)
    _check_names(model, settings.get("file") or settings.get("data"))
    say = progress_printer(quiet)
    bundle = load_bundle(model, device, "auto", quiet)
    place = str(next(bundle.model.parameters()).device)
    found = evaluate_model(bundle, task, settings, lambda name: load_bundle(name, place, "auto", quiet), say)
    result = found.to_dict()
    if json_:
        print(json.dumps(result))
        return
    show(result)
    given = [] if {"out", "against"} & settings.keys() else args or []
    say(f"next: {shlex.join(_next(model, given if 'figures' in result else [], bundle))}")


def _next(model: str, args: list[str], bundle: Any) -> list[str]:
    """What to do next: look at each prediction on data of the user, at the run's report, or check the model."""
    if args:
        return ["headway", "eval", model, *args, "out=predictions.jsonl"]
    if bundle.folder is not None and (bundle.folder / "run").is_dir():
        return ["headway", "runs", "report", model]
    return (
        ["headway", "run", model, "Once upon a time"]
        if bundle.config.kind == "decoder"
        else ["headway", "check", model]
    )


def _check_names(model: str, data: Any) -> None:
    """Find a mistyped run or file before anything is loaded, which may take minutes."""
    from headway.data.files.locate import find_files, may_be_hub
    from headway.hub.download import local_model

    local_model(model)
    if isinstance(data, str) and data and "," not in data and not may_be_hub(data) and not Path(data).exists():
        find_files(data)


def _parse_args(args: list[str]) -> tuple[str, dict[str, Any]]:
    """The task, "" for a plain text, and its settings; one word may be the data."""
    from headway.config.toml import parse_overrides

    settings = parse_overrides([arg for arg in args if SETTING.match(arg)])
    plain = [arg for arg in args if not SETTING.match(arg)]
    named = isinstance(settings.get("data"), str)
    if len(plain) > 1 or (plain and named):
        raise UsageError("U001", f"{plain[-1]!r} comes after the data", "give one file, glob or folder in quotes")
    if plain:  # beside data.text=… and its like, the file needs a name of its own
        settings["file" if "data" in settings else "data"] = plain[0]
    return str(settings.pop("task", "")), settings
