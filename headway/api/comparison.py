"""A comparison: one recipe trained with several values and seeds. Finished runs are not trained again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.api.inputs import kept_rows
from headway.api.past_runs import Run, Runs
from headway.api.settings import full_key, recipe_task, recipe_words, word
from headway.api.tables import frame, html_table, text_table
from headway.api.training import write_documents
from headway.config.recipe import RUNS
from headway.config.toml import parse_overrides
from headway.errors import ConfigError, DivergedError, HeadwayError, UsageError
from headway.progress import Display, progress_printer, track

if TYPE_CHECKING:
    import pandas

    from headway.runs.compare import Grid
    from headway.runs.history import History
    from headway.tasks.recipe import Recipe

Say = Callable[..., None]


class Stopped(KeyboardInterrupt):
    """A signal ended a comparison. Its run is saved: the same comparison goes on from there."""

    def __init__(self, signal: int) -> None:
        super().__init__("stopped and saved; the same comparison goes on from there")
        self.signal = signal


@dataclass(frozen=True, repr=False)
class Comparison:
    """Variants of one recipe, trained and measured: `found.to_frame()`, `found.page` is an HTML page with curves."""

    folder: Path
    """Where the runs are."""
    facts: dict[str, Any]
    """All that was found, as plain values; `headway compare --json` prints the same."""

    @property
    def page(self) -> Path:
        """The HTML page with tables and curves."""
        return self.folder / "compare.html"

    @property
    def runs(self) -> Runs:
        """The runs of all variants."""
        return Runs(Run(self.folder / run["name"]) for variant in self.facts["variants"] for run in variant["runs"])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return self.facts

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each variant: its name, the mean of each metric, and `NAME_sd` where there are several seeds."""
        rows = []
        for variant in self.facts["variants"]:
            row: dict[str, Any] = {"variant": variant["name"], "runs": len(variant["runs"])}
            for name, metric in variant["figures"].items():
                row |= {name: metric["mean"]} | ({} if metric["sd"] is None else {f"{name}_sd": metric["sd"]})
            rows.append(row | {"parameters": variant["parameters"], "seconds": variant["seconds"]})
        return rows

    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame with a row for each variant."""
        return frame(self.to_dicts())

    def __repr__(self) -> str:
        from headway.report.comparison import rows

        return text_table(*rows(self.facts))

    def _repr_html_(self) -> str:
        from headway.report.comparison import rows

        return html_table(*rows(self.facts))


def compare_values(
    recipe: str,
    vary: Mapping[str, Sequence[Any]],
    given: Sequence[str | Mapping[str, Any]],
    seeds: int | Sequence[int],
    more: Mapping[str, Any],
    *,
    quiet: bool,
) -> Comparison:
    """A comparison from Python values: the words of `headway compare`."""
    from headway.runs.compare import grid

    words = recipe_words(recipe, given, kept_rows(dict(more), Path(str(more.get("out", RUNS)))))
    task = recipe_task(recipe, words)
    for key, values in vary.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or len(values) < 2:
            raise ConfigError(
                "C002", f"{key} = {values!r} is no list of two values or more", "plain settings are keywords"
            )
        name = full_key(key, task)
        words.append(f"{name}=" + ",".join(word(name, value).partition("=")[2] for value in values))
    if not vary and seeds == 1:
        example = next((key for key, value in more.items() if isinstance(value, list | tuple)), "lr")
        hint = f'vary={{"{example}": {list(more.get(example, (1e-3, 1e-4)))}}}, or seeds=3'
        raise UsageError("U001", "nothing to compare: no setting is varied", hint)
    many = [seeds] if isinstance(seeds, int) else list(seeds)
    words.append("seeds=" + ",".join(map(str, many)))
    return compare_recipe(recipe, grid(words), progress_printer(quiet), quiet=quiet)


def compare_recipe(recipe: str, plan: Grid, say: Say, *, quiet: bool) -> Comparison:
    """Train a recipe with the values and seeds of a plan."""
    from headway.report.report import write_report
    from headway.runs.compare import compare

    name, recipes = _recipes(recipe, plan)
    folder = Path(recipes[0][0].out)
    total = sum(map(len, recipes))
    numbers = iter(range(1, total + 1))
    waiting = track([each for row in recipes for each in row], "comparing", unit="runs")
    done = [[_run(name, next(waiting), f"run {next(numbers)} of {total}", say, quiet) for _ in row] for row in recipes]
    waiting.close()
    for run in (each for row in done for each in row):
        if not (run.folder / "run" / "report.html").exists():  # the page links it; a run that diverged has none yet
            write_report(run.folder)
    found = compare(name, plan, done)
    _write(folder, found)
    return Comparison(folder, found)


def _recipes(what: str, plan: Grid) -> tuple[str, list[list[Recipe]]]:
    """The recipes of each variant, one per seed. All of them are checked before the first is trained."""
    from dataclasses import replace

    from headway.tasks.recipe import load_recipe
    from headway.train.run import with_absolute_paths

    found, name = [], ""
    _check_keys(what, plan)
    for args in plan.variants:
        name, recipe = load_recipe(what, [*plan.common, *args])
        if recipe.gpus > 1:
            raise ConfigError("C004", f"headway compare trains in one process: gpus = {recipe.gpus}", "leave gpus out")
        if recipe.model.from_ and recipe.model.freeze:
            _check_base(recipe)
        label = "-".join([name, *(key.rpartition(".")[2] for key in plan.keys)])
        out, recipe = str(Path(recipe.out) / f"compare-{label}"), with_absolute_paths(recipe)
        found.append([replace(recipe, out=out, seed=seed) for seed in plan.seeds_from(recipe.seed)])
    return name, found


def _check_keys(what: str, plan: Grid) -> None:
    """Refuse a key that another one was meant by, with all of its values: a variant's own error has only one."""
    from headway.config.keys import did_you_mean, meant
    from headway.tasks.recipe import current_settings, recipe_keys

    known = recipe_keys(recipe_task(what, plan.common))
    for key in plan.keys:
        values = ",".join(
            dict.fromkeys(v for args in plan.variants for k, _, v in (a.partition("=") for a in args) if k == key)
        )
        renamed = current_settings(parse_overrides([f"{key}=0"]), note=False) != parse_overrides([f"{key}=0"])
        if key not in known and not renamed and (found := meant(key, known)):
            hint = f"write {found[0]} for {key}" if plan.together else f"write {found[0]}={values}"
            raise ConfigError("C014", f"unknown setting {key}{did_you_mean(key, known)}", hint)


def _check_base(recipe: Recipe) -> None:
    """Check model.freeze against the pretrained model."""
    from headway.hub.adapter import is_adapter
    from headway.hub.download import resolve
    from headway.hub.folder import open_folder
    from headway.hub.trainable import check_freeze
    from headway.train.run import with_absolute_paths

    folder = resolve(with_absolute_paths(recipe).model.from_)
    if not is_adapter(folder):  # an adapter is checked by the run itself
        check_freeze(open_folder(folder).config, recipe.model.freeze)


def _run(name: str, recipe: Recipe, title: str, say: Say, quiet: bool) -> History:
    """A run of the recipe: one that has finished, one that is resumed, or a new one."""
    from headway.tasks.defaults.choose import choose
    from headway.train.provenance import same_data
    from headway.train.run import resume, start, with_absolute_paths

    given, recipe = recipe, choose(with_absolute_paths(recipe)).recipe
    for old in _same(recipe):
        if not same_data(old.folder, recipe):
            say(f"{title}: {old.folder} is not used: its data have changed")
            continue
        if old.status in ("finished", "diverged"):
            say(f"{title}: {old.folder}, {old.status}")
            return old
        if old.status == "stopped":
            say(f"{title}: {old.folder}, resumed")
            return _train(
                resume(old.folder, lambda path, why: say(f"checkpoint {path} is not used: {why}")), say, quiet
            )
        if old.status == "running":
            raise ConfigError("C030", f"another process trains {old.folder}", "wait for it, or stop it")
    say(title)
    return _train(start(name, given), say, quiet)


def _same(recipe: Recipe) -> Iterator[History]:
    """Runs in the recipe's folder with the same settings, newest first."""
    from headway.runs.history import find_runs
    from headway.tasks.recipe import read_recipe, same_recipe

    for run in find_runs(Path(recipe.out)):
        with suppress(HeadwayError):  # written by another version of headway
            if same_recipe(read_recipe(run.recipe), recipe):
                yield run


def _train(run: Any, say: Say, quiet: bool) -> History:
    from headway.runs.history import read_run
    from headway.train.run import train

    try:
        train(run, Display(quiet).report)
    except DivergedError as error:  # a result too: the other runs go on
        say(str(error))
        return read_run(run.folder)
    finally:
        _clear()
    if run.loop.stop_signal:
        raise Stopped(run.loop.stop_signal)
    write_documents(run.folder)
    return read_run(run.folder)


def _clear() -> None:
    """Drop what was compiled for a run: torch compiles only a few versions of each function."""
    import torch

    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _write(folder: Path, found: dict[str, Any]) -> None:
    from headway.report.comparison import render
    from headway.report.report import write_text

    write_text(folder / "compare.json", json.dumps(found, indent=1, allow_nan=False) + "\n")
    write_text(folder / "compare.html", render(found))
