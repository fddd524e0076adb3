"""Old names of settings: they load under their new names, with a warning where a person wrote them."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from headway.config.recipe import Recipe, load_recipe, read_recipe, with_settings
from headway.config.tasks import ALIASES
from headway.config.toml import to_dict
from headway.errors import ConfigError


def test_every_alias_leads_from_a_name_that_is_gone_to_one_that_exists() -> None:
    known = {
        f"{section}.{key}" for section, keys in to_dict(Recipe()).items() if isinstance(keys, dict) for key in keys
    }
    assert set(ALIASES.values()) <= known and not ALIASES.keys() & known


@pytest.mark.parametrize("old", ALIASES)
def test_an_old_recipe_loads_with_a_warning(old: str, tmp_path: Path) -> None:
    (section, before), (_, after) = old.split("."), ALIASES[old].split(".")
    value = getattr(getattr(Recipe(), section), after)
    text = f'"{value}"' if isinstance(value, str) else str(value).lower()
    path = tmp_path / "old.toml"
    path.write_text(f"[{section}]\n{before} = {text}\n")
    with pytest.warns(FutureWarning, match=f"{section}.{before} is now {section}.{after}"):
        assert load_recipe(str(path))[1] == Recipe()


def test_old_names_reach_their_settings() -> None:
    with pytest.warns(FutureWarning):
        assert load_recipe("sst2", ["classify.rdrop=0.25", "classify.smoothing=0.5"])[1].classify.r_drop == 0.25
    with pytest.warns(FutureWarning):
        assert with_settings(Recipe(), {"seq2seq": {"longest": 7}}).seq2seq.max_new_tokens == 7


def test_what_a_run_has_recorded_loads_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_recipe({"tag": {"smoothing": 0.5, "context": 3}}).tag.label_smoothing == 0.5


def test_both_names_at_once_are_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        read_recipe({"tag": {"smoothing": 0.5, "label_smoothing": 0.5}})
    assert caught.value.code == "C004" and "tag.label_smoothing" in caught.value.message
