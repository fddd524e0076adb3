"""ForecastTraining: a model learns to continue windows of a table. Letters: B windows, T time steps, C columns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.config.networks.kinds import AnyConfig
from headway.config.networks.series import SeriesConfig
from headway.config.shape import series_config
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.files.digest import fingerprint
from headway.data.files.rows import BadRows
from headway.data.images.png import png
from headway.data.series.linear import LinearForecast, fit_linear
from headway.data.series.plot import Curves, picture
from headway.data.series.scaling import FILE, Scaling
from headway.data.series.table import Table, read_tables
from headway.data.series.windows import Windows, make_windows, split_rows
from headway.data.synthetic.series import make_table
from headway.errors import ConfigError, DataError, HeadwayError, counted
from headway.joint.series import SeriesModel
from headway.jsonfile import show
from headway.model.model import Model
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.forecast.evaluate import evaluation, model_errors, naive, pinball, rule_errors, simple_forecasts
from headway.tasks.forecast.task import Settings
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.recipe import Recipe
from headway.tasks.series.predict import predicted, series_model
from headway.tasks.training import ScoredTraining, TaskContext


@dataclass(frozen=True)
class ForecastData:
    """The windows of a run."""

    scaling: Scaling
    train: Windows
    valid: Windows
    test: Windows | None
    """The test part of the training table."""
    about: dict[str, Any]


@dataclass(frozen=True)
class ForecastTraining(ScoredTraining[Windows]):
    """Windows of a table, and what comes after them."""

    recipe: Recipe
    data: ForecastData
    tokenizer = None
    primary_metric = "mse"
    guesser = "the last value, again and again"

    @classmethod
    def prepare(cls, context: TaskContext) -> ForecastTraining:
        return cls(context.recipe, read_data(context.recipe))

    @property
    def settings(self) -> Settings:
        settings: Settings = self.recipe.settings
        return settings

    @property
    def static_shapes(self) -> bool:
        return True

    @cached_property
    def tokens(self) -> int:
        """Of a window: those of all columns."""
        return self.config(None).max_length * len(self.data.scaling.columns)  # type: ignore[operator]

    @property
    def facts(self) -> dict[str, Any]:
        data, each = self.data, self.tokens
        return {
            **data.about,
            "samples": len(data.train),
            "tokens": len(data.train) * each,
            "valid_samples": len(data.valid),
            "valid_tokens": len(data.valid) * each,
            "columns": len(data.scaling.columns),
        }

    @property
    def model_files(self) -> dict[str, Any]:
        return data_files(self.data.scaling)

    def config(self, base: AnyConfig | None) -> AnyConfig:
        settings = self.settings
        if base is not None and not isinstance(base, SeriesConfig):
            why = f"task forecast trains models of series, model.from = {self.recipe.model.from_} is none"
            raise ConfigError("C004", why)
        if base is None:
            base = series_config(
                self.recipe.model,
                causal=settings.kind == "decoder",
                look_back=settings.look_back,
                horizon=settings.horizon,
                patch=settings.patch,
                stride=settings.stride,
            )
        return replace(
            base,
            look_back=settings.look_back,
            horizon=settings.horizon,
            quantiles=settings.quantiles,
            instance_norm=settings.instance_norm,
            affine=len(self.data.scaling.columns) if settings.affine else 0,
        )

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.data.train), batch)

    def batch(self, samples: Index) -> Batch:
        values, known = self.data.train.read(shuffle_samples(samples, len(self.data.train), self.recipe.seed))
        fitted = self._fitted
        count = values[:, -fitted:].size if known is None else int(known[:, -fitted:].sum())
        right = None if known is None else torch.from_numpy(known[:, -fitted:])
        return Batch((torch.from_numpy(values), right), max(1, count), len(samples) * self.tokens)

    @cached_property
    def _fitted(self) -> int:
        """Time steps of a window that the loss is about."""
        config = self.config(None)
        assert isinstance(config, SeriesConfig)
        return config.fitted

    @property
    def loss(self) -> Callable[..., Tensor]:
        settings, fitted = self.settings, self._fitted
        quantiles, absolute = settings.quantiles, settings.loss == "mae"

        def loss(model: SeriesModel, windows: Tensor, known: Tensor | None) -> Tensor:
            found, target = model.fitted(windows), windows[:, -fitted:]
            if quantiles:
                each = pinball(found, target, quantiles)
            else:
                error = found[..., 0] - target
                each = error.abs() if absolute else error.square()
            return (each if known is None else each * known).sum()

        return loss

    # --- evaluation

    @property
    def valid_part(self) -> Windows:
        return self.data.valid

    @cached_property
    def test_part(self) -> Windows | None:
        """The windows of data.test, or of the test part of the training table."""
        return self.read_test(self.recipe.data.test) if self.recipe.data.test else self.data.test

    def read_test(self, source: str) -> Windows:
        return read_part(source, self.recipe, self.data.scaling, self.bad_tests)

    @cached_property
    def chance(self) -> dict[str, float]:
        """Of the last value, again and again."""
        errors = rule_errors(naive(self.settings.horizon), self.data.valid, self.settings.look_back)
        found = {name: metric.value for name, metric in errors.metrics().items()}
        return found if self.settings.quantiles else {"valid": found[self.settings.loss], **found}

    def loss_and_metrics(self, model: Model, part: Windows, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        errors = model_errors(series_model(model), part, world)
        found = {name: metric.value for name, metric in errors.metrics().items()}
        return found["pinball" if self.settings.quantiles else self.settings.loss], found

    @cached_property
    def linear(self) -> LinearForecast:
        return fit_linear(self.data.train, self.data.valid, self.settings.look_back)

    def evaluate_in_full(self, model: Model, part: Windows) -> Evaluation:
        settings, scaling = self.settings, self.data.scaling
        season = settings.season or scaling.clock.season
        rules = simple_forecasts(settings.look_back, settings.horizon, season, self.linear)
        return evaluation(series_model(model), part, scaling.columns, rules)

    @property
    def tries(self) -> list[str]:
        return ["--file", self.recipe.data.train] if self.recipe.data.train else []

    def _sample(self, model: Model) -> list[Curves]:
        """A held-out window in its units, with the forecast."""
        settings, scaling = self.settings, self.data.scaling
        values, _ = self.data.valid.read(np.array([len(self.data.valid) // 2]))
        found = predicted(series_model(model), torch.from_numpy(values[:, : settings.look_back]), settings.horizon)[0]
        true, each = (
            scaling.restore(values[0]),
            [scaling.restore(found[..., i].numpy()) for i in range(found.shape[-1])],
        )
        point = each[settings.quantiles.index(0.5)] if settings.quantiles else each[0]
        tail = min(settings.look_back, 3 * settings.horizon)
        return [
            Curves(
                name,
                true[-settings.horizon - tail : -settings.horizon, i],
                point[:, i],
                true[-settings.horizon :, i],
                (each[0][:, i], each[-1][:, i]) if settings.quantiles else None,
            )
            for i, name in enumerate(scaling.columns)
        ]

    def sample(self, model: Model) -> str:
        curves = self._sample(model)
        said = (f"{c.name}: {_some(c.after)}, true {_some(c.true)}" for c in curves[:4] if c.true is not None)
        return f"after {self.settings.look_back} steps, at four steps of {self.settings.horizon}: {'; '.join(said)}"

    def picture(self, model: Model) -> bytes:
        return png(picture(self._sample(model)))


def _some(values: np.ndarray[Any, Any]) -> str:
    return " ".join(f"{values[(i + 1) * len(values) // 4 - 1]:.3g}" for i in range(4)) if len(values) >= 4 else "…"


def data_files(scaling: Scaling) -> dict[str, Any]:
    """The file of a model's folder that says how series are standardised."""
    return {FILE: scaling.to_dict()}


def read_data(recipe: Recipe) -> ForecastData:
    """The tables of a recipe, split in time, standardised by the training part."""
    data, settings, bad = recipe.data, recipe.settings, BadRows(recipe.data.bad_rows)
    tables = read_tables(data.train, data, bad, settings.wanted) if data.train else [make_table()]
    tables = [tables[0], *(table.chosen(tables[0].columns) for table in tables[1:])]
    whole = bool(data.valid)  # then nothing of the training table is held out
    ends = [(len(table),) * 3 if whole else split_rows(settings.split, len(table), table.clock) for table in tables]
    first = tables[0]
    learned = np.concatenate([table.values[: end[0]] for table, end in zip(tables, ends, strict=True)])
    scaling = Scaling.measured(first.columns, learned, first.clock, first.time)
    values = [scaling.apply(table.values) for table in tables]
    borders = [(0, *end) for end in ends]
    parts = [
        make_windows(
            [(each, ends[place], ends[place + 1]) for each, ends in zip(values, borders, strict=True)],
            settings.look_back,
            settings.horizon,
        )
        for place in range(3)
    ]
    notes = [note for table in tables for note in table.notes]
    about = {"train": data.train, "valid": data.valid, "bad_rows": bad.count, "step": str(first.clock), "notes": notes}
    about["fingerprint"] = fingerprint(data.train) if data.train else _digest(first)
    valid = read_part(data.valid, recipe, scaling, bad) if whole else _enough(parts[1], "validation", tables, settings)
    test = parts[2] if len(parts[2]) and not whole else None
    return ForecastData(scaling, _enough(parts[0], "training", tables, settings), valid, test, about)


def _enough(part: Windows, name: str, tables: list[Table], settings: Settings) -> Windows:
    """A part with at least one window."""
    if len(part):
        return part
    where = f"{show(tables[0].file)}: " if tables[0].file else ""
    need = f"forecast.look_back = {settings.look_back} and forecast.horizon = {settings.horizon}"
    what = f"{where}the {name} part of {counted(len(tables[0]), 'time steps')} is too short for {need}"
    raise DataError("D002", what, f"make them smaller, or split otherwise: forecast.split = {settings.split!r}")


def read_part(source: str, recipe: Recipe, scaling: Scaling, bad: BadRows) -> Windows:
    """All windows of other tables with the same columns."""
    settings = recipe.settings
    tables = read_tables(source, recipe.data, bad, scaling.columns)
    series = [(scaling.apply(table.values), 0, len(table)) for table in tables]
    return _enough(make_windows(series, settings.look_back, settings.horizon), "test", tables, settings)


def _digest(table: Table) -> str:
    return hashlib.sha256(table.values.tobytes()).hexdigest()


def evaluate_source(model: Model, scaling: Scaling, recipe: Recipe, source: str) -> Evaluation:
    """On tables of the user's; without a source, on what the run has not learned from."""
    recipe = replace(recipe, settings=_settings_of(series_model(model).config, recipe.settings))
    settings: Settings = recipe.settings
    if not source:
        training = ForecastTraining(recipe, read_data(recipe))
        return training.evaluate_in_full(
            model, training.data.valid if training.test_part is None else training.test_part
        )
    part = read_part(source, recipe, scaling, BadRows(recipe.data.bad_rows))
    try:
        linear = ForecastTraining(recipe, read_data(recipe)).linear
    except HeadwayError:  # the training table is gone: the linear map cannot be fitted again
        linear = None
    season = settings.season or scaling.clock.season
    rules = simple_forecasts(settings.look_back, settings.horizon, season, linear)
    return evaluation(series_model(model), part, scaling.columns, rules)


def _settings_of(config: SeriesConfig, settings: Settings) -> Settings:
    """The settings with what the model itself says."""
    names = ("kind", "look_back", "horizon", "patch", "stride", "quantiles", "instance_norm")
    return replace(settings, **{name: getattr(config, name) for name in names})
