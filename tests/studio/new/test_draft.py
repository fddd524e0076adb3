"""Form, TOML and command line say the same, whichever of them is edited."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

from headway.errors import ConfigError, HeadwayError, UsageError
from headway.studio.new.draft import draft, flatten, from_command, from_toml, placed, with_value
from headway.tasks.recipe import load_recipe, read_recipe, recipe_values


@pytest.fixture
def reviews(tmp_path: Path) -> str:
    path = tmp_path / "reviews.csv"
    path.write_text("text,label\n" + "".join(f"text number {i},{'ab'[i % 2]}\n" for i in range(40)))
    return str(path)


@pytest.mark.parametrize("recipe", ["tiny", "classify", "shakespeare", "translate"])
def test_the_toml_of_a_draft_is_its_recipe(recipe: str) -> None:
    words = ["seed=7", "train.minutes=2", "model.tied=false"]
    found = draft(recipe, words, {})
    made = load_recipe(recipe, words)[1]
    assert recipe_values(read_recipe(tomllib.loads(found["toml"]))) == recipe_values(made)
    assert shlex.split(found["command"]) == ["headway", "train", recipe, *words]
    assert found["values"]["train.minutes"] == 2
    assert {found["stated"][key] for key in ("seed", "train.minutes", "model.tied")} == {"you"}


def test_an_edit_of_the_toml_becomes_words_and_comes_back_as_the_same_toml() -> None:
    before = draft("tiny", ["seed=7"], {})
    text = before["toml"].replace("steps = 1400", "epochs = 2.5").replace("seed = 7\n", "") + 'schedule = "linear"\n'
    words = from_toml("tiny", before["words"], before["toml"], text)
    assert sorted(words) == ["train.epochs=2.5", "train.schedule=linear"]
    after = draft("tiny", words, {})
    assert tomllib.loads(after["toml"]) == tomllib.loads(text)
    assert from_toml("tiny", words, after["toml"], after["toml"]) == words


def test_a_line_of_the_recipe_that_is_taken_out_becomes_its_default() -> None:
    found = draft("tiny", [], {})
    assert from_toml("tiny", [], found["toml"], found["toml"].replace("warmup = 50\n", "")) == ["train.warmup=100"]
    with pytest.raises(ConfigError, match=r"the recipe tiny states model\.width: it cannot be left out"):
        from_toml("tiny", [], found["toml"], found["toml"].replace("width = 128\n", ""))


def test_what_will_be_chosen_stands_in_no_form_until_it_is(reviews: str) -> None:
    words = [f"data.train={reviews}"]
    waiting = draft("classify", words, {})
    assert waiting["waits"] and "train.lr" not in waiting["stated"]
    assert "epochs" not in waiting["toml"] and 'tokenizer = "wordpiece"' in waiting["toml"]
    chosen = draft("classify", words, {"train.epochs": 40.0, "train.lr": 0.002})
    assert not chosen["waits"] and chosen["stated"]["train.lr"] == "chosen"
    assert chosen["values"]["train.lr"] == 0.002 and "epochs = 40.0" in chosen["toml"]
    edited = from_toml("classify", words, chosen["toml"], chosen["toml"].replace("lr = 0.002", ""))
    assert edited == words  # it is chosen anew


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("data.train", "123", 'data.train="123"'),
        ("data.train", "a file, with spaces.csv", 'data.train="a file, with spaces.csv"'),
        ("train.lr", "1e-3", "train.lr=0.001"),
        ("model.bias", "false", "model.bias=false"),
        ("train.schedule", "linear", "train.schedule=linear"),
        ("model.lora_targets", "qkv, out", 'model.lora_targets=["qkv", "out"]'),
        ("train.betas", "[0.9, 0.95]", "train.betas=[0.9, 0.95]"),
        ("train.depth", "four", "train.depth=four"),
    ],
)
def test_a_field_of_the_form_becomes_a_word(key: str, text: str, expected: str) -> None:
    assert with_value("tiny", [], key, text) == [expected]
    assert with_value("tiny", [expected], key, None) == []


def test_one_budget_replaces_another() -> None:
    assert with_value("tiny", ["train.steps=4", "seed=1"], "train.epochs", "2") == ["seed=1", "train.epochs=2"]
    assert "steps" not in draft("tiny", ["train.epochs=2"], {})["toml"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("headway train tiny seed=3", ("tiny", ["seed=3"])),
        ("tiny seed=3", ("tiny", ["seed=3"])),
        ("python -m headway train tiny \\\n  'data.train=a b.txt'", ("tiny", ["data.train=a b.txt"])),
    ],
)
def test_a_command_line_is_read_as_a_shell_reads_it(line: str, expected: tuple[str, list[str]]) -> None:
    assert from_command(line) == expected


@pytest.mark.parametrize("line", ["headway train", 'tiny "seed=3', "tiny --quiet", "train.lr=3", "--resume last"])
def test_a_wrong_command_line_says_why(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_command(line)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("word", "key", "code"),
    [
        ("train.lr=-1", "train.lr", "C003"),
        ("train.lrr=1", "train.lrr", "C014"),
        ("model.depth=x", "model.depth", "C002"),
        ("train.schedule=sometimes", "train.schedule", "C003"),
        ("model.freeze=2", "model.freeze", "C004"),
        ("task=nope", "task", "C003"),
        ("nonsense", "nonsense", "C001"),
    ],
)
def test_an_error_names_its_setting(word: str, key: str, code: str) -> None:
    error = draft("tiny", [word], {})["error"]
    assert (error["key"], error["code"]) == (key, code)


def test_an_error_of_the_toml_has_its_line() -> None:
    text = '[train]\nsteps = 3\n\n[model]\ndepth = "deep"\n'
    error = draft("tiny", ["train.steps=3", "model.depth=deep"], {}, text)["error"]
    assert (error["line"], error["key"]) == (5, "model.depth")
    for broken, line in (("a = 1\nb = \n", 2), ("a = 1\n[train\n", 2), ("a = ", 1)):
        with pytest.raises(HeadwayError) as caught:
            from_toml("tiny", [], "", broken)
        assert placed(caught.value, [], broken)["line"] == line


def test_settings_are_flat_by_their_dotted_keys() -> None:
    assert flatten({"seed": 1, "train": {"lr": 2, "steps": 3}}) == {"seed": 1, "train.lr": 2, "train.steps": 3}
