"""Runs that differ in their seed alone are one variant."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.runs.history import History, read_run
from headway.runs.variants import compare_runs, variants
from tests.runs.conftest import RECIPE, event, finished, write_run


def run(folder: Path, name: str, *, seed: int = 1, lr: float = 0.002, end: float = 2.0, more: str = "") -> History:
    recipe = RECIPE.replace("seed = 7", f"seed = {seed}").replace("lr = 0.002", f"lr = {lr}") + more
    return read_run(write_run(folder / name, finished((3.0, 2.5, end)), recipe=recipe))


def test_seeds_are_one_variant_and_settings_name_it(tmp_path: Path) -> None:
    runs = [run(tmp_path, "a", seed=1), run(tmp_path, "b", seed=2), run(tmp_path, "c", seed=1, lr=0.1)]
    assert {name: [each.name for each in group] for name, group in variants(runs).items()} == {
        "lr=0.002": ["a", "b"],
        "c": ["c"],
    }


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [run(tmp_path / place, "a", lr=lr) for place, lr in (("x", 0.1), ("y", 0.2))]
    assert list(variants(runs)) == ["a", "a (2)"]
    broken = [read_run(write_run(tmp_path / name, [event("start")], recipe=None)) for name in ("p", "q")]
    assert list(variants(broken)) == ["p", "q"], "a run without a recipe is like no other"


def test_metrics_have_intervals_and_verdicts_against_the_baseline(tmp_path: Path) -> None:
    good = [run(tmp_path, f"good{s}", seed=s, end=1.0 + s / 100) for s in (1, 2, 3)]
    poor = [run(tmp_path, f"poor{s}", seed=s, lr=0.5, end=2.0 + s / 100) for s in (1, 2, 3)]
    found = compare_runs([*good, *poor], "lr=0.5")
    assert found["against"] == "lr=0.5" and [each["name"] for each in found["variants"]] == ["lr=0.5", "lr=0.002"]
    figure = found["variants"][1]["figures"]["valid"]
    assert figure["mean"] == pytest.approx(1.02) and figure["low"] < 1.01 and figure["seeds"] == [1, 2, 3]
    assert found["variants"][1]["versus"]["valid"]["verdict"].startswith("better by 1.0")
    assert found["differences"] == {"train.lr": [0.5, 0.002]}


def test_a_run_that_has_not_finished_counts(tmp_path: Path) -> None:
    log = finished()[:-1]
    runs = [read_run(write_run(tmp_path / "a", log)), run(tmp_path, "b+c", lr=0.3)]
    assert runs[0].status == "stopped"
    found = compare_runs(runs, "b+c")
    assert [each["name"] for each in found["variants"]] == ["b+c", "a"]
    assert found["variants"][1]["figures"]["valid"]["mean"] == 2.39
