"""The page that compares runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runs.conftest import RECIPE, finished, write_run
from tests.studio.conftest import RunningStudio

expect = pytest.importorskip("playwright.sync_api").expect


@pytest.fixture
def filled(studio: RunningStudio) -> RunningStudio:
    for kind, lr, end in (("slow", 0.002, 2.0), ("fast", 0.1, 1.0)):
        for seed in (1, 2, 3):
            recipe = RECIPE.replace("seed = 7", f"seed = {seed}").replace("0.002", str(lr))
            write_run(studio.studio.runs / f"{kind}-{seed}", finished((3.0, 2.5, end + seed / 50)), recipe=recipe)
    comparison = studio.studio.runs / "compare-lm-lr"
    for name in ("x", "y"):
        write_run(comparison / name, finished(), recipe=RECIPE.replace("depth = 2", f"depth = {ord(name)}"))
    (comparison / "compare.json").write_text('{"title": "<i>depth</i>"}')
    return studio


def test_what_can_be_compared(filled: RunningStudio) -> None:
    found = filled.client.get("/api/compare/known").json()
    assert len(found["runs"]) == 6 and [each["title"] for each in found["comparisons"]] == ["<i>depth</i>"]


def test_a_comparison_is_all_of_its_runs(filled: RunningStudio) -> None:
    found = filled.client.get("/api/compare", params={"of": "compare-lm-lr"}).json()
    assert found["differences"] == {"model.depth": [120, 121]} or found["differences"] == {"model.depth": [121, 120]}
    assert {run["name"] for each in found["variants"] for run in each["runs"]} == {"compare-lm-lr/x", "compare-lm-lr/y"}
    assert filled.client.get("/api/run", params={"name": "compare-lm-lr/x"}).status_code == 200


@pytest.mark.parametrize(
    "asked",
    [{}, {"of": ".."}, {"of": "a/b"}, {"of": "nope"}, {"run": ["nope"]}, {"run": ["../x"]}, {"run": ["slow-1"] * 99}],
)
def test_what_cannot_be_compared_is_refused(filled: RunningStudio, asked: dict[str, Any]) -> None:
    assert filled.client.get("/api/compare", params=asked).status_code in (400, 404)


def test_the_page_has_verdicts_curves_and_a_file(filled: RunningStudio, page: Any, tmp_path: Path) -> None:
    every = "".join(f"&run={kind}-{seed}" for kind in ("slow", "fast") for seed in (1, 2, 3))
    page.goto(filled.at(f"/compare?{every[1:]}"))
    page.wait_for_selector(".panel .area")
    assert "better by 1." in page.locator("tbody tr").nth(1).text_content()
    page.get_by_label("baseline").select_option("lr=0.1")
    expect(page.locator("tbody tr").first).to_contain_text("the baseline")
    expect(page.locator("tbody th").first).to_contain_text("lr=0.1")
    assert "worse by 1." in page.locator("tbody tr").nth(1).text_content() and "base=lr%3D0.1" in page.url
    assert (
        page.locator("section", has_text="Settings that differ").locator("tbody th").last.text_content() == "train.lr"
    )
    with page.expect_download() as got:
        page.get_by_role("button", name="Export CSV").click()
    got.value.save_as(tmp_path / "compare.csv")
    assert len((tmp_path / "compare.csv").read_text().splitlines()) == 7
    drawn = page.locator(".panel").first.locator("path.line:not(.swatch *)").count()
    page.get_by_role("button", name="lr=0.1, seed 1").first.click()
    assert page.locator(".panel").first.locator("path.line:not(.swatch *)").count() == drawn - 1


def test_runs_are_added_and_taken_out(filled: RunningStudio, page: Any) -> None:
    page.goto(filled.at("/compare"))
    page.get_by_role("link", name="compare-lm-lr").wait_for()
    for name in ("slow-1", "fast-1"):
        page.get_by_label("Add a run").fill(name)
        page.get_by_label("Add a run").press("Enter")
        page.get_by_label(f"Take out {name}").wait_for()
    page.wait_for_selector(".panel .area")
    page.get_by_label("Take out slow-1").click()
    page.wait_for_url("**/compare?run=fast-1")
