"""Exactness of the loop: accumulated = big batch, resumed = uninterrupted, and nothing non-finite gets through."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from headway.data.corpus import Windows
from headway.errors import DivergedError
from headway.model.model import Model
from headway.recipe import ShapeConfig, TrainConfig, decoder_config
from headway.tasks.lm import LanguageModelling
from headway.tasks.loss import IGNORE
from headway.train.loop import Loop
from headway.train.optim import make_optimizer
from headway.train.state import collect, restore

CONFIG = TrainConfig(steps=40, batch=4, lr=1e-2, warmup=5)


class Ragged(LanguageModelling):
    """Sequences of unequal length: the counts of the parts of a batch differ."""

    def batch(self, samples: Any) -> Any:
        inputs, targets = super().batch(samples)
        for row, sample in enumerate(samples.tolist()):
            targets[row, 3 + sample % 5 :] = IGNORE
        return inputs, targets


def make(config: TrainConfig = CONFIG, dtype: torch.dtype = torch.float32, dropout: float = 0.1) -> Loop:
    torch.manual_seed(3)
    shape = ShapeConfig(depth=2, width=16, heads=2, dropout=dropout)
    model = Model(decoder_config(shape, 30, 8)).to(dtype)
    ids = np.random.default_rng(0).integers(0, 30, 200)
    windows = Windows(ids, 8, 1)
    task = Ragged(windows, ids[:50], 50, None, torch.device("cpu"))  # type: ignore[arg-type]
    return Loop(model, task, make_optimizer(model, config, 16), config, len(windows))


def digest(loop: Loop) -> str:
    tensors, counters = collect(loop)
    total = hashlib.sha256(repr({k: v for k, v in counters.items() if k != "seconds"}).encode())
    for file, inner in sorted(tensors.items()):
        for name, tensor in sorted(inner.items()):
            total.update(f"{file}/{name}".encode() + tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_accumulation_equals_the_big_batch(parts: int, dtype: torch.dtype, bound: float) -> None:
    whole, split = make(dtype=dtype, dropout=0.0), make(replace(CONFIG, accumulate=parts), dtype, dropout=0.0)
    whole.model.train(), split.model.train()
    for _ in range(5):
        a, b = whole.step(), split.step()
        assert a["loss"] == pytest.approx(b["loss"], rel=bound * 10)
    for p, q in zip(whole.model.parameters(), split.model.parameters(), strict=True):
        assert float((p - q).detach().abs().max()) <= bound * 10


@pytest.mark.parametrize("stop", [1, 7, 19, 20, 33])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_resumed_run_ends_in_the_same_bits(stop: int, parts: int) -> None:
    """Epochs have 24 samples here, so the stops fall into several of them, with dropout drawing random numbers."""
    config = replace(CONFIG, accumulate=parts)
    straight = make(config)
    straight.model.train()
    losses = [straight.step()["loss"] for _ in range(40)]

    first = make(config)
    first.model.train()
    again = [first.step()["loss"] for _ in range(stop)]
    tensors, counters = collect(first)
    saved = {file: {name: t.clone() for name, t in inner.items()} for file, inner in tensors.items()}

    torch.manual_seed(999)  # another process, another state
    second = make(config)
    second.model.train()
    restore(second, saved, counters)
    again += [second.step()["loss"] for _ in range(40 - stop)]
    assert again == losses
    assert digest(second) == digest(straight)


def test_the_control_shows_a_forgotten_part() -> None:
    """Without the random state, or without the optimizer, the bits differ."""
    for part in ("rng", "optimizer"):
        straight, other = make(), make()
        straight.model.train(), other.model.train()
        for _ in range(3):
            straight.step()
        tensors, counters = collect(straight)
        kept = {file: {n: t.clone() for n, t in inner.items()} for file, inner in tensors.items()}
        kept[part] = {"cpu": torch.get_rng_state().flip(0)} if part == "rng" else {}
        if part == "rng":
            kept["rng"] = {"cpu": torch.Generator().manual_seed(5).get_state()}
        expected = straight.step()["loss"], straight.step()["loss"]
        restore(other, kept, counters)
        assert (other.step()["loss"], other.step()["loss"]) != expected


def test_a_loss_that_is_not_finite_stops_before_the_weights_change() -> None:
    loop = make()
    loop.model.train()
    loop.step()
    with torch.no_grad():
        loop.model.decoder.blocks[1].ffn.up.weight[0, 0] = torch.nan
    before = [p.detach().clone() for p in loop.model.parameters()]
    with pytest.raises(DivergedError, match="first gradient that is not finite: "):
        loop.step()
    assert loop.progress.step == 1
    for p, q in zip(loop.model.parameters(), before, strict=True):
        assert torch.equal(p.nan_to_num(7.0), q.nan_to_num(7.0))


def test_it_learns() -> None:
    loop = make(replace(CONFIG, steps=150))
    loop.model.train()
    first = loop.task.evaluate(loop.model)["valid"]
    for _ in range(150):
        loop.step()
    assert loop.task.evaluate(loop.model)["valid"] < first - 0.2
