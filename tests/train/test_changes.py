"""Which settings of a recipe may change when its run is resumed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from headway.errors import ConfigError
from headway.tasks.recipe import Recipe, batch_size, load_recipe, with_overrides
from headway.train.changes import check_changes, flat, free_settings, recipe_changes, value_changes
from headway.train.run import resume, train
from tests.train.conftest import begin, never, quiet, stop_after

FREE = [
    "train.steps",
    "train.lr",
    "train.accumulate",
    "train.cuda_graphs",
    "data.workers",
    "data.train",
    "model.from",
    "out",
]


def test_free_settings_exist() -> None:
    assert set(FREE) <= free_settings(Recipe()) < set(flat(Recipe()))


def test_a_section_states_what_is_free() -> None:
    @dataclass
    class Section:
        often: int = 1
        what: int = 1
        free_on_resume: ClassVar = {"often"}

    @dataclass
    class Whole:
        mine: Section = field(default_factory=Section)
        plain: int = 1

    assert free_settings(Whole()) == {"mine.often"}
    assert set(flat(Whole())) == {"mine.often", "mine.what", "plain"}


def test_changes_are_listed_as_they_are_written() -> None:
    before = load_recipe("tiny", ["train.steps=400"])[1]
    changes = recipe_changes(before, with_overrides(before, ["train.steps=800", "train.lr=0.1", "data.train=x.txt"]))
    assert sorted(map(str, changes)) == ["data.train unset → x.txt", "train.lr 0.003 → 0.1", "train.steps 400 → 800"]


@pytest.mark.parametrize(
    "word",
    [
        *("seed=2", "train.batch=4", "train.optimizer=sgd", "data.length=32", "train.ema=0.9", "train.patience=3"),
        *("model.width=64", "data.tokenizer=chars", "data.bad_rows=skip", "data.rows=pad", "model.norm=dyt"),
        *("train.keep_best=true", "train.batch_tokens=9", "task=mlm"),
    ],
)
def test_a_fixed_setting_cannot_change(word: str) -> None:
    before = load_recipe("tiny", ["train.batch=8"])[1]
    with pytest.raises(ConfigError) as caught:
        check_changes(before, with_overrides(before, [word]))
    assert caught.value.code == "C040" and word.partition("=")[0] in caught.value.message


def test_the_settings_of_a_task_are_fixed() -> None:
    before = load_recipe("classify")[1]
    with pytest.raises(ConfigError) as caught:
        check_changes(before, with_overrides(before, ["classify.dropout=0.5"]))
    assert caught.value.code == "C040" and "classify.dropout" in caught.value.message


def test_gradient_accumulation_may_change_but_not_the_batch_size() -> None:
    before = load_recipe("tiny", ["train.batch=0", "train.accumulate=1"])[1]
    size = batch_size(before)
    parts = next(n for n in range(2, size + 1) if size % n == 0)
    assert len(check_changes(before, with_overrides(before, [f"train.accumulate={parts}"]))) == 1
    with pytest.raises(ConfigError) as caught:
        check_changes(before, with_overrides(before, [f"train.accumulate={size - 1}"]))
    assert caught.value.code == "C040"


def test_values_that_only_one_side_knows_are_no_change() -> None:
    old, new = {"a": 1, "b": {"c": 2, "gone": 3}}, {"a": 1, "b": {"c": 4, "new": 5}}
    assert [str(change) for change in value_changes(old, new)] == ["b.c 2 → 4"]


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "run" / "recipe.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_edited_recipe_is_noted_or_refused(tmp_path: Path) -> None:
    run = stop_after(begin(tmp_path), 3)
    edit(run.folder, "\nsteps = 6", "\nsteps = 8")
    assert resume(run.folder, never).notes == ["train.steps 6 → 8"]
    edit(run.folder, "seed = 1337", "seed = 7")
    with pytest.raises(ConfigError) as caught:
        resume(run.folder, never)
    assert caught.value.code == "C040" and "seed 1337 → 7" in caught.value.message


def test_overrides_stay_with_the_run(tmp_path: Path) -> None:
    run = stop_after(begin(tmp_path), 3)
    again = train(resume(run.folder, never, ["train.steps=9", "train.keep=1"]), quiet)
    assert again.loop.progress.step == 9
    assert resume(run.folder, never).notes == []
    further = train(resume(run.folder, never, ["train.steps=12"]), quiet)
    assert further.loop.progress.step == 12 and (run.folder / "model.safetensors").exists()


def test_a_run_with_old_keys_is_resumed(tmp_path: Path) -> None:
    """In the recipe of its folder and in the record of its checkpoint."""
    run = stop_after(begin(tmp_path), 3)
    edit(run.folder, "cuda_graphs = true", "record = true")
    assert resume(run.folder, never).notes == []
    assert resume(run.folder, never, ["train.record=false"]).notes == ["train.cuda_graphs True → False"]
