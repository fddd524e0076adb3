"""Settings typed as options: understood where one setting can be meant, answered with the form to type otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.cli.flags import VERBS
from tests.cli.conftest import Run


class Seen(Exception):
    """What a verb was about to do."""


@pytest.fixture
def recipe(run: Run, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`headway train` up to its recipe: (stderr, recipe name, words)."""
    seen: list[Any] = []

    def load(what: str, words: Any = ()) -> Any:
        seen.append((what, list(words)))
        raise Seen

    def call(*arguments: str) -> tuple[str, str, list[str]]:
        seen.clear()
        from headway.tasks import recipe as module

        real = module.load_recipe
        monkeypatch.setattr(module, "load_recipe", lambda what, words=(): load(what, words) if words else real(what))
        done = run(*arguments)
        monkeypatch.setattr(module, "load_recipe", real)
        assert seen, done.err
        return done.err, *seen[0]

    return call


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["--lr", "1e-4"], ["train.lr=1e-4"]),
        (["--lr=1e-4"], ["train.lr=1e-4"]),
        (["--learning-rate", "1e-4"], ["train.lr=1e-4"]),
        (["--train.lr", "1e-4"], ["train.lr=1e-4"]),
        (["--model.depth", "4"], ["model.depth=4"]),
        (["--steps", "200", "seed=3"], ["seed=3", "train.steps=200"]),
        (["--epochs", "3", "--batch_size", "8"], ["train.epochs=3", "train.batch=8"]),
        (["--keep-best"], ["train.keep_best=true"]),
        (["--keep-best", "false"], ["train.keep_best=false"]),
        (["--keep-best", "--seed", "1"], ["train.keep_best=true", "seed=1"]),
        (["--model.from", "./x"], ["model.from=./x"]),
        (["--weight-decay", "-1"], ["train.weight_decay=-1"]),
        (["--data.train", "a b.csv"], ["data.train=a b.csv"]),
        (["-q", "--lr", "1"], ["train.lr=1"]),
    ],
)
def test_options_become_settings(recipe: Any, typed: list[str], words: list[str]) -> None:
    told, name, found = recipe("train", "tiny", *typed)
    assert (name, found) == ("tiny", words)
    said = [line for line in told.splitlines() if " is read as " in line]
    assert len(said) == (0 if "-q" in typed else sum(word.startswith("--") for word in typed))
    if "seed=3" not in typed:  # a recipe comes before its settings
        assert recipe("train", *typed, "tiny")[1:] == ("tiny", words)


def test_the_task_of_the_recipe_decides(run: Run) -> None:
    done = run("train", "tag", "--scheme", "nonsense")
    assert done.code == 3 and "--scheme nonsense is read as tag.scheme=nonsense" in done.err
    done = run("train", "tiny", "--scheme", "bio")
    assert done.code == 2 and "tag.scheme" not in done.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["train", "classify", "--dropout", "0.2"], "model.dropout=0.2 or classify.dropout=0.2"),
        (["train", "tiny", "--lr"], "train.lr=VALUE"),
        (["train", "tiny", "--lr", "--seed", "1"], "train.lr=VALUE"),
        (["train", "tiny", "--quite"], '"--quiet"'),
        (["train", "tiny", "--leraning-rate", "1"], "train.lr=VALUE"),
        (["train", "tiny", "--xyzzy"], "headway train --help"),
        (["run", "last", "x", "--temprature=1"], "temperature=VALUE"),
        (["run", "last", "x", "--tokns", "3"], '"--tokens"'),
        (["run", "last", "x", "-z"], "-z"),
        (["runs", "show", "last", "--jsno"], '"--json"'),
        (["doctor", "--lr", "1"], "headway doctor --help"),
        (["serve", "last", "--slot", "3"], "slots=VALUE"),
        (["train", "tiny", "--resume-from", "x"], '"--resume"'),
    ],
)
def test_what_is_not_understood_is_answered(run: Run, words: list[str], named: str) -> None:
    done = run(*words)
    assert (done.code, done.out) == (2, "") and named in done.err
    assert done.err.count("error[U001]") == 1


def test_run_takes_settings_of_generation(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("run", "last", "--temperature", "0.5", "once upon", "--top-k=3", "--max-new-tokens", "7")
    assert done.code == 5  # the settings are fine, the run is missing
    assert "temperature=0.5" in done.err and "top_k=3" in done.err and "max_tokens=7" in done.err
    assert run("run", "last", "x", "--temperature", "-1").code == 3
    assert run("run", "last", "x", "--classify.pool", "nonsense").code == 3
    done = run("run", "last", "x", "--n-best", "2", "--beam", "4")
    assert done.code == 5 and "n_best=2" in done.err


def test_values_of_real_options_are_left_alone(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--seed is an option of `headway run`, and a setting of recipes; what follows -- is text."""
    monkeypatch.chdir(tmp_path)
    assert "is read as" not in run("run", "last", "x", "--seed", "3").err
    done = run("run", "last", "--regex", "--temperature", "x", "--temperature", "2")
    assert "--temperature 2 is read as temperature=2" in done.err
    assert "is read as" not in run("run", "last", "--", "--temperature", "2").err


def test_other_verbs_take_them_too(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "quant=int9" in run("export", "a", "b", "--quantize", "int9").err
    assert "train.lr=1e-3,-1" in run("compare", "tiny", "--lr=1e-3,-1").err
    assert "seeds=x" in run("compare", "tiny", "--seeds", "x").err
    assert "train.lr=-3" in run("check", "--training", "tiny", "--learning-rate", "-3").err
    assert "task=choices" in run("eval", "last", "q.jsonl", "--task", "choices", "--shots", "-1").err
    assert "slots=0" in run("serve", "last", "--slots", "0").err


def test_no_real_option_is_shadowed(run: Run) -> None:
    """A verb's own options never reach the table of settings: the parser takes them first."""
    from typer.main import get_command

    from headway.cli.app import app

    commands: Any = get_command(app)
    for verb in VERBS:
        real = {name for param in commands.commands[verb].params for name in param.opts if name.startswith("--")}
        for name in real - {"--help"}:
            assert f"has no option {name}" not in run(verb, "x", name).err
