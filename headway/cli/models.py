"""`headway check`, `get`, `export` and `doctor`: check a model, fetch it, save it; describe this machine."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headway.cli.app import (
    Device,
    Dtype,
    Json,
    Model,
    Quiet,
    RecipeSettings,
    app,
    console,
    examples,
    load_bundle,
)
from headway.errors import UsageError
from headway.progress import bar, hidden, progress_printer


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """Settings of `headway export`."""

    quant: Literal["none", "int8"] = "none"
    format: Literal["folder", "word2vec", "word2vec-text"] = "folder"
    """What to write: a model folder, or word vectors in one file, in word2vec's binary or text format."""


@app.command(
    epilog=examples(
        "headway check gpt2-tiny",
        "headway check ./my-model --json",
        "headway check org/name --no-compile",
        "headway check --training tiny model.norm=dyt",
    )
)
def check(
    model: Model,
    settings: RecipeSettings = None,
    training: Annotated[
        bool, typer.Option("--training", help="MODEL is a recipe: check that training is exact")
    ] = False,
    compile: Annotated[bool, typer.Option(help="also check torch.compile; this takes a minute")] = True,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check that every fast path of a model equals its slow path.

    Padding, packing, KV cache, decoding, beam search, saving, compiling; with --training, how a recipe trains.
    """
    rows, say = [], progress_printer(quiet)
    if settings and not training:
        raise UsageError("U001", f"unexpected argument {settings[0]!r}", "settings go with --training")
    if training:
        proof = _training_proof(model, settings or [])
    else:
        bundle = load_bundle(model, device, dtype, quiet)
        say(f"{bundle.name}: {_facts(bundle)}")
        proof = bundle.check(compiled=compile)
    screen = None if json_ else console()
    for row in proof:
        rows.append(row)
        if screen is not None:
            with hidden():
                screen.print(_check_line(row))
    failed = [row for row in rows if not row.ok]
    if json_:
        result = [{f: getattr(row, f) for f in ("name", "means", "difference", "limit", "note", "ok")} for row in rows]
        for entry in result:
            if entry["difference"] == float("inf"):  # JSON has no infinity; "ok" tells it from a skipped check
                entry["difference"] = None
        print(json.dumps({"model": model, "ok": not failed, "checks": result}, allow_nan=False))
    if failed:
        from headway.errors import DamagedError

        names = ", ".join(row.name for row in failed)
        raise DamagedError("X007", f"{len(failed)} of {len(rows)} checks failed: {names}")
    then = ["train", model, *(settings or [])] if training else ["export", model, "OUT"]
    say(f"all checks passed. next: {shlex.join(['headway', *then])}")


def _training_proof(recipe: str, settings: list[str]) -> Any:
    from headway.tasks.recipe import load_recipe

    named = load_recipe(recipe, settings)
    from headway.checks.training import check_training

    return check_training(*named)


@app.command(epilog=examples("headway get org/name", "headway get org/name@v1.0", "headway get ./folder --json"))
def get(model: Model, json_: Json = False, quiet: Quiet = False) -> None:
    """Fetch a model into the local cache, and describe it."""
    from headway.hub.download import resolve
    from headway.hub.folder import open_folder

    say = progress_printer(quiet)
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
        say(f"next: headway check {shlex.quote(model)}")


@app.command(
    epilog=examples(
        "headway export org/name OUT",
        "headway export ./model OUT --dtype bfloat16",
        "headway export smollm2 OUT quant=int8",
        "headway export my-vectors vectors.bin format=word2vec",
    )
)
def export(
    model: Model,
    out: Annotated[Path, typer.Argument(help="a new folder; a new file with format=", metavar="OUT")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            help="quant=int8: a quarter of the size; only headway can read it. format=word2vec, or word2vec-text: word "
            "vectors in one file",
            metavar="KEY=VALUE",
        ),
    ] = None,
    dtype: Dtype = "auto",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Save a model as a folder that transformers can read."""
    from headway.config.toml import build, parse_overrides
    from headway.hub.folder import own_layout

    asked, say = build(ExportSettings, parse_overrides(settings or [])), progress_printer(quiet)
    bundle = load_bundle(model, "cpu", dtype, quiet)
    if asked.format != "folder":
        path = bundle.save_vectors(out, text=asked.format == "word2vec-text")
        print(json.dumps({"file": str(path), "bytes": path.stat().st_size}) if json_ else path)
        say(f"next: headway run {shlex.quote(str(path))} WORD")
        return
    if asked.quant == "none":
        folder = bundle.save(out)
        _write_run_card(bundle, folder)
        print(json.dumps(_exported(bundle, folder)) if json_ else folder)
        if own_layout(folder):
            say("transformers has no model like this one: the folder has headway's own layout")
        say(f"{_facts(bundle)}. next: headway check {shlex.quote(str(folder))}")
        return
    from headway.checks.quantization import card, quantize_and_compare
    from headway.report.report import write_text

    with bar("quantizing"):
        result = quantize_and_compare(bundle.model, bundle.tokenizer)
    folder = bundle.save(out)
    write_text(folder / "README.md", card(Path(model).name, result))
    size = {"bytes": result.bytes, "perplexity": result.perplexity, "tokens": result.tokens}
    print(json.dumps({**_exported(bundle, folder), **size}) if json_ else folder)
    for line in result.lines():
        say(line)
    say(f"only headway can read this folder. next: headway check {shlex.quote(str(folder))}")


def _exported(bundle: Any, folder: Path) -> dict[str, Any]:
    """An exported model, for --json."""
    from headway.hub.folder import own_layout

    return {
        "folder": str(folder),
        "family": bundle.config.family,
        "kind": bundle.config.kind,
        "parameters": bundle.model.parameter_count(),
        "dtype": str(next(bundle.model.parameters()).dtype).removeprefix("torch."),
        "quantization": bundle.config.quantization,
        "layout": "headway" if own_layout(folder) else "transformers",
    }


def _write_run_card(bundle: Any, folder: Path) -> None:
    """README.md of an exported run; of a checkpoint it says which."""
    if bundle.recipe is None:
        return
    from headway.report.model_card import write_card

    write_card(bundle.folder, folder, bundle.step)


@app.command(epilog=examples("headway doctor", "headway doctor --json"))
def doctor(json_: Json = False) -> None:
    """Describe this machine: memory, speed, GPUs, optional packages."""
    from headway.checks.doctor import examine

    facts = examine()
    if json_:
        print(json.dumps(facts.as_dict()))
        return
    for line in facts.lines():
        print(line)
    progress_printer(False)("next: headway check gpt2-tiny")


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
    note = escape(row.note or row.means)
    return f"{mark}  {row.name:22} {row.difference:8.1e}   limit {row.limit:.0e}  {note}"
