"""A recorded step equals an ordinary one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headway.data.store import TokenStore
from headway.data.vocabulary import train_tokenizer
from headway.model.model import Model
from headway.recipe import DataConfig, Recipe, ShapeConfig, TrainConfig
from headway.shapes import decoder_config
from headway.tasks.lm import LanguageModelling
from headway.train.distributed import World
from headway.train.loop import Loop
from headway.train.optim import make_optimizer
from headway.train.state import collect, restore

TOKENIZER = train_tokenizer("bytes", [])


def make(optimizer: str, records: bool, accumulate: int = 1) -> Loop:
    torch.manual_seed(3)
    model = Model(decoder_config(ShapeConfig(depth=2, width=64, heads=2), 30, 32)).cuda()
    ids = np.random.default_rng(0).integers(0, 30, 5000)
    store = TokenStore(ids, np.array([0, len(ids)]), len(ids), None)
    config = TrainConfig(steps=40, batch=8, lr=1e-2, warmup=5, accumulate=accumulate, optimizer=optimizer)  # type: ignore[arg-type]
    task = LanguageModelling(Recipe(seed=1, data=DataConfig(length=32)), TOKENIZER, store, store)
    world = World(0, 1, torch.device("cuda"))
    loop = Loop(model, task, make_optimizer(model, config, 64), config, task.plan(8), world, 0)
    loop.compute.records = records
    loop.compute._stream = loop.compute._stream if records else None
    model.train()
    return loop


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_recorded_equals_ordinary(optimizer: str, accumulate: int) -> None:
    ordinary, recorded = make(optimizer, False, accumulate), make(optimizer, True, accumulate)
    pairs = [(ordinary.step(), recorded.step()) for _ in range(15)]
    assert recorded.compute._recorded is not None and ordinary.compute._recorded is None
    for a, b in pairs:
        assert a["loss"] == pytest.approx(b["loss"], abs=2e-2)
        assert a["lr"] == b["lr"]
    assert pairs[-1][0]["loss"] != pairs[3][0]["loss"]


@pytest.mark.gpu
def test_a_recorded_run_is_restored() -> None:
    loop = make("adamw", True)
    for _ in range(8):
        loop.step()
    tensors, counters = collect(loop)
    saved = {file: {n: t.cpu().clone() for n, t in inner.items()} for file, inner in tensors.items()}
    ahead = [loop.step()["loss"] for _ in range(8)]
    restore(loop, saved, counters)
    assert [loop.step()["loss"] for _ in range(8)] == pytest.approx(ahead, abs=1e-2)
