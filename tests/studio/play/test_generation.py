"""Generation on the page: what is shown is what the model does; a fork goes on from tokens; a closed page stops it."""

from __future__ import annotations

import json
import threading
import time

import pytest

from headway.api.bundle import load
from headway.studio.play.generation import Play
from tests.studio.conftest import RunningStudio
from tests.studio.play.conftest import events

SETTINGS = {"max_tokens": 8, "seed": 3}


def test_tokens_spell_the_text_that_the_model_generates(playing: RunningStudio) -> None:
    found = events(playing, model="tiny-0001", text="The import", settings=SETTINGS)
    tokens = [event["token"] for event in found if "token" in event]
    bundle = load(playing.studio.runs / "tiny-0001")
    assert "".join(token["text"] for token in tokens) == bundle.stream("The import", **SETTINGS).text
    assert found[0] == {"prompt": bundle.prompts.text("The import")} and found[-1]["finish"] == "length"
    for token in tokens:
        shares = [each["p"] for each in token["best"]]
        assert 0 < token["p"] <= 1 and shares == sorted(shares, reverse=True) and len(shares) == 5


def test_a_fork_goes_on_from_a_token_that_was_not_taken(playing: RunningStudio) -> None:
    first = events(playing, model="tiny-0001", text="The import", settings=SETTINGS)
    tokens, prompt = [event["token"] for event in first if "token" in event], first[0]["prompt"]
    other = next(each for each in tokens[2]["best"] if each["id"] != tokens[2]["id"])
    kept = [*prompt, *(token["id"] for token in tokens[:2])]
    fork = events(
        playing, model="tiny-0001", ids=kept, forced=other["id"], settings={"max_tokens": 4, "temperature": 0}
    )
    assert fork[0]["prompt"] == kept and fork[1].keys() == {"forced"}
    straight = events(
        playing, model="tiny-0001", ids=[*kept, other["id"]], settings={"max_tokens": 4, "temperature": 0}
    )
    assert fork[2:] == straight[1:]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"settings": {"temperature": -1}}, "C003"),
        ({"settings": {"warmth": 1}}, "C014"),
        ({"ids": [10**9]}, "D001"),
        ({"messages": [{"role": "user", "content": "Hello"}]}, "D008"),
        ({"unknown": 1}, "C002"),
        ({"model": "no-such-run"}, "F001"),
        ({"model": "org/never-downloaded"}, "F006"),
    ],
)
def test_what_cannot_be_generated_is_refused(playing: RunningStudio, body: dict[str, object], code: str) -> None:
    answer = playing.client.post("/api/playground/generate", json={"model": "tiny-0001", "text": "a"} | body)
    assert answer.json()["error"]["code"] == code and answer.status_code in (400, 404)


def test_a_closed_page_stops_the_generation(playing: RunningStudio) -> None:
    _, lock = playing.studio.models.get("tiny-0001")
    body = {"model": "tiny-0001", "text": "a", "settings": {"max_tokens": 1_000_000}}
    with playing.client.stream("POST", "/api/playground/generate", json=body) as answer:
        next(line for line in answer.iter_lines() if "token" in line)
        assert lock.locked()
    deadline = time.monotonic() + 10
    while lock.locked() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not lock.locked()


def test_a_page_waits_while_another_uses_the_model(playing: RunningStudio) -> None:
    bundle, _ = playing.studio.models.get("tiny-0001")
    lock = threading.Lock()
    lock.acquire()
    work = Play(bundle, lock).generate([65], None, bundle.sampling(max_tokens=1))
    assert next(work) is None
    lock.release()
    assert next(work) == {"prompt": [65]}
    work.close()
    assert not lock.locked()


def test_an_error_in_the_middle_is_an_event(playing: RunningStudio, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **more: object) -> None:
        raise MemoryError

    monkeypatch.setattr("headway.studio.play.generation.decode", fails)
    found = events(playing, model="tiny-0001", text="a")
    assert found[-1]["error"]["code"] == "M010"


def test_scores_are_those_of_the_model(playing: RunningStudio) -> None:
    answer = playing.client.post("/api/playground/score", json={"model": "tiny-0001", "text": "The import"}).json()
    expected = load(playing.studio.runs / "tiny-0001").score("The import")
    assert answer["log_probability"] == pytest.approx(expected.log_probability, abs=1e-4)
    assert answer["perplexity"] == pytest.approx(expected.perplexity, rel=1e-4)
    assert "".join(token["text"] for token in answer["tokens"]) == "The import"


def test_the_tree_of_a_beam_search_holds_its_texts(playing: RunningStudio) -> None:
    settings = {"width": 3, "n_best": 3, "max_tokens": 4}
    body = {"model": "tiny-0001", "text": "The", "settings": settings}
    answer = playing.client.post("/api/playground/beams", json=body).json()

    def ends(nodes: list[dict[str, object]], before: str = "") -> dict[str, float]:
        found: dict[str, float] = {}
        for node in nodes:
            text = before + str(node["label"])
            found |= {text: node["score"]} if node["ended"] else ends(node["next"], text)  # type: ignore[arg-type,dict-item]
        return found

    assert len(answer["best"]) == 3
    drawn = ends(answer["tree"])
    assert all(drawn[each["text"]] == pytest.approx(each["score"]) for each in answer["best"])
    big = playing.client.post("/api/playground/beams", json={**body, "settings": {"width": 99}})
    assert big.status_code == 400 and big.json()["error"]["code"] == "C003"
    assert json.dumps(answer)
