"""`headway runs`: list, show, compare, report and prune past runs."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.app import Json, Quiet, app, examples, print_table
from headway.cli.complete import complete_run
from headway.config.recipe import RUNS
from headway.errors import UsageError
from headway.progress import printable, progress_printer

if TYPE_CHECKING:
    from headway.runs.history import History

runs = typer.Typer(rich_markup_mode=None)
app.add_typer(runs, name="runs")

Name = Annotated[
    str,
    typer.Argument(
        help="a run: last, its name, the beginning of its name, or a path", metavar="RUN", autocompletion=complete_run
    ),
]
Out = Annotated[Path, typer.Option(help="the folder that holds the runs", metavar="FOLDER")]
HERE = Path(RUNS)


@runs.callback(
    invoke_without_command=True,
    epilog=examples("headway runs", "headway runs show last", "headway runs diff tiny-0001 tiny-0002"),
)
def _default(context: typer.Context, out: Out = HERE, json_: Json = False, quiet: Quiet = False) -> None:
    """List past runs; show, compare, report or prune them."""
    if context.invoked_subcommand is None:
        list_(out, json_, quiet)
    elif (out, json_, quiet) != (HERE, False, False):
        verb = context.invoked_subcommand
        raise UsageError("U001", f"an option comes before {verb}", f"put it after: headway runs {verb} …")


@runs.command("list", epilog=examples("headway runs list", "headway runs list --json", "headway runs list --out old"))
def list_(out: Out = HERE, json_: Json = False, quiet: Quiet = False) -> None:
    """List all runs, newest first."""
    from headway.api.past_runs import LIST_HEAD, list_row, run_numbers
    from headway.runs.history import find_runs

    found, say = find_runs(out), progress_printer(quiet)
    if json_:
        print(json.dumps([run_numbers(run) for run in found], allow_nan=False))
    elif found:
        print_table(LIST_HEAD, [list_row(run) for run in found], left=(0, 1, 2))
    for run in found:
        if run.problem:
            say(f"{printable(run.name)}: {printable(run.problem)}")
    newest = f"{shlex.quote(printable(found[0].name))}{_place(out)}" if found else ""
    if newest:
        say(f"next: headway runs show {newest}   headway runs report {newest}")
    else:
        say(f"no runs in {printable(out)}. next: headway train tiny")


@runs.command(epilog=examples("headway runs show last", "headway runs show tiny-0001", "headway runs show last --json"))
def show(name: Name, out: Out = HERE, json_: Json = False, quiet: Quiet = False) -> None:
    """Show one run: its numbers, its loss curve, its last sample."""
    from headway.api.past_runs import run_numbers
    from headway.hub.run_names import resolve_run
    from headway.report.advice.rules import suggestions
    from headway.report.charts import text_chart
    from headway.report.diagnostics import verdict
    from headway.report.report import gather
    from headway.runs.history import read_run

    run = read_run(resolve_run(name, out))
    if json_:
        print(json.dumps({**run_numbers(run), "report": gather(run)}, allow_nan=False))
        return
    print(printable(run.name), run.status, sep="  ")
    for sentence in verdict(run):
        print(textwrap.fill(printable(sentence), 100, initial_indent="  ", subsequent_indent="  "))
    print()
    print_table((), [(key, value) for key, value in _lines(run) if value != "–"], left=(0, 1), indent="  ")
    if chart := text_chart(run.steps["loss"]):
        print("\n  training loss", *(f"  {line}" for line in chart), sep="\n")
    for event in run.samples[-1:]:
        print(f"\n  sample at step {printable(event.get('step', '–'))}")
        print(*(f"    {printable(line)}" for line in str(event.get("text", "")).strip().split("\n")[:12]), sep="\n")
    for suggestion in suggestions(run):
        print("", *(f"  {printable(line)}" for line in suggestion.lines), sep="\n")
    progress_printer(quiet)(f"next: headway runs report {shlex.quote(printable(name))}{_place(out)}")


@runs.command(epilog=examples("headway runs diff tiny-0001 tiny-0002", "headway runs diff tiny-0001 last --json"))
def diff(first: Name, second: Name, out: Out = HERE, json_: Json = False, quiet: Quiet = False) -> None:
    """Compare two runs: the settings that differ, and the results."""
    from headway.api.past_runs import run_numbers
    from headway.hub.run_names import resolve_run
    from headway.report.report import json_value
    from headway.runs.compare import flat
    from headway.runs.history import read_run

    pair = [read_run(resolve_run(name, out)) for name in (first, second)]
    settings = [flat(run.recipe) for run in pair]
    keys = [key for key in dict.fromkeys([*settings[0], *settings[1]]) if _differs(settings, key)]
    numbers = [run_numbers(run) for run in pair]
    if json_:
        result = {
            "runs": [run.name for run in pair],
            "recipe": {key: [flat.get(key) for flat in settings] for key in keys},
            "numbers": {key: [facts[key] for facts in numbers] for key in numbers[0] if key not in ("name", "folder")},
        }
        print(json.dumps(json_value(result), allow_nan=False))
        return
    rows = [(key, *(_value(flat.get(key)) for flat in settings)) for key in keys]
    rows += [("", "", "")] if keys else []
    rows += [
        (key, a, b) for (key, a), (_, b) in zip(_lines(pair[0]), _lines(pair[1]), strict=True) if (a, b) != ("–", "–")
    ]
    print_table(("", *(printable(run.name) for run in pair)), rows, left=(0, 1, 2))
    if not keys:
        progress_printer(quiet)("the recipes are the same")


@runs.command(epilog=examples("headway runs report last", "headway runs report tiny-0001 --open yes"))
def report(
    name: Name,
    open_: Annotated[str, typer.Option("--open", help="open the report in a browser: yes or no")] = "no",
    out: Out = HERE,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the report of a run: an HTML page, and JSON."""
    if open_ not in ("yes", "no"):
        raise UsageError("U001", f"--open {open_} should be yes or no")
    from headway.hub.run_names import resolve_run
    from headway.report.report import write_report

    path = write_report(resolve_run(name, out))
    if json_:
        print(json.dumps({"report": str(path), "facts": str(path.with_suffix(".json"))}))
    else:
        print(path)
        progress_printer(quiet)(f"{path.stat().st_size / 1e3:,.0f} kB; open it in a browser")
    if open_ == "yes":
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


@runs.command(epilog=examples("headway runs prune", "headway runs prune last -y", "headway runs prune --broken --yes"))
def prune(
    name: Annotated[str, typer.Argument(help="only of this run; default: of all runs", metavar="RUN")] = "",
    broken: Annotated[
        bool, typer.Option("--broken", help="also runs that did not finish and cannot be resumed")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="delete what is listed")] = False,
    out: Out = HERE,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """List files that are no longer needed; --yes deletes them.

    These are all but the newest checkpoint of a finished run, and unfinished files.
    """
    from headway.hub.run_names import resolve_run
    from headway.report.format import size
    from headway.runs.history import find_runs, read_run
    from headway.runs.prune import find_leftovers, remove

    chosen = [read_run(resolve_run(name, out))] if name else find_runs(out)
    found = [item for item in find_leftovers(out, chosen, broken) if item.run is not None or not name]
    gone = remove(found) if yes else []
    if json_:
        items = [{"path": str(i.path), "reason": i.reason, "bytes": i.size, "deleted": i in gone} for i in found]
        print(json.dumps({"items": items, "bytes": sum(i.size for i in found)}))
    elif found:
        print_table((), [(printable(i.path), size(i.size), printable(i.reason)) for i in found], left=(0, 2))
    total = size(sum(i.size for i in (gone if yes else found)))
    if not found:
        progress_printer(quiet)(f"nothing to delete in {printable(out)}")
    elif yes:
        kept = f"; {len(found) - len(gone)} are in use and were kept" if len(gone) < len(found) else ""
        progress_printer(quiet)(f"{total} deleted{kept}")
    else:
        which = f" {printable(name)}" if name else ""
        command = f"headway runs prune{which}{' --broken' * broken} --yes{_place(out)}"
        progress_printer(quiet)(f"{total} can be deleted; nothing was deleted yet. next: {command}")


# --- what is printed ----------------------------------------------------------------------------


def _lines(run: History) -> list[tuple[str, str]]:
    """The numbers of a run with their titles, the same for all runs."""
    from headway.api.past_runs import best_metric, run_numbers
    from headway.report import format as w

    facts = run_numbers(run)
    return [
        ("status", printable(run.status + (f": {run.problem}" if run.problem else ""))),
        ("started", w.moment(facts["started"])),
        ("parameters", w.of_all(facts["trained"], facts["parameters"])),
        ("steps", w.count(facts["steps"])),
        ("checkpoints", ", ".join(f"@{step}" for step in facts["checkpoints"][-5:]) or w.ABSENT),
        ("tokens", w.brief(facts["tokens"])),
        ("training loss", w.fixed(facts["loss"])),
        ("validation loss, best", w.fixed(facts["valid"])),
        ("validation loss, last", w.fixed(facts["last_valid"])),
        ("best metric", best_metric(facts)),
        ("bits per byte", w.fixed(facts["bits_per_byte"])),
        ("tokens/s", w.count(facts["tokens_per_second"])),
        ("time", w.duration(facts["seconds"])),
        ("on disk", w.size(facts["bytes"])),
        ("folder", printable(facts["folder"])),
    ]


def _place(out: Path) -> str:
    """--out, for a command to type next."""
    return "" if out == HERE else f" --out {shlex.quote(printable(out))}"


def _differs(settings: Sequence[dict[str, Any]], key: str) -> bool:
    return len({_value(flat[key]) if key in flat else "" for flat in settings}) > 1


def _value(value: Any) -> str:
    return "–" if value is None else printable(json.dumps(value, ensure_ascii=False, default=str))
