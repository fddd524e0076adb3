"""Recipes: the section of a task, sections of other tasks, and old names of settings."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from headway.config import aliases
from headway.config.toml import to_toml
from headway.errors import ConfigError, HeadwayError
from headway.tasks.recipe import Recipe, load_recipe, read_recipe, recipe_values, with_settings
from headway.tasks.registry import BUILT_IN, get_task

RENAMED = [(name, old, new) for name in BUILT_IN for old, new in get_task(name).renamed.items()]


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_recipe_is_what_it_was_saved_as(name: str) -> None:
    recipe = Recipe(task=name, seed=5)
    assert read_recipe(recipe_values(recipe)) == recipe
    assert type(recipe.settings) is get_task(name).Settings


@pytest.fixture
def notes(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The notes of one test; a process prints each only once."""
    aliases._note.cache_clear()
    return caplog


@pytest.mark.parametrize(("name", "old", "new"), RENAMED)
def test_an_old_name_loads_with_a_note(
    name: str, old: str, new: str, tmp_path: Path, notes: pytest.LogCaptureFixture
) -> None:
    settings = get_task(name).Settings
    assert new in {each.name for each in fields(settings)} and old not in {each.name for each in fields(settings)}
    path = tmp_path / "old.toml"
    path.write_text(to_toml({"task": name, name: {old: getattr(settings(), new)}}))
    assert load_recipe(str(path))[1] == Recipe(task=name)
    assert [record.getMessage() for record in notes.records] == [f"{name}.{old} is now called {name}.{new}"]


def test_old_names_as_words_and_in_shared_sections(notes: pytest.LogCaptureFixture) -> None:
    assert load_recipe("sst2", ["classify.rdrop=0.25", "classify.smoothing=0.5"])[1].settings.r_drop == 0.25
    assert with_settings(Recipe(task="seq2seq"), {"seq2seq": {"longest": 7}}).settings.max_new_tokens == 7
    assert load_recipe("tiny", ["train.record=false"])[1].train.cuda_graphs is False
    assert len(notes.records) == 4


def test_a_whole_section_can_be_renamed() -> None:
    renamed = {"old": "train", "seeds": "seed", "data.size": "train.batch"}
    assert aliases.current_keys({"old": {"steps": 3}, "seeds": 1}, renamed) == {"train": {"steps": 3}, "seed": 1}
    assert aliases.current_keys({"data": {"size": 3}}, renamed) == {"data": {}, "train": {"batch": 3}}


def test_a_recorded_recipe_loads_in_silence_with_the_sections_of_all_tasks(notes: pytest.LogCaptureFixture) -> None:
    recorded = {"task": "tag", "tag": {"smoothing": 0.5}, "mlm": {"share": 0.2}, "seq2seq": {"beam": 4}}
    assert read_recipe(recorded).settings.label_smoothing == 0.5 and not notes.records


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"task": "tag", "tag": {"smoothing": 0.5, "label_smoothing": 0.5}}, "C004"),
        ({"task": "tag", "tag": 3}, "C002"),
        ({"task": 3}, "C002"),
        ({"task": "tagg"}, "C003"),
        ({"task": "tag", "tag": {"beam": 3}}, "C014"),
        ({"settings": {}}, "C014"),
        ({"task": "tag", "model": {"kind": "lstm"}}, "C004"),
    ],
)
def test_wrong_values_are_named(values: dict[str, object], code: str) -> None:
    with pytest.raises(HeadwayError) as caught:
        read_recipe(values)
    assert caught.value.code == code


def test_a_section_of_another_task_is_an_error_where_a_person_wrote_it() -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe("classify", ["tag.dropout=0.3"])
    assert caught.value.code == "C004" and "tag" in caught.value.message


def test_a_recipe_file_of_an_older_run_trains_again(tmp_path: Path, notes: pytest.LogCaptureFixture) -> None:
    """Older versions wrote every task's section; `headway train RUN/run/recipe.toml` repeats a run."""
    path = tmp_path / "recipe.toml"
    path.write_text('task = "tag"\n[tag]\nsmoothing = 0.5\n[mlm]\nshare = 0.2\n[seq2seq]\nbeam = 4\n')
    assert load_recipe(str(path))[1] == Recipe(task="tag", settings=get_task("tag").Settings(label_smoothing=0.5))
    assert [record.getMessage() for record in notes.records] == ["tag.smoothing is now called tag.label_smoothing"]


def test_a_task_has_a_recipe_by_its_own_name_and_can_be_chosen_by_a_word() -> None:
    assert load_recipe("seq2seq")[1] == load_recipe("translate")[1]
    assert load_recipe("classify", ["task=tag"])[1].task == "tag"
