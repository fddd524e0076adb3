"""The page of a run: its facts, curves, samples, evaluation, log; live; its report."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import httpx
import pytest

from tests.runs.conftest import HOSTILE, event, finished, steps, write_run
from tests.studio.conftest import RunningStudio

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC")
SURE = [{"confidence": 0.6, "right": 0.5, "examples": 20}, {"confidence": 0.9, "right": 0.95, "examples": 70}]
WORST = {"text": HOSTILE, "line": 3, "file": "a.csv", "predicted": "neg", "label": HOSTILE, "probability": 0.99}
EVALUATION = {
    "data": "valid",
    "examples": 90,
    "figures": {"accuracy": [0.9, 0.8, 0.95]},
    "details": {
        "confusion": {"labels": ["neg", HOSTILE], "counts": [[40, 5], [4, 41]]},
        "calibration": {"error": 0.03, "bins": SURE},
        "worst": [WORST],
    },
}  # fmt: skip
expect = pytest.importorskip("playwright.sync_api").expect


@pytest.fixture
def filled(studio: RunningStudio) -> RunningStudio:
    log = finished()
    log[60:60] = [event("sample", step=48, text="", picture="samples/48.png"), event("spike", step=48, loss=9.0)]
    folder = write_run(studio.studio.runs / "good-0001", log)
    (folder / "run" / "samples").mkdir()
    (folder / "run" / "samples" / "48.png").write_bytes(PNG)
    (folder / "run" / "evaluation.json").write_text(json.dumps(EVALUATION))
    return studio


def test_the_facts_are_those_of_the_report(filled: RunningStudio) -> None:
    found = filled.client.get("/api/run", params={"name": "good-0001"}).json()
    assert found["run"]["best"] == 2.39 and "2.39" in found["verdict"][0]
    assert [block["kind"] for block in found["evaluation"]["blocks"]] == ["Table", "Calibration", "Mistakes"]
    assert found["evaluation"]["metrics"]["rows"] == [["accuracy", "0.900", "0.800 … 0.950"]]
    assert [sample["step"] for sample in found["samples"]] == [25, 50, 48, 75, 100] or len(found["samples"]) == 5
    assert 'task = "lm"' in found["recipe"]


def test_links_open_by_themselves_and_open_nothing_else(filled: RunningStudio) -> None:
    found = filled.client.get("/api/run", params={"name": "good-0001"}).json()
    picture = next(sample["picture"] for sample in found["samples"] if sample["picture"])
    assert httpx.get(filled.url + picture).content == PNG
    report = httpx.get(filled.url + found["report"])
    assert report.status_code == 200 and "sandbox" in report.headers["content-security-policy"]
    assert httpx.get(filled.url + found["report"].replace("good", "bad")).status_code == 401
    for name in ("../../log", "..%2f..%2flog", "48.png", "0"):
        assert filled.client.get(f"/api/run/picture/{name}/good-0001").status_code == 404


def test_the_log_is_read_from_its_end(filled: RunningStudio) -> None:
    lines = filled.client.get("/api/run/log", params={"name": "good-0001"}).json()["lines"]
    assert lines[0][1] == "end" and not any(kind == "step" for _, kind, _, _ in lines)
    both = filled.client.get("/api/run/log", params={"name": "good-0001", "steps": True}).json()["lines"]
    assert len(both) == len(lines) + 100


@pytest.mark.parametrize(
    "part", [{"low": 5, "high": 5}, {"low": 9, "high": 2}, {"low": -1}, {"low": "nan"}, {"axis": "x"}, {"smooth": 9}]
)
def test_a_part_that_cannot_be_is_refused(filled: RunningStudio, part: dict[str, Any]) -> None:
    assert filled.client.get("/api/run/curves", params={"name": "good-0001", **part}).status_code == 400


def test_the_page_shows_all_of_it(filled: RunningStudio, page: Any) -> None:
    page.goto(filled.at("/run/good-0001"))
    page.wait_for_selector(".panel .area")
    assert page.locator(".status").first.text_content() == "finished"
    for words in ("Best validation loss", "2.390", "Most confident mistakes", "Calibration", 'task = "lm"'):
        assert page.get_by_text(words).first.is_visible(), words
    assert page.get_by_text(HOSTILE[:38]).count() >= 3, "labels and texts are shown as they are"
    assert page.locator("img[src^='/api/run/picture']").count() == 0
    page.get_by_label("Sample").press("Home")
    for _ in range(5):
        if page.locator("img[src^='/api/run/picture']").count():
            break
        page.get_by_label("Sample").press("ArrowRight")
    assert (
        page.locator("img[src^='/api/run/picture']").evaluate("image => image.decode().then(() => image.naturalWidth)")
        == 1
    )
    page.get_by_text("The end of run/log.jsonl").click()
    page.wait_for_selector("#log tbody tr")


def test_a_part_is_zoomed_to_and_its_values_are_read(filled: RunningStudio, page: Any) -> None:
    page.goto(filled.at("/run/good-0001"))
    area = page.locator("#curves .tall .area")
    area.wait_for()
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    with page.expect_response(lambda answer: "low=25&high=50" in answer.url):
        page.mouse.up()
    page.get_by_role("button", name="Show all").wait_for()
    expect(page.locator("#curves .tall .value")).to_have_text("")
    charts = page.locator(".charts").first
    charts.focus()
    page.keyboard.press("End")
    assert page.locator("#curves .tall .value").text_content() == "step 50: training 2.02, validation 2.5"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Show all").wait_for(state="hidden")
    page.get_by_label("Axis").or_(page.locator(".controls select")).first.select_option("seconds")
    page.wait_for_selector("text=seconds of training >> visible=true")
    page.locator("summary", has_text="Loss as a table").click()
    expect(page.locator("details[open] tbody tr")).to_have_count(40)


def test_the_page_follows_a_run_that_trains(studio: RunningStudio, page: Any) -> None:
    folder = write_run(studio.studio.runs / "a", [event("start", step=0), *steps(1, 40)], weights=False)
    page.goto(studio.at("/run/a"))
    page.wait_for_selector(".panel .area")
    with (folder / "run" / "log.jsonl").open("a") as file:
        file.writelines(
            json.dumps(each) + "\n"
            for each in [*steps(41, 80), event("eval", step=80, valid=1.25), event("end", step=80, signal=0)]
        )
    page.wait_for_selector("text=1.250")
    expect(page.locator(".axis")).to_contain_text("80")
    assert page.locator(".status").first.text_content() == "broken", "it has no weights"


def test_a_run_that_is_not_there(studio: RunningStudio, browser: Any) -> None:
    page = browser.new_page()
    page.goto(studio.at("/run/<b>x"))
    assert "there is no run <b>x" in page.locator(".problem p").first.text_content()
    page.close()


def test_the_report_opens_from_the_page_without_an_error(filled: RunningStudio, page: Any) -> None:
    found = filled.client.get("/api/run", params={"name": "good-0001"}).json()
    page.goto(filled.url + found["report"])
    page.locator(".charts").first.focus()
    page.keyboard.press("End")
    assert "step 101" in page.locator(".panel .value").first.text_content()
    assert page.evaluate("() => { try { return localStorage.length } catch { return 'closed' } }") == "closed"
