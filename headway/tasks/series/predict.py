"""Continuing series with a trained model: standardised as its folder says, predicted, and put back into their units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.data.series.scaling import FILE, Scaling, filled, read_scaling
from headway.data.series.table import Table
from headway.data.series.times import Numbers
from headway.errors import DataError, counted
from headway.hub.download import side_file
from headway.joint.series import SeriesModel
from headway.model.model import Model, evaluating
from headway.tasks.base import Json
from headway.tasks.series.task import SeriesExample, named, tabled

DIGITS = 6
"""Significant digits of results."""
SEQUENCES = 8192
"""Sequences that are computed together."""


@dataclass(frozen=True)
class Forecast:
    """The time steps that follow a series."""

    columns: tuple[str, ...]
    values: Numbers
    """(H, C)"""
    time: list[Any]
    """Empty where the series has no times."""
    clock: str = ""
    """Name of the time column."""
    quantiles: dict[str, Numbers] = field(default_factory=dict)
    more: Json = field(default_factory=dict)

    def to_dict(self) -> Json:
        found: Json = {"time": self.time} if self.time else {}
        found |= {"clock": self.clock} if self.clock else {}
        found["forecast"] = self._named(self.values)
        if self.quantiles:
            found["quantiles"] = {share: self._named(values) for share, values in self.quantiles.items()}
        return found | self.more

    @property
    def rows(self) -> list[Json]:
        """A dict for each time step: its time, and a number for each column and quantile."""
        return tabled(self.to_dict())

    def _named(self, values: Numbers) -> dict[str, list[float]]:
        return {
            name: [float(f"{x:.{DIGITS}g}") for x in column]
            for name, column in zip(self.columns, values.T.tolist(), strict=True)
        }


def series_model(model: Model) -> SeriesModel:
    """The model, which has to be one of series."""
    if not isinstance(model, SeriesModel):
        raise DataError("D001", "this model does not read series of numbers", "train one: headway train forecast")
    return model


def folder_scaling(model: Model, folder: Path | None) -> Scaling:
    """How a trained model's folder says that series are standardised."""
    series_model(model)
    found = None if folder is None else side_file(folder, FILE)
    if found is None:
        raise DataError("D001", f"the model's folder has no {FILE}, which says how series are standardised")
    return read_scaling(found)


def predicted(model: SeriesModel, windows: Tensor, steps: int) -> Tensor:
    """(B, steps, C, Q) in float64 on the CPU."""
    like, at_once = next(model.parameters()), max(1, SEQUENCES // windows.shape[2])
    with evaluating(model):
        parts = [model.forecast(part.to(like.device, like.dtype), steps).cpu() for part in windows.split(at_once)]
    return torch.cat(parts).double()


def forecasts(
    model: Model, scaling: Scaling, examples: Sequence[SeriesExample], steps: int | None, shortest: int | None = None
) -> list[Forecast]:
    """A forecast for each series. `steps`: for those that do not say how many; None: the model's horizon.

    `shortest` is the least that a series has to have; None: the model's look-back.
    """
    model = series_model(model)
    found: dict[int, Forecast] = {}
    groups: dict[tuple[int, ...], list[tuple[int, Table, Scaling, Numbers]]] = {}
    for number, example in enumerate(examples):
        table, own, read = standardised(model, scaling, example, shortest or model.config.look_back)
        count = example.steps or steps or model.config.horizon
        groups.setdefault((*read.shape, count), []).append((number, table, own, read))
    for (*_, count), members in groups.items():
        windows = torch.from_numpy(np.stack([read for *_, read in members]).astype(np.float32))
        for (number, table, own, _), each in zip(members, predicted(model, windows, count), strict=True):
            found[number] = _forecast(model, table, own, each)
    return [found[number] for number in range(len(examples))]


def standardised(
    model: SeriesModel, scaling: Scaling, example: SeriesExample, shortest: int
) -> tuple[Table, Scaling, Numbers]:
    """The table of a series, its scaling, and what the model reads of it: the look-back, without gaps."""
    table = _fitting(model, scaling, example.table, shortest)
    own = scaling.of(table.columns, table.values)
    return table, own, filled(own.apply(table.values))[-model.config.look_back :]


def _fitting(model: SeriesModel, scaling: Scaling, table: Table, shortest: int) -> Table:
    """The table with the columns that the model reads, long enough for it."""
    config, table = model.config, named(table, scaling.columns)
    if config.channels or config.affine:
        table = table.chosen(scaling.columns)
    if len(table) < shortest:
        where = f"{table.file}: " if table.file else ""
        what = f"{where}{counted(len(table), 'time steps')}, and the model reads {shortest}"
        raise DataError("D001", what, "give more of what came before")
    return table


def _forecast(model: SeriesModel, table: Table, scaling: Scaling, found: Tensor) -> Forecast:
    """From standardised values (H, C, Q)."""
    each = [scaling.restore(found[..., place].numpy()) for place in range(found.shape[-1])]
    shares = {f"{share:g}": values for share, values in zip(model.config.quantiles, each, strict=False)}
    times = table.clock.shown(table.clock.after(table.times[-1], len(found))) if table.clock.kind != "rows" else []
    point = shares["0.5"] if shares else each[0]
    return Forecast(table.columns, point, times, table.time if times else "", shares)
