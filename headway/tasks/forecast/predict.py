"""Forecasting with a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from headway.data.series.scaling import Scaling
from headway.tasks.forecast.task import Forecasting
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.predictor import Predictor
from headway.tasks.series.predict import Forecast, folder_scaling, forecasts
from headway.tasks.series.task import SeriesExample


class ForecastPredictor(Predictor[SeriesExample, Forecast]):
    """A forecaster in use."""

    task = Forecasting()

    @cached_property
    def scaling(self) -> Scaling:
        return folder_scaling(self.model, self.loaded.folder)

    def predict(self, examples: Sequence[SeriesExample]) -> list[Forecast]:
        return forecasts(self.model, self.scaling, examples, self.options.horizon)

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.forecast.training import evaluate_source

        return evaluate_source(self.model, self.scaling, self.recipe, source)
