"""Every rule with a short training run that really shows what the rule is about, and runs that show nothing."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

import pytest

from headway.report.advice.evidence import Evidence
from headway.report.advice.rules import RULES, suggestions
from headway.report.advice.suggestion import Suggestion, train_command
from headway.report.diagnostics import verdict
from headway.runs.history import History, read_run
from headway.tasks.recipe import Recipe, load_recipe
from tests.report.advice.conftest import (
    CLASSIFY,
    LM,
    Trained,
    easy_rows,
    predictable_text,
    random_rows,
    sentence,
    syllables,
    write_rows,
    write_text,
)
from tests.runs.conftest import event, finished, steps, write_run


def names(run: History) -> list[str]:
    return [suggestion.name for suggestion in suggestions(run)]


def only(run: History, name: str) -> Suggestion:
    """The one suggestion for a run."""
    (found,) = suggestions(run)
    assert found.name == name, found
    return found


def changed(suggestion: Suggestion) -> Recipe:
    """The recipe that the command would train: it is complete, and it can be read."""
    headway, verb, *words = shlex.split(suggestion.command)
    assert (headway, verb) == ("headway", "train")
    return load_recipe(words[0], words[1:])[1]


# --- the result


@pytest.mark.parametrize(("rate", "suggested"), [("5", 3e-3), ("1e-7", 3e-3)])
def test_nothing_learned_because_of_the_rate(trained: Trained, rate: str, suggested: float) -> None:
    write_rows(easy_rows(200))
    run = trained("classify", *CLASSIFY, "train.epochs=3", f"train.lr={rate}")
    found = only(run, "nothing_learned")
    recipe = changed(found)
    assert recipe.train.lr == suggested
    assert (recipe.data.train, recipe.train.epochs, recipe.model.width) == ("rows.csv", 3, 16), "all else is kept"
    assert "without trouble" not in verdict(run)[1] and "learned nothing" in verdict(run)[1]


def test_nothing_learned_because_the_run_is_short(trained: Trained) -> None:
    write_text(predictable_text(3000))
    found = only(trained("lm", *LM, "train.steps=20", "train.lr=1e-3"), "nothing_learned")
    assert changed(found).train.steps == 80


def test_at_chance_although_the_training_loss_fell(trained: Trained) -> None:
    write_rows(random_rows(60, 0.5))
    run = trained("classify", *CLASSIFY, "train.epochs=40", "train.lr=1e-2", "train.eval_every=40", "model.width=32")
    found = only(run, "at_chance")
    assert shlex.split(found.command) == ["headway", "data", "rows.csv"]
    assert "no better than guessing" in verdict(run)[1]


@pytest.mark.parametrize(
    ("rising", "best", "guess", "guessing"),
    [
        (False, 0.03, 0.99, False),  # an error far below that of guessing
        (False, 0.98, 0.99, True),
        (False, 0.4, 1.3, False),  # an error above 1 is no percentage
        (True, 0.98, 0.5, False),
        (True, 0.52, 0.5, True),
        (True, 1.0, 1.0, None),  # nothing is left to learn
    ],
)
def test_whether_a_run_is_better_than_guessing_depends_on_the_direction_of_its_metric(
    tmp_path: Path, rising: bool, best: float, guess: float, guessing: bool | None
) -> None:
    data = event("data", chance={"score": guess}, valid_samples=200)
    start = event("start", goal="score", rising=rising)
    evals = [event("eval", step=50, valid=0.1, score=best)]
    run = read_run(write_run(tmp_path / "lm", [start, data, *steps(1, 100), *evals, event("end")]))
    assert Evidence(run).guessing is guessing


def test_one_class(trained: Trained) -> None:
    write_rows(random_rows(300, 0.95))
    run = trained("classify", *CLASSIFY, "train.epochs=2", "train.lr=1e-3")
    assert changed(only(run, "one_class")).settings.class_weights == "balanced"
    assert "same label" in verdict(run)[1]


# --- the learning rate


def test_rate_too_high(trained: Trained) -> None:
    write_text(predictable_text(20_000))
    run = trained("lm", *LM, "train.steps=150", "train.warmup=60", "train.lr=0.5", "train.eval_every=15")
    assert changed(only(run, "rate_too_high")).train.lr == 3e-3


def test_rate_too_low(trained: Trained) -> None:
    write_text(predictable_text(9000))
    run = trained("lm", *LM, "train.steps=200", "train.lr=5e-4", "train.eval_every=40")
    assert changed(only(run, "rate_too_low")).train.lr == 3e-3


def test_not_finite(trained: Trained) -> None:
    write_text(predictable_text(3000))
    run = trained("lm", *LM, "train.steps=20", "train.lr=1e20", "train.clip=0", "train.warmup=0")
    recipe = changed(only(run, "not_finite"))
    assert run.status == "diverged" and (recipe.train.lr, recipe.train.clip) == (3e-3, 1)


# --- the budget


def test_stopped(trained: Trained) -> None:
    write_text(predictable_text(3000))
    run = trained("lm", *LM, "train.steps=20", interrupted=True)
    assert shlex.split(only(run, "stopped").command) == ["headway", "train", "--resume", str(run.folder)]


def test_still_warming_up(trained: Trained) -> None:
    write_text(predictable_text(9000))
    run = trained("lm", *LM, "train.steps=80", "train.warmup=70", "train.lr=5e-3", "train.eval_every=20")
    assert changed(only(run, "still_warming_up")).train.warmup == 8
    assert "without trouble" not in verdict(run)[1]


def test_less_than_an_epoch(trained: Trained) -> None:
    write_text(predictable_text(20_000))
    run = trained("lm", *LM, "train.steps=60", "train.lr=3e-3", "train.eval_every=15")
    recipe = changed(only(run, "less_than_an_epoch"))
    assert (recipe.train.epochs, recipe.train.steps) == (1, None)


def test_still_falling(trained: Trained) -> None:
    write_text(predictable_text(9000))
    run = trained("lm", *LM, "train.steps=60", "train.lr=1e-3", "train.eval_every=10")
    assert changed(only(run, "still_falling")).train.steps == 120


# --- training and validation


def test_overfitting(trained: Trained) -> None:
    write_text(syllables(330))
    words = ("train.steps=150", "train.lr=1e-2", "train.eval_every=15", "model.width=32", "train.keep_best=false")
    recipe = changed(only(trained("lm", *LM, *words), "overfitting"))
    assert recipe.train.keep_best and recipe.model.dropout == 0.1


def test_best_early(trained: Trained) -> None:
    write_text(syllables(330))
    run = trained("lm", *LM, "train.steps=150", "train.lr=1e-2", "train.eval_every=15", "model.width=32")
    assert changed(only(run, "best_early")).train.patience == 3


def test_data_too_small(trained: Trained) -> None:
    write_text(syllables(160))
    run = trained("lm", *LM, "train.steps=150", "train.lr=1e-2", "train.eval_every=15", "model.width=32")
    recipe = changed(only(run, "data_too_small"))
    assert (recipe.model.depth, recipe.model.width) == (1, 16)


# --- the data


def test_labels_unbalanced(trained: Trained) -> None:
    """Texts of the rare label look like those of the most common one."""
    dice = random.Random(0)
    labels = dice.choices(["yes", "no", "rare"], [0.6, 0.3, 0.1], k=400)
    write_rows((f"{'bad' if label == 'no' else 'good'} {sentence(dice)}", label) for label in labels)
    run = trained("classify", *CLASSIFY, "train.epochs=6", "train.lr=5e-3", "train.eval_every=30")
    assert changed(only(run, "labels_unbalanced")).settings.class_weights == "balanced"


def test_examples_cut(trained: Trained) -> None:
    write_rows(easy_rows(200, 20))
    run = trained("classify", *CLASSIFY, "train.epochs=12", "train.lr=5e-3", "train.eval_every=30")
    found = only(run, "examples_cut")
    assert changed(found).data.length == 24, "22 words and two special tokens, in steps of 8"
    assert "200 of 200" in found.reason


def test_rows_skipped(trained: Trained) -> None:
    write_rows([*easy_rows(200), ("a text without a label", "")])
    words = ("train.epochs=8", "train.lr=5e-3", "train.eval_every=30", "data.bad_rows=skip")
    found = only(trained("classify", *CLASSIFY, *words), "rows_skipped")
    assert shlex.split(found.command) == ["headway", "data", "rows.csv", "--bad"]


def test_slowed_down(tmp_path: Path) -> None:
    """A log: the run would have to take ten minutes."""
    log, seconds = finished(), 0.0
    for i, line in enumerate(line for line in log if line["event"] == "step"):
        seconds += 10 if i < 85 else 30
        line["seconds"] = seconds
    assert names(read_run(write_run(tmp_path / "run-0001", log))) == ["slowed_down"]


def test_every_rule_has_a_test() -> None:
    rules = [rule.check.__name__ for rule in RULES if rule.check.__name__ != "collapsed"]  # tests/tasks/dino has it
    assert [name for name in rules if not any(each.startswith(f"test_{name}") for each in globals())] == []


# --- calm runs, and commands


@pytest.mark.parametrize("seed", [1, 2])
def test_a_calm_run_gets_no_advice(trained: Trained, seed: int) -> None:
    write_text(predictable_text(9000))
    words = ("train.steps=250", "train.lr=5e-3", "train.schedule=cosine", "train.eval_every=50", f"seed={seed}")
    run = trained("lm", *LM, *words)
    assert suggestions(run) == []
    assert "without trouble" in verdict(run)[1]
    write_rows(easy_rows(200))
    run = trained("classify", *CLASSIFY, "train.epochs=10", "train.lr=5e-3", "train.eval_every=30", f"seed={seed}")
    assert suggestions(run) == []


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["embed", "classify", "tag"])
def test_a_shipped_recipe_gets_no_advice(trained: Trained, recipe: str) -> None:
    assert names(trained(recipe)) == []


def test_commands_keep_the_words_and_replace_the_budget(tmp_path: Path) -> None:
    words = ["lm", "data.train=my book.txt", "train.minutes=2", "train.lr=0.1"]
    log = [event("start", step=0, words=words), *finished()[1:]]
    log += [event("restart", step=100, words=["train.lr=0.2"]), event("end", step=100, signal=0)]
    run = read_run(write_run(tmp_path / "run-0001", log))
    command = train_command(run, {"train.epochs": 2, "train.keep_best": True})
    assert command == "headway train lm 'data.train=my book.txt' train.lr=0.2 train.epochs=2 train.keep_best=true"


def test_without_recorded_words_the_recipe_of_the_run_is_used(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a run", finished()))
    headway, verb, *words = shlex.split(train_command(run, {"train.lr": 0.5}))
    assert (headway, verb, words) == ("headway", "train", [str(run.folder / "run" / "recipe.toml"), "train.lr=0.5"])
    assert load_recipe(words[0], words[1:])[1].train.lr == 0.5
