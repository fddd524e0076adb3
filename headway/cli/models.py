"""Verbs about models as they are: prove, fetch, save; and what the machine can do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import Device, Dtype, Json, Model, Quiet, app, console, examples, load_bundle, talker


@app.command(
    epilog=examples("headway check gpt2-tiny", "headway check ./my-model --json", "headway check org/name --no-compile")
)
def check(
    model: Model,
    compile: Annotated[bool, typer.Option(help="also compare with torch.compile (takes a minute)")] = True,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prove a model right: padding, batching, packing, cache, maps, saving, compiling."""
    bundle = load_bundle(model, device, dtype, quiet)
    rows, say = [], talker(quiet)
    say(f"{bundle.name}: {_facts(bundle)}")
    screen = None if json_ else console()
    for row in bundle.check(compiled=compile):
        rows.append(row)
        if screen is not None:
            screen.print(_check_line(row))
    failed = [row for row in rows if not row.ok]
    if json_:
        result = [{f: getattr(row, f) for f in ("name", "difference", "limit", "note", "ok")} for row in rows]
        for entry in result:
            if entry["difference"] == float("inf"):  # JSON has no word for it; "ok" tells it from a check left out
                entry["difference"] = None
        print(json.dumps({"model": bundle.name, "ok": not failed, "checks": result}, allow_nan=False))
    if failed:
        from headway.errors import DamagedError

        names = ", ".join(row.name for row in failed)
        raise DamagedError("X007", f"{len(failed)} of {len(rows)} checks failed: {names}")
    say("all equal. next: headway export " + model + " OUT")


@app.command(epilog=examples("headway get org/name", "headway get org/name@v1.0", "headway get ./folder --json"))
def get(model: Model, json_: Json = False, quiet: Quiet = False) -> None:
    """Fetch a model into the local cache, and say what it is."""
    from headway.hub.download import resolve
    from headway.hub.folder import open_folder

    say = talker(quiet)
    folder = resolve(model)
    opened = open_folder(folder)
    size = opened.weights.total_bytes
    facts = {
        "folder": str(folder),
        "family": opened.config.family,
        "architecture": opened.architecture,
        "kind": opened.config.kind,
        "bytes": size,
    }
    if json_:
        print(json.dumps(facts))
    else:
        print(folder)
        say(f"{opened.architecture}, {opened.config.kind}, {size / 1e6:,.1f} MB of weights")
        say(f"next: headway check {model}")


@app.command(
    epilog=examples(
        "headway export org/name OUT", "headway export ./model OUT --dtype bfloat16", "headway export gpt2-tiny OUT"
    )
)
def export(
    model: Model,
    out: Annotated[Path, typer.Argument(help="a new folder", metavar="OUT")],
    dtype: Dtype = "auto",
    quiet: Quiet = False,
) -> None:
    """Write a model as a folder that the rest of the ecosystem opens."""
    say = talker(quiet)
    bundle = load_bundle(model, "cpu", dtype, quiet)
    folder = bundle.save(out)
    print(folder)
    say(f"{_facts(bundle)}. next: headway check {folder}")


@app.command(epilog=examples("headway doctor", "headway doctor --json"))
def doctor(json_: Json = False) -> None:
    """Say what this machine can do."""
    from headway.inspection.machine import examine

    facts = examine()
    if json_:
        print(json.dumps(facts.as_dict()))
        return
    for line in facts.lines():
        print(line)
    talker(False)("next: headway check gpt2-tiny")


def _facts(bundle: Any) -> str:
    count = bundle.model.parameter_count()
    parameter = next(bundle.model.parameters())
    size = f"{count / 1e6:,.1f}M" if count >= 1e5 else f"{count:,}"
    dtype = str(parameter.dtype).removeprefix("torch.")
    return f"{bundle.config.family} {bundle.config.kind}, {size} parameters, {dtype} on {parameter.device}"


def _check_line(row: Any) -> str:
    from rich.markup import escape

    if row.difference is None:
        return f"[dim]–  {row.name:22} {escape(row.note)}[/dim]"
    mark = "[green]✓[/green]" if row.ok else "[bold red]✗[/bold red]"
    note = f"  {escape(row.note)}" if row.note else ""
    return f"{mark}  {row.name:22} {row.difference:8.1e}   limit {row.limit:.0e}{note}"
