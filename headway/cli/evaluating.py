"""Verbs that measure."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from headway.cli.app import Device, Json, Model, Quiet, app, examples, load_bundle, talker


@app.command(
    name="eval",
    epilog=examples(
        "headway eval last", "headway eval last book.txt", "headway eval ./model book.txt --against org/name"
    ),
)
def evaluate(
    model: Model,
    data: Annotated[str, typer.Argument(help="text, csv, jsonl, parquet …; a run knows its own", metavar="DATA")] = "",
    against: Annotated[str, typer.Option(help="another model, on the same text", metavar="MODEL")] = "",
    column: Annotated[str, typer.Option(help="column that holds the text")] = "",
    length: Annotated[int, typer.Option(help="tokens read at a time; 0: as trained")] = 0,
    overlap: Annotated[int, typer.Option(help="of these, tokens read again as context; -1: as trained")] = -1,
    device: Device = "auto",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a model on a text, with intervals; --against another one."""
    from dataclasses import replace

    from headway.inspection.evaluation import better, measure, score, store_of, text_of

    bundle = load_bundle(model, device, "auto", quiet)
    spec, settings = text_of(bundle.folder, data)
    settings = replace(
        settings,
        text=column or settings.text,
        length=length or settings.length,
        overlap=settings.overlap if overlap < 0 else overlap,
    )
    losses = measure(bundle.model, store_of(spec, settings, bundle.reader()), settings)
    result: dict[str, Any] = {"model": bundle.name, "data": spec, **score(losses).as_dict()}
    if against:
        other = load_bundle(against, device, "auto", quiet)
        theirs = measure(other.model, store_of(spec, settings, other.reader()), settings)
        result |= {"against": other.name, "theirs": score(theirs).as_dict(), "saves": better(losses, theirs)}
    if json_:
        print(json.dumps(result))
        return
    _print(result)
    is_run = bundle.folder is not None and (bundle.folder / "run").is_dir()
    talker(quiet)(f"next: headway runs report {model}" if is_run else f'next: headway run {model} "…"')


def _print(result: dict[str, Any]) -> None:
    of = f" of {result['data']}" if result["data"] else ", held out in training"
    print(f"{result['tokens']:,} predictions over {result['bytes']:,} bytes{of}")
    for name, digits in (("loss", 4), ("perplexity", 2), ("bits_per_byte", 4)):
        value, low, high = result[name]
        line = f"{name.replace('_', ' '):14} {value:.{digits}f}   [{low:.{digits}f}, {high:.{digits}f}]"
        if "theirs" in result:
            line += f"   {result['against']}: {result['theirs'][name][0]:.{digits}f}"
        print(line)
    if "saves" in result:
        value, low, high = result["saves"]
        sure = "better" if low > 0 else "worse" if high < 0 else "not told apart"
        bounds = "" if high == float("inf") else f"   [{low:+.4f}, {high:+.4f}]: {sure}"
        print(f"{'saves':14} {value:+.4f} bits/byte{bounds}")
