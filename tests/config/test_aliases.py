"""Old keys of settings: they load under their new keys, with a note if a person wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.config import aliases
from headway.config.aliases import ALIASES, current_keys
from headway.config.recipe import Recipe, load_recipe, read_recipe, with_overrides, with_settings
from headway.config.toml import to_dict, to_toml
from headway.errors import ConfigError


@pytest.fixture(autouse=True)
def notes(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Each test sees the notes that it causes, which come once in a process."""
    aliases._note.cache_clear()
    return caplog


def nested(key: str, value: Any) -> dict[str, Any]:
    section, _, name = key.rpartition(".")
    budget = {"steps": 1000} if section == "train" else {}
    return {section: {**budget, name: value}} if section else {name: value}


def setting(recipe: Recipe, key: str) -> Any:
    value: Any = to_dict(recipe)
    for name in key.split("."):
        value = value[name]
    return value


def other(value: Any) -> Any:
    """A value that is not the default."""
    if isinstance(value, bool):
        return not value
    return {str: "no", int: 3, float: 0.125}[type(value)] if value != "none" else "balanced"


def test_an_alias_leads_from_a_key_that_is_gone_to_one_that_exists() -> None:
    known = {
        f"{section}.{key}" for section, keys in to_dict(Recipe()).items() if isinstance(keys, dict) for key in keys
    }
    assert set(ALIASES.values()) <= known | set(to_dict(Recipe())) and not ALIASES.keys() & known


@pytest.mark.parametrize("old", ALIASES)
def test_an_old_key_sets_its_new_key(old: str, tmp_path: Path, notes: pytest.LogCaptureFixture) -> None:
    new = ALIASES[old]
    values = nested(old, other(setting(Recipe(), new)))
    path = tmp_path / "old.toml"
    path.write_text(to_toml(values))
    word = f"{old}={path.read_text().rpartition(' = ')[2].strip()}"
    for recipe in (
        load_recipe(str(path))[1],
        with_overrides(Recipe(), [word]),
        with_settings(Recipe(), values),
        read_recipe(values),
    ):
        assert setting(recipe, new) == other(setting(Recipe(), new)) != setting(Recipe(), new)
    assert [record.getMessage() for record in notes.records] == [f"{old} is now called {new}"]


def test_the_recipe_of_a_run_loads_without_a_note(notes: pytest.LogCaptureFixture) -> None:
    assert read_recipe({"tag": {"smoothing": 0.5, "context": 3}}).tag.label_smoothing == 0.5
    assert not notes.records


def test_a_section_can_be_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliases, "ALIASES", {"old": "train", "seeds": "seed", "data.size": "train.batch"})
    assert current_keys({"old": {"steps": 3}, "seeds": 1}, note=False) == {"train": {"steps": 3}, "seed": 1}
    assert current_keys({"data": {"size": 3}}, note=False) == {"data": {}, "train": {"batch": 3}}


def test_both_keys_at_once_are_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        read_recipe({"tag": {"smoothing": 0.5, "label_smoothing": 0.5}})
    assert caught.value.code == "C004" and "tag.label_smoothing" in caught.value.message


@pytest.mark.parametrize("values", [{"tag": 3}, {"tag": {"smoothin": 1}}, {"train": {"batsh": 1}}])
def test_other_mistakes_are_left_to_the_reader(values: dict[str, Any]) -> None:
    assert current_keys(values) == values
    with pytest.raises(ConfigError) as caught:
        read_recipe(values)
    assert caught.value.code in ("C002", "C014")
