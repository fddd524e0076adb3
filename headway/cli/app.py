"""What all verbs share: the app, common options, loading a model, tables, error reports.

Results go to stdout, progress messages to stderr. Nothing heavy is imported before a verb runs, so `headway --help`
is fast.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from headway import __version__, progress
from headway.errors import HeadwayError, UsageError, nearest
from headway.resources import as_headway_error

app = typer.Typer(
    name="headway",
    help="A transformer workbench: train models, use them, check them, serve them.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[
    str, typer.Argument(help="a run, a folder, a hub id (org/name[@revision]) or a preset", metavar="MODEL")
]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress messages")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps")]
Dtype = Annotated[str, typer.Option(help="dtype of the weights: auto (as stored), float32, bfloat16 or float16")]


def examples(*lines: str) -> str:
    """The examples at the end of a verb's help; \\b keeps the line breaks."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


EXIT_FILE = "HEADWAY_EXIT_FILE"
"""The file to which several processes write their exit code: torchrun returns only its own."""
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="print the traceback of an error")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit()


def load_bundle(model: str, device: str, dtype: str, quiet: bool) -> Any:
    if dtype not in DTYPES:
        raise UsageError("U001", f"--dtype {dtype}{nearest(dtype, DTYPES)}", f"one of {', '.join(DTYPES)}")
    progress.set_quiet(quiet)
    with progress.bar(f"loading {model}"):
        with quick_imports():
            import torch

            from headway.api import load

        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            known = torch.empty(0, device=device).device.type in ("cpu", "cuda", "mps")
        except (RuntimeError, AssertionError):  # torch asserts that it was built for the device
            known = False
        if not known:
            raise UsageError("U001", f"--device {device} is not available here", "one of auto, cpu, cuda, cuda:N, mps")
        return load(model, dtype=None if dtype == "auto" else getattr(torch, dtype), device=device)


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without garbage collection: it walks over all that was imported so far, and nothing of it is garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def console() -> Any:
    from rich.console import Console

    colours: Any = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, soft_wrap=True, color_system=colours)


def progress_printer(quiet: bool) -> Callable[..., None]:
    """A function that prints progress messages to stderr; with `quiet` it prints none, and no bar moves either."""
    progress.set_quiet(quiet)
    return (lambda text: None) if quiet else progress.say


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int], indent: str = "") -> None:
    """Columns of equal width, without colours or frames; those not in `left` are aligned to the right."""
    lines = [head, *rows] if head else list(rows)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        cells = (f"{c:<{n}}" if i in left else f"{c:>{n}}" for i, (c, n) in enumerate(zip(line, widths, strict=True)))
        print(indent + "  ".join(cells).rstrip())


class ReportedExit(int):
    """An exit code whose reason has already been printed."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command. Every error ends as a short message and an exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments or bool(os.environ.get("HEADWAY_DEBUG"))
    arguments = [a for a in arguments if a != "--debug"] or ["--help"]
    try:
        code = app(arguments, standalone_mode=False)
        if code == 130 and not isinstance(code, ReportedExit):  # how the parser reports an interrupt
            raise KeyboardInterrupt
    except HeadwayError as error:
        code = _report(str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        code = _report("stopped", 130, False)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        code = _report_unexpected(error, debug)
    code = code if isinstance(code, int) else 0
    if path := os.environ.get(EXIT_FILE):
        _leave_code(Path(path), code)
    sys.exit(code)


def _leave_code(path: Path, code: int) -> None:
    """The first process that fails writes its code; the others were only stopped because of it."""
    if code or os.environ.get("RANK") == "0":
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(str(code))


def _report_unexpected(error: Exception, debug: bool) -> int:
    """Report an error that is not ours: of the command-line parser, of memory or disk, or a bug."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        usage = UsageError("U001", error.format_message(), "see: headway --help")
        return _report(str(usage), usage.exit_code, debug)
    if (short := as_headway_error(error)) is not None:
        return _report(str(short), short.exit_code, debug)
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    bug = HeadwayError(
        "B000", f"unexpected error: {text}", "this is a bug: --debug prints the traceback, please report it"
    )
    return _report(str(bug), bug.exit_code, debug)


def _report(text: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    progress.say(text)
    return code
