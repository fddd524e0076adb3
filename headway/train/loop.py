"""The training loop: a step on one screen, and what happens between steps.

A run is a pure function of its recipe: the samples of a step follow from its number, and everything else that changes
is in a checkpoint. Stopped and resumed, it ends in the same bits.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from headway.data.order import Index
from headway.errors import DivergedError
from headway.model.model import Model
from headway.recipe import TrainConfig
from headway.train.optim import lr_factor

Report = Callable[..., None]
"""Called with a kind of event (`step`, `eval`, `sample`, `save`, `stop`) and its facts."""


class Task(Protocol):
    """What the loop knows of a task."""

    def batch(self, samples: Index) -> Any: ...
    def count(self, batch: Any) -> int: ...
    def loss(self, model: Model, batch: Any) -> Tensor: ...
    def evaluate(self, model: Model) -> dict[str, float]: ...


@dataclass
class Progress:
    """Where a run stands: with the weights and the optimizer, all that a checkpoint needs."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


class Loop:
    """One model in training."""

    def __init__(
        self, model: Model, task: Task, optimizer: torch.optim.Optimizer, config: TrainConfig, samples: int
    ) -> None:
        """`samples` is the size of an epoch."""
        self.model, self.task, self.optimizer, self.config = model, task, optimizer, config
        self.epoch = samples
        self.peaks = [group["lr"] for group in optimizer.param_groups]
        self.progress = Progress()
        self.stop_signal = 0

    @property
    def share(self) -> float:
        """How much of the budget is spent, from 0 to 1."""
        config, now = self.config, self.progress
        if config.minutes is not None:
            return now.seconds / (60 * config.minutes)
        steps = config.steps if config.steps is not None else (config.epochs or 0) * self.epoch / config.batch
        return now.step / max(1.0, float(steps))

    def step(self) -> dict[str, float]:
        """One update of the weights: the batch in parts, their gradients summed, divided by the count of all."""
        config, now = self.config, self.progress
        factor = lr_factor(config, now.step, self.share)
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * factor
        first = now.step * config.batch
        parts = np.split(np.arange(first, first + config.batch), config.accumulate)
        batches = [self.task.batch(part) for part in parts]
        count = sum(self.task.count(batch) for batch in batches)
        losses = []
        for batch in batches:
            loss = self.task.loss(self.model, batch) / count
            loss.backward()
            losses.append(loss.detach())
        limit = config.clip or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        facts = {"loss": float(torch.stack(losses).sum()), "grad_norm": float(norm), "lr": self.peaks[0] * factor}
        self._refuse_nonfinite(facts)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        now.step += 1
        now.tokens += count
        return facts

    def _refuse_nonfinite(self, facts: dict[str, float]) -> None:
        """Before the weights are touched: the last checkpoint stays good, and this step leaves no trace."""
        if np.isfinite(facts["loss"]) and np.isfinite(facts["grad_norm"]):
            return
        bad = (n for n, p in self.model.named_parameters() if p.grad is not None and not p.grad.isfinite().all())
        raise DivergedError(
            "T001",
            f"step {self.progress.step}: loss {facts['loss']}, first gradient that is not finite: {next(bad, 'none')}",
            "lower train.lr, lengthen train.warmup, or set train.clip",
        )

    def run(self, report: Report, save: Callable[[], None], sample: Callable[[], str]) -> None:
        """Until the budget is spent or a signal asks to stop; evaluation, samples and checkpoints on their cadence."""
        config, now = self.config, self.progress
        self.model.train()
        with self._signals():
            while self.share < 1 and not self.stop_signal:
                start = time.perf_counter()
                facts = self.step()
                now.seconds += time.perf_counter() - start
                report("step", **asdict(now), **facts, share=self.share)
                last = self.share >= 1
                if now.step % config.eval_every == 0 or last:
                    report("eval", step=now.step, **self.task.evaluate(self.model))
                if now.step % config.sample_every == 0 or last:
                    report("sample", step=now.step, text=sample())
                if now.step % config.save_every == 0 or last or self.stop_signal:
                    save()
                    report("save", step=now.step)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first signal ends the run after the step it falls into; a second one acts at once."""

        def ask(number: int, frame: FrameType | None) -> None:
            if self.stop_signal:
                raise KeyboardInterrupt
            self.stop_signal = number

        before = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
