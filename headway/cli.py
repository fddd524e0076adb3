"""The command line: one thin function per verb. Results on stdout, talk on stderr.

Nothing heavy is imported before a verb runs: `headway --help` answers at once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from headway import __version__
from headway.errors import HeadwayError, UsageError, nearest

app = typer.Typer(
    name="headway",
    help="A transformer workbench: train, use, prove, save.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[str, typer.Argument(help="a folder, a hub id (org/name[@revision]) or a preset", metavar="MODEL")]
Json = Annotated[bool, typer.Option("--json", help="machine-readable result on stdout")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no talk on stderr")]
Device = Annotated[str, typer.Option(help="where to compute: auto, cpu, cuda, mps")]
Dtype = Annotated[str, typer.Option(help="weights as: auto (as stored), float32, bfloat16, float16")]


def _examples(*lines: str) -> str:
    """The foot of a verb's help; \\b keeps the lines apart."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit()


@app.command(
    epilog=_examples(
        "headway check gpt2-tiny", "headway check ./my-model --json", "headway check org/name --no-compile"
    )
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
    bundle = _load(model, device, dtype, quiet)
    rows, say = [], _talker(quiet)
    say(f"{bundle.name}: {_facts(bundle)}")
    console = None if json_ else _console()
    for row in bundle.check(compiled=compile):
        rows.append(row)
        if console is not None:
            console.print(_check_line(row))
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


@app.command(epilog=_examples("headway get org/name", "headway get org/name@v1.0", "headway get ./folder --json"))
def get(model: Model, json_: Json = False, quiet: Quiet = False) -> None:
    """Fetch a model into the local cache, and say what it is."""
    from headway.hub.download import resolve
    from headway.hub.folder import open_folder

    say = _talker(quiet)
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
    epilog=_examples(
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
    say = _talker(quiet)
    bundle = _load(model, "cpu", dtype, quiet)
    folder = bundle.save(out)
    print(folder)
    say(f"{_facts(bundle)}. next: headway check {folder}")


@app.command(epilog=_examples("headway doctor", "headway doctor --json"))
def doctor(json_: Json = False) -> None:
    """Say what this machine can do."""
    from headway.inspection.machine import examine

    facts = examine()
    if json_:
        print(json.dumps(facts.as_dict()))
        return
    for line in facts.lines():
        print(line)
    _talker(False)("next: headway check gpt2-tiny")


@app.command(
    epilog=_examples(
        "headway train tiny",
        "headway train tiny data.train=book.txt train.minutes=5",
        "headway train tiny model.norm=dyt model.positions=rope seed=1",
        "headway train --resume last",
    )
)
def train(
    recipe: Annotated[str, typer.Argument(help="a recipe: its name, or a .toml file", metavar="RECIPE")] = "",
    settings: Annotated[list[str] | None, typer.Argument(help="settings on top", metavar="KEY=VALUE…")] = None,
    resume: Annotated[str, typer.Option(help="go on with a run: its folder, or last", metavar="RUN")] = "",
    quiet: Quiet = False,
) -> None:
    """Train a model: from a recipe, or on from where a run stopped."""
    from headway.recipe import load_recipe

    if bool(recipe) == bool(resume):
        raise UsageError("U001", "give a recipe, or --resume RUN", "try: headway train tiny")
    named = None if resume else load_recipe(recipe, settings or [])
    say = _talker(quiet)
    say("loading …", end="\r")
    from headway.progress import Display
    from headway.train import run as runs

    if named is None:
        folder = runs.last_folder(Path("runs")) if resume == "last" else Path(resume)
        run = runs.resume(folder, lambda path, why: say(f"passed over {path}: {why}"))
    else:
        run = runs.start(*named)
    runs.train(run, Display(quiet).report)
    if run.loop.stop_signal:
        say(f"stopped at step {run.loop.progress.step} and saved. next: headway train --resume {run.folder}")
        raise typer.Exit(128 + run.loop.stop_signal)
    print(run.folder)
    say(f'next: headway run last "The import statement"   headway check {run.folder}')


@app.command(
    epilog=_examples(
        'headway run last "The import statement"',
        'headway run ./model "Once" --tokens 200 --temperature 0.7 --seed 1',
        'headway run last "def" --temperature 0',
    )
)
def run(
    model: Model,
    prompt: Annotated[str, typer.Argument(help="text to go on from")] = "",
    tokens: Annotated[int, typer.Option(help="how many tokens to write")] = 200,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token each time")] = 0.8,
    top_k: Annotated[int, typer.Option(help="choose among the k likeliest; 0: all")] = 0,
    top_p: Annotated[float, typer.Option(help="choose among the likeliest that make up p")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="the same text each time")] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Write on from a prompt, token by token."""
    bundle = _load(model, device, "auto", quiet)
    from headway.generate.decode import Sampling

    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    pieces = bundle.stream(prompt, tokens, sampling)
    print(prompt + next(pieces, ""), end="", flush=True)  # the first piece shows that there will be any
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def _load(model: str, device: str, dtype: str, quiet: bool) -> Any:
    if dtype not in DTYPES:
        raise UsageError("U001", f"--dtype {dtype}{nearest(dtype, DTYPES)}", f"one of {', '.join(DTYPES)}")
    _talker(quiet)("loading …", end="\r")
    import torch

    from headway.api import load

    if model == "last":
        from headway.train.run import last_folder

        model = str(last_folder(Path("runs")))
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        known = torch.empty(0, device=device).device.type in ("cpu", "cuda", "mps")
    except (RuntimeError, AssertionError):  # torch asserts that it was built for the device
        known = False
    if not known:
        raise UsageError("U001", f"--device {device} is not here", "one of auto, cpu, cuda, cuda:N, mps")
    return load(model, dtype=None if dtype == "auto" else getattr(torch, dtype), device=device)


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


def _console() -> Any:
    from rich.console import Console

    colours: Any = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, soft_wrap=True, color_system=colours)


def _talker(quiet: bool) -> Callable[..., None]:
    """Talk goes to stderr, and a line that is meant to be overwritten only to a terminal."""

    def say(text: str, end: str = "\n") -> None:
        if not quiet and (end == "\n" or sys.stderr.isatty()):
            print(text, end=end, file=sys.stderr, flush=True)

    return say


def main(arguments: list[str] | None = None) -> None:
    """Run a command; every error ends as one screen and its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments or bool(os.environ.get("HEADWAY_DEBUG"))
    arguments = [a for a in arguments if a != "--debug"] or ["--help"]
    try:
        code = app(arguments, standalone_mode=False)
        if code == 130:  # the parser's answer to an interrupt
            raise KeyboardInterrupt
    except HeadwayError as error:
        code = _report(str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        code = _report("stopped", 130, False)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        code = _foreign(error, debug)
    sys.exit(code if isinstance(code, int) else 0)


def _foreign(error: Exception, debug: bool) -> int:
    """Errors of the command-line parser are the user's, all others ours."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        usage = UsageError("U001", error.format_message(), "see: headway --help")
        return _report(str(usage), usage.exit_code, debug)
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    bug = HeadwayError("B000", f"headway did not expect this: {text}", "--debug shows where; please report it")
    return _report(str(bug), bug.exit_code, debug)


def _report(text: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    print(text, file=sys.stderr)
    return code
