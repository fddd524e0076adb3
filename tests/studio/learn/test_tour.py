"""The model of the tour: its stories, its run, and that it learns what the tour says it learns."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headway.api.bundle import load
from headway.config.presets import gpt2
from headway.studio.context import Studio
from headway.studio.jobs import Jobs
from headway.studio.learn import tour as tours
from headway.studio.learn.pupil import Pupil
from headway.studio.learn.tour import SENTENCE, Tour, make_stories
from headway.tasks.recipe import load_recipe
from tests.inspect.conftest import made


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    (tmp_path / "runs").mkdir()
    return Studio(tmp_path / "runs", "t" * 43, tmp_path / "state")


def test_each_story_answers_its_questions() -> None:
    for story in make_stories(200):
        sentences = story.split(" . ")
        assert len(sentences) == 4
        for asked in sentences[2:]:
            question, answer = asked.removesuffix(" .").split(" ? ")
            person = next(word for word in question.split() if any(s.startswith(word + " ") for s in sentences[:2]))
            told = next(s for s in sentences[:2] if s.startswith(person + " "))
            assert told.endswith(" " + answer)
    assert make_stories(5) == make_stories(5) != make_stories(5, seed=1)


def test_the_sentence_of_the_tour_has_known_words(studio: Studio) -> None:
    assert set(SENTENCE.split()) <= set(Tour(studio).state()["words"])


def test_one_run_is_started_for_all(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    class Process:
        code = None

    monkeypatch.setattr(Jobs, "start", lambda self, words: started.append(words) or Process())
    tour = Tour(studio)
    assert tour.state()["status"] == "none"
    tour.start()
    tour.start()  # two pages at once
    assert len(started) == 1 and tour.state()["status"] == "running"
    name, recipe = load_recipe(started[0][1], started[0][2:3])
    assert (name, recipe.task, Path(recipe.out)) == ("tour", "lm", studio.runs.resolve())
    assert Path(recipe.data.train).read_text(encoding="utf-8").splitlines() == make_stories(tours.STORIES)


def test_a_run_of_another_text_is_not_the_tour(studio: Studio) -> None:
    folder = studio.runs / "tour-0001" / "run"
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text('task = "lm"\n[data]\ntrain = "/elsewhere.txt"\n', encoding="utf-8")
    assert Tour(studio).state()["run"] is None


def test_a_pupil_learns_and_a_rate_that_is_too_large_breaks_it() -> None:
    bundle = made(gpt2(2, 32, 4, vocab=256, length=128), "gpt2")
    pupil = Pupil(bundle)
    before = [weight.clone() for weight in bundle.model.parameters()]
    pupil.teach(8, 0.01)
    assert pupil.losses[-1] < pupil.losses[0] - 0.5
    assert all(pupil.norms[part] > 0 for part in ("embeddings", "attention", "feed-forward", "norms"))
    assert sum(each["probability"] for each in pupil.answers("hugo")) <= 1
    assert all((old == new).all() for old, new in zip(before, bundle.model.parameters(), strict=True))
    pupil.teach(6, 3.0)
    assert not pupil.losses[-1] < pupil.losses[0]


@pytest.mark.slow
def test_the_tour_is_trained_within_a_minute_and_answers(studio: Studio) -> None:
    tour, start = Tour(studio), time.monotonic()
    tour.start()
    while (state := tour.state())["status"] == "running":
        assert time.monotonic() - start < 240, "a minute on a quiet machine"
        time.sleep(0.5)
    assert state["status"] == "finished", state["error"]
    model = load(studio.runs / state["run"])
    asked = {
        SENTENCE: "vienna",
        "emma works as a pilot . hugo lives in vienna . what is the job of emma ?": "pilot",
        "leo lives in oslo . karla left on friday . when did karla leave ?": "friday",
    }
    right = [model.generate(text, temperature=0.0, max_tokens=1).strip() == word for text, word in asked.items()]
    assert all(right)
    studio.close()
