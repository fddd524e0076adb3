"""Verbs that measure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from headway.cli.app import Device, Json, Model, Quiet, app, examples, load_bundle, progress_printer, save_text
from headway.cli.evaluation import evaluate_file, metric_line, show, verdict
from headway.errors import ConfigError, UsageError, counted, nearest
from headway.tasks.registry import get_task, task_names

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
    """Score a model on a text, or on data of its task, or by task=choices, with intervals; --against another one."""
    task, settings = _parse_args(args or [])
    options = {"against": against, "column": column, "length": length or "", "overlap": "" if overlap < 0 else overlap}
    for name, value in options.items():
        if value != "" and (task == CHOICES.name or (task and name == "overlap")):
            raise UsageError("U001", f"--{name} is for a text, not for task={task}")
        settings |= {} if value == "" else {name: value}
    of_task = {"out", *task_names()} & settings.keys() or isinstance(settings.get("data"), dict)
    if task == CHOICES.name or not (task or of_task):
        (CHOICES if task else TEXT).config(dict(settings))  # mistakes are found before the model is loaded
    _check_names(model, settings.get("file") or settings.get("data"))
    say = progress_printer(quiet)
    bundle = load_bundle(model, device, "auto", quiet)
    measure = _measure(task, task or bundle.task)
    config = measure.config(settings | ({"task": measure.name} if measure.name in task_names() else {}))
    result = {"model": bundle.name, **measure.run(bundle, config, say)}
    if json_:
        print(json.dumps(result))
        return
    measure.show(result)
    if not task:
        is_run = bundle.folder is not None and (bundle.folder / "run").is_dir()
        say(f"next: headway runs report {model}" if is_run else f'next: headway run {model} "…"')


def _check_names(model: str, data: Any) -> None:
    """Find a mistyped run or file before anything is loaded, which may take minutes."""
    from headway.data.files.locate import find_files, may_be_hub
    from headway.hub.download import local_model

    local_model(model)
    if isinstance(data, str) and data and "," not in data and not may_be_hub(data):
        find_files(data)


def _parse_args(args: list[str]) -> tuple[str, dict[str, Any]]:
    """The task, "" for a plain text, and its settings; one word may be the data."""
    from headway.config.toml import parse_overrides

    settings = parse_overrides([arg for arg in args if SETTING.match(arg)])
    plain = [arg for arg in args if not SETTING.match(arg)]
    named = isinstance(settings.get("data"), str)
    if len(plain) > 1 or (plain and named):
        raise UsageError("U001", f"{plain[-1]!r} comes after the data", "give one file, glob or folder in quotes")
    task, known = str(settings.pop("task", "")), [CHOICES.name, *task_names()]
    if task and task not in known:
        raise ConfigError("C003", f"task = {task} is unknown{nearest(task, known)}", f"one of {', '.join(known)}")
    if plain:  # beside data.text=… and its like, the file needs a name of its own
        settings["file" if "data" in settings else "data"] = plain[0]
    return task, settings


@dataclass(frozen=True)
class Measure:
    """One kind of evaluation."""

    name: str
    config: Callable[[dict[str, Any]], Any]
    """Settings from words and options."""
    run: Callable[[Any, Any, Callable[..., None]], dict[str, Any]]
    """What is found, from a bundle and these settings; it may talk."""
    show: Callable[[dict[str, Any]], None]


def _text_config(settings: dict[str, Any]) -> dict[str, Any]:
    known = ("data", "against", "column", "length", "overlap")
    for key in settings:
        if key not in known:
            raise ConfigError("C014", f"unknown setting {key}{nearest(key, (*known, 'task'))}", "see headway eval -h")
    return settings


def _measure_text(bundle: Any, config: dict[str, Any], say: Callable[..., None]) -> dict[str, Any]:
    from headway.checks.perplexity import bits_saved, evaluation_text, evaluation_tokens, measure, score

    spec, settings = evaluation_text(bundle.folder, str(config.get("data", "")))
    names = {"column": "text", "length": "length", "overlap": "overlap"}
    settings = replace(settings, **{ours: config[name] for name, ours in names.items() if name in config})
    losses = measure(bundle.model, evaluation_tokens(spec, settings, bundle.require_tokenizer()), settings)
    result: dict[str, Any] = {"data": spec, **score(losses).as_dict()}
    if "against" in config:
        other = load_bundle(config["against"], str(next(bundle.model.parameters()).device), "auto", quiet=True)
        theirs = measure(other.model, evaluation_tokens(spec, settings, other.require_tokenizer()), settings)
        result |= {"against": other.name, "theirs": score(theirs).as_dict(), "saves": bits_saved(losses, theirs)}
    return result


def _print_text(result: dict[str, Any]) -> None:
    of = f" of {result['data']}" if result["data"] else ", held out in training"
    print(f"{counted(result['tokens'], 'predictions')} over {counted(result['bytes'], 'bytes')}{of}")
    theirs = result.get("theirs", {})
    for name, digits in (("loss", 4), ("perplexity", 2), ("bits_per_byte", 4)):
        print(metric_line(name, result[name], digits, theirs.get(name), result.get("against", "")))
    if "saves" in result:
        saved, low, high = result["saves"]
        verdict_ = verdict(low, high, f"than {result['against']}: fewer bits are better")
        bounds = "" if high == float("inf") else f"   [{-high:+.4f}, {-low:+.4f}]: {verdict_}"
        print(f"{'difference':14} {-saved:+.4f} bits/byte{bounds}")


def _evaluate_file(bundle: Any, config: dict[str, Any], say: Callable[..., None]) -> dict[str, Any]:
    device = str(next(bundle.model.parameters()).device)
    return evaluate_file(
        bundle, config["task"], config, lambda name: load_bundle(name, device, "auto", quiet=True), say
    )


def _choices_config(settings: dict[str, Any]) -> tuple[Any, str]:
    """The settings, and the file that rows go to."""
    from headway.checks.choices import ChoicesConfig
    from headway.config.toml import build

    out = str(settings.pop("out", ""))
    config = build(ChoicesConfig, settings)
    if not config.data:
        raise UsageError("U001", "which questions?", "headway eval MODEL FILE task=choices")
    return config, out


def _measure_choices(bundle: Any, asked: tuple[Any, str], say: Callable[..., None]) -> dict[str, Any]:
    from headway.data.files.rows import BadRows

    config, out = asked
    bad = BadRows(config.bad_rows, setting="bad_rows")
    found: dict[str, Any] = bundle.choices(config, bad).as_dict()
    for line in bad.first:
        say(f"left out: {line}")
    if out:
        save_text(out, "".join(json.dumps(row) + "\n" for row in found["rows"]))
        say(f"{counted(found['n'], 'rows')} in {out}")
    named = {"data": config.data, "task": "choices", "shots": config.shots, "normalise": config.normalise}
    return named | {"skipped": bad.count} | found


def _print_choices(result: dict[str, Any]) -> None:
    shots, by = result["shots"], result["normalise"]
    how = f"{counted(shots, 'examples')} before each" if shots else "no examples"
    worth = "log-probability" if by == "none" else f"log-probability per {by[:-1]}"
    left = f", {result['skipped']} left out" if result["skipped"] else ""
    print(f"{counted(result['n'], 'questions')} of {result['data']}{left}; {how}; by {worth}")
    value, low, high = result["accuracy"]
    print(f"{'accuracy':14} {value:.4f}   [{low:.4f}, {high:.4f}]   {result['interval']}")
    print(f"{'chance':14} {result['chance']:.4f}")


TEXT = Measure("", _text_config, _measure_text, _print_text)
CHOICES = Measure("choices", _choices_config, _measure_choices, _print_choices)


def _measure(asked: str, name: str) -> Measure:
    """By the name of a task. A model that generates is scored on a text, unless its task is asked for by name."""
    if name == CHOICES.name:
        return CHOICES
    task = get_task(name)
    scored_on_text = task.generates and (not asked or not task.evaluates)
    return TEXT if scored_on_text else Measure(name, dict, _evaluate_file, show)
