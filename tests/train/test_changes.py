"""Which settings of a recipe may change when its run is resumed: each is classified, and classified once."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from headway.errors import ConfigError
from headway.tasks.recipe import Recipe, load_recipe, with_overrides
from headway.train.changes import FIXED, FREE, check_changes, flat, recipe_changes, value_changes
from headway.train.run import Run, resume, start, train


def test_every_setting_is_free_or_fixed_and_not_both() -> None:
    assert FREE.isdisjoint(FIXED)
    assert set(flat(Recipe())) == FREE | FIXED


def test_changes_are_listed_as_they_are_written() -> None:
    before = load_recipe("tiny", ["train.steps=400"])[1]
    changes = recipe_changes(before, with_overrides(before, ["train.steps=800", "train.lr=0.1", "data.train=x.txt"]))
    assert sorted(map(str, changes)) == ["data.train unset → x.txt", "train.lr 0.003 → 0.1", "train.steps 400 → 800"]


@pytest.mark.parametrize(
    "word",
    [
        *("seed=2", "train.batch=4", "train.optimizer=sgd", "data.length=32", "train.ema=0.9", "train.patience=3"),
        *("model.width=64", "data.tokenizer=chars", "data.bad_rows=skip", "data.rows=pad", "model.norm=dyt"),
    ],
)
def test_what_makes_another_run_is_refused(word: str) -> None:
    before = load_recipe("tiny", ["train.batch=8"])[1]
    with pytest.raises(ConfigError) as caught:
        check_changes(before, with_overrides(before, [word]))
    assert caught.value.code == "C040" and word.partition("=")[0] in caught.value.message


def test_parts_of_a_batch_may_change_but_not_the_batch() -> None:
    before = load_recipe("tiny", ["train.batch=0", "train.accumulate=1"])[1]
    from headway.tasks.recipe import batch_size

    size = batch_size(before)
    parts = next(n for n in range(2, size + 1) if size % n == 0)
    assert len(check_changes(before, with_overrides(before, [f"train.accumulate={parts}"]))) == 1
    with pytest.raises(ConfigError) as caught:
        check_changes(before, with_overrides(before, [f"train.accumulate={size - 1}"]))
    assert caught.value.code == "C040"


def test_values_that_only_one_side_knows_are_no_change() -> None:
    old, new = {"a": 1, "b": {"c": 2, "gone": 3}}, {"a": 1, "b": {"c": 4, "new": 5}}
    assert [str(change) for change in value_changes(old, new)] == ["b.c 2 → 4"]


SMALL = [
    *("model.depth=1", "model.width=16", "model.heads=2", "data.length=16", "train.batch=4", "train.steps=6"),
    *("train.eval_every=6", "train.sample_every=6", "train.save_every=3", "train.warmup=0"),
]


def stopped(tmp_path: Path) -> Run:
    (tmp_path / "text.txt").write_text("some text to learn from\n" * 60)
    words = [*SMALL, f"data.train={tmp_path / 'text.txt'}", f"out={tmp_path / 'runs'}"]
    run = start(*load_recipe("tiny", words))

    def interrupt(kind: str, **facts: Any) -> None:
        if kind == "step" and facts["step"] == 3:
            run.loop.stop_signal = signal.SIGTERM

    return train(run, interrupt)


def never(path: Path, why: str) -> None:
    pytest.fail(why)


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "run" / "recipe.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_edited_recipe_is_told_or_refused(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    edit(run.folder, "steps = 6", "steps = 8")
    again = resume(run.folder, never)
    assert again.notes == ["train.steps 6 → 8"]
    edit(run.folder, "seed = 1337", "seed = 7")
    with pytest.raises(ConfigError) as caught:
        resume(run.folder, never)
    assert caught.value.code == "C040" and "seed 1337 → 7" in caught.value.message


def test_words_on_top_are_kept_with_the_run(tmp_path: Path) -> None:
    run = stopped(tmp_path)
    again = train(resume(run.folder, never, ["train.steps=9", "train.keep=1"]), lambda kind, **facts: None)
    assert again.loop.progress.step == 9
    assert resume(run.folder, never).notes == []
    further = train(resume(run.folder, never, ["train.steps=12"]), lambda kind, **facts: None)
    assert further.loop.progress.step == 12 and (run.folder / "model.safetensors").exists()
