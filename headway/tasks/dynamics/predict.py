"""Continuing a dynamical system with a trained model, from states of the user or from a simulated beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from headway.data.series.scaling import Scaling
from headway.data.series.table import Table
from headway.data.series.times import Clock, Numbers
from headway.data.synthetic.systems import SYSTEMS, System, simulate
from headway.errors import DataError
from headway.tasks.dynamics.task import Dynamics
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.predictor import Predictor
from headway.tasks.series.predict import DIGITS, Forecast, folder_scaling, forecasts, series_model
from headway.tasks.series.task import DRAWN, SeriesExample

STEPS = 100
"""Time steps of a rollout, where nobody says how many."""
DRAWN_SEED = 1 << 24
"""Seeds of simulated beginnings start here: no model has learned from them."""


class DynamicsPredictor(Predictor[SeriesExample, Forecast]):
    """A model of a system in use."""

    task = Dynamics()

    @cached_property
    def scaling(self) -> Scaling:
        return folder_scaling(self.model, self.loaded.folder)

    @property
    def system(self) -> System | None:
        """The simulated system that the model learned from."""
        return SYSTEMS.get(str(self.scaling.about.get("system")))

    def predict(self, examples: Sequence[SeriesExample]) -> list[Forecast]:
        usual = self.options.horizon or STEPS
        pairs = [self._begun(example, example.steps or usual) for example in examples]
        found = forecasts(self.model, self.scaling, [example for example, _ in pairs], usual, shortest=1)
        return [
            each if true is None else replace(each, more={"true": _named(each.columns, true)})
            for each, (_, true) in zip(found, pairs, strict=True)
        ]

    def _begun(self, example: SeriesExample, steps: int) -> tuple[SeriesExample, Numbers | None]:
        """A simulated beginning with what really follows, for a seed; other examples as they are."""
        made = DRAWN.fullmatch(example.name)
        if len(example.table) or not made:
            return example, None
        system = self.system
        if system is None:
            raise DataError(
                "D001", f"{example.name}: this model learned from data, and no system is simulated", "give states"
            )
        read = series_model(self.model).config.look_back
        states = simulate(system, 1, read + steps, DRAWN_SEED + int(made[1]))[0]
        times = np.asarray(np.arange(read) * system.step, np.float64)
        table = Table(system.columns, states[:read], times, Clock("number", system.step), "t")
        return replace(example, table=table), states[read:]

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.dynamics.training import evaluate_source

        return evaluate_source(self.model, self.scaling, self.recipe, source)


def _named(columns: Sequence[str], values: Numbers) -> dict[str, list[float]]:
    rounded = [[float(f"{x:.{DIGITS}g}") for x in column] for column in values.T.tolist()]
    return dict(zip(columns, rounded, strict=True))
