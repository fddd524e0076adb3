"""The comparisons that come with headway: every file is one that can be started as it stands."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from headway.errors import ConfigError
from headway.runs.equal import prepare, terms
from headway.runs.grid import grid, variant_names
from headway.runs.shipped import SHIPPED, command_words, read_shipped, shipped_names
from headway.tasks.recipe import load_recipe, recipe_names
from headway.tasks.registry import task_names

ALONE = [name for name in shipped_names() if not read_shipped(name).needs]
"""Those that need nothing from the user."""


def test_no_name_is_a_recipe_or_task_as_well() -> None:
    assert len(shipped_names()) >= 10
    assert not set(shipped_names()) & {*recipe_names(), *task_names()}


@pytest.mark.parametrize("name", ALONE)
def test_all_variants_are_planned(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings, data and shapes fit each other; each has a reason, and names its command."""
    monkeypatch.chdir(tmp_path)
    file = read_shipped(name)
    assert file.why.endswith(".") and not file.title.endswith(".")
    assert f"headway compare {name}" in (SHIPPED / f"{name}.toml").read_text(encoding="utf-8")
    plan = grid(command_words(name, []))
    assert len(set(variant_names(plan))) == len(plan.variants) >= 2 and len(plan.seeds_from(1)) >= 2
    recipes = [load_recipe(file.recipe, [*plan.common, *args])[1] for args in plan.variants]
    planned = prepare(list(zip(variant_names(plan), recipes, strict=True)))
    assert len(terms(plan.equal, planned, plan.keys)) == len(plan.variants)


def test_words_replace_those_of_the_file() -> None:
    plan = grid(command_words("norms", ["seeds=7", "train.steps=9", "model.norm=dyt,rmsnorm"]))
    assert plan.seeds_from(1) == tuple(range(1, 8)) and "train.steps=9" in plan.common
    assert plan.variants == (("model.norm=dyt",), ("model.norm=rmsnorm",))
    assert not [word for word in plan.common if word.startswith("train.steps") and word != "train.steps=9"]
    with pytest.raises(ConfigError, match="norms has a recipe of its own: tiny"):
        command_words("norms", ["recipe=lm,rnn"])


def test_what_only_the_user_can_give() -> None:
    with pytest.raises(ConfigError, match=r"pretraining needs model\.from") as caught:
        command_words("pretraining", [])
    assert caught.value.hint == "headway compare pretraining model.from=org/name"
    plan = grid(command_words("pretraining", ["model.from=org/name", "seeds=2"]))
    assert plan.variants == (("model.from=org/name",), ("model.from=",)) and variant_names(plan)[1] == "from=none"
    assert not [word for word in plan.common if word.startswith("model.from")]


def test_sentences_that_only_their_order_tells_apart() -> None:
    """Each sentence has its opposite with the same words; no such pair is in both files."""
    bags: list[set[tuple[str, ...]]] = []
    for name in ("order.csv", "order-valid.csv"):
        with (SHIPPED / name).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        labels: dict[tuple[str, ...], set[str]] = {}
        for row in rows:
            labels.setdefault(tuple(sorted(row["text"].split())), set()).add(row["label"])
        assert all(each == {"positive", "negative"} for each in labels.values()) and len(labels) * 2 == len(rows)
        bags.append(set(labels))
    assert not bags[0] & bags[1]


def test_how_much_is_trained() -> None:
    assert read_shipped("norms").size == "9 runs of 600 steps"
    assert read_shipped("pretraining").size == "6 runs of 3 epochs"
