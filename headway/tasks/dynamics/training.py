"""DynamicsTraining: a model learns the next state of a system.

Letters: B windows, T time steps, C numbers of a state.
"""

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
from headway.data.series.plot import Curves, picture
from headway.data.series.scaling import FILE, Scaling, filled
from headway.data.series.table import read_tables
from headway.data.series.times import Clock, Numbers
from headway.data.series.windows import Windows, make_windows
from headway.data.synthetic.systems import SYSTEMS, simulate
from headway.errors import ConfigError, DataError, counted
from headway.joint.series import SeriesModel
from headway.model.model import Model
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.classification.predict import gather_logits
from headway.tasks.diffusion.noise import normal, sample_keys
from headway.tasks.dynamics.evaluate import Truth, evaluation, model_rollout, no_change
from headway.tasks.dynamics.task import Settings
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.recipe import Recipe
from headway.tasks.series.predict import series_model
from headway.tasks.training import ScoredTraining, TaskContext

VALID_SEED, TEST_SEED = 1 << 20, 1 << 21
"""Seeds of simulated trajectories that are held out."""
HELD_OUT, HELD_SHARE = 64, 0.2
"""Simulated trajectories of an evaluation, and the share of a table that is held out, the last in time."""
MOST_ROLLOUTS, BATCH = 128, 256
"""Rollouts of an evaluation, and windows that are computed together."""


@dataclass(frozen=True)
class Held:
    """A held-out part: windows for the loss, and beginnings of rollouts with what follows."""

    windows: Windows
    truth: Truth


@dataclass(frozen=True)
class DynamicsData:
    """The states of a run."""

    scaling: Scaling
    train: Windows
    valid: Held
    change: float
    """The root of the mean square of a step's change, standardised."""
    about: dict[str, Any]


@dataclass(frozen=True)
class DynamicsTraining(ScoredTraining[Held]):
    """Windows of trajectories, and the state after each of their states."""

    recipe: Recipe
    data: DynamicsData
    tokenizer = None
    primary_metric = "prediction_horizon"
    higher_is_better = True
    guesser = "a system that stands still"

    @classmethod
    def prepare(cls, context: TaskContext) -> DynamicsTraining:
        return cls(context.recipe, read_data(context.recipe))

    @property
    def settings(self) -> Settings:
        settings: Settings = self.recipe.settings
        return settings

    @property
    def static_shapes(self) -> bool:
        return True

    @property
    def facts(self) -> dict[str, Any]:
        data, each = self.data, self.settings.look_back
        return {
            **data.about,
            "samples": len(data.train),
            "tokens": len(data.train) * each,
            "valid_samples": len(data.valid.windows),
            "valid_tokens": len(data.valid.windows) * each,
            "columns": len(data.scaling.columns),
        }

    @property
    def model_files(self) -> dict[str, Any]:
        return {FILE: self.data.scaling.to_dict()}

    def config(self, base: AnyConfig | None) -> AnyConfig:
        settings, channels = self.settings, len(self.data.scaling.columns)
        if base is not None and not (isinstance(base, SeriesConfig) and base.channels == channels):
            what = f"model.from = {self.recipe.model.from_}"
            raise ConfigError("C004", f"{what} is no model of states of {counted(channels, 'numbers')}")
        if base is None:
            base = series_config(
                self.recipe.model,
                causal=True,
                look_back=settings.look_back,
                horizon=1,
                patch=1,
                stride=1,
                channels=channels,
            )
        change = self.data.change if settings.change else 0.0
        return replace(base, look_back=settings.look_back, instance_norm=False, change=change)

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.data.train), batch)

    def batch(self, samples: Index) -> Batch:
        values, _ = self.data.train.read(shuffle_samples(samples, len(self.data.train), self.recipe.seed))
        keys = sample_keys(self.recipe.seed, samples)
        count = values[:, 1:].size
        return Batch((torch.from_numpy(values), keys), count, len(samples) * self.settings.look_back)

    @property
    def loss(self) -> Callable[..., Tensor]:
        settings, change = self.settings, self.data.change
        noise = settings.noise * change

        def loss(model: SeriesModel, windows: Tensor, keys: Tensor) -> Tensor:
            read = windows[:, : settings.look_back]
            if noise:
                read = read + noise * normal(keys, tuple(read.shape[1:]))
            return state_errors(model, read, windows, change).sum()

        return loss

    # --- evaluation

    @property
    def valid_part(self) -> Held:
        return self.data.valid

    @cached_property
    def test_part(self) -> Held | None:
        """The states of data.test, or more simulated trajectories."""
        source = self.recipe.data.test
        return self.read_test(source) if source or not self.recipe.data.train else None

    def read_test(self, source: str) -> Held:
        settings, scaling = self.settings, self.data.scaling
        if not source:
            return _simulated(settings, scaling, TEST_SEED)
        tables = read_tables(source, self.recipe.data, self.bad_tests, scaling.columns)
        return _held([filled(scaling.apply(table.values)) for table in tables], settings, scaling)

    def _loss_of(self, model: Model | None, windows: Windows, world: ProcessGroup | None = None) -> float:
        """The mean error of the next state, in units of a step's change; no model: the state stays."""
        settings, change = self.settings, self.data.change
        if model is None:
            values, _ = windows.read()
            return float((np.diff(values[:, : settings.look_back + 1], axis=1) ** 2).mean() / change**2)
        used, device = series_model(model), next(model.parameters()).device

        def errors_of(rows: Index) -> Tensor:
            values = torch.from_numpy(windows.read(rows)[0][:, : settings.look_back + 1]).to(device)
            return state_errors(used, values[:, :-1], values, change).mean((1, 2))[:, None]

        batches = [np.arange(at, min(at + BATCH, len(windows))) for at in range(0, len(windows), BATCH)]
        return float(gather_logits(model, batches, 1, errors_of, world).mean())

    @cached_property
    def chance(self) -> dict[str, float]:
        truth = self.data.valid.truth
        found = truth.metrics(no_change(truth.read, truth.true.shape[1]))
        return {"valid": self._loss_of(None, self.data.valid.windows), **_means(found)}

    def loss_and_metrics(self, model: Model, part: Held, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        found = model_rollout(series_model(model))(part.truth.read, part.truth.true.shape[1])
        return self._loss_of(model, part.windows, world), _means(part.truth.metrics(found))

    def evaluate_in_full(self, model: Model, part: Held) -> Evaluation:
        return evaluation(series_model(model), part.truth)

    @property
    def tries(self) -> list[str]:
        return ["--file", self.recipe.data.train] if self.recipe.data.train else []

    def _sample(self, model: Model) -> list[Curves]:
        truth, scaling = self.data.valid.truth, self.data.scaling
        found = model_rollout(series_model(model))(truth.read[:1], truth.true.shape[1])
        read, true, guess = (scaling.restore(part[0]) for part in (truth.read, truth.true, found))
        low, high = true.min(0), true.max(0)
        guess = guess.clip(2 * low - high, 2 * high - low)  # one that leaves all bounds would hide the rest
        return [Curves(name, read[:, i], guess[:, i], true[:, i]) for i, name in enumerate(scaling.columns)]

    def sample(self, model: Model) -> str:
        truth = self.data.valid.truth
        found = model_rollout(series_model(model))(truth.read[:1], truth.true.shape[1])
        horizon = truth.horizons(truth.errors(found)[:1])[0] if len(found) == len(truth.read) else None
        errors = np.sqrt(((found - truth.true[:1]) ** 2).mean(2))[0]
        steps = [step for step in (1, 10, 50, 100) if step <= len(errors)]
        said = ", ".join(f"{errors[step - 1]:.3g} after {counted(step, 'steps')}" for step in steps)
        return f"error of a held-out rollout, in deviations: {said}" + ("" if horizon is None else f"; {horizon:.3g}")

    def picture(self, model: Model) -> bytes:
        return png(picture(self._sample(model)))


def state_errors(model: SeriesModel, read: Tensor, windows: Tensor, change: float) -> Tensor:
    """(B, S, C): squared errors of the next states, in units of a step's change.

    After each state of `read` comes one of `windows`; beyond those that are read the model goes on by itself.
    """
    length = read.shape[1]
    found = model.fitted(torch.cat([read, windows[:, length : length + 1]], 1))[..., 0]
    parts = [found]
    for _ in range(windows.shape[1] - length - 1):
        read = torch.cat([read, parts[-1][:, -1:].to(read.dtype)], 1)[:, -length:]
        parts.append(model.forecast(read, 1)[..., 0])
    return ((torch.cat(parts, 1) - windows[:, 1:]) / change).square()


def _means(found: dict[str, Numbers]) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in found.items()}


def read_data(recipe: Recipe) -> DynamicsData:
    """Simulated trajectories, or those of tables, of which the last part is held out."""
    data, settings, bad = recipe.data, recipe.settings, BadRows(recipe.data.bad_rows)
    about: dict[str, Any] = {"train": data.train, "valid": data.valid}
    valid: Held
    if not data.train:
        system = SYSTEMS[settings.system]
        states = list(simulate(system, settings.trajectories, settings.length, recipe.seed))
        scaling = Scaling.measured(system.columns, np.concatenate(states), Clock("number", system.step), "t")
        scaling = replace(scaling, about={"system": settings.system})
        train, valid = [scaling.apply(each) for each in states], _simulated(settings, scaling, VALID_SEED)
        about["fingerprint"] = hashlib.sha256(np.stack(states).tobytes()).hexdigest()
    else:
        tables = read_tables(data.train, data, bad)
        tables = [tables[0], *(table.chosen(tables[0].columns) for table in tables[1:])]
        ends = [len(table) if data.valid else round((1 - HELD_SHARE) * len(table)) for table in tables]
        learned = [table.values[:end] for table, end in zip(tables, ends, strict=True)]
        scaling = Scaling.measured(tables[0].columns, np.concatenate(learned), tables[0].clock, tables[0].time)
        every = [filled(scaling.apply(table.values)) for table in tables]
        train = [each[:end] for each, end in zip(every, ends, strict=True)]
        held = [each[max(0, end - settings.look_back) :] for each, end in zip(every, ends, strict=True)]
        if data.valid:
            others = read_tables(data.valid, data, bad, scaling.columns)
            held = [filled(scaling.apply(table.values)) for table in others]
        valid = _held(held, settings, scaling)
        about |= {"fingerprint": fingerprint(data.train), "notes": [note for table in tables for note in table.notes]}
    about |= {"bad_rows": bad.count, "step": str(scaling.clock)}
    windows = _windows(train, settings.look_back, settings.rollout)
    changes = np.concatenate([np.diff(each, axis=0) for each in train])
    return DynamicsData(scaling, windows, valid, float(np.sqrt((changes**2).mean())) or 1.0, about)


def _windows(series: list[Numbers], look_back: int, after: int) -> Windows:
    """All windows of some series: every state is in one of them."""
    found = make_windows([(each, look_back, len(each)) for each in series], look_back, after)
    if not len(found):
        longest = max(map(len, series))
        what = f"series of {counted(longest, 'time steps')} are too short for dynamics.look_back = {look_back}"
        raise DataError("D002", f"{what} and {counted(after, 'steps')} after it", "make dynamics.look_back smaller")
    return found


def _simulated(settings: Settings, scaling: Scaling, seed: int) -> Held:
    """Held-out trajectories of the simulated system: a rollout of each."""
    steps = settings.look_back + settings.horizon
    states = simulate(SYSTEMS[settings.system], HELD_OUT, steps, seed)
    return _held(list(scaling.apply(states)), settings, scaling)


def _held(series: list[Numbers], settings: Settings, scaling: Scaling) -> Held:
    """Windows of held-out series, and rollouts from beginnings that are evenly spread."""
    windows = _windows(series, settings.look_back, 1)
    longest = max(map(len, series)) - settings.look_back
    rollouts = _windows(series, settings.look_back, min(settings.horizon, longest))
    values = rollouts.every(-(-len(rollouts) // MOST_ROLLOUTS)).read()[0].astype(np.float64)
    read, true = values[:, : settings.look_back], values[:, settings.look_back :]
    system = SYSTEMS.get(str(scaling.about.get("system")))
    return Held(windows, Truth(read, true, scaling, settings.threshold, system))


def evaluate_source(model: Model, scaling: Scaling, recipe: Recipe, source: str) -> Evaluation:
    """On states of the user's; without a source, on what the run has not learned from."""
    recipe = replace(recipe, settings=replace(recipe.settings, look_back=series_model(model).config.look_back))
    training = DynamicsTraining(recipe, read_data(recipe))
    part = training.read_test(source) if source else training.data.valid
    return training.evaluate_in_full(model, part)
