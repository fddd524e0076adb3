"""Schedules as pure functions: without a jump, and the same as those of transformers at every step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import transformers

from headway.config.recipe import TrainConfig
from headway.train.optim.schedule import lr_factor, lr_factor_from_start

SCHEDULES = ["cosine", "linear", "constant", "wsd", "rsqrt"]


def config(schedule: str, warmup: int = 10, steps: int = 100, final_lr: float = 0.1) -> TrainConfig:
    return TrainConfig(steps=steps, schedule=schedule, warmup=warmup, final_lr=final_lr)  # type: ignore[arg-type]


def rates(of: TrainConfig) -> list[float]:
    assert of.steps is not None
    return [lr_factor(of, step, step / of.steps, of.warmup / of.steps) for step in range(of.steps)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warm_up_rises_to_the_peak(schedule: str) -> None:
    found = rates(config(schedule))
    assert found[0] == 0.0 and found[10] == 1.0
    assert found[:10] == sorted(found[:10])
    assert found[10:] == sorted(found[10:], reverse=True)


@pytest.mark.parametrize("warmup", [1, 10, 50, 90])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_rate_jumps(schedule: str, warmup: int) -> None:
    """From one step to the next a rate moves by what its steepest part allows: five times a straight line, in wsd."""
    found = rates(config(schedule, warmup))
    moves = [b - a for a, b in pairwise(found)]
    assert max(moves) <= 1 / warmup + 1e-9
    steepest = 1 / (2 * warmup) if schedule == "rsqrt" else 5 / (100 - warmup)
    assert min(moves) >= -steepest - 1e-9
    assert found[warmup] == 1.0


def theirs(make: Callable[[Any], Any], steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = make(optimizer)
    found = []
    for _ in range(steps):
        found.append(float(schedule.get_last_lr()[0]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step()
            schedule.step()
    return found


@pytest.mark.parametrize(("warmup", "steps"), [(0, 30), (1, 31), (10, 100), (25, 40), (60, 400)])
def test_every_step_is_that_of_transformers(warmup: int, steps: int) -> None:
    decay = (steps - warmup) / 5
    pairs: dict[str, Callable[[Any], Any]] = {
        "linear": lambda o: transformers.get_linear_schedule_with_warmup(o, warmup, steps),
        "cosine": lambda o: transformers.get_cosine_schedule_with_warmup(o, warmup, steps),
        "constant": lambda o: transformers.get_constant_schedule_with_warmup(o, warmup),
        "wsd": lambda o: transformers.get_wsd_schedule(o, warmup, int(decay), steps, decay_type="linear"),
    }
    if warmup:  # without one, theirs takes a scale of 10,000 steps
        pairs["rsqrt"] = lambda o: transformers.get_inverse_sqrt_schedule(o, warmup)
    assert decay == int(decay)
    for name, make in pairs.items():
        assert rates(config(name, warmup, steps, 0.0)) == pytest.approx(theirs(make, steps), abs=1e-9), name


def test_a_share_that_is_left_is_that_of_transformers() -> None:
    make = transformers.get_cosine_with_min_lr_schedule_with_warmup
    found = theirs(lambda o: make(o, 10, 100, min_lr_rate=0.1), 100)
    assert rates(config("cosine")) == pytest.approx(found, abs=1e-9)


def test_where_they_end() -> None:
    ends = {s: lr_factor(config(s), 100, 1.0, 0.1) for s in ("cosine", "linear", "wsd", "constant")}
    assert ends == pytest.approx({"cosine": 0.1, "linear": 0.1, "wsd": 0.1, "constant": 1.0})
    assert lr_factor(config("cosine"), 55, 0.55, 0.1) == pytest.approx(0.55)
    assert lr_factor(config("wsd"), 75, 0.75, 0.1) == 1.0
    assert lr_factor(config("rsqrt"), 40, 0.4, 0.1) == pytest.approx(0.5)
    beyond = config("linear", warmup=200)  # longer than the budget: it never gets anywhere else
    assert rates(beyond) == [step / 200 for step in range(100)]


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("cosine", {0: 0.1, 9: 1.0, 10: 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 0.1)), 50: 0.55}),
        ("linear", {0: 0.1, 9: 1.0, 10: 0.91, 50: 0.55}),
        ("wsd", {0: 0.1, 10: 1.0, 75: 1.0, 90: 0.55}),
        ("rsqrt", {0: 0.1, 9: 1.0, 39: 0.5}),
        ("constant", {0: 0.1, 10: 1.0, 99: 1.0}),
    ],
)
def test_the_rule_of_older_runs_is_kept(schedule: str, wanted: dict[int, float]) -> None:
    found = {step: lr_factor_from_start(config(schedule), step, step / 100) for step in wanted}
    assert found == pytest.approx(wanted)
