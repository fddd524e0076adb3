"""Every verb shows its long work on the moving line, and none of it with --quiet or on stdout."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from headway import progress
from tests.cli.conftest import Run

TRAIN = ("train.steps=2", "train.batch=2", "model.depth=1", "model.width=16", "model.heads=2")


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of all bars that were opened."""
    found: list[str] = []
    monkeypatch.setattr(progress, "_SCREEN", progress._Screen())
    monkeypatch.setattr(progress._Screen, "add", lambda screen, bar: found.append(bar.label))
    monkeypatch.delenv("HEADWAY_PROGRESS", raising=False)
    return found


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/lm and runs/classify, small and hardly trained, and data for both."""
    from headway.tasks.recipe import load_recipe
    from headway.train.run import start, train

    folder = tmp_path_factory.mktemp("models")
    with (folder / "reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("text", "label"), *((f"a film {i} of its kind", "good" if i % 2 else "bad") for i in range(40))]
        )
    (folder / "book.txt").write_text("It was a dark and stormy night.\n" * 200)
    for name, words in (
        ("lm", (f"data.train={folder / 'book.txt'}", "data.tokenizer=bytes", "data.vocab=0", "data.length=16")),
        ("classify", (f"data.train={folder / 'reviews.csv'}", "data.tokenizer=bytes", "data.vocab=0")),
    ):
        recipe, settings = load_recipe(name, [*words, *TRAIN, f"out={folder}"])
        made = train(start(recipe, settings), lambda kind, **facts: None)
        made.folder.rename(folder / f"run-{name}")
    return folder


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("eval", "run-lm", "book.txt"), {"loading run-lm", "loading weights", "tokenizing", "evaluating"}),
        (("eval", "run-classify", "reviews.csv"), {"reading reviews.csv", "computing"}),
        (("run", "run-classify", "--file", "reviews.csv"), {"predicting", "computing"}),
        (("run", "run-lm", "--file", "reviews.csv", "--tokens", "2"), {"predicting"}),
        (("run", "run-classify", "--nearest", "reviews.csv", "a film"), {"embedding reviews.csv", "computing"}),
        (("data", "reviews.csv"), {"looking at the data"}),
        (("export", "run-lm", "out"), {"loading weights", "saving weights"}),
        (("export", "run-lm", "out8", "quant=int8"), {"quantizing", "measuring the perplexity"}),
        (("check", "run-lm", "--no-compile"), {"checking: cached = uncached"}),
        (("runs", "report", "run-lm", "--out", "."), {"writing the report"}),
        (
            ("train", "lm", "data.train=book.txt", "data.tokenizer=bpe", "data.vocab=300", *TRAIN),
            {"loading", "hashing book.txt", "training a tokenizer", "tokenizing", "the first step", "evaluating"},
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_long_work_has_a_bar(
    run: Run,
    models: Path,
    labels: list[str],
    arguments: tuple[str, ...],
    expected: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    monkeypatch.chdir(models)
    done = run(*arguments)
    assert done.code == 0, done.err
    assert expected <= set(labels), set(labels)
    assert not set(labels) & set(done.out.splitlines())


def test_the_first_token_imports_only_what_it_needs(models: Path) -> None:
    program = f"""
import sys
from headway.cli import main
try:
    main(["run", {str(models / "run-lm")!r}, "Once", "--tokens", "1", "--quiet"])
except SystemExit as done:
    assert not done.code
heavy = ("numba", "IPython", "transformers", "pandas", "headway.checks", "headway.report", "headway.serve")
own = lambda name: "tasks" in name and name.endswith(("predict", "training"))
print([name for name in sys.modules if name.startswith(heavy) or own(name)])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_quiet_work_has_none(run: Run, models: Path, labels: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)
    done = run("eval", "run-lm", "book.txt", "--quiet")
    assert done.code == 0 and labels == [] and done.err == ""
    assert run("eval", "run-lm", "book.txt").code == 0 and labels
