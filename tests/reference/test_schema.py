"""The JSON Schema of recipes: it accepts what headway accepts, and refuses what headway refuses."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("jsonschema_rs")

import jsonschema_rs

from headway.errors import ConfigError
from headway.reference.recipes import recipes
from headway.reference.schema import DIALECT, recipe_schema
from headway.tasks.recipe import read_recipe, recipe_values

SCHEMA = recipe_schema()
VALID = jsonschema_rs.Draft202012Validator(SCHEMA)


def test_it_is_a_schema() -> None:
    jsonschema_rs.meta.validate(SCHEMA)
    assert SCHEMA["$schema"] == DIALECT
    rate = SCHEMA["properties"]["train"]["properties"]["lr"]
    assert (rate["type"], rate["minimum"]) == (["number", "null"], 0)
    assert SCHEMA["properties"]["model"]["properties"]["depth"]["default"] == 4
    assert all("description" in each for each in SCHEMA["properties"]["train"]["properties"].values())


def test_every_recipe_follows_it() -> None:
    for each in recipes():
        VALID.validate(each.values)
        VALID.validate(recipe_values(read_recipe(each.values)))  # all settings, as a run's folder has them


@pytest.mark.parametrize(
    "values",
    [
        {"train": {"lr": -1.0}},
        {"train": {"steps": 1.5}},
        {"train": {"steps": 5, "layer_decay": 0.0}},
        {"train": {"steps": 5, "betas": ["a"]}},
        {"train": {"steps": 5, "learning_rate": 1}},
        {"tran": {"lr": 1.0}},
        {"task": "lm", "model": {"depth": "4"}},
        {"model": {"positions": "rotary"}},
        {"model": {"dropout": 1.0}},
        {"task": "nothing"},
        {"task": "tag", "tag": {"scheme": "iob"}},
        {"seed": "x"},
    ],
)
def test_both_refuse_what_is_wrong(values: dict[str, Any]) -> None:
    assert not VALID.is_valid(values)
    with pytest.raises(ConfigError):
        read_recipe(values)


def test_the_section_of_another_task_is_refused() -> None:
    assert VALID.is_valid({"task": "tag", "tag": {"context": 4}})
    assert not VALID.is_valid({"task": "lm", "tag": {"context": 4}})
    assert not VALID.is_valid({"tag": {"context": 4}})
