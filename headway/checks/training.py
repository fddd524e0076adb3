"""Checks of a recipe: accumulation, resuming and workers do not change a run, and a NaN stops it."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import torch

from headway.checks.equivalence.result import CheckResult
from headway.config.recipe import RECURRENT_SHARES
from headway.errors import DivergedError
from headway.progress import track
from headway.tasks.recipe import Recipe, batch_size, with_overrides
from headway.train.run import Run, start
from headway.train.state import collect, restore

STEPS = 6
"""Steps of each small run."""
WITHOUT_DROPOUT = tuple(f"model.{name}=0.0" for name in ("dropout", *RECURRENT_SHARES))


def check_training(name: str, recipe: Recipe) -> Iterator[CheckResult]:
    """Yield each result when it is known: a few steps with the recipe's data and model, in a temporary folder."""
    settings = replace(recipe.train, steps=1000, minutes=None, epochs=None, sinks=(), compile=False, dtype="float32")
    with tempfile.TemporaryDirectory(prefix="headway-check-") as folder:
        checks = _TrainingChecks(name, replace(recipe, out=folder, gpus=1, train=settings))
        every = (checks.accumulation, checks.resuming, checks.workers, checks.non_finite)
        yield from (check() for check in track(every, "checking", unit="checks"))


class _TrainingChecks:
    def __init__(self, name: str, recipe: Recipe) -> None:
        self.name, self.recipe = name, recipe

    def _run(self, *settings: str) -> Run:
        run = start(self.name, with_overrides(self.recipe, settings))
        run.model.train()
        return run

    def accumulation(self) -> CheckResult:
        """Two accumulated half batches give the gradients of the whole batch; in float64, to exclude rounding."""
        if not self.recipe.train.batch_tokens and (self._size() % 2 or self._size() < 2):
            return CheckResult("accumulated = whole", None, note=f"a batch of {self._size()} cannot be halved")
        gradients = []
        for parts in (1, 2):
            run = self._run(f"train.accumulate={parts}", *WITHOUT_DROPOUT)
            if not run.task.by_gradient:
                run.loop.close()
                return CheckResult("accumulated = whole", None, note="no gradient changes the weights")
            run.model.double()
            run.loop.compute.carry = tuple(part.double() for part in run.loop.compute.carry)
            run.loop.compute.gradients(run.loop._next_batches(), 1.0)
            gradients.append([p.grad.clone() for p in run.model.parameters() if p.grad is not None])
            run.loop.close()
        scale = max(float(g.abs().max()) for g in gradients[0])
        worst = max(float((a - b).abs().max()) for a, b in zip(*gradients, strict=True)) / scale
        return CheckResult("accumulated = whole", worst, 1e-12)

    def _size(self) -> int:
        return batch_size(self.recipe)

    def resuming(self) -> CheckResult:
        """A run that is saved half-way and restored gives the same bits as one that is not interrupted."""
        straight = self._run()
        for _ in range(STEPS):
            straight.loop.step()
        first = self._run()
        for _ in range(STEPS // 2):
            first.loop.step()
        tensors, counters = collect(first.loop)
        saved = {file: {n: t.detach().cpu().clone() for n, t in named.items()} for file, named in tensors.items()}
        torch.manual_seed(0)
        second = self._run()
        restore(second.loop, saved, counters)
        for _ in range(STEPS - STEPS // 2):
            second.loop.step()
        same = digest(straight) == digest(second)
        for run in (straight, first, second):
            run.loop.close()
        note = "" if straight.loop.world.device.type == "cpu" else "a GPU may give other bits"
        return CheckResult("resumed = straight", 0.0 if same else math.inf, 0.0, note)

    def workers(self) -> CheckResult:
        """The batches do not depend on the number of threads that prepare them."""
        streams = []
        for workers in (0, 3):
            run = self._run(f"data.workers={workers}")
            batches = [run.loop._next_batches() for _ in range(STEPS)]
            streams.append([t for parts in batches for b, _ in parts for t in b.tensors if t is not None])
            run.loop.close()
        same = all(torch.equal(a, b) for a, b in zip(*streams, strict=True))
        return CheckResult("any workers = none", 0.0 if same else math.inf, 0.0)

    def non_finite(self) -> CheckResult:
        """A NaN weight stops the run in the same step, before any update."""
        run = self._run("train.on_nan=stop")
        if not run.task.by_gradient:
            run.loop.close()
            return CheckResult("NaN noticed at once", None, note="no gradient changes the weights")
        parameter = next(p for p in run.model.parameters() if p.requires_grad)
        with torch.no_grad():
            parameter.view(-1)[0] = math.nan
        before = digest(run, ("model", "optimizer"))
        try:
            run.loop.step()
            return CheckResult("NaN noticed at once", math.inf, 0.0)
        except DivergedError:
            return CheckResult(
                "NaN noticed at once", 0.0 if digest(run, ("model", "optimizer")) == before else math.inf, 0.0
            )
        finally:
            run.loop.close()


def digest(run: Run, files: tuple[str, ...] = ("model", "optimizer", "rng", "mean", "best", "carry")) -> str:
    """SHA-256 of these files of a checkpoint, and of its counters except for times."""
    tensors, counters = collect(run.loop)
    counters = {k: v for k, v in counters.items() if k not in ("seconds", "skipped")}
    whole = hashlib.sha256(repr(sorted(counters.items())).encode())
    for file in files:
        for name, tensor in sorted(tensors.get(file, {}).items()):
            plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            whole.update(f"{file}/{name}".encode() + plain.numpy().tobytes())
    return whole.hexdigest()
