"""What the numbers of a run are taken to mean; tests/report/advice has the rules with runs that show them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.report.advice.evidence import clipped_share, late_improvement, throughput
from headway.report.advice.fit import overfit
from headway.report.advice.rules import suggestions
from headway.report.diagnostics import health, verdict
from headway.report.report import gather, render
from headway.runs.history import History, read_run
from tests.runs.conftest import RECIPE, Page, event, finished, steps, towards, write_run


def read(tmp_path: Path, log: list[Any], **more: Any) -> History:
    return read_run(write_run(tmp_path / "run-0001", log, **more))


def page_of(run: History) -> Page:
    return Page(render(run, gather(run)))


def advice_of(run: History) -> list[str]:
    return [s.name for s in suggestions(run)]


def test_a_calm_run_that_levelled_off(tmp_path: Path) -> None:
    run = read(tmp_path, [*finished([3.0, 2.5, 2.4, 2.39]), event("data", vocab=256, tokens=500)])
    first, second = verdict(run)
    assert first == (
        "A language model of 1.23k parameters, trained on the text of Python's own reference for 100 steps (1k tokens);"
        " its best validation loss is 2.39 (1.195 bits per byte), at step 100 "
        "(a uniform guess: 5.545)."
    )
    assert second == (
        "It finished without trouble: no spikes, no NaN, no restarts; the validation loss had levelled off."
    )
    assert suggestions(run) == []
    assert "No suggestion." in page_of(run).text


def test_a_task_with_a_goal_of_its_own_is_judged_by_it(tmp_path: Path) -> None:
    run = read(tmp_path, towards("macro_f1", (0.5, 0.6, 0.75, 0.7), (1.0, 2.0, 2.4, 3.0)))
    assert "; its best macro f1 is 0.75 (validation loss 2.4), at step 75." in verdict(run)[0]
    worse = overfit(run)
    assert worse is run.evals[0], "overfitting is a matter of the loss"
    assert "rising since step 25" in verdict(run)[1]


def test_validation_that_rises_asks_for_less(tmp_path: Path) -> None:
    run = read(tmp_path, [*finished([2.0, 1.8, 1.9, 2.2]), event("data", tokens=100)])
    assert overfit(run) == run.evals[1]
    (found,) = suggestions(run)
    assert found.command.endswith("train.keep_best=true model.dropout=0.2")
    assert found.reason == (
        "Validation loss rose from 1.8 at step 50 to 2.2 at step 100 while the training loss kept falling. "
        "The training took 10 epochs."
    )
    assert "rising since step 50" in verdict(run)[1]


def test_validation_that_rises_with_the_training_loss_is_something_else(tmp_path: Path) -> None:
    log = finished([2.0, 1.8, 1.9, 2.2])
    for i, line in enumerate(line for line in log if line["event"] == "step"):
        line["loss"] = 1 + i / 100
    assert overfit(read(tmp_path, log)) is None
    assert "it learned nothing" in verdict(read_run(tmp_path / "run-0001"))[1]


@pytest.mark.parametrize(
    ("valid", "falling"),
    [([3, 2.5, 2.3, 2.0], True), ([3, 2.5, 2.42, 2.4], False), ([3.0, 2.0], False), ([3, 2.5, 2.0, 2.01], False)],
)
def test_validation_still_falling_asks_for_more(tmp_path: Path, valid: list[float], falling: bool) -> None:
    run = read(tmp_path, finished(valid))
    assert ("still_falling" in advice_of(run)) is falling
    assert ("still falling" in verdict(run)[1]) is falling


def test_a_run_that_did_not_finish_is_not_told_to_train_longer(tmp_path: Path) -> None:
    run = read(tmp_path, finished([3, 2.5, 2.2, 2.0])[:-1])
    (go_on,) = suggestions(run)
    assert go_on.command == f"headway train --resume {run.folder}"
    assert go_on.reason.startswith("It stopped at step 100, after 100 % of its budget")


def test_clipped_steps_are_counted_and_alone_are_no_problem(tmp_path: Path) -> None:
    """The warm-up is ten steps, of which all are clipped: they do not count."""
    log = finished()
    for i, line in enumerate(line for line in log if line["event"] == "step"):
        line |= {"grad_norm": 3.0 if i < 98 else 0.2, "loss": 3.0 - i / 100}
    run = read(tmp_path, log)
    assert clipped_share(run, after=10) == pytest.approx(88 / 90)
    assert health(run).clipped == pytest.approx(98 / 100)
    assert advice_of(run) == []


def test_clipped_steps_on_a_plateau_are_a_high_rate(tmp_path: Path) -> None:
    log = finished([2.6, 2.5, 2.5, 2.5])
    for i, line in enumerate(line for line in log if line["event"] == "step"):
        line |= {"grad_norm": 3.0, "loss": 3.0 if i < 20 else 2.5}
    assert advice_of(read(tmp_path, log)) == ["rate_too_high"]


def test_without_clipping_nothing_is_clipped(tmp_path: Path) -> None:
    run = read(tmp_path, finished(), recipe=RECIPE.replace("clip = 1.0", "clip = 0.0"))
    assert health(run).clipped is None


def test_spikes_and_nan(tmp_path: Path) -> None:
    spikes = [event("spike", step=30), event("spike", step=60)]
    assert advice_of(read_run(write_run(tmp_path / "one", finished(between=spikes[:1])))) == []
    run = read_run(write_run(tmp_path / "two", finished(between=spikes)))
    assert suggestions(run)[0].reason.startswith("The loss jumped 2 times, first at step 30.")
    assert verdict(run)[1].startswith("It finished, but its training loss was not steady")
    near_zero = [event("spike", step=n, loss=0.2, usual=0.01) for n in (30, 60)]
    run = read_run(write_run(tmp_path / "small", finished(between=near_zero)))
    assert advice_of(run) == [], "0.2 is not much for a run that began with 3.0"
    assert verdict(run)[1].startswith("It finished, with 2 spikes;")
    nans = [*spikes, event("nan", step=70, where="layer 3", action="skip"), event("nan", step=80, action="rewind")]
    nans += [event("nan", step=90, action="skip")]
    run = read_run(write_run(tmp_path / "nan", finished(between=nans)))
    (found,) = suggestions(run)
    assert (found.name, found.command.split()[-1]) == ("not_finite", "train.lr=0.0006667")
    assert found.reason.endswith("step 70 (layer 3).")
    assert (health(run).nans, health(run).skipped, health(run).rewinds) == (3, 2, 1)
    assert "3 (2 skipped, 1 rewound)" in page_of(run).text
    diverged = read_run(
        write_run(tmp_path / "end", [event("start"), *steps(1, 9), event("nan", step=9, action="stop")])
    )
    assert verdict(diverged)[1].startswith("It diverged: ") and "after 1 NaN" in verdict(diverged)[1]


def test_a_rate_that_the_recipe_does_not_give_is_taken_from_the_log(tmp_path: Path) -> None:
    run = read(tmp_path, finished(between=[event("nan", step=3)]), recipe="[train]\nclip = 1.0\n")
    assert suggestions(run)[0].command.endswith(" train.lr=0.0006667")


def test_a_run_never_evaluated(tmp_path: Path) -> None:
    assert verdict(read(tmp_path, finished([])))[0].endswith("not evaluated.")


def test_a_running_run_is_not_judged_by_its_curves(tmp_path: Path) -> None:
    run = read(tmp_path, [*finished([2.0, 1.8, 1.9, 2.2]), event("data", tokens=100)])
    assert advice_of(run) == ["overfitting"]
    assert advice_of(replace(run, status="running")) == []


def test_throughput_without_a_clock(tmp_path: Path) -> None:
    still = read_run(write_run(tmp_path / "b", [event("step", step=n, tokens=n, seconds=1.0) for n in (1, 2)]))
    assert math.isnan(throughput(still)[1])


def test_rows_left_out_and_restarts_and_dropped_sinks(tmp_path: Path) -> None:
    more = [event("data", documents=50, bad_rows=3), event("sink", name="wandb", problem="OSError: x")]
    run = read(tmp_path, [event("start", step=0), *more, event("restart", step=0), *finished()[1:]])
    assert advice_of(run) == ["rows_skipped"] and suggestions(run)[0].reason.startswith("3 rows could not be used")
    assert (health(run).restarts, health(run).sinks) == (0, ("wandb (OSError: x)",)), (
        "start and restart at step 0 are one"
    )
    assert "wandb (OSError: x)" in page_of(run).text
    again = read_run(
        write_run(tmp_path / "b", [event("start", step=0), *steps(1, 9), event("restart", step=5), *steps(6, 9)])
    )
    assert health(again).restarts == 1 and "1 restart" in verdict(again)[1]


def test_the_last_quarter_is_the_last_quarter(tmp_path: Path) -> None:
    assert late_improvement(read_run(write_run(tmp_path / "a", finished([4, 3, 2, 1])))) == pytest.approx(0.5)
    assert late_improvement(read_run(write_run(tmp_path / "b", finished([4, 2])))) is None
    ten = finished([10, 9, 8, 7, 6, 5, 4, 3, 2, 1])
    assert late_improvement(read_run(write_run(tmp_path / "c", ten))) == pytest.approx(0.75), "from step 70 on"
