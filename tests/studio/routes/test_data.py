"""The page Data: through its routes, and in a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.studio.routes import data as routes
from tests.studio.conftest import RunningStudio

XSS = "<img src=x onerror=\"document.title='run'\">"
DROP = """() => {
    const transfer = new DataTransfer(), text = "text,label\\ngood film,a\\nbad film,b\\nnice film,a\\ndull film,b\\n";
    transfer.items.add(new File([text], "my films.csv"));
    const event = new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
    document.querySelector(".drop").dispatchEvent(event);
}"""


@pytest.fixture
def reviews(tmp_path: Path) -> str:
    path = tmp_path / "reviews.jsonl"
    rows = [{"text": f"{XSS} is text {i}", XSS: "ab"[i % 2]} for i in range(40)]
    path.write_text("\n".join(map(json.dumps, [*rows, {"text": ""}])) + "\n")
    return str(path)


def told(studio: RunningStudio, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    with studio.client.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200
        return [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]


def test_a_survey_comes_as_a_stream(studio: RunningStudio, reviews: str) -> None:
    *_, found, done = told(studio, "/api/data/look", {"path": reviews})
    assert found["found"]["facts"]["rows"] == 41 and done == {"done": True}


def test_an_error_of_a_survey_says_what_to_do(studio: RunningStudio) -> None:
    (done,) = (each for each in told(studio, "/api/data/look", {"path": "nowhere.csv"}) if each.get("done"))
    assert done["error"]["code"] == "F001" and "no such file: nowhere.csv" in done["error"]["message"]


def test_a_survey_that_nobody_waits_for_ends(
    studio: RunningStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    from headway.progress import track

    begun, ended = threading.Event(), threading.Event()

    def endless(*_: Any) -> dict[str, Any]:
        try:
            for _ in track(range(10**9), "looking", unit="rows"):
                begun.set()
                threading.Event().wait(0.01)
        finally:
            ended.set()
        return {}

    monkeypatch.setattr(routes, "look", endless)
    with studio.client.stream("POST", "/api/data/look", json={"path": "x"}) as answer:
        lines = answer.iter_lines()
        while '"looking"' not in next(lines):
            pass
    assert begun.is_set() and ended.wait(10)


@pytest.mark.parametrize("body", [{}, {"path": 3}, {"path": "x" * 5000}, {"path": "x", "more": 1}, []])
def test_a_wrong_request_is_refused(studio: RunningStudio, body: Any) -> None:
    assert studio.client.post("/api/data/look", json=body).status_code == 400


def test_an_upload_lands_in_the_studios_own_folder(studio: RunningStudio) -> None:
    made = studio.client.post("/api/data/batch").json()
    answer = studio.client.put(f"/api/data/upload/{made['batch']}/..%2F..%2Fa%20b.csv", content=b"text,label\n")
    path = Path(answer.json()["path"])
    assert path.parent == Path(made["folder"]) and path.name == "a_b.csv" and path.read_bytes() == b"text,label\n"
    assert studio.client.put("/api/data/upload/..%2F..%2Fx/a.csv", content=b"x").status_code in (400, 404)


def test_data_are_looked_at_and_compared_in_the_page(studio: RunningStudio, page: Any, reviews: str) -> None:
    page.goto(studio.address)
    page.goto(f"{studio.url}/data")
    page.fill("#source-path", reviews)
    page.click("text=Look")
    page.wait_for_selector("text=It fits text classification")
    assert page.title() == "Data · headway studio"  # nothing of the rows has run
    assert page.locator(".role").all_text_contents() == ["text", "label"]
    assert "reviews.jsonl:41" in page.locator(".flaws").inner_text()
    page.fill("#valid-path", reviews)
    page.click("text=Compare >> nth=-1")
    page.wait_for_selector("text=40 (100 %) of the texts")
    page.click("text=Show what the model will see")
    page.wait_for_selector(".token")
    assert page.locator(".sample").count() == 3
    page.click("text=Next")
    page.wait_for_selector("text=Training samples 4 to 6")
    page.click("text=Train on this")
    page.wait_for_url("**/new?recipe=classify**")


def test_a_file_is_dropped_on_the_page(studio: RunningStudio, page: Any) -> None:
    page.goto(studio.address)
    page.goto(f"{studio.url}/data")
    page.wait_for_selector(".drop")
    page.evaluate(DROP)
    page.wait_for_selector("dt:text('rows')")
    assert page.input_value("#source-path").endswith("/my_films.csv")
    assert page.locator("dd").first.inner_text() == "4"


def test_a_mistake_is_shown_where_the_data_were_named(studio: RunningStudio, page: Any, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_bytes("text,label\ncafé,a\nthé,b\n".encode("cp1252"))
    page.goto(studio.address)
    page.goto(f"{studio.url}/data?path={tmp_path / 'nowhere'}")
    assert "no such file" in page.wait_for_selector(".problem").inner_text()
    page.fill("#source-path", str(tmp_path / "old.csv"))
    page.click("text=Look")
    page.click("text=Read as cp1252")
    page.wait_for_selector("td:text('café')")
    assert "encoding=cp1252" in page.url
