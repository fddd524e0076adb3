"""A comparison: one recipe trained with several values and seeds. Finished runs are not trained again."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.api.inputs import kept_rows
from headway.api.past_runs import Run, Runs
from headway.api.settings import full_key, recipe_task, recipe_words, word
from headway.api.tables import frame, html_table, text_table
from headway.config.recipe import RUNS
from headway.config.toml import parse_overrides
from headway.errors import ConfigError, HeadwayError, NotFoundError, UsageError, nearest
from headway.progress import progress_printer
from headway.runs.grid import RECIPE, Grid, grid, naming, variant_names
from headway.runs.shipped import Shipped, command_words, read_shipped, shipped_names
from headway.tasks.recipe import Recipe, load_recipe, recipe_names
from headway.tasks.registry import task_names

if TYPE_CHECKING:
    import pandas

    from headway.runs.compare import Trial
    from headway.runs.queue import Job, Queue

Say = Callable[..., None]


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
        """The runs of all variants; one that failed before it had a folder is not among them."""
        every = (run for variant in self.facts["variants"] for run in variant["runs"])
        return Runs(Run(self.folder / run["name"]) for run in every if run["name"])

    @property
    def verdicts(self) -> dict[str, str]:
        """What each variant's first metric says of it, beside the first variant or `against`."""
        from headway.report.comparison import verdicts

        return verdicts(self.facts)

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The runs that failed, each with its error and the command that repeats it."""
        every = (run for variant in self.facts["variants"] for run in variant["runs"])
        return [run for run in every if run["status"] == "failed"]

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
    seeds: int | Sequence[int] | None,
    more: Mapping[str, Any],
    own: Mapping[str, str],
    *,
    quiet: bool,
) -> Comparison:
    """A comparison from Python values: the words of `headway compare`. `own` are words of the comparison itself."""
    base = read_shipped(recipe).recipe if is_shipped(recipe) else recipe or str(next(iter(vary.get(RECIPE, [""]))))
    words = recipe_words(base, given, kept_rows(dict(more), Path(str(more.get("out", RUNS)))))
    task = recipe_task(base, words)
    for key, values in vary.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or len(values) < 2:
            raise ConfigError(
                "C002", f"{key} = {values!r} is no list of two values or more", "plain settings are keywords"
            )
        name = key if key == RECIPE else full_key(key, task)
        words.append(f"{name}=" + ",".join(word(name, value).partition("=")[2] for value in values))
    if not vary and seeds in (None, 1) and not is_shipped(recipe):
        example = next((key for key, value in more.items() if isinstance(value, list | tuple)), "lr")
        hint = f'vary={{"{example}": {list(more.get(example, (1e-3, 1e-4)))}}}, or seeds=3'
        raise UsageError("U001", "nothing to compare: no setting is varied", hint)
    if seeds is not None:
        words.append("seeds=" + ",".join(map(str, [seeds] if isinstance(seeds, int) else seeds)))
    words += [f"{key}={value}" for key, value in own.items() if value]
    return compare_words(recipe, words, progress_printer(quiet), quiet=quiet)


def is_shipped(what: str) -> bool:
    return what in shipped_names()


def compare_words(what: str, words: Sequence[str], say: Say, *, quiet: bool) -> Comparison:
    """Train what the words of `headway compare` say; `what` is a recipe, a shipped comparison, or a first word."""
    file = read_shipped(what) if is_shipped(what) else None
    if file is not None:
        plan, recipe = grid(command_words(what, words)), file.recipe
    elif "=" in what or not what:
        plan, recipe = grid([word for word in (what, *words) if word]), ""
    else:
        _check_name(what)
        plan, recipe = grid(words), what
    if bool(recipe) == (RECIPE in plan.keys):
        hint = "headway compare recipe=lm,rnn KEY=VALUE…" if recipe else "headway compare tiny KEY=A,B"
        raise UsageError("U001", "give one recipe, or vary it by recipe=A,B", hint)
    command = shlex.join(["headway", "compare", *([what] if what else []), *words])
    return _Comparing(what if file else "", file, recipe, plan, command, say, quiet).run()


def _check_name(what: str) -> None:
    """Refuse a name that is nearly that of a shipped comparison, before its words are taken for a recipe's."""
    known = {*recipe_names(), *task_names()}
    if what not in known and not Path(what).suffix and (near := nearest(what, shipped_names())):
        raise NotFoundError("F001", f"no recipe or comparison {what}{near}", "headway compare --list names comparisons")


@dataclass
class _Comparing:
    """A comparison while it is made."""

    shipped: str
    """The name of a shipped comparison, or nothing."""
    file: Shipped | None
    recipe: str
    plan: Grid
    command: str
    """What was typed, or would be."""
    say: Say
    quiet: bool

    def run(self) -> Comparison:
        """Check all variants, train what is not there, write the files after each run."""
        from headway.runs.queue import Queue

        made = self._recipes()
        self.folder = self._folder(made)
        jobs, self.notes = self._jobs(made)
        queue = Queue(self.folder, jobs, self.plan.lengths, self.quiet, self.say, lambda: self._write(queue))
        queue.run()
        return Comparison(self.folder, self._facts(self._trials(queue)))

    def _recipes(self) -> list[Recipe]:
        """The recipe of each variant. All are read before the first is trained."""
        _check_keys(self._sources[0], self.plan)
        found, wrong = [], dict[int, HeadwayError]()
        for i, (source, args) in enumerate(zip(self._sources, self.plan.variants, strict=True)):
            try:
                found.append(_load(source, [*self.plan.common, *_settings(args)]))
            except HeadwayError as error:
                wrong[i] = error
        if wrong:
            first, why = next(iter(wrong.items()))
            if len(wrong) == len(self._sources) and len({each.message for each in wrong.values()}) == 1:
                raise why  # no matter of the variants
            with naming(variant_names(self.plan)[first]):
                raise why
        return found

    @property
    def _sources(self) -> list[str]:
        """The recipe of each variant, by name or path."""
        named = [dict(each.partition("=")[::2] for each in args).get(RECIPE) for args in self.plan.variants]
        return [each or self.recipe for each in named]

    @property
    def name(self) -> str:
        """What the comparison is called."""
        return self.shipped or (Path(self.recipe).stem if self.recipe else "recipes")

    def _folder(self, recipes: Sequence[Recipe]) -> Path:
        keys = [] if self.shipped else [key.rpartition(".")[2] for key in self.plan.keys if key != RECIPE]
        label = "-".join(filter(None, ["compare", self.name, *keys, self.plan.equal]))
        return Path(recipes[0].out) / label

    def _jobs(self, recipes: Sequence[Recipe]) -> tuple[list[Job], list[str]]:
        """All runs, and for each variant what makes it equal to the others."""
        from headway.runs.equal import prepare, terms
        from headway.runs.queue import Job
        from headway.tasks.defaults.choose import choose
        from headway.train.run import with_absolute_paths

        names, full = variant_names(self.plan), [with_absolute_paths(recipe) for recipe in recipes]
        planned = prepare(list(zip(names, full, strict=True)))
        found = terms(self.plan.equal, planned, self.plan.keys)
        jobs = []
        for i, (name, source, term) in enumerate(zip(names, self._sources, found, strict=True)):
            given = [*self.plan.common, *_settings(self.plan.variants[i]), *term.words]
            for seed in self.plan.seeds_from(recipes[i].seed):
                words = _last_ones([*given, f"seed={seed}", f"out={self.folder}"])
                recipe = planned[i].recipe
                if term.words:
                    recipe = choose(with_absolute_paths(load_recipe(source, words)[1])).recipe
                recipe = replace(recipe, seed=seed, out=str(self.folder))
                jobs.append(Job(variant=i, name=name, seed=seed, recipe=recipe, words=[source, *words]))
        return jobs, [term.note for term in found]

    def _trials(self, queue: Queue) -> list[list[Trial]]:
        rows: list[list[Trial]] = [[] for _ in self.plan.variants]
        for i, job in enumerate(queue.jobs):
            rows[job.variant].append(queue.trial(i))
        return rows

    def _facts(self, trials: Sequence[Sequence[Trial]]) -> dict[str, Any]:
        from headway.runs.compare import compare

        told = {"title": self.file.title, "why": self.file.why} if self.file else {}
        return {**compare(self.name, self.plan, trials, self.notes), **told, "command": self.command}

    def _write(self, queue: Queue) -> None:
        """The comparison's files, and the reports that its page links to; a run that diverged has none yet."""
        from headway.report.comparison import render, table_of_runs
        from headway.report.report import write_report, write_text

        trials = self._trials(queue)
        for trial in (each for row in trials for each in row):
            if trial.run and trial.run.status != "running" and not (trial.run.folder / "run/report.html").exists():
                write_report(trial.run.folder)
        found, rows = self._facts(trials), io.StringIO()
        csv.writer(rows, lineterminator="\n").writerows(table_of_runs(found))
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "compare.json", json.dumps(found, indent=1, allow_nan=False) + "\n")
        write_text(self.folder / "compare.csv", rows.getvalue())
        write_text(self.folder / "compare.html", render(found))


def _load(source: str, words: Sequence[str]) -> Recipe:
    recipe = load_recipe(source, words)[1]
    if recipe.gpus > 1:
        raise ConfigError("C004", f"headway compare trains in one process: gpus = {recipe.gpus}", "leave gpus out")
    return recipe


def _settings(args: Sequence[str]) -> list[str]:
    """The words of a variant that are settings."""
    return [each for each in args if each.partition("=")[0] != RECIPE]


def _last_ones(words: Sequence[str]) -> list[str]:
    """Of several words with one key the last one."""
    return list({each.partition("=")[0]: each for each in words}.values())


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
        if key not in (*known, RECIPE) and not renamed and (found := meant(key, known)):
            hint = f"write {found[0]} for {key}" if plan.together else f"write {found[0]}={values}"
            raise ConfigError("C014", f"unknown setting {key}{did_you_mean(key, known)}", hint)
