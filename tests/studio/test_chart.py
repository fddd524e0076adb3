"""The charts that pages draw from values: they show every value to the eye, the keyboard and a screen reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.runs.conftest import HOSTILE
from tests.studio.conftest import RunningStudio

expect = pytest.importorskip("playwright.sync_api").expect
Draw = Callable[[str], Any]


@pytest.fixture
def draw(studio: RunningStudio, page: Any) -> Draw:
    """Runs code with the functions of the chart module and an empty `host`; returns the page."""
    page.goto(studio.at("/no-such-page"))
    page.wait_for_selector(".empty")

    def drawn(code: str) -> Any:
        page.evaluate(
            """async hostile => {
              Object.assign(window, await import("/files/chart.js"), { hostile });
              window.host = document.getElementById("page");
              host.replaceChildren();
            }""",
            HOSTILE,
        )
        page.evaluate(f"() => {{ {code} }}")
        return page

    return drawn


def test_a_chart_names_its_curves_and_has_a_table(draw: Draw) -> None:
    page = draw(
        """window.chart = lineChart(host, { title: "T", axis: "step", whole: true, log: true, tall: true, series: [
             { name: hostile, x: [0, 50, 100], y: [3, null, 1], dots: true },
             { name: "b", x: [0, 100], y: [2, 2] }] })"""
    )
    assert (
        page.locator("svg[role=img]").get_attribute("aria-label").startswith(f"T over step: {HOSTILE} from 3 to 1; b")
    )
    page.locator("summary").click()
    page.locator("tbody tr").first.wait_for()
    assert page.locator("tbody tr").all_text_contents() == ["032", "50–2", "10012"]
    page.locator(".charts").focus()
    for key, words in (("ArrowRight", "step 1: "), ("End", f"step 100: {HOSTILE} 1, b 2"), ("Home", "step 0: ")):
        page.keyboard.press(key)
        expect(page.locator(".value")).to_contain_text(words)
    for key, view in (("+", (0, 50)), ("Shift+ArrowRight", (5, 55)), ("-", (0, 80)), ("Escape", (0, 100))):
        page.keyboard.press(key)
        assert page.evaluate("() => [chart.view.low, chart.view.high]") == list(view), key


def test_new_values_keep_the_part_that_is_shown(draw: Draw) -> None:
    page = draw(
        """const series = n => [{ name: "a", x: Array.from({ length: n }, (_, i) => i),
             y: Array.from({ length: n }, (_, i) => i) }];
           window.series = series;
           window.chart = lineChart(host, { axis: "step", whole: true, series: series(101) })"""
    )
    page.evaluate("() => chart.update({ series: series(201) })")
    assert page.evaluate("() => chart.view.high") == 200, "all of it was shown, and still is"
    page.locator(".charts").focus()
    page.keyboard.press("+")
    node = page.locator(".area").element_handle()
    page.evaluate("() => chart.update({ series: series(401) })")
    assert page.evaluate("() => [chart.view.low, chart.view.high]") == [50, 150]
    assert node.evaluate("node => node.isConnected"), "nothing flickers"


def test_a_spike_is_cut_off_and_the_logarithm_hides_what_is_not_positive(draw: Draw) -> None:
    page = draw(
        """const x = Array.from({ length: 300 }, (_, i) => i),
             y = x.map(i => i === 100 ? 1e6 : i === 200 ? 0 : 1 + i / 300);
           lineChart(host, { axis: "step", log: true, series: [{ name: "a", x, y }] })"""
    )
    top = [float(text) for text in page.locator(".plot .y").all_text_contents()]
    assert max(top) <= 4, "the usual values fill the panel"
    assert page.locator("path.line.train").last.get_attribute("d").count("M") == 1
    page.get_by_label("logarithmic").check()
    assert page.locator(".area path.line").get_attribute("d").count("M") == 2, "a gap at zero"


def test_noise_is_smoothed_by_the_slider(draw: Draw) -> None:
    page = draw(
        """const x = Array.from({ length: 400 }, (_, i) => i);
           lineChart(host, { axis: "step", series: [{ name: "a", x, y: x.map(i => i % 2), noisy: true }] })"""
    )
    assert page.locator(".area path.line").count() == 2, "the curve, faint, and its mean"
    page.get_by_label("smoothing").fill("0")
    assert page.locator(".area path.line").count() == 1


def test_bars_and_histograms_say_their_numbers(draw: Draw) -> None:
    page = draw(
        """barChart(host, [{ name: hostile, value: 3 }, { name: "b", value: 12345 }], { head: ["label", "", "n"] })"""
    )
    assert page.locator("tbody tr").all_text_contents() == [f"{HOSTILE}3", "b12,345"]
    page = draw(
        """histogram(host, [{ from: 0, to: 10, count: 4 }, { from: 10, to: 20, count: 0 }],
             { title: "L", axis: "tokens" })"""
    )
    page.locator("summary").click()
    page.locator("tbody tr").first.wait_for()
    assert page.locator("tbody tr").all_text_contents() == ["0104", "10200"]
    page.locator("rect").first.hover()
    assert page.locator(".value").text_content() == "0 … 10: 4"
    page = draw("histogram(host, [])")
    assert page.locator("#page > *").count() == 0


def test_a_matrix_is_read_by_pointer_and_keys(draw: Draw) -> None:
    page = draw(
        """window.picked = [];
           window.made = matrix(host, [[0, 1], [0.5, null]], { rows: ["r", hostile], columns: ["c", "d"], label: "A",
             onpick: (r, c) => picked.push([r, c]) })"""
    )
    page.locator("canvas").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert page.locator("output").text_content() == f"{HOSTILE} → c: 0.5"
    assert page.evaluate("() => picked") == [[1, 0]]
    page.locator("summary").click()
    page.locator("tbody tr").first.wait_for()
    assert page.locator("tbody tr").all_text_contents() == ["r01", f"{HOSTILE}0.5–"]
    page.evaluate("() => made.update([[9, 9], [9, 9]])")
    assert page.locator("tbody tr").first.text_content() == "r99"
    box = page.locator("canvas").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.75, box["y"] + 3)
    assert page.evaluate("() => picked[1]") == [0, 1]


def test_a_small_curve_needs_two_values(draw: Draw) -> None:
    page = draw("host.append(...[[], [1], [1, null], [1, 2, 3]].map(values => sparkline(values) || 'none'))")
    assert page.locator("#page").text_content() == "nonenonenone" and page.locator(".spark path").count() == 1
