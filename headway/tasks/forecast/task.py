"""Forecasting: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.networks.series import SeriesConfig
from headway.config.ranges import at_least
from headway.data.files.columns import TIME_NAMES, column_names, value_type
from headway.data.files.readers import Row
from headway.errors import ConfigError
from headway.tasks.base import FineTuning, Suitability, Tries
from headway.tasks.series.task import SeriesTask

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey
    from headway.data.series.table import Table

DRAWN_HOURS = 24 * 7 * 8
"""Hours of a made-up series."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `forecast` of a recipe."""

    kind: Literal["encoder", "decoder"] = "encoder"
    """encoder: all patches are read and mapped to the horizon (PatchTST: Nie et al. 2023); decoder: a causal model
    predicts patch after patch from its own predictions."""
    look_back: int = 336
    """Time steps that the model reads."""
    horizon: int = 96
    """Time steps that it predicts."""
    patch: int = 16
    """Time steps of a token."""
    stride: int = 8
    """Time steps from one patch to the next, for kind = "encoder"; a decoder's patches do not overlap."""
    quantiles: tuple[float, ...] = ()
    """Quantiles to predict instead of the mean, such as [0.1, 0.5, 0.9]; 0.5 is the point forecast."""
    loss: Literal["mse", "mae"] = "mse"
    """What training minimises; quantiles have the pinball loss (Koenker & Bassett 1978)."""
    instance_norm: bool = True
    """Normalise each window by itself, and give its mean and variance back to the forecast (Kim et al. 2022)."""
    affine: bool = False
    """Learn a scale and a shift of each column after that; the model then reads these columns only."""
    columns: str = ""
    """Columns to read and forecast, with commas between them; empty: all columns of numbers."""
    split: str = "0.7/0.1/0.2"
    """Training, validation and test part of a table, the last in time held out: shares, or "12/4/4 months" of 30 days
    as for ETT, or days or rows. Two numbers leave no test part. data.valid and data.test are read as they are."""
    season: int = 0
    """Time steps of a season, for the seasonal naive forecast; 0: by the step of the table."""

    def __post_init__(self) -> None:
        from headway.data.series.windows import check_split

        at_least("forecast", self, look_back=1, horizon=1, patch=1, stride=1, season=0)
        check_split("forecast.split", self.split)
        if self.patch > self.look_back:
            raise ConfigError("C003", f"forecast.patch = {self.patch} is more than look_back = {self.look_back}")
        if self.kind == "encoder" and self.stride > self.patch:
            raise ConfigError("C003", f"forecast.stride = {self.stride} leaves gaps between patches of {self.patch}")

    @property
    def wanted(self) -> tuple[str, ...]:
        """Names of the columns; none: all."""
        return tuple(name.strip() for name in self.columns.split(",") if name.strip())


class Forecasting(SeriesTask):
    """What comes next in a table of numbers over time."""

    name, title, noun, pipeline_tag = "forecast", "forecasting", "forecaster", "time-series-forecasting"
    Settings = Settings
    tries = Tries("drawn:1", own="--file recent.csv", request={"input": "drawn:1"})
    made_up = "hourly numbers that headway makes"
    fine_tuning = FineTuning(lr=1e-4)
    training = "headway.tasks.forecast.training:ForecastTraining"
    predictor = "headway.tasks.forecast.predict:ForecastPredictor"

    def drawn(self, seed: int) -> Table:
        from headway.data.synthetic.series import make_table

        return make_table(DRAWN_HOURS, seed)

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return isinstance(config, SeriesConfig) and not (config.channels and config.stack.causal)

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        """A column of dates and columns of numbers alone."""
        values = [row.values for row in rows]
        kinds = {name: {value_type(row.get(name)) for row in values} - {"missing"} for name in column_names(values)}
        dates = [name for name, found in kinds.items() if found == {"date"} or name.lower() in TIME_NAMES[:7]]
        others = [found <= {"int", "float"} for name, found in kinds.items() if name not in dates]
        return Suitability(0.8 if dates and others and all(others) else 0.0)
