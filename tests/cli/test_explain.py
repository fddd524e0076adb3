"""`headway explain` and `headway recipes`: every setting, section, task, recipe and code, in words and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import split

import pytest

from headway.errors import CATALOGUE
from headway.reference.schema import recipe_schema
from headway.reference.settings import GENERATION, sections, settings
from headway.tasks.recipe import SECTIONS, load_recipe, recipe_names
from headway.tasks.registry import task_names
from tests.cli.conftest import Run

EVERYTHING = [*SECTIONS, *GENERATION, *task_names(), *recipe_names(), "C014", "exit", "130", *map(str, range(10))]


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("word", ["train.lr", "lr", "learning_rate"])
def test_a_setting_is_found_by_every_name(run: Run, word: str) -> None:
    done = run("explain", word)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "train.lr"
    rows = {line.split("  ")[1].strip(): line for line in lines if line.startswith("  ")}
    assert "a number, at least 0" in rows["values"] and "unset" in rows["default"]
    assert "headway train tiny train.lr=0.003" in rows["example"]
    assert max(map(len, lines)) <= 80


def test_the_json_of_a_setting(run: Run) -> None:
    found = json.loads(run("explain", "model.positions", "--json").out)["setting"]
    assert [each["key"] for each in found] == ["model.positions"]
    assert found[0]["default"] == "learned" and "rope" in found[0]["choices"]
    assert "Su et al. 2021" in found[0]["papers"] and "tag" in found[0]["tasks"]
    assert (
        json.loads(run("explain", "temperature", "--json").out)["setting"][0]["range"] == "at least 0 and at most 1e+06"
    )


def test_a_name_in_several_sections(run: Run) -> None:
    done = run("explain", "dropout")
    keys = [line for line in done.out.splitlines() if line and not line.startswith(" ")]
    assert keys[0] == "model.dropout" and {"classify.dropout", "tag.dropout", "images.dropout"} <= {*keys}
    assert "embed.temperature" in run("explain", "temperature").out  # see also


def test_every_example_is_accepted(run: Run) -> None:
    """The example of each setting of a recipe parses; VALUE stands where no value can be named."""
    examples = {}
    for each in settings():
        if each.section in SECTIONS:
            line = next(line for line in run("explain", each.key).out.splitlines() if "headway train" in line)
            examples[each.key] = split(line.split("headway train ")[1])
    assert len(examples) > 60
    for recipe, *words in examples.values():
        if not any("VALUE" in word for word in words):
            load_recipe(recipe, words)


@pytest.mark.parametrize("word", EVERYTHING)
def test_everything_is_explained(run: Run, word: str) -> None:
    done = run("explain", word)
    assert (done.code, done.err) == (0, "") and len(done.out) > 5
    assert json.loads(run("explain", word, "--json").out)


def test_every_error_code_is_explained(run: Run) -> None:
    for code in CATALOGUE:
        done = run("explain", code.lower())
        assert done.code == 0 and done.out.startswith(f"{code}: {CATALOGUE[code]}\n") and "remedy" in done.out
    assert json.loads(run("explain", "x007", "--json").out)["error"]["exit_code"] == 9


def test_a_task_names_its_recipes_and_settings(run: Run) -> None:
    found = json.loads(run("explain", "tag", "--json").out)["task"]
    assert found["recipes"] == ["conll", "tag"] and "tag.scheme" in found["settings"]
    assert found["commands"][0] == "headway train tag"
    assert json.loads(run("explain", "seq2seq", "--json").out)["task"]["commands"][0] == "headway train translate"


def test_nothing_is_the_overview(run: Run) -> None:
    done = run("explain")
    assert done.code == 0 and max(map(len, done.out.splitlines())) <= 80
    assert all(each.name in done.out for each in settings())
    assert json.loads(run("explain", "--json").out)["settings"].keys() == {name or "recipe" for name in sections()}


@pytest.mark.parametrize(
    ("word", "named"), [("train.lrr", '"train.lr"'), ("shakspeare", '"shakespeare"'), ("C999", ""), ("", "train.lr")]
)
def test_an_unknown_word_names_the_nearest(run: Run, word: str, named: str) -> None:
    done = run("explain", word)
    assert done.code == (2 if word else 0) and named in done.err + done.out


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_recipes_are_listed(run: Run, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each, in a table that fits the terminal, and 100 columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    done = run("recipes")
    assert done.code == 0 and done.err.startswith("next: ")
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines] == ["recipe", *recipe_names()]
    assert max(map(len, lines)) <= min(columns, 100)
    tiny = next(line for line in lines if line.startswith("tiny "))
    assert tiny.split()[1] == "(lm)" and "A first language model" in tiny and tiny.endswith("  95 s on two cores")


def test_recipes_in_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long names and times leave little room, and titles are still there."""
    monkeypatch.setenv("COLUMNS", "30")
    lines = run("recipes").out.splitlines()
    assert any("A first language model" in line for line in lines) and len(lines) > 30


def test_recipes_as_json(run: Run) -> None:
    found = {each["name"]: each for each in json.loads(run("recipes", "--json").out)}
    assert found["sst2"]["task"] == "classify" and found["tiny"]["time"].startswith("95 s")
    assert "2.02" in found["tiny"]["score"] and found["tiny"]["values"]["train"]["steps"] == 1400


def test_the_schema_is_printed(run: Run, tmp_path: Path) -> None:
    assert json.loads(run("recipes", "--schema").out) == recipe_schema()
    assert run("recipes", "--schema", "--json").code == 2
