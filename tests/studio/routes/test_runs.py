"""The page of runs: live, sorted, filtered; stop, resume, delete and have back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.runs.trash import TRASH
from tests.runs.conftest import HOSTILE, event, finished, steps, write_run
from tests.studio.conftest import RunningStudio, until

NAME = HOSTILE.replace("/", "∕")  # a folder's name has no slash


@pytest.fixture
def filled(studio: RunningStudio) -> RunningStudio:
    """Three runs: finished, stopped with a hostile name, broken."""
    runs = studio.studio.runs
    write_run(runs / "good-0001", finished())
    write_run(runs / NAME, [event("start", step=0), *steps(1, 50)], weights=False)
    write_run(runs / "bad-0001", [], recipe="x = [")
    return studio


expect = pytest.importorskip("playwright.sync_api").expect


def names(page: Any) -> list[str]:
    return [cell.text_content() for cell in page.locator("tbody th").all()]


def test_the_list_has_the_numbers_of_each_run(filled: RunningStudio) -> None:
    found = filled.client.get("/api/runs").json()
    rows = {row["name"]: row for row in found["runs"]}
    assert (
        rows["good-0001"]["status"] == "finished"
        and rows["good-0001"]["best"] == 2.39
        and rows["good-0001"]["seed"] == 7
    )
    assert rows["bad-0001"]["status"] == "broken" and rows["bad-0001"]["problem"]
    assert len(rows[NAME]["curve"]) > 1 and found["folder"] == str(filled.studio.runs)


def test_the_stream_tells_only_what_has_changed(filled: RunningStudio) -> None:
    told: list[dict[str, Any]] = []
    with filled.client.stream("GET", "/api/runs/events", timeout=20) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                told.append(json.loads(line[6:]))
                if len(told) == 1:
                    log = filled.studio.runs / "good-0001" / "run" / "log.jsonl"
                    log.write_text(log.read_text() + json.dumps(event("restart", step=50)) + "\n")
                elif len(told) == 2:
                    (filled.studio.runs / "bad-0001").rename(filled.studio.runs.parent / "gone")
                else:
                    break
    assert [sorted(each["runs"]) for each in told] == [
        sorted(["good-0001", NAME, "bad-0001"]),
        ["good-0001"],
        ["bad-0001"],
    ]
    assert told[1]["runs"]["good-0001"]["status"] == "stopped" and told[2]["runs"]["bad-0001"] is None


def test_a_deleted_run_comes_back(filled: RunningStudio) -> None:
    ticket = filled.client.post("/api/runs/delete", json={"name": NAME}).json()["ticket"]
    assert len(filled.client.get("/api/runs").json()["runs"]) == 2
    assert filled.client.post("/api/runs/restore", json={"ticket": ticket}).json() == {"name": NAME}
    assert len(filled.client.get("/api/runs").json()["runs"]) == 3
    assert not any((filled.studio.runs / TRASH / ticket).parent.glob("*"))


ELSEWHERE = (
    "..",
    ".",
    "",
    "a/b/c",
    "../x",
    ".hidden",
    "nope",
    "a\\b",
    "a\0b",
    "x" * 300,
    "/etc",
    "bad-0001/..",
    "../outside",
)


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("verb", ["stop", "resume", "delete"])
def test_nothing_but_a_run_of_the_folder_is_touched(filled: RunningStudio, verb: str, name: str) -> None:
    outside = write_run(filled.studio.runs.parent / "outside", finished())
    assert filled.client.post(f"/api/runs/{verb}", json={"name": name}).status_code in (400, 404)
    assert (outside / "run").is_dir() and not filled.studio.jobs.all()


def test_a_run_that_does_not_train_is_not_stopped(filled: RunningStudio) -> None:
    answer = filled.client.post("/api/runs/stop", json={"name": "good-0001"})
    assert answer.status_code == 400 and "not training" in answer.json()["error"]["message"]


def test_the_page_shows_sorts_filters_and_chooses(filled: RunningStudio, page: Any) -> None:
    for i in (2, 3):
        write_run(filled.studio.runs / f"good-000{i}", finished([3.0, 2.0 / i]))
    page.goto(filled.address)
    page.wait_for_selector("tbody tr >> nth=4")
    assert NAME in names(page), "a hostile name is text"
    page.get_by_role("button", name="best").click()
    page.get_by_role("button", name="best").click()
    assert names(page)[:3] == ["good-0003", "good-0002", "good-0001"]
    assert page.locator("th[aria-sort=ascending]").text_content() == "best"
    page.get_by_label("Filter").fill("good finished")
    assert sorted(names(page)) == ["good-0001", "good-0002", "good-0003"]
    assert page.get_by_text("3 of 5").is_visible()
    assert page.get_by_role("button", name="Compare", exact=True).is_disabled()
    page.get_by_label("Compare good-0001").check()
    page.get_by_label("Compare good-0003").check()
    page.get_by_role("button", name="Compare 2").click()
    page.wait_for_selector("text=Export CSV")
    assert page.url.endswith("/compare?run=good-0001&run=good-0003")


def test_delete_can_be_undone_on_the_page(filled: RunningStudio, page: Any) -> None:
    page.goto(filled.address)
    page.get_by_label("Delete good-0001").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    assert not (filled.studio.runs / "good-0001").exists()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    assert (filled.studio.runs / "good-0001" / "run").is_dir()


def test_an_empty_folder_says_how_to_begin(studio: RunningStudio, page: Any) -> None:
    page.goto(studio.address)
    expect(page.get_by_role("link", name="Start one")).to_be_visible()


@pytest.mark.slow
def test_a_training_is_stopped_resumed_and_watched_from_the_page(studio: RunningStudio, page: Any) -> None:
    words = [
        "train",
        "tiny",
        "train.steps=100000",
        "model.width=32",
        "model.depth=1",
        "train.save_every=100000",
        f"out={studio.studio.runs}",
    ]
    studio.studio.jobs.start(words)
    page.goto(studio.address)
    page.get_by_label("Stop tiny-0001").click(timeout=60_000)
    page.get_by_label("Resume tiny-0001").click(timeout=60_000)
    page.wait_for_selector(".status.running")
    log = studio.studio.runs / "tiny-0001" / "run" / "log.jsonl"
    until(lambda: '"restart"' in log.read_text(), 60)
    page.get_by_role("link", name="tiny-0001").click()
    page.wait_for_selector("progress")
    expect(page.locator(".progress span")).not_to_have_text(page.locator(".progress span").text_content())
    page.get_by_role("button", name="Stop and save").click()
    page.wait_for_selector(".status.stopped", timeout=60_000)
    until(lambda: all(job.code is not None for job in studio.studio.jobs.all()))


def test_a_failed_resume_tells_why(filled: RunningStudio) -> None:
    job = filled.client.post("/api/runs/resume", json={"name": "bad-0001", "steps": 10}).json()["job"]
    until(lambda: filled.client.get("/api/runs/resumed", params={"job": job}).json()["code"] is not None, 60)
    told = filled.client.get("/api/runs/resumed", params={"job": job}).json()
    assert told["code"] > 0 and told["error"], told
    assert httpx.get(f"{filled.url}/api/runs/resumed?job={job}").status_code == 401


def test_the_trash_is_empty_when_the_studio_starts(tmp_path: Path) -> None:
    from headway.runs.trash import discard
    from headway.studio.app import create_app
    from headway.studio.context import Studio

    discard(write_run(tmp_path / "a", finished()))
    create_app(Studio(tmp_path, "t" * 43, tmp_path / "state"), frozenset())
    assert not (tmp_path / TRASH).exists()
