"""A rehearsal tells of a run what the run then is."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from headway.errors import HeadwayError
from headway.runs.history import read_run
from headway.studio.new import rehearsal
from headway.studio.new.rehearsal import rehearse
from headway.tasks.recipe import load_recipe
from headway.train.run import start, train

SMALL = ("train.steps=3", "train.batch=4", "model.depth=1", "model.width=32", "train.warmup=1")


@pytest.fixture
def reviews(tmp_path: Path) -> str:
    path = tmp_path / "reviews.csv"
    path.write_text("text,label\n" + "".join(f"text number {i},{'ab'[i % 2]}\n" for i in range(60)))
    return str(path)


def told(recipe: str, *words: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rehearse(recipe, words, found.update, **more)
    return found


def test_what_is_chosen_and_counted_is_what_the_run_has(reviews: str, tmp_path: Path) -> None:
    words = [f"data.train={reviews}", "train.steps=2", f"out={tmp_path}"]
    found = told("classify", *words)
    name, recipe = load_recipe("classify", words)
    run = train(start(name, recipe), lambda kind, **facts: None)
    written = tomllib.loads((run.folder / "run" / "recipe.toml").read_text())
    for key, value in found["chosen"].items():
        section, _, each = key.partition(".")
        assert written[section][each] == (list(value) if isinstance(value, tuple) else value)
    data = read_run(run.folder).last_event("data")
    assert {key: data[key] for key in found["facts"]["data"]} == found["facts"]["data"]
    assert found["facts"]["memory"]["parameters"] == read_run(run.folder).facts.parameters
    assert found["facts"]["steps"] == 2
    again = told("classify", *words, f"model.from={run.folder.name}", measure=False)  # of the folder of the runs
    assert again["line"].startswith("fine-tuning")


def test_the_first_steps_are_timed() -> None:
    found = told("tiny", *SMALL[1:], "train.steps=1000")
    assert 0 < found["time"]["step_seconds"] < 2
    assert found["time"]["seconds"] == pytest.approx(found["time"]["step_seconds"] * found["time"]["steps"], rel=0.01)
    assert 980 < found["time"]["steps"] < 1000
    assert "time" not in told("tiny", *SMALL, measure=False)


def test_a_run_by_minutes_takes_its_minutes() -> None:
    found = told("tiny", "train.batch=4", "model.depth=1", "model.width=32", "train.minutes=0.5")
    assert found["facts"]["minutes"] == 0.5 and found["facts"]["steps"] is None
    assert found["time"]["seconds"] == pytest.approx(30, abs=3)


def test_large_data_are_read_only_when_asked(reviews: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "LARGE", 100)
    found = told("classify", f"data.train={reviews}", large=False)
    assert found["chosen"] and found["large"] == Path(reviews).stat().st_size and "facts" not in found
    assert "facts" in told("classify", f"data.train={reviews}", measure=False)


def test_samples_go_on_where_they_are_asked_to() -> None:
    first = told("tiny", *SMALL, measure=False)["seen"]
    later = told("tiny", *SMALL, first=2, measure=False)["seen"]
    assert (first["first"], later["first"], len(first["samples"])) == (0, 2, 3)
    assert later["samples"][0] == first["samples"][2]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("data.train=nowhere.csv",), "F001"),
        (("model.width=200000", "model.heads=1"), "M011"),
        (("model.from=no/where",), ""),
    ],
)
def test_what_would_stop_the_run_stops_the_rehearsal(words: tuple[str, ...], code: str) -> None:
    with pytest.raises(HeadwayError) as caught:
        told("lm", *words)
    assert caught.value.code.startswith(code)
