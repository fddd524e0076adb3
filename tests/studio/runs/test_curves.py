"""Curves for a page: thinned out, but with every spike; a part of the axis in its own detail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.runs.history import History, read_run
from headway.studio.runs.curves import BINS, Axis, curves
from tests.runs.conftest import NOON, event, finished, steps, towards, write_run


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> History:
    log = steps(1, 20_000)
    log[12_345]["loss"] = 99.0
    log[7_000]["loss"] = float("nan")
    folder = write_run(
        tmp_path_factory.mktemp("runs") / "a",
        [event("start", step=0), *log, event("save", step=9000, memory=3e8), event("save", step=18_000, memory=4e8)],
    )
    return read_run(folder)


def panel(found: dict, key: str) -> dict:  # type: ignore[type-arg]
    return next(each for each in found["panels"] if each["key"] == key)


def test_a_long_curve_is_short_and_keeps_its_spike(long: History) -> None:
    found = curves(long, "step", None, None, 0.0)
    (loss,) = panel(found, "loss")["series"]
    assert len(loss["x"]) <= 2 * BINS + 2 and max(y for y in loss["y"] if y is not None) == 99
    assert found["extent"] == [0, 20_000] and (loss["x"][0], loss["x"][-1]) == (1, 20_000)


def test_a_part_has_its_own_detail(long: History) -> None:
    found = curves(long, "step", 12_300, 12_400, 0.0)
    (loss,) = panel(found, "loss")["series"]
    assert loss["x"] == list(range(12_299, 12_402)), "and a point on either side, so that the line reaches the edge"


def test_smoothing_sees_every_step_and_beyond_the_part(long: History) -> None:
    raw, smoothed = panel(curves(long, "step", 12_000, 13_000, 0.1), "loss")["series"]
    assert raw["shadow"] and max(raw["y"]) == 99 and "shadow" not in smoothed
    assert 3 < max(smoothed["y"]) < 5, "a spike becomes a hill of a hundred steps"
    edge = panel(curves(long, "step", 12_360, 13_000, 0.1), "loss")["series"][1]
    assert edge["y"][0] > 3, "the hill does not end where the part begins"


@pytest.mark.parametrize(("axis", "last"), [("step", 100), ("tokens", 1000), ("seconds", 10)])
def test_all_axes_show_the_same_run(tmp_path: Path, axis: Axis, last: float) -> None:
    found = curves(read_run(write_run(tmp_path / "a", finished())), axis, None, None, 0.0)
    assert found["extent"] == [0, last] and found["axes"] == ["step", "tokens", "seconds"]
    validation = panel(found, "loss")["series"][-1]
    assert validation["x"] == [last * share for share in (0.25, 0.5, 0.75, 1)]
    assert {event["kind"]: event["at"] for event in found["events"]} == {"save": validation["x"], "best": [last]}


def test_an_axis_that_was_not_logged_is_not_offered(tmp_path: Path) -> None:
    log = [{k: v for k, v in each.items() if k not in ("tokens", "seconds")} for each in steps(1, 9)]
    found = curves(read_run(write_run(tmp_path / "a", log)), "tokens", None, None, 0.0)
    assert (found["axis"], found["axes"]) == ("step", ["step"])
    assert [each["key"] for each in found["panels"]] == ["loss", "lr", "norm"]


def test_the_metric_of_the_task_and_the_memory_have_panels(tmp_path: Path, long: History) -> None:
    run = read_run(write_run(tmp_path / "a", towards("accuracy", (0.5, 0.9, 0.8, 0.7), (3.0, 2.5, 2.4, 2.39))))
    found = curves(run, "step", None, None, 0.0)
    assert panel(found, "goal")["title"] == "Accuracy" and panel(found, "goal")["series"][0]["y"] == [
        0.5,
        0.9,
        0.8,
        0.7,
    ]
    assert panel(curves(long, "step", None, None, 0.0), "memory")["series"][0]["y"] == [3e8, 4e8]


@pytest.mark.parametrize("part", [(0.0, 1e-9), (1e9, 2e9), (99.9, 99.95), (None, 0.5), (150.0, None)])
def test_any_part_has_an_answer(tmp_path: Path, part: tuple[float | None, float | None]) -> None:
    run = read_run(write_run(tmp_path / "a", finished()))
    for share in (0.0, 0.5):
        for each in panel(curves(run, "step", *part, share), "loss")["series"]:
            assert len(each["x"]) == len(each["y"])


def test_a_run_without_steps_has_no_panels(tmp_path: Path) -> None:
    assert (
        curves(read_run(write_run(tmp_path / "a", [event("start", time=NOON)])), "step", None, None, 0.1)["panels"]
        == []
    )


def test_smoothing_is_that_of_the_report(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", steps(1, 400)))
    smoothed = panel(curves(run, "step", None, None, 0.025), "loss")["series"][1]
    from headway.runs.events import smooth

    assert np.allclose(smoothed["y"], smooth(run.steps["loss"]), rtol=1e-4)
