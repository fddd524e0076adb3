"""Schedules as pure functions."""

from __future__ import annotations

import pytest

from headway.recipe import TrainConfig
from headway.train.optim import lr_factor


def config(schedule: str, warmup: int = 10) -> TrainConfig:
    return TrainConfig(steps=100, schedule=schedule, warmup=warmup, final_lr=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant", "wsd", "rsqrt"])
def test_warm_up_rises_to_the_peak(schedule: str) -> None:
    rates = [lr_factor(config(schedule), step, step / 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == pytest.approx(1.0)
    assert max(rates) <= 1.0
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_where_they_end() -> None:
    ends = {s: lr_factor(config(s), 100, 1.0) for s in ("cosine", "linear", "wsd", "constant")}
    assert ends == pytest.approx({"cosine": 0.1, "linear": 0.1, "wsd": 0.1, "constant": 1.0})
    assert lr_factor(config("cosine"), 55, 0.5) == pytest.approx(0.55)
    assert lr_factor(config("wsd"), 75, 0.75) == 1.0
    assert lr_factor(config("rsqrt"), 39, 0.4) == pytest.approx(0.5)
