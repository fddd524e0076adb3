"""The training loop: one step, and what happens between steps (evaluation, samples, checkpoints).

A run is a pure function of its recipe: the step's number determines its samples, and a checkpoint holds everything else
that changes. A run that was stopped and resumed therefore ends in the same bits.
"""

from __future__ import annotations

import signal
import threading
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
from headway.progress import bar
from headway.tasks.batch import Batch
from headway.tasks.training import Training
from headway.train.compute import make_compute
from headway.train.distributed import World, reshard
from headway.train.health import LossEMA, diverged, non_finite
from headway.train.log.cost import Estimate, peak_memory
from headway.train.optim.average import EMA, WeightCopy
from headway.train.optim.optimizer import Optimizer
from headway.train.optim.schedule import lr_factor, lr_factor_from_start, unfrozen_depth

Report = Callable[..., None]
"""Called with an event's kind (`step`, `eval`, `sample`, `save`, `spike`, `nan`, `best`, `kept`) and its facts."""

MAX_SKIPPED_STEPS = 10
"""The most consecutive steps that `train.on_nan = skip` leaves out before the run counts as diverged."""


@dataclass
class Progress:
    """The counters of a run. Weights, optimizer state, random state and these are all that a checkpoint needs."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    scale: float = 1.0
    """Factor on the learning rate; each rewind to a checkpoint halves it."""
    skipped: int = 0
    """Consecutive steps that were left out."""
    loss_ema: list[float] = field(default_factory=lambda: list(LossEMA()))
    best: float | None = None
    """The primary metric of the best evaluation."""
    best_loss: float | None = None
    """Its loss: of two evaluations with the same metric, the one with the smaller loss is better."""
    best_step: int = 0
    evals_since_best: int = 0
    warm_seconds: float = 0.0
    """When the warm-up ended, if the budget is a time."""
    decay_from_start: bool = False
    """Whether the run keeps the schedule of older checkpoints: see `lr_factor_from_start`."""


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
        self.ema = EMA(model) if config.ema else None
        self.best = WeightCopy(model) if config.keep_best or config.patience else None
        self.received_signal = 0
        """A signal that this process has received. The run stops when all processes know of it."""
        self.stop_signal = 0
        self.compute = make_compute(model, task, optimizer, config, world)
        self._batches: Prefetcher[list[tuple[Batch, int]]] | None = None

    def run(self, report: Report, save: Callable[[], None], sample: Callable[[], dict[str, Any]]) -> None:
        """Train until the budget is spent, patience ends or a signal comes; evaluate, sample and save on schedule."""
        config, now, estimate = self.config, self.progress, Estimate()
        first = now.step
        self.model.train()
        with self.signals():
            while self.budget_spent < 1 and not self.stop_signal and not self.out_of_patience:
                start = time.perf_counter()
                with bar(self._first_step) if now.step == first else nullcontext():
                    facts = self.step()
                now.seconds += time.perf_counter() - start
                if self.world.size > 1 and config.minutes is not None:  # all must agree when the time is over
                    now.seconds = self.world.sum(now.seconds)[0] / self.world.size
                report("step", step=now.step, tokens=now.tokens, seconds=now.seconds, **facts, share=self.budget_spent)
                if (left := estimate.after_step(now.step, now.seconds, self.budget_spent)) is not None:
                    report("estimate", step=now.step, **left, memory=peak_memory(self.world.device))
                self._check_loss(facts["loss"], report)
                if self.world.size == 1:
                    self.stop_signal = self.stop_signal or self.received_signal
                last = self.budget_spent >= 1
                if now.step % config.eval_every == 0 or last:
                    self.task.after_evaluation(self.model, self._evaluate(report))
                if now.step % config.sample_every == 0 or last:
                    report("sample", step=now.step, **sample())
                if now.step % config.save_every == 0 or last or self.stop_signal or self.out_of_patience:
                    save()
                    report("save", step=now.step, memory=peak_memory(self.world.device))
        if self.budget_spent >= 1 or self.out_of_patience:
            self.stop_signal = 0  # it came with the last step: the run has finished
        if self.best is not None and not self.stop_signal:
            report("kept", step=now.step, best=now.best_step, early=config.patience if self.out_of_patience else 0)

    @property
    def _first_step(self) -> str:
        return "compiling, and the first step" if self.compute.compiled else "the first step"

    def step(self) -> dict[str, float]:
        """One update of the weights, from the micro-batches' summed gradients divided by the count of predictions."""
        config, now, world = self.config, self.progress, self.world
        if config.minutes is not None and now.step == config.warmup:
            now.warm_seconds = now.seconds
        factor = self.lr_factor
        self.optimizer.set_rate(self.peak_lrs, factor, unfrozen_depth(config, now.step))
        micro_batches = self._next_batches()
        count, tokens, stopping = world.sum(
            sum(batch.count * counts for batch, counts in micro_batches),
            sum(batch.tokens * counts for batch, counts in micro_batches),
            self.received_signal,
        )
        self.stop_signal = self.stop_signal or self.received_signal or (signal.SIGTERM if stopping else 0)
        loss, norm = self.compute.gradients(micro_batches, count)
        (loss,) = world.sum(loss)
        if problem := non_finite(now.step, loss, norm, self.compute.by_name(micro_batches, count)):
            self._skip_step(problem)
        else:
            self.compute.update()
            now.skipped = 0
        now.step += 1
        now.tokens += int(tokens)
        self.task.after_step(self.model, self.budget_spent, self.world)
        if self.ema is not None and not problem:
            self.ema.update(config.ema, now.step)
        return {"loss": loss / count, "grad_norm": norm, "lr": max(self.peak_lrs[:1], default=0.0) * factor}

    def _next_batches(self) -> list[tuple[Batch, int]]:
        if self._batches is None:
            self._batches = Prefetcher(self._make_batches, self.progress.step, self.workers)
        return next(self._batches)

    def _make_batches(self, step: int) -> list[tuple[Batch, int]]:
        """This process's micro-batches of a step, each with 1 if it counts.

        All processes compute the same number of micro-batches: one without samples computes a batch that counts 0.
        """
        samples = self.plan.samples(step)
        parts = shard(shard(samples, self.world.size)[self.world.rank], self.config.accumulate)
        batches = [self.task.batch(part if len(part) else samples[:1]) for part in parts]
        if self.world.device.type == "cuda":
            batches = [batch.pinned() for batch in batches]
        return [(batch, min(1, len(part))) for batch, part in zip(batches, parts, strict=True)]

    def _skip_step(self, problem: str) -> None:
        """Drop a bad step before it touches the weights, so that the last checkpoint stays good."""
        self.compute.discard()
        self.progress.skipped += 1
        if self.config.on_nan != "skip" or self.progress.skipped > MAX_SKIPPED_STEPS:
            raise diverged(problem)

    @property
    def budget_spent(self) -> float:
        """The share of the budget that is spent, from 0 to 1."""
        config, now = self.config, self.progress
        if config.minutes is not None:
            return now.seconds / (60 * config.minutes)
        return now.step / self._steps

    @property
    def warmup_share(self) -> float:
        """The share of the budget that was spent when the warm-up ended."""
        config = self.config
        if config.minutes is not None:
            return self.progress.warm_seconds / (60 * config.minutes)
        return config.warmup / self._steps

    @property
    def _steps(self) -> float:
        """The budget in steps, if it is not a time."""
        config = self.config
        steps = config.steps if config.steps is not None else (config.epochs or 0) * self.plan.steps_per_epoch
        return max(1.0, float(steps))

    @property
    def lr_factor(self) -> float:
        """The next step's learning rate as a share of its peak."""
        config, now = self.config, self.progress
        if now.decay_from_start:
            return lr_factor_from_start(config, now.step, self.budget_spent) * now.scale
        return lr_factor(config, now.step, self.budget_spent, self.warmup_share) * now.scale

    @property
    def out_of_patience(self) -> bool:
        """Whether the last `train.patience` evaluations brought nothing better."""
        return 0 < self.config.patience <= self.progress.evals_since_best

    def _check_loss(self, loss: float, report: Report) -> None:
        now, loss_ema = self.progress, LossEMA(*self.progress.loss_ema)  # type: ignore[arg-type]
        if now.skipped:
            report("nan", step=now.step, action="skip")
            return
        if loss_ema.is_spike(loss):
            report("spike", step=now.step, loss=loss, usual=loss_ema.loss)
        now.loss_ema = list(loss_ema.updated(loss))

    def _evaluate(self, report: Report) -> dict[str, float]:
        now, metric = self.progress, self.task.primary_metric
        with self.ema.swapped_in() if self.ema else nullcontext():
            with self.compute.precision():
                result = self.task.evaluate(self.model, self.world)
            reshard(self.model)
            report("eval", step=now.step, **result)
            value, loss = result[metric], result["valid"]
            if not self._is_better(value, loss):
                now.evals_since_best += 1
                return result
            now.best, now.best_loss, now.best_step, now.evals_since_best = value, loss, now.step, 0
            if self.best is not None:
                self.best.store()
                report("best", step=now.step, **{metric: value})
        return result

    def _is_better(self, value: float, loss: float) -> bool:
        now, sign = self.progress, -1 if self.task.higher_is_better else 1
        if now.best is None or sign * value < sign * now.best:
            return True
        return value == now.best and now.best_loss is not None and loss < now.best_loss

    def load_final_weights(self) -> None:
        """Load the weights that are the result of the run: the best ones, their average, or the last ones."""
        if chosen := self.best or self.ema:
            chosen.copy_to_model()

    def restart(self, progress: dict[str, Any]) -> None:
        """Continue from other counters; prefetched batches and captured graphs do not fit them."""
        self.progress = Progress(**progress)
        self.compute.drop_graphs()
        self.close()

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    @contextmanager
    def signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM ends the run after the current step; a second one interrupts at once."""

        def handle(number: int, frame: FrameType | None) -> None:
            if self.received_signal:
                raise KeyboardInterrupt
            self.received_signal = number

        here = threading.current_thread() is threading.main_thread()  # no other thread may handle signals
        before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)} if here else {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.close()
