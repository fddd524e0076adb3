"""The routes of X-ray: everything a page asks, for each kind of model; and what it asks wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.inspect.conftest import config_of, made
from tests.studio.conftest import RunningStudio

NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small models in folders, by name."""
    place = tmp_path_factory.mktemp("models")
    return {name: str(made(config_of(name), name).save(place / name)) for name in ("gpt2", "classifier", "t5")}


def ask(studio: RunningStudio, path: str, **body: Any) -> httpx.Response:
    return studio.client.post(f"/api/xray/{path}", json=body)


def passed(studio: RunningStudio, model: str, text: str = "the cat sat") -> dict[str, Any]:
    answer = ask(studio, "pass", model=model, input=text)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("name", ["gpt2", "classifier", "t5"])
def test_every_question_has_an_answer(studio: RunningStudio, folders: dict[str, str], name: str) -> None:
    card = ask(studio, "model", model=folders[name]).json()
    assert card["parameters"] > 0 and card["example"]["input"]
    seen = passed(studio, folders[name])
    for kind, info in seen["kinds"].items():
        where = {"key": seen["key"], "kind": kind}
        heads = ask(studio, "heads", **where).json()
        assert heads["thumbs"]["shape"][:2] == [info["layers"], info["heads"]] == [2, 4]
        assert len(heads["stats"]) == 8
        rows, columns = len(info["tokens"]), len(info["keys"] or info["tokens"])
        assert ask(studio, "map", **where, layer=1, head=3).json()["shape"] == [rows, columns]
        cell = ask(studio, "cell", **where, layer=1, head=3, query=rows - 1, at=0).json()
        assert sum(cell["products"]) == pytest.approx(cell["dot"], abs=1e-3)
        assert sum(cell["row"]) == pytest.approx(1, abs=1e-3)
        assert len(ask(studio, "looks", **where, position=0).json()) == 2
        if not info["cross"]:
            assert len(ask(studio, "embeddings", **where).json()["sum"]) == rows
            assert ask(studio, "neurons", **where, layer=0, position=0).json()["width"] > 0
    key = seen["key"]
    assert len(ask(studio, "lens", key=key).json()) == 3  # the embeddings and two layers
    changed = ask(studio, "change", key=key, changes=[{"layer": 1, "head": 0, "factor": 0}], position=0).json()
    assert changed["divergence"] > 0
    speaks = ask(studio, "attribution", key=key, position=0).json()
    assert speaks["method"] == "integrated" and len(speaks["values"]) == len(speaks["tokens"])


def test_patching_compares_two_inputs(studio: RunningStudio, folders: dict[str, str]) -> None:
    found = ask(studio, "patching", model=folders["gpt2"], first="abcd", second="abxd").json()
    assert len(found["positions"]) == 2 and len(found["heads"][0]) == 4
    unequal = ask(studio, "patching", model=folders["gpt2"], first="abcd", second="ab")
    assert unequal.status_code == 400 and "equally many" in unequal.json()["error"]["hint"]


def test_a_pass_can_be_kept_as_a_page(studio: RunningStudio, folders: dict[str, str]) -> None:
    seen = passed(studio, folders["gpt2"], NASTY)
    found = httpx.get(studio.url + seen["page"])  # the browser opens it without the token
    assert found.status_code == 200 and "attachment" in found.headers["content-disposition"]
    assert "<img src=x" not in found.text
    assert httpx.get(studio.url + seen["page"].split("?")[0]).status_code == 401


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("model", {"model": "no-such-run"}, 404, "no-such-run"),
        ("pass", {"input": " "}, 400, "empty"),
        ("pass", {"input": "a" * 500}, 400, "reads 64"),
        ("pass", {"input": "a", "target": 3}, 400, "target"),
        ("heads", {"kind": "cross"}, 400, "cross"),
        ("map", {"kind": "decoder", "layer": 2}, 400, "no layer 2"),
        ("map", {"kind": "decoder", "layer": 0, "head": 4}, 400, "no head 4"),
        ("map", {"kind": "decoder", "layer": -1}, 400, "layer"),
        ("cell", {"kind": "decoder", "layer": 0, "head": 0, "query": 99, "at": 0}, 400, "no position 99"),
        ("change", {"changes": [{"layer": 0, "head": 9, "factor": 0}], "position": 0}, 400, "no head 9"),
        ("change", {"changes": [{"layer": 5, "factor": 0}], "position": 0}, 400, "no layer 5"),
        ("change", {"changes": [{"layer": 0, "factor": 1e9}], "position": 0}, 400, "factor"),
        ("change", {"changes": [], "position": 99}, 400, "no position 99"),
        ("lens", {"key": "0" * 32}, 404, "no longer keeps"),
        ("lens", {"key": "../../etc/passwd"}, 400, "key"),
        ("looks", {"kind": "decoder", "position": 99}, 400, "no position 99"),
    ],
)
def test_a_wrong_question_says_what_is_wrong(
    studio: RunningStudio, folders: dict[str, str], path: str, body: dict[str, Any], status: int, words: str
) -> None:
    seen = passed(studio, folders["gpt2"])
    first = {"model": folders["gpt2"]} if path in ("model", "pass") else {"key": seen["key"]}
    answer = ask(studio, path, **(first | body))
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]["message"]


def test_a_change_of_a_layer_that_does_not_exist_is_found_in_any_stack(
    studio: RunningStudio, folders: dict[str, str]
) -> None:
    seen = passed(studio, folders["t5"])
    turn = {"kind": "nowhere", "layer": 0, "factor": 0}
    answer = ask(studio, "change", key=seen["key"], changes=[turn], position=0)
    assert answer.status_code == 400 and "nowhere" in answer.json()["error"]["message"]


def test_only_the_last_passes_are_kept(studio: RunningStudio, folders: dict[str, str]) -> None:
    first = passed(studio, folders["gpt2"])
    for text in "abcdefgh":
        passed(studio, folders["gpt2"], text)
    assert ask(studio, "lens", key=first["key"]).status_code == 404


def test_a_folder_that_is_no_model_is_told(studio: RunningStudio, tmp_path: Path) -> None:
    answer = ask(studio, "model", model=str(tmp_path))
    assert answer.status_code in (400, 404) and answer.json()["error"]["code"] != "B000"
