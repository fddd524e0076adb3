"""Unknown keys name the setting that was meant, and only settings that would be accepted."""

from __future__ import annotations

import pytest

from headway.config.keys import ELSEWHERE, did_you_mean, meant, same_setting
from headway.errors import ConfigError
from headway.reference.settings import GENERATION, settings
from headway.tasks.recipe import load_recipe, read_recipe, recipe_keys, with_settings

KEYS = recipe_keys("classify")


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("lr", ["train.lr"]),
        ("train.lr", ["train.lr"]),
        ("model.lr", ["train.lr"]),
        ("learning_rate", ["train.lr"]),
        ("learning-rate", ["train.lr"]),
        ("num_train_epochs", ["train.epochs"]),
        ("batch_size", ["train.batch"]),
        ("max_length", ["data.length"]),
        ("hidden_size", ["model.width"]),
        ("from", ["model.from"]),
        ("dropout", ["model.dropout", "classify.dropout"]),
        ("pool", ["classify.pool"]),
        ("stepz", []),
        ("temperature", []),  # a setting of generation, and of another task
    ],
)
def test_a_word_stands_for_a_setting(key: str, found: list[str]) -> None:
    assert same_setting(key, KEYS) == found


@pytest.mark.parametrize(
    ("key", "best"),
    [
        ("train.stepz", "train.steps"),
        ("leraning_rate", "train.lr"),
        ("train.leraning_rate", "train.lr"),
        ("tran.weight_deacy", "train.weight_decay"),
        ("classify.droput", "classify.dropout"),
        ("modell.dept", "model.depth"),
        ("qqqq", None),
    ],
)
def test_the_nearest_setting(key: str, best: str | None) -> None:
    assert next(iter(meant(key, KEYS)), None) == best


def test_words_of_other_tools_lead_to_settings_that_exist() -> None:
    known = {each.key for each in settings()} | {"quant", "slots"}
    assert ELSEWHERE.keys() <= known
    own = {each.name for each in settings() if each.section not in GENERATION}
    doubtful = {word for words in ELSEWHERE.values() for word in words.split() if word in own}
    assert doubtful <= {
        "context",
        "rate",
        "no_repeat_ngram_size",
        "max_new_tokens",
    }  # settings of one task, and words for others elsewhere


@pytest.mark.parametrize("words", [["lr=1e-3"], ["train.learning_rate=1e-3"]])
def test_the_error_has_the_form_to_type(words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe("tiny", words)
    assert (caught.value.code, caught.value.hint) == ("C014", "write train.lr=0.001")
    assert '"train.lr"' in caught.value.message


def test_python_settings_get_the_same_answer() -> None:
    with pytest.raises(ConfigError, match=r'C014.*"train.steps"') as caught:
        with_settings(load_recipe("tiny")[1], {"steps": 200})
    assert caught.value.hint == "write train.steps=200"


def test_a_file_is_told_its_line_and_section(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "r.toml"
    path.write_text('task = "lm"\nlr = 1\n')
    with pytest.raises(ConfigError, match="line 2") as caught:
        load_recipe(str(path))
    assert caught.value.hint == "write lr = … under [train]"


def test_other_tasks_are_not_proposed() -> None:
    with pytest.raises(ConfigError) as caught:
        read_recipe({"task": "tag", "pool": "max"})
    assert "classify" not in str(caught.value) and "embed" not in str(caught.value)
    assert did_you_mean("pool", recipe_keys("tag")) == ""
    with pytest.raises(ConfigError) as caught:
        read_recipe({"nothing_like_it_at_all": 1})
    assert caught.value.hint == "headway explain lists all settings"


def test_tables_and_long_keys() -> None:
    with pytest.raises(ConfigError, match=r"'tran\.lr'"):
        read_recipe({"tran": {"lr": 1}})
    with pytest.raises(ConfigError) as caught:
        read_recipe({"x" * 5000: 1})
    assert len(str(caught.value)) < 200
    with pytest.raises(ConfigError, match=r"C002.*a table"):
        read_recipe({"train": 3})
