"""The queue of a comparison: one process for each run, so that a run that fails or is killed leaves the others going.

What has finished is not trained again, and what was stopped is resumed. The order goes through all variants before it
takes the next seed: a comparison that is interrupted says something of every variant. No torch here.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError, counted
from headway.hub.run_names import run_folders
from headway.runs.compare import LENGTHS_FILE, Trial, read_lengths
from headway.runs.events import as_float
from headway.runs.history import History, read_run
from headway.runs.process import Ended, run_command
from headway.tasks.recipe import Recipe, read_recipe, same_recipe

Say = Callable[..., None]


class Stopped(KeyboardInterrupt):
    """A signal ended a comparison. Its run is saved: the same comparison goes on from there."""

    def __init__(self, signal: int) -> None:
        super().__init__("stopped and saved; the same comparison goes on from there")
        self.signal = signal


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run that is wanted."""

    variant: int
    name: str
    """The name of its variant."""
    seed: int
    recipe: Recipe
    """Its complete recipe."""
    words: Sequence[str]
    """The recipe's name and the settings, as `headway train` takes them."""

    @property
    def command(self) -> str:
        return shlex.join(["headway", "train", *self.words])


@dataclass
class Queue:
    """The runs of a comparison in their folder."""

    folder: Path
    jobs: Sequence[Job]
    """In the order of the variants, and of the seeds for each."""
    lengths: Sequence[int]
    quiet: bool
    say: Say
    changed: Callable[[], None]
    """Called after each run."""
    failures: dict[int, Ended] = field(default_factory=dict)
    """By the number of the job."""
    _known: dict[Path, tuple[History, Recipe | None]] = field(default_factory=dict)
    _done: dict[int, History] = field(default_factory=dict)
    _told: set[Path] = field(default_factory=set)
    """Runs of which was said that they are not used."""

    def run(self) -> None:
        """Train all that is not done."""
        self.changed()
        waiting = [i for i in self.order() if self._wanted(i)]
        for number, i in enumerate(waiting, start=1):
            left = f", {self.time_left(waiting[number - 1 :])}" if number > 1 else ""
            self._train(i, f"run {len(self.jobs) - len(waiting) + number} of {len(self.jobs)}{left}")
            self.changed()
        for i in range(len(self.jobs)):
            if (run := self.trial(i).done) is not None:
                self._measure_lengths(run)
        self.changed()

    def order(self) -> list[int]:
        """The jobs as they are trained: seed after seed; runs that died come last, as they may do it again."""
        turn: dict[int, int] = {}
        keys = []
        for i, job in enumerate(self.jobs):
            turn[job.variant] = turn.get(job.variant, -1) + 1
            keys.append((self._died(i), turn[job.variant], job.variant, i))
        return [key[-1] for key in sorted(keys)]

    def _died(self, i: int) -> bool:
        run = self.find(i)
        return run is not None and run.status == "stopped" and not run.last_event("end")

    def find(self, i: int) -> History | None:
        """The newest run with a job's settings and data."""
        if i in self._done:
            return self._done[i]
        for run, recipe in self._runs():
            if recipe is not None and same_recipe(recipe, self.jobs[i].recipe) and self._same_data(run, i):
                if run.status == "finished":
                    self._done[i] = run
                return run
        return None

    def _same_data(self, run: History, i: int) -> bool:
        from headway.train.provenance import same_data  # torch

        if same_data(run.folder, self.jobs[i].recipe):
            return True
        if run.folder not in self._told:
            self._told.add(run.folder)
            self.say(f"{run.folder} is not used: its data have changed")
        return False

    def _runs(self) -> Iterator[tuple[History, Recipe | None]]:
        """The runs of the folder with their recipes, newest first. One that has finished is read once."""
        for path in reversed(run_folders(self.folder)):
            if path not in self._known or self._known[path][0].status != "finished":
                run, recipe = read_run(path), None
                with suppress(HeadwayError):  # written by another version of headway
                    recipe = read_recipe(run.recipe)
                self._known[path] = run, recipe
            yield self._known[path]

    def trial(self, i: int) -> Trial:
        """What there is of a job now."""
        job, run, failed = self.jobs[i], self.find(i), self.failures.get(i)
        told: dict[str, Any] = {"seed": job.seed, "run": run, "command": job.command}
        if run is not None and run.status in ("finished", "diverged"):
            why = str(run.last_event("nan").get("where", "")) if run.status == "diverged" else ""
            return Trial(**told, error=f"diverged: {why}" if why else "")
        if failed is not None:
            return Trial(**told, status="failed", error=failed.reason)
        return Trial(**told)

    def _wanted(self, i: int) -> bool:
        """Whether a job is to be trained; says so if not."""
        run, job = self.find(i), self.jobs[i]
        title = f"{job.name}, seed {job.seed}"
        if run is None or run.status in ("stopped", "broken"):
            return True
        if run.status == "running":
            self.say(f"{title}: {run.folder} is trained by another process; it is left out until that has ended")
        else:
            self.say(f"{title}: {run.folder}, {run.status}")
        return False

    def _train(self, i: int, title: str) -> None:
        job, run = self.jobs[i], self.find(i)
        again = run is not None and run.status == "stopped"
        what = f"{job.name}, seed {job.seed}" + (f": {run.folder}, resumed" if again and run else "")
        self.say(f"{title}: {what}")
        words = ["--resume", str(run.folder)] if again and run is not None else list(job.words)
        ended = run_command(["train", *words, *(["--quiet"] if self.quiet else [])])
        if ended.stopped_by:
            self.changed()
            raise Stopped(ended.stopped_by)
        self.failures.pop(i, None)
        if ended.code:
            self.failures[i] = ended
            self.say(f"{job.name}, seed {job.seed}: {ended.reason}\n  the other runs go on; again: {job.command}")

    def time_left(self, waiting: Sequence[int]) -> str:
        """About how long the waiting runs take, by those of the same variant that have ended, or by all."""
        took: dict[int, list[float]] = {}
        for i, job in enumerate(self.jobs):
            if (run := self.trial(i).done) is not None and run.facts.wall_seconds:
                took.setdefault(job.variant, []).append(run.facts.wall_seconds)
        every = [seconds for each in took.values() for seconds in each]
        if not every:
            return f"{counted(len(waiting), 'runs')} left"
        each = [took.get(self.jobs[i].variant, every) for i in waiting]
        minutes = sum(sum(times) / len(times) for times in each) / 60
        return f"about {minutes:.0f} min left" if minutes >= 1.5 else "about a minute left"

    def _measure_lengths(self, run: History) -> None:
        """The perplexity of a run at each of `lengths`, or why there is none; kept in the run's folder."""
        known: dict[str, Any] = read_lengths(run)
        for length in (each for each in self.lengths if str(each) not in known):
            if (most := as_float(run.last_event("start").get("max_length"))) is not None and length > most:
                known[str(length)] = f"the model knows {most:.0f} positions"  # evaluation would cut it to these
                _keep_lengths(run, known)
                continue
            self.say(f"{run.name} at length {length}")
            ended = run_command(["eval", str(run.folder), f"length={length}", "--json", "--quiet"])
            if ended.stopped_by:
                raise Stopped(ended.stopped_by)
            known[str(length)] = ended.reason if ended.code else _perplexity(ended.output)
            _keep_lengths(run, known)


def _keep_lengths(run: History, known: dict[str, Any]) -> None:
    partial = run.folder / "run" / f"{LENGTHS_FILE}.partial"
    partial.write_text(json.dumps(known) + "\n", encoding="utf-8")
    os.replace(partial, run.folder / "run" / LENGTHS_FILE)


def _perplexity(output: str) -> float | str:
    """The perplexity in what `headway eval --json` printed."""
    try:
        found = json.loads(output)
        value = as_float(found["perplexity"][0])
    except (ValueError, LookupError, TypeError):
        value = None
    return "no language model: it has no perplexity" if value is None else value
