"""The training loop: a step on one screen, and what happens between steps.

A run is a pure function of its recipe: the samples of a step follow from its number, and everything else that changes
is in a checkpoint. Stopped and resumed, it ends in the same bits.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from headway.config.recipe import TrainConfig
from headway.data.batching.batch_sampler import BatchSampler, shard
from headway.data.batching.prefetch import Prefetcher
from headway.model.model import Model
from headway.tasks.batch import Batch
from headway.tasks.training import Training
from headway.train.compute import Compute
from headway.train.distributed import World, reshard
from headway.train.health import LossEMA, diverged, non_finite
from headway.train.optim.average import WeightCopy
from headway.train.optim.optimizer import Optimizer, lr_factor, lr_factor_from_start, unfrozen_depth

Report = Callable[..., None]
"""Called with a kind of event (`step`, `eval`, `sample`, `save`, `spike`, `nan`, `best`, `kept`) and its facts."""

MOST_SKIPS = 10
"""Steps in a row that may be left out before the run counts as diverged."""


@dataclass
class Progress:
    """Where a run stands: with the weights and the optimizer, all that a checkpoint needs."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    scale: float = 1.0
    """Of the learning rate; halved each time the run goes back to a checkpoint."""
    skipped: int = 0
    """Steps left out in a row."""
    loss_ema: list[float] = field(default_factory=lambda: list(LossEMA()))
    best: float | None = None
    best_loss: float | None = None
    """At the same evaluation: of two that are as good the one with the smaller loss is better."""
    best_step: int = 0
    evals_since_best: int = 0
    """Evaluations since the best one."""
    warm_seconds: float = 0.0
    """When the warm-up ended, where the budget is a time."""
    decay_from_start: bool = False
    """Whether the learning rate follows the rule of older checkpoints: see `lr_factor_from_start`."""


class Loop:
    """One model in training."""

    def __init__(
        self,
        model: Model,
        task: Training,
        optimizer: Optimizer,
        config: TrainConfig,
        plan: BatchSampler,
        world: World,
        workers: int,
    ) -> None:
        self.model, self.task, self.optimizer, self.config = model, task, optimizer, config
        self.plan, self.world, self.workers = plan, world, workers
        self.peak_lrs = [float(group["lr"]) for group in optimizer.groups]
        self.progress = Progress()
        self.ema = WeightCopy(model) if config.ema else None
        self.best = WeightCopy(model) if config.keep_best or config.patience else None
        self.asked = 0
        """A signal that has come to this process; acted upon when all know of it."""
        self.stop_signal = 0
        self.compute = Compute(model, task.loss, optimizer, config, world, static_shapes=task.static_shapes)
        self._batches: Prefetcher[list[tuple[Batch, int]]] | None = None

    @property
    def share(self) -> float:
        """How much of the budget is spent, from 0 to 1."""
        config, now = self.config, self.progress
        if config.minutes is not None:
            return now.seconds / (60 * config.minutes)
        return now.step / self._steps

    @property
    def _steps(self) -> float:
        """The budget, where it is no time."""
        config = self.config
        steps = config.steps if config.steps is not None else (config.epochs or 0) * self.plan.steps_per_epoch
        return max(1.0, float(steps))

    @property
    def warm(self) -> float:
        """How much of the budget was spent when the warm-up ended."""
        config = self.config
        if config.minutes is not None:
            return self.progress.warm_seconds / (60 * config.minutes)
        return config.warmup / self._steps

    @property
    def rate(self) -> float:
        """Share of the peak learning rate that the next step takes."""
        config, now = self.config, self.progress
        if now.decay_from_start:
            return lr_factor_from_start(config, now.step, self.share) * now.scale
        return lr_factor(config, now.step, self.share, self.warm) * now.scale

    def _make_batches(self, step: int) -> list[tuple[Batch, int]]:
        """This process's share of a step's samples, in parts, and 1 for each that counts.

        All processes compute as many parts: one without samples computes on one that counts for nothing.
        """
        samples = self.plan.samples(step)
        parts = shard(shard(samples, self.world.size)[self.world.rank], self.config.accumulate)
        batches = [self.task.batch(part if len(part) else samples[:1]) for part in parts]
        if self.world.device.type == "cuda":
            batches = [batch.pinned() for batch in batches]
        return [(batch, min(1, len(part))) for batch, part in zip(batches, parts, strict=True)]

    def _next_batches(self) -> list[tuple[Batch, int]]:
        if self._batches is None:
            self._batches = Prefetcher(self._make_batches, self.progress.step, self.workers)
        return next(self._batches)

    def step(self) -> dict[str, float]:
        """One update of the weights: the batch in parts, their gradients summed, divided by the count of all."""
        config, now, world = self.config, self.progress, self.world
        if config.minutes is not None and now.step == config.warmup:
            now.warm_seconds = now.seconds
        factor = self.rate
        self.optimizer.set_rate(self.peak_lrs, factor, unfrozen_depth(config, now.step))
        parts = self._next_batches()
        count, tokens, stopping = world.sum(
            sum(batch.count * used for batch, used in parts),
            sum(batch.tokens * used for batch, used in parts),
            self.asked,
        )
        self.stop_signal = self.stop_signal or self.asked or (signal.SIGTERM if stopping else 0)
        loss, norm = self.compute.gradients(parts, count)
        (loss,) = world.sum(loss)
        if wrong := non_finite(now.step, loss, norm, self.compute.by_name(parts, count)):
            self._skip_step(wrong)
        else:
            self.compute.update()
            now.skipped = 0
        now.step += 1
        now.tokens += int(tokens)
        if self.ema is not None and not wrong:
            self.ema.update(config.ema, now.step)
        return {"loss": loss / count, "grad_norm": norm, "lr": self.peak_lrs[0] * factor}

    def _skip_step(self, wrong: str) -> None:
        """Before the weights are touched: the last checkpoint stays good, and the bad step leaves no trace."""
        self.compute.discard()
        self.progress.skipped += 1
        if self.config.on_nan != "skip" or self.progress.skipped > MOST_SKIPS:
            raise diverged(wrong)

    def run(self, report: Report, save: Callable[[], None], sample: Callable[[], str]) -> None:
        """Until the budget is spent or a signal asks to stop; evaluation, samples and checkpoints on their cadence."""
        config, now = self.config, self.progress
        self.model.train()
        with self._signals():
            while self.share < 1 and not self.stop_signal and not self.out_of_patience:
                start = time.perf_counter()
                facts = self.step()
                now.seconds += time.perf_counter() - start
                if self.world.size > 1 and config.minutes is not None:  # all must agree when the time is over
                    now.seconds = self.world.sum(now.seconds)[0] / self.world.size
                report("step", step=now.step, tokens=now.tokens, seconds=now.seconds, **facts, share=self.share)
                self._check_loss(facts["loss"], report)
                if self.world.size == 1:
                    self.stop_signal = self.stop_signal or self.asked
                last = self.share >= 1
                if now.step % config.eval_every == 0 or last:
                    self._evaluate(report)
                if now.step % config.sample_every == 0 or last:
                    report("sample", step=now.step, text=sample())
                if now.step % config.save_every == 0 or last or self.stop_signal or self.out_of_patience:
                    save()
                    report("save", step=now.step)
        if self.best is not None and not self.stop_signal:
            report("kept", step=now.step, best=now.best_step, early=config.patience if self.out_of_patience else 0)

    @property
    def out_of_patience(self) -> bool:
        """Nothing better has come for as long as patience lasts."""
        return 0 < self.config.patience <= self.progress.evals_since_best

    def _check_loss(self, loss: float, report: Report) -> None:
        now, loss_ema = self.progress, LossEMA(*self.progress.loss_ema)  # type: ignore[arg-type]
        if now.skipped:
            report("nan", step=now.step, action="skip")
            return
        if loss_ema.is_spike(loss):
            report("spike", step=now.step, loss=loss, usual=loss_ema.loss)
        now.loss_ema = list(loss_ema.updated(loss))

    def _evaluate(self, report: Report) -> None:
        now = self.progress
        with self.ema.swapped_in() if self.ema else nullcontext():
            with self.compute.precision():
                result = self.task.evaluate(self.model, self.world)
            reshard(self.model)
            report("eval", step=now.step, **result)
            goal, loss = result[self.task.primary_metric], result["valid"]
            if not self._is_better(goal, loss):
                now.evals_since_best += 1
                return
            now.best, now.best_loss, now.best_step, now.evals_since_best = goal, loss, now.step, 0
            if self.best is not None:
                self.best.store()
                report("best", step=now.step, **{self.task.primary_metric: goal})

    def _is_better(self, goal: float, loss: float) -> bool:
        now, sign = self.progress, -1 if self.task.higher_is_better else 1
        if now.best is None or sign * goal < sign * now.best:
            return True
        return goal == now.best and now.best_loss is not None and loss < now.best_loss

    def finish(self) -> None:
        """The weights that are the result of the run."""
        if chosen := self.best or self.ema:
            chosen.copy_to_model()

    def restart(self, progress: dict[str, Any]) -> None:
        """From another point: the batches prepared for this one are not those that come next."""
        self.progress = Progress(**progress)
        self.compute.drop_graphs()
        self.close()

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first signal ends the run after the step it falls into; a second one acts at once."""

        def ask(number: int, frame: FrameType | None) -> None:
            if self.asked:
                raise KeyboardInterrupt
            self.asked = number

        before = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.close()
