"""Settings from Python: every way to write one gives the same recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.api.settings import full_key, recipe_words, run_words, setting_keys, word
from headway.config.toml import parse_overrides
from headway.errors import ConfigError, NotFoundError
from headway.tasks.recipe import load_recipe
from headway.tasks.registry import task_names


@pytest.mark.parametrize(
    ("given", "more"),
    [
        (("train.steps=7", "data.train=book.txt"), {}),
        (({"train.steps": 7}, "data.train=book.txt"), {}),
        (({"train": {"steps": 7}, "data": {"train": "book.txt"}},), {}),
        ((), {"train": {"steps": 7}, "data": {"train": Path("book.txt")}}),
        ((), {"steps": 7, "data": "book.txt"}),
        (("train.steps=3",), {"steps": np.int64(7), "data": Path("book.txt")}),
        ((), {"train.steps": 7, "data.train": "book.txt"}),
    ],
)
def test_all_ways_lead_to_one_recipe(given: tuple[Any, ...], more: dict[str, Any]) -> None:
    recipe = load_recipe("tiny", recipe_words("tiny", given, more))[1]
    assert recipe == load_recipe("tiny", ["train.steps=7", "data.train=book.txt"])[1]


def test_a_model_may_be_named_alone() -> None:
    assert recipe_words("classify", (), {"model": "org/name"}) == ["model.from=org/name"]
    assert recipe_words("classify", (), {"model": {"from_": "org/name", "lora": 8}}) == [
        "model.from=org/name",
        "model.lora=8",
    ]


@pytest.mark.parametrize(
    ("task", "key", "full"),
    [
        ("lm", "steps", "train.steps"),
        ("lm", "lr", "train.lr"),
        ("lm", "depth", "model.depth"),
        ("lm", "from_", "model.from"),
        ("lm", "seed", "seed"),
        ("seq2seq", "beam", "seq2seq.beam"),
        ("lm", "train.steps", "train.steps"),
        ("lm", "train.stepz", "train.stepz"),  # the recipe knows what is near
    ],
)
def test_a_last_part_is_enough_where_one_section_has_it(task: str, key: str, full: str) -> None:
    assert full_key(key, task) == full


def test_ambiguous_and_unknown_keys_name_the_dotted_form() -> None:
    for task in task_names():
        last = [key.rpartition(".")[2] for key in setting_keys(task)]
        for key in {key for key in last if last.count(key) > 1}:
            if key in setting_keys(task):  # a section, or a setting of the recipe itself
                continue
            with pytest.raises(ConfigError, match=r"C014.* or ") as caught:
                full_key(key, task)
            assert f".{key}" in caught.value.message
    with pytest.raises(ConfigError, match=r"C014.*stepz.*train\.steps"):
        recipe_words("tiny", (), {"stepz": 3})
    with pytest.raises(ConfigError, match=r'C014.*"train\.lr"'):
        recipe_words("tiny", (), {"learning_rate": 1e-3})
    with pytest.raises(ConfigError, match=r'C014.*"data\.length"'):
        run_words("lm", {"max_seq_lenght": 64})
    with pytest.raises(ConfigError, match="C014"):
        recipe_words("tiny", (), {"xyzzy": 3})
    with pytest.raises(ConfigError, match=r"C001(.|\n)*data\.train=book\.txt"):
        recipe_words("tiny", ("book.txt",), {"steps": 3})
    with pytest.raises(NotFoundError, match=r"F001.*tiny"):
        recipe_words("tinny", (), {"steps": 3})


@pytest.mark.parametrize(
    "value",
    [
        1,
        -2,
        1e-4,
        1e-9,
        3e22,
        True,
        "a",
        "true",
        "7",
        "a,b",
        'say "x"',
        "a\x7fb",
        "ä ö",
        "x=y",
        [1, 2],
        ["a", "b,c"],
        "",
    ],
)
def test_a_word_reads_back_as_its_value(value: Any) -> None:
    found = parse_overrides([word("a.b", value)])["a"]["b"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("value", [None, float("nan"), object(), {1, 2}, []])
def test_what_is_no_value_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="C002"):
        word("train.lr", value)
    with pytest.raises(ConfigError, match="C002"):
        recipe_words("tiny", (3,), {})  # type: ignore[arg-type]


def test_a_run_has_its_task() -> None:
    assert run_words("lm", {"steps": 9, "train": {"lr": 0.1}}) == ["train.steps=9", "train.lr=0.1"]
