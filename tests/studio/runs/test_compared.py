"""Runs side by side, and the comparisons that are listed."""

from __future__ import annotations

import csv
from pathlib import Path

from headway.runs.history import History, read_run
from headway.studio.runs.compared import compared, comparisons, overlaid
from tests.runs.conftest import RECIPE, event, finished, write_run


def runs_of(folder: Path) -> list[History]:
    told = [("a", 1, 0.002, 2.0), ("b", 2, 0.002, 2.1), ("c", 1, 0.1, 1.0)]
    recipe = "seed = {seed}\n" + RECIPE.replace("seed = 7\n", "")
    return [
        read_run(
            write_run(
                folder / name,
                finished((3.0, 2.5, end)),
                recipe=recipe.replace("{seed}", str(seed)).replace("0.002", str(lr)),
            )
        )
        for name, seed, lr, end in told
    ]


def test_the_table_has_a_row_for_each_variant_and_a_look_that_stays(tmp_path: Path) -> None:
    runs = runs_of(tmp_path)
    for baseline, order in (("", ["lr=0.002", "c"]), ("c", ["c", "lr=0.002"])):
        found = compared(["a", "b", "c"], runs, baseline)
        assert [each["name"] for each in found["variants"]] == order
        assert {each["name"]: each["look"] for each in found["variants"]} == {"lr=0.002": 0, "c": 1}
    assert found["differences"] == {"train.lr": [0.1, 0.002]} and found["several"]
    assert [run["name"] for run in found["variants"][1]["runs"]] == ["a", "b"]
    assert found["variants"][1]["metrics"][0]["mean"] == 2.05
    lines = list(csv.DictReader(found["csv"].splitlines()))
    assert [line["valid"] for line in lines] == ["1.0", "2.0", "2.1"]


def test_the_curves_of_a_variant_share_its_look(tmp_path: Path) -> None:
    found = overlaid(runs_of(tmp_path), "step", None, None, 0.05)
    panels = {panel["key"]: panel["series"] for panel in found["panels"]}
    assert [(each["name"], each["variant"]) for each in panels["loss"]] == [
        ("lr=0.002, seed 1", 0), ("lr=0.002, seed 2", 0), ("c", 1),
    ]  # fmt: skip
    assert panels["eval-valid"][2]["y"] == [3.0, 2.5, 1.0]
    assert not any("shadow" in each for series in panels.values() for each in series), "what is faint hides the others"


def test_a_run_without_steps_is_no_curve(tmp_path: Path) -> None:
    runs = [*runs_of(tmp_path), read_run(write_run(tmp_path / "d", [event("start", step=0)]))]
    assert len(overlaid(runs, "step", None, None, 0.0)["panels"][0]["series"]) == 3
    first = compared(["a", "b", "c", "d"], runs, "")["variants"][0]
    assert first["metrics"][0]["mean"] == 2.05 and len(first["runs"]) == 3, "it does not hide what the others say"


def test_comparisons_are_folders_with_their_file(tmp_path: Path) -> None:
    write_run(tmp_path / "compare-x" / "a", finished())
    (tmp_path / "compare-x" / "compare.json").write_text('{"title": "<b>x</b>"}')
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "compare.json").write_text("{")
    found = {each["name"]: each for each in comparisons(tmp_path)}
    assert found["compare-x"] == {"name": "compare-x", "title": "<b>x</b>", "runs": 1}
    assert found["bad"]["title"] == "" and comparisons(tmp_path / "nowhere") == []
