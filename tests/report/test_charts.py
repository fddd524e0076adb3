"""Charts and numbers: extremes are kept, ticks are round, names are escaped."""

from __future__ import annotations

import json
import math
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.report import format as wording
from headway.report.charts import (
    Line,
    Panel,
    Scale,
    downsample,
    log_ticks,
    nice_ticks,
    path_of,
    scale_for,
    table,
    text_chart,
    view,
)
from headway.report.curves import hover_data
from headway.report.page import render_macro
from tests.runs.conftest import HOSTILE, NOON, Page


def test_hostile_words_inside_the_data_of_the_charts() -> None:
    line = Line(name=HOSTILE, look='x" onload="alert(1)', x=np.array([0.0, 1.0]), y=np.array([1.0, 2.0]))
    panel = Panel(key=HOSTILE, title=HOSTILE, describe=HOSTILE, lines=[line])
    page = Page(render_macro("charts.html", "panel", view(panel, Scale(0, 1), [(HOSTILE, 0.5)])) + table([line], str))
    assert page.of("script") == [] and page.of("img") == []
    allowed = {"class", "d", "style", "id", "role", "scope", "viewbox", "preserveaspectratio", "data-key"}
    for tag, attrs in page.elements:
        assert {name for name in attrs if not name.startswith("aria-")} <= allowed, (tag, attrs)
    data = json.loads(hover_data([panel], Scale(0, 1)))
    assert data["series"][0]["panel"] == HOSTILE and "<" not in hover_data([panel], Scale(0, 1))


# --- charts -------------------------------------------------------------------------------------

VALUES = st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=200)


@given(VALUES, st.integers(1, 20))
def test_downsampling_keeps_the_extremes_of_every_stretch(values: list[float], bins: int) -> None:
    y = np.array(values)
    x = np.arange(len(y), dtype=np.float64)
    few, kept = downsample(x, y, bins)
    assert (np.diff(few) > 0).all() and few[0] == 0 and few[-1] == len(y) - 1
    assert len(few) <= max(2 * bins + 2, 0) or len(few) == len(y) <= 2 * bins
    assert all(kept[i] == y[int(at)] or math.isnan(y[int(at)]) for i, at in enumerate(few))
    width = len(y) if len(y) <= 2 * bins else -(-len(y) // bins)
    for start in range(0, len(y), width):
        part = [v for v in values[start : start + width] if math.isfinite(v)]
        shown = [v for at, v in zip(few, kept, strict=True) if start <= at < start + width and math.isfinite(v)]
        if part:
            assert (min(shown), max(shown)) == (min(part), max(part))


def test_few_points_stay_as_they_are() -> None:
    x, y = np.arange(10.0), np.arange(10.0) ** 2
    assert downsample(x, y, 5)[1].tolist() == y.tolist()
    assert len(downsample(x, np.ones(10), 5)[0]) == 10
    assert len(downsample(x, y, 4)[1]) < 10


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_round_few_and_inside(low: float, span: float) -> None:
    high = low + span
    if high - low < 1e-9 * max(abs(low), abs(high)):
        return
    ticks = nice_ticks(low, high)
    assert 2 <= len(ticks) <= 6
    slack = 1e-6 * (high - low) + 1e-12
    assert all(low - slack <= t <= high + slack for t in ticks)
    steps_between = np.diff(ticks)
    assert (steps_between > 0).all() and steps_between.max() - steps_between.min() <= slack
    assert f"{steps_between[0]:.0e}"[0] in "125" or math.isclose(steps_between[0] % 1, 0, abs_tol=1e-6)


@given(st.floats(1e-9, 1e9), st.floats(1.01, 1e12))
def test_logarithmic_ticks(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert 1 <= len(ticks) <= 21 and ticks == sorted(ticks)
    assert all(low * (1 - 1e-6) <= t <= low * factor * (1 + 1e-6) for t in ticks)


def test_some_logarithmic_ticks() -> None:
    assert log_ticks(1, 1000) == [1, 10, 100, 1000]
    assert log_ticks(0.9, 15) == [1, 2, 5, 10]
    assert log_ticks(2.1, 2.9) == pytest.approx([2.2, 2.4, 2.6, 2.8])
    assert len(log_ticks(1e-12, 1e12)) <= 7


def line(*values: float) -> Line:
    return Line(name="n", look="train", x=np.arange(len(values), dtype=np.float64), y=np.array(values))


def test_scales() -> None:
    plain_scale = scale_for([line(1, 3), line(2, 5)], log=False)
    assert plain_scale is not None and (plain_scale.low, plain_scale.high) == pytest.approx((0.84, 5.16))
    logarithmic = scale_for([line(0, 1, 100)], log=True)
    assert logarithmic is not None and logarithmic(np.array([10.0]))[0] == pytest.approx(0.5)
    assert scale_for([line(math.nan)], log=False) is None
    assert scale_for([line(-1, 0)], log=True) is None
    for log in (False, True):
        flat = scale_for([line(2, 2)], log=log)
        assert flat is not None and flat.low < 2 < flat.high
    wild = scale_for([line(*[1.0] * 500, 1e9)], log=False)
    assert wild is not None and wild.high < 2, "one spike does not flatten the curve"
    tall = scale_for([line(*[1.0] * 500, 3.5)], log=False)
    assert tall is not None and tall.high > 3.5


def test_a_path_has_a_gap_where_there_is_no_value() -> None:
    x, y = np.arange(5.0), np.array([0.0, 1.0, math.nan, 0.5, 1.0])
    assert path_of(x, y, Scale(0, 4), Scale(0, 1)) == "M0.0 100.0L250.0 0.0M750.0 50.0L1000.0 0.0"
    assert path_of(x, np.full(5, math.nan), Scale(0, 4), Scale(0, 1)) == ""


def test_a_panel_without_values_is_not_drawn() -> None:
    empty = Panel(key="k", title="t", describe="d", lines=[line(math.nan, math.nan)])
    assert view(empty, Scale(0, 1), []) is None
    for values, kinds in (((-1, -2), ["linear"]), ((1, 2), ["linear", "log"])):
        drawn = view(Panel(key="k", title="t", describe="d", lines=[line(*values)], log=True), Scale(0, 1), [])
        assert drawn is not None and [plot["kind"] for plot in drawn["plots"]] == kinds
        html = render_macro("charts.html", "panel", drawn)
        assert ("plot linear only" in html) == (len(kinds) == 1) and html.count('class="plot') == len(kinds)


def test_a_table_of_curves() -> None:
    long = Line(name="a", look="train", x=np.arange(1, 1001.0), y=np.arange(1, 1001.0))
    short = Line(name="b", look="valid", x=np.array([500.0]), y=np.array([7.0]))
    page = Page(table([long, short], lambda v: f"{v:.0f}"))
    assert len(page.of("tr")) == 41
    assert page.text.replace("\n", "").startswith("stepab11–") and page.text.replace("\n", "").endswith("1,00010007")


def test_a_chart_for_the_terminal() -> None:
    assert text_chart(np.array([1.0])) == [] and text_chart(np.array([math.nan, 1.0])) == []
    falling = text_chart(np.linspace(4, 1, 200), width=10, height=3)
    assert [row.partition("┤")[0].strip() for row in falling] == ["3.932", "", "1.068"]
    dots = [row.partition("┤")[2] for row in falling]
    assert {len(row) for row in dots} == {10}
    assert dots[0][0] != "⠀" and dots[0][-1] == "⠀" and dots[2][-1] != "⠀" and dots[2][0] == "⠀"
    assert text_chart(np.array([1.0, 1.0, 1.0]), height=2)[0].endswith("┤⠉⠁")


# --- numbers in words ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (wording.count, 1234567.4, "1,234,567"), (wording.count, None, "–"), (wording.count, math.nan, "–"),
        (wording.brief, 834304, "834k"), (wording.brief, 999_950, "1M"), (wording.brief, 7e9, "7B"),
        (wording.brief, 2e12, "2T"), (wording.brief, 12, "12"), (wording.brief, 3e20, "3.0e+20"),
        (wording.brief, None, "–"), (partial(wording.of_all, 3e5), 22_700_000, "300k of 22.7M"),
        (partial(wording.of_all, 5), 5, "5"), (partial(wording.of_all, None), 7e9, "7B"),
        (wording.number, 2.10946, "2.109"), (wording.number, 0.00012, "0.00012"), (wording.number, 0, "0"),
        (wording.number, 123456, "123,456"), (wording.number, 1e9, "1e+09"), (wording.number, 2000, "2,000"),
        (wording.number, math.inf, "inf"), (wording.number, None, "–"),
        (wording.fixed, 3.09, "3.090"), (wording.fixed, 0.0004, "0.0004"), (wording.fixed, None, "–"),
        (wording.fixed, 5000.0, "5,000"), (wording.fixed, 2.0, "2.000"),
        (wording.percent, 0.5, "50 %"), (wording.percent, 0.004, "0.4 %"), (wording.percent, 0.0, "0 %"),
        (wording.percent, None, "–"),
        (wording.duration, 3.21, "3.2 s"), (wording.duration, 37, "37 s"), (wording.duration, 59.7, "1 min"),
        (wording.duration, 725, "12 min 5 s"), (wording.duration, 12000, "3 h 20 min"),
        (wording.duration, 190000, "2 d 4 h"), (wording.duration, 7200, "2 h"), (wording.duration, -1, "–"),
        (wording.duration, None, "–"),
        (wording.size, 13.4e6, "13.4 MB"), (wording.size, 999_990, "1 MB"), (wording.size, 5, "5 B"),
        (wording.size, None, "–"),
        (wording.moment, None, "–"), (wording.moment, 1e300, "–"),
    ],
)  # fmt: skip
def test_numbers_as_people_read_them(write: Any, value: Any, text: str) -> None:
    assert write(value) == text


def test_words() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d", wording.moment(NOON))
    assert [wording.join_words(w) for w in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
