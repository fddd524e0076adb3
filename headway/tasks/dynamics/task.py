"""Dynamical systems: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.networks.series import SeriesConfig
from headway.config.ranges import above_zero, at_least
from headway.tasks.base import FineTuning, Tries
from headway.tasks.series.task import SeriesTask

if TYPE_CHECKING:
    from headway.data.series.table import Table


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `dynamics` of a recipe."""

    system: Literal["pendulum", "lorenz", "mackey_glass", "string", "reaction"] = "lorenz"
    """The system that headway simulates where no data are given. pendulum: without friction; lorenz: Lorenz 1963;
    mackey_glass: one equation with a delay (Mackey & Glass 1977); string: fixed at both ends; reaction: a front that
    spreads along a line (Fisher 1937)."""
    look_back: int = 16
    """States that the model reads."""
    trajectories: int = 128
    """Simulated trajectories to learn from."""
    length: int = 256
    """Time steps of each."""
    change: bool = True
    """Predict the change of the state; false: the state itself."""
    noise: float = 0.0
    """Noise on the states that training reads, in units of the mean change of a step: the model learns to come back."""
    rollout: int = 1
    """Time steps that training lets the model go on from its own predictions."""
    horizon: int = 200
    """Time steps of a rollout in evaluations."""
    threshold: float = 0.4
    """A prediction is good until its error exceeds this share of the deviation of the states."""

    def __post_init__(self) -> None:
        at_least("dynamics", self, look_back=1, trajectories=1, length=2, noise=0, rollout=1, horizon=1)
        above_zero("dynamics", self, "threshold")


class Dynamics(SeriesTask):
    """The next state of a system, from the states before it."""

    name, title, noun = "dynamics", "dynamical systems", "model of a dynamical system"
    Settings = Settings
    tries = Tries("drawn:7", own="--file states.csv", request={"input": "drawn:7"})
    made_up = "a system that headway simulates"
    networks = True
    one_row = True
    fine_tuning = FineTuning(lr=1e-4)
    training = "headway.tasks.dynamics.training:DynamicsTraining"
    predictor = "headway.tasks.dynamics.predict:DynamicsPredictor"

    def drawn(self, seed: int) -> Table:
        """Nothing yet: only the model knows its system, and simulates it from the seed."""
        import numpy as np

        from headway.data.series.table import Table

        return Table((), np.zeros((0, 0)), np.zeros(0))

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return isinstance(config, SeriesConfig) and config.stack.causal and config.channels > 0
