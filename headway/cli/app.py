"""What all verbs share: the app, common options, loading a model, tables, error reports.

Results go to stdout, progress messages to stderr. Nothing heavy is imported before a verb runs, so `headway --help`
is fast.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headway import __version__, progress
from headway.cli.complete import complete_model, complete_recipe, complete_recipe_settings
from headway.errors import HeadwayError, NotFoundError, UsageError, nearest
from headway.resources import as_headway_error
from headway.runs.process import EXIT_FILE
from headway.tasks.recipe import recipe_names

VERBS = (
    *("data", "tokens", "recipes", "explain", "train", "runs", "run", "inspect", "eval", "compare"),
    *("check", "export", "serve", "studio", "get", "doctor"),
)
"""The verbs as a day's work goes: look at the data, train, use, measure, compare, check, hand over."""


class _Ordered(TyperGroup):
    """The verbs in the order of `VERBS`, where the parser would have them as they were imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=VERBS.index)


app = typer.Typer(
    name="headway",
    cls=_Ordered,
    help="A transformer workbench: train models, use them, check them, serve them.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[
    str,
    typer.Argument(
        help="a run, a folder, a hub id (org/name[@revision]) or a preset",
        metavar="MODEL",
        autocompletion=complete_model,
    ),
]
RecipeName = Annotated[
    str,
    typer.Argument(
        help=f"a .toml, .yaml or .json file, or a name: {', '.join(recipe_names())}",
        metavar="RECIPE",
        autocompletion=complete_recipe,
    ),
]
RecipeSettings = Annotated[
    list[str] | None,
    typer.Argument(
        help="settings that replace those of the recipe (headway explain lists them)",
        metavar="KEY=VALUE…",
        autocompletion=complete_recipe_settings,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


def _hide_notes(quiet: bool) -> bool:
    """Whether notes are printed, such as which weights stand in for those of a run that did not finish."""
    logging.getLogger("headway").disabled = quiet
    return quiet


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress messages", callback=_hide_notes)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps")]
Dtype = Annotated[str, typer.Option(help="dtype of the weights: auto (as stored), float32, bfloat16 or float16")]


def examples(*lines: str) -> str:
    """The examples at the end of a verb's help; \\b keeps the line breaks."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")


@app.callback(
    invoke_without_command=True,
    epilog="\n".join(
        (
            "\b",
            "Settings are words: headway train tiny train.lr=1e-3 (headway explain has all).",
            "Exit codes: 0 done, 2 command line, 3 setting, 4 data, 5 not found, 6 network,",
            "7 memory or disk, 8 diverged, 9 damaged, 130 Ctrl-C (headway explain exit).",
        )
    ),
)
def _root(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="print the traceback of an error")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit()


def need(package: str, what: str) -> None:
    """Refuse a verb whose extra is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise NotFoundError("F003", f"{what} needs the package {package}", "pip install 'headway[serve]'")


def load_bundle(model: str, device: str, dtype: str, quiet: bool) -> Any:
    if dtype not in DTYPES:
        raise UsageError("U001", f"--dtype {dtype}{nearest(dtype, DTYPES)}", f"one of {', '.join(DTYPES)}")
    progress.set_quiet(quiet)
    with progress.bar(f"loading {model}"):
        with _quick_imports():
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
def _quick_imports() -> Iterator[None]:
    """Import without garbage collection: it walks over all that was imported so far, and nothing of it is garbage.

    Later collections leave it out too: the first one would take a tenth of a second.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def console() -> Any:
    from rich.console import Console

    colours: Any = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, soft_wrap=True, color_system=colours)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int], indent: str = "") -> None:
    """Columns of equal width, without colours or frames; those not in `left` are aligned to the right."""
    lines = [head, *rows] if head else list(rows)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        cells = (f"{c:<{n}}" if i in left else f"{c:>{n}}" for i, (c, n) in enumerate(zip(line, widths, strict=True)))
        print(indent + "  ".join(cells).rstrip())


def print_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Names with a text beside each, wrapped to the terminal."""
    wide = max(len(name) for name, _ in rows) + 2
    width = max(40, min(100, get_terminal_size().columns) - wide - 2)
    for name, text in rows:
        first, *more = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
        print(f"  {name:{wide}}{first}".rstrip(), *(f"  {'':{wide}}{line}" for line in more), sep="\n")


class ReportedExit(int):
    """An exit code whose reason has already been printed."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command. Every error ends as a short message and an exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments or bool(os.environ.get("HEADWAY_DEBUG"))
    arguments = [a for a in arguments if a != "--debug"] or ["--help"]
    try:
        code = _parsed(arguments)
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
    finally:
        _hide_notes(False)
    code = code if isinstance(code, int) else 0
    _leave_code(code)
    sys.exit(code)


def _parsed(arguments: list[str]) -> Any:
    """Run the verb. A setting that is typed as an option is understood, and the command is parsed again."""
    while True:
        try:
            return app(arguments, standalone_mode=False, prog_name="headway")
        except Exception as error:
            from headway.cli.flags import as_setting, is_unknown_option

            if not is_unknown_option(error):
                raise
            arguments = as_setting(arguments, error)


def _leave_code(code: int, error: str = "") -> None:
    """The first process that fails writes its code and error; the others were only stopped because of it."""
    path = os.environ.get(EXIT_FILE)
    if path and (code or os.environ.get("RANK") == "0"):
        with suppress(FileExistsError), Path(path).open("x", encoding="utf-8") as file:
            file.write(f"{code}\n{error}")


def _report_unexpected(error: Exception, debug: bool) -> int:
    """Report an error that is not ours: of the command-line parser, of memory or disk, or a bug."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        usage = UsageError("U001", error.format_message(), _usage_hint(error))
        return _report(str(usage), usage.exit_code, debug)
    if (short := as_headway_error(error)) is not None:
        return _report(str(short), short.exit_code, debug)
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    bug = HeadwayError(
        "B000", f"unexpected error: {text}", "this is a bug: --debug prints the traceback, please report it"
    )
    return _report(str(bug), bug.exit_code, debug)


def _usage_hint(error: Any) -> str:
    """Where the help is; a verb that is none may be a recipe."""
    word = re.search(r"No such command '([\w-]+)'", error.format_message())
    if word and word[1] in recipe_names():
        return f"a recipe: headway train {word[1]}"
    return f"see: {error.ctx.command_path if error.ctx else 'headway'} --help"


def _report(text: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    progress.say(text)
    _leave_code(code, text)
    return code
