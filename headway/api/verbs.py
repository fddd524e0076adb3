"""The verbs of headway as functions: train, evaluate, compare, data, runs, run. What they need is imported on use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from headway.api.bundle import Bundle
    from headway.api.comparison import Comparison
    from headway.api.dataset import Profile
    from headway.api.evaluation import EvaluationResult
    from headway.api.past_runs import Run, Runs

Rows = Iterable[Mapping[str, Any]] | Iterable[str]
"""A dataset in Python: a list of dicts or of texts, a DataFrame, an object of `datasets`."""


def train(recipe: str, *settings: str | Mapping[str, Any], quiet: bool = False, **more: Any) -> Run:
    """Train a recipe, by name or path, and return the run: `headway.train("classify", data="reviews.csv", steps=200)`.

    Settings are keywords (`steps=200`, `train={"steps": 200}`), `key=value` words or dicts; `headway train --help`
    names the recipes. `data` is a file, or rows: a list of dicts, a DataFrame. Ctrl-C saves, and returns the run.
    """
    from headway.api.past_runs import Run
    from headway.api.training import train_recipe

    return Run(train_recipe(recipe, settings, more, quiet=quiet))


def load(
    model: str | os.PathLike[str],
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device = "cpu",
    image: int | None = None,
    seed: int = 0,
) -> Bundle:
    """Load a model: `headway.load("last")`, `headway.load("org/name", device="cuda")`, `headway.load("gpt2")`.

    By run (`last` or its name), folder, hub id (`org/name[@revision]`) or preset (random weights, by `seed`). `image`
    resamples the positions of a vision model for square images of that size.
    """
    from headway.api.bundle import load

    return load(model, dtype=dtype, device=device, image=image, seed=seed)


def evaluate(
    model: str | os.PathLike[str] | Bundle,
    data: str | os.PathLike[str] | Rows = "",
    *,
    task: str = "",
    against: str | os.PathLike[str] | Bundle = "",
    quiet: bool = False,
    **settings: Any,
) -> EvaluationResult:
    """How good a model is, with intervals: `headway.evaluate("last", "test.csv").metrics["accuracy"]`.

    The model is a run, a folder, a name or one that is loaded. Without data: what its run held out. `against` is
    another model to compare with; settings are those of `headway eval`: `column="body"`, `text="body"`, `label="y"`.
    """
    from headway.api.evaluation import evaluate_data

    return evaluate_data(model, data, task=task, against=against, settings=settings, quiet=quiet)


def compare(
    recipe: str = "",
    vary: Mapping[str, Sequence[Any]] | None = None,
    *settings: str | Mapping[str, Any],
    seeds: int | Sequence[int] | None = None,
    equal: str = "",
    against: str = "",
    lengths: Sequence[int] = (),
    quiet: bool = False,
    **more: Any,
) -> Comparison:
    """Train a recipe with several values: `headway.compare("tiny", {"model.norm": ["layernorm", "dyt"]}, seeds=3)`.

    `vary` has a list of values for each setting (or for "recipe"), and all combinations are trained; `seeds` repeats
    each of them. `equal` is params, flops or time; `against` names the variant that the others are compared with;
    `lengths` evaluates language models at other lengths. Other settings are as for `train`. The name of a shipped
    comparison stands for its words. Finished runs are not trained again; Ctrl-C saves, and the same call goes on.
    """
    from headway.api.comparison import compare_values

    own = {"equal": equal, "against": against, "lengths": ",".join(map(str, lengths))}
    return compare_values(recipe, vary or {}, settings, seeds, more, own, quiet=quiet)


def data(
    file: str | os.PathLike[str] | Rows,
    valid: str | os.PathLike[str] = "",
    *,
    column: str = "",
    tokenizer: str | os.PathLike[str] | None = None,
) -> Profile:
    """Look at a dataset before training on it: `print(headway.data("reviews.csv"))`.

    Columns, lengths, labels, duplicates, bad rows, and the task that it is for. `valid` is compared with it.
    """
    from headway.api.dataset import profile
    from headway.api.inputs import FOLDER, data_spec
    from headway.config.recipe import RUNS

    spec = data_spec(file, Path(RUNS) / FOLDER)
    folder = None if tokenizer is None else Path(tokenizer)
    return profile(spec, column=column, valid=str(valid), tokenizer=folder, keep=20)


def runs(out: str | os.PathLike[str] = "runs") -> Runs:
    """All runs, newest first: `headway.runs().to_frame()`, `headway.runs()["tiny-0001"]`."""
    from headway.api.past_runs import Run, Runs
    from headway.runs.history import find_runs

    return Runs(Run(each.folder) for each in find_runs(Path(out)))


def run(name: str | os.PathLike[str] = "last", out: str | os.PathLike[str] = "runs") -> Run:
    """A run by its name, the beginning of its name, its folder, or `last`: `headway.run("last").metrics`."""
    from headway.api.past_runs import Run
    from headway.hub.run_names import resolve_run

    return Run(resolve_run(str(name), Path(out)))
