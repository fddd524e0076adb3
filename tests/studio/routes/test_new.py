"""The page New run: through its routes, and in a browser."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.tasks import registry
from tests.studio.conftest import RunningStudio

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("train.steps=3", "train.batch=2", "model.depth=1", "model.width=16", "model.heads=1", "train.warmup=1")
XSS = "<img src=x onerror=\"document.title='run'\">"


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package of tests/toy, installed here and in the processes that the studio starts."""
    path = str(ROOT / "tests" / "toy")
    monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([path, str(ROOT)]))
    registry._found.cache_clear()
    yield
    registry._found.cache_clear()
    registry.get_task.cache_clear()


def events(studio: RunningStudio, method: str, path: str, **more: Any) -> Iterator[dict[str, Any]]:
    with studio.client.stream(method, path, **more) as answer:
        assert answer.status_code == 200, answer.read()
        yield from (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))


def draft(studio: RunningStudio, recipe: str, *words: str, **more: Any) -> dict[str, Any]:
    answer = studio.client.post("/api/new/draft", json={"recipe": recipe, "words": words, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def start(studio: RunningStudio, recipe: str, *words: str) -> dict[str, Any]:
    """Start a run, and wait until it is there or has ended."""
    job = studio.client.post("/api/new/start", json={"recipe": recipe, "words": words}).json()["job"]
    return next(
        now for now in events(studio, "GET", f"/api/new/job/{job}/events") if now["run"] or now["code"] is not None
    )


def has_value(page: Any, selector: str, part: str) -> None:
    """Wait until a field holds a text."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_value(re.compile(re.escape(part)))


def test_every_task_has_a_card_and_a_recipe_that_can_be_drafted(studio: RunningStudio, toy: None) -> None:
    found = studio.client.get("/api/new/cards").json()
    assert [card["name"] for card in found["tasks"]] == registry.task_names()
    assert "parity" in registry.task_names()
    for card in found["tasks"]:
        made = draft(studio, card["recipe"])
        assert made["task"] == card["name"], card
        (own,) = (section for section in studio.client.get(f"/api/new/settings/{card['name']}").json()[-1:])
        assert own["name"] == card["name"]
        assert {setting["key"] for setting in own["settings"]} <= made["values"].keys() | {
            setting["key"] for setting in own["settings"] if setting["default"] is None
        }


def test_a_task_of_another_package_is_rehearsed_and_trained(studio: RunningStudio, toy: None) -> None:
    words = ["train.steps=4", "train.batch=8"]
    body = {"recipe": "parity", "words": words}
    found: dict[str, Any] = {}
    for each in events(studio, "POST", "/api/new/rehearse", json=body):
        found |= each.get("found", {})
        assert "error" not in each, each
    view, label = found["seen"]["samples"][0]
    numbers = [token["id"] for token in view["tokens"]]
    assert label["text"] == ("odd" if sum(numbers) % 2 else "even") and found["facts"]["steps"] == 4
    begun = start(studio, "parity", *words)
    assert begun["run"] == "parity-0001", begun["output"]


def test_an_edit_of_any_form_changes_all_of_them(studio: RunningStudio) -> None:
    found = draft(studio, "tiny", edit={"kind": "set", "key": "train.lr", "value": "1e-4"})
    assert found["words"] == ["train.lr=0.0001"] and "lr = 0.0001" in found["toml"]
    edit = {"kind": "toml", "before": found["toml"], "after": found["toml"].replace("lr = 0.0001", "lr = 0.5")}
    found = draft(studio, "tiny", *found["words"], edit=edit)
    assert found["command"] == "headway train tiny train.lr=0.5"
    found = draft(studio, "tiny", edit={"kind": "command", "line": "headway train classify seed=4"})
    assert (found["recipe"], found["task"], found["values"]["seed"]) == ("classify", "classify", 4)


@pytest.mark.parametrize(
    ("edit", "code", "key"),
    [
        ({"kind": "set", "key": "train.lr", "value": "-1"}, "C003", "train.lr"),
        ({"kind": "set", "key": "train.rate", "value": "1"}, "C014", "train.rate"),
        ({"kind": "set", "key": "no key", "value": "1"}, "C001", ""),
        ({"kind": "toml", "before": "", "after": "x = "}, "C001", ""),
        ({"kind": "command", "line": "headway train nowhere"}, "F001", ""),
        ({"kind": "command", "line": f"headway train '{XSS}'"}, "U001", ""),
    ],
)
def test_a_mistake_comes_back_with_its_place(studio: RunningStudio, edit: dict[str, str], code: str, key: str) -> None:
    error = draft(studio, "tiny", edit=edit)["error"]
    assert (error["code"], error["key"]) == (code, key)


@pytest.mark.parametrize(
    "body",
    [{}, {"recipe": 3}, {"recipe": "tiny", "words": "a"}, {"recipe": "tiny", "words": ["x" * 5000]},
     {"recipe": "tiny", "edit": {"kind": "eval"}}, {"recipe": "tiny", "more": 1}],
)  # fmt: skip
def test_a_wrong_request_is_refused(studio: RunningStudio, body: Any) -> None:
    assert studio.client.post("/api/new/draft", json=body).status_code == 400


def test_a_wrong_recipe_is_not_started(studio: RunningStudio) -> None:
    answer = studio.client.post("/api/new/start", json={"recipe": "tiny", "words": ["train.lr=-1"]}).json()
    assert answer["error"]["key"] == "train.lr" and not studio.studio.jobs.all()


def test_a_run_that_fails_before_it_begins_says_why(studio: RunningStudio) -> None:
    ended = start(studio, "classify", "data.train=nowhere.csv")
    assert ended["code"] == 5 and "no such file: nowhere.csv" in ended["error"] and not ended["run"]


def test_a_run_is_taken_up_with_its_words_or_with_its_weights(studio: RunningStudio) -> None:
    folder = studio.studio.runs / "tiny-0001" / "run"
    folder.mkdir(parents=True)
    words = ["tiny", "train.lr=0.01", "model.depth=2", "data.vocab=300"]
    (folder / "recipe.toml").write_text('task = "lm"\n[data]\ntrain = "book.txt"\n[train]\nsteps = 3\n')
    (folder / "log.jsonl").write_text(json.dumps({"event": "start", "time": 1.0, "step": 0, "words": words}) + "\n")
    found = studio.client.get("/api/new/from/tiny-0001").json()
    assert (found["recipe"], found["words"]) == (words[0], words[1:])
    assert found["weights"] == ["train.lr=0.01", "model.from=tiny-0001"]
    assert studio.client.get("/api/new/from/..%2Fx").status_code == 404
    assert studio.client.get("/api/data/recent").json() == ["book.txt"]


def test_forms_stay_in_step_and_the_run_starts_in_the_page(studio: RunningStudio, page: Any) -> None:
    page.goto(studio.address)
    page.goto(f"{studio.url}/new")
    page.fill("[aria-label='Search tasks and recipes']", "letters in letters")
    page.click(".recipes a:text-is('tiny')")
    page.wait_for_selector("text=All settings")
    page.fill("#budget", "3")
    page.press("#budget", "Tab")
    has_value(page, "#command", "train.steps=3")
    assert "steps = 3" in page.input_value("#toml")
    page.fill("#toml", page.input_value("#toml").replace("width = 128", "width = 16").replace("heads = 4", "heads = 1"))
    page.press("#toml", "Tab")
    has_value(page, "#command", "model.width=16")
    page.fill("#command", page.input_value("#command") + " train.batch=2 model.depth=1 train.warmup=1")
    page.press("#command", "Tab")
    has_value(page, "#s-few-model-depth", "1")
    assert "warmup = 1\n" in page.input_value("#toml")
    page.wait_for_selector("dt:text('memory')")
    page.click("text=Start training")
    page.wait_for_url("**/run/tiny-0001", timeout=60_000)


def test_mistakes_are_shown_where_they_are_made(studio: RunningStudio, page: Any) -> None:
    page.goto(studio.address)
    page.goto(f"{studio.url}/new?recipe=tiny")
    page.wait_for_selector("text=All settings")
    page.fill("[aria-label='Search all settings']", "peak learning rate")
    page.fill("#s-train-lr", "-3")
    page.press("#s-train-lr", "Tab")
    page.wait_for_selector(".setting >> text=train.lr = -3.0 should be at least 0")
    assert page.get_attribute("#s-train-lr", "aria-invalid") == "true"
    assert page.is_disabled("text=Start training")
    page.fill("#s-train-lr", "0.01")
    page.press("#s-train-lr", "Tab")
    has_value(page, "#command", "train.lr=0.01")
    assert page.is_enabled("text=Start training")
    page.fill("#toml", 'task = "lm"\n[train\n')
    page.press("#toml", "Tab")
    page.wait_for_selector("text=at line 2")
    page.fill("#command", "headway train tiny train.stepps=4")
    page.press("#command", "Tab")
    page.wait_for_selector('text=did you mean "train.steps"')


def test_an_address_with_a_mistake_can_be_mended(studio: RunningStudio, page: Any) -> None:
    page.goto(studio.address)
    page.goto(f"{studio.url}/new?recipe=tiny&set=train.lr=-3&set=seed=4")
    page.wait_for_selector("text=train.lr = -3.0 should be at least 0")
    page.click("text=Leave train.lr out")
    page.wait_for_selector("text=All settings")
    has_value(page, "#command", "headway train tiny seed=4")


def test_data_are_understood_in_the_page_and_bad_rows_left_out(
    studio: RunningStudio, page: Any, tmp_path: Path
) -> None:
    path = tmp_path / "films.csv"
    path.write_text(
        f"text,{XSS.replace(chr(34), '')}\n" + "".join(f"film {i},{'ab'[i % 2]}\n" for i in range(40)) + ",a\n"
    )
    page.goto(studio.address)
    page.goto(f"{studio.url}/new?task=classify&data.train={path}")
    page.wait_for_selector("text=41 rows")
    assert page.title() == "New run · headway studio"
    offered = page.locator("#offered-columns option").evaluate_all("options => options.map(option => option.value)")
    assert offered == ["text", XSS.replace('"', "")]
    page.click("text=Leave them out")
    page.wait_for_selector("text=They are left out.")
    page.wait_for_selector("dt:text('data') + dd:has-text('1 bad row left out')")
    page.click("summary:has-text('What the model will see')")
    assert page.locator(".token").count() > 3
    has_value(page, "#toml", "vocab")  # what was chosen
    assert "vocab" not in page.input_value("#command")
