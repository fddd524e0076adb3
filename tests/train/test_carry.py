"""What one batch hands to the next; and steps of a task that changes the weights itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.config.shape import decoder_config
from headway.data.batching.token_store import TokenStore
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DivergedError
from headway.model.model import Model, Transformer
from headway.tasks.lm.training import LanguageModelTraining
from headway.tasks.losses.tokens import token_loss
from headway.tasks.recipe import Recipe
from headway.train.compute import Compute
from headway.train.distributed import World
from headway.train.loop import Loop
from headway.train.optim.optimizer import make_optimizer
from headway.train.state import collect, restore

TOKENIZER = train_tokenizer("bytes", [])
ROWS, WIDTH = 4, 16


class Carrying(LanguageModelTraining):
    """A language model whose loss also depends on a mean of the hidden states of all batches before."""

    @staticmethod
    def loss(
        model: Model, inputs: Tensor, targets: Tensor, segment_ids: Tensor | None, before: Tensor
    ) -> tuple[Tensor, tuple[Tensor]]:  # type: ignore[override]
        hidden = model(inputs).hidden
        total, _ = token_loss(model.lm, hidden + before[:, None], targets)
        return total, ((before + hidden.mean(1)) / 2,)

    def carry(self, model: Model) -> tuple[Tensor, ...]:
        return (torch.zeros(ROWS, WIDTH),)


class Counting(LanguageModelTraining):
    """A model whose step adds the learning rate to every weight of its output bias."""

    by_gradient = False

    def update(self, model: Model, tensors: Sequence[Tensor | None], lr: float) -> float:
        with torch.no_grad():
            next(model.parameters()).add_(lr)
        return 2.5 * len(tensors)


def make(kind: type[LanguageModelTraining], world: World | None = None, **settings: Any) -> Loop:
    torch.manual_seed(3)
    model = Transformer(decoder_config(ShapeConfig(depth=1, width=WIDTH, heads=2), 30, 8))
    ids = np.random.default_rng(0).integers(0, 30, 2000)
    store = TokenStore(ids, np.array([0, len(ids)]), len(ids), None)
    config = TrainConfig(**{"steps": 40, "batch": ROWS, "lr": 1e-2, "warmup": 0, "schedule": "constant", **settings})
    task = kind(Recipe(seed=1, data=DataConfig(length=8)), TOKENIZER, store, store)
    loop = Loop(
        model,
        task,
        make_optimizer(model, config, WIDTH),
        config,
        task.plan(ROWS),
        world or World(0, 1, torch.device("cpu")),
        0,
    )
    model.train()
    return loop


def weights(loop: Loop) -> list[Tensor]:
    return [p.detach().clone() for p in loop.model.parameters()]


def test_each_batch_starts_from_what_the_one_before_handed_on() -> None:
    loop = make(Carrying)
    carries = []
    for _ in range(3):
        carries.append(loop.compute.carry[0])
        loop.step()
    assert not carries[0].any() and carries[1].any() and not torch.equal(carries[1], carries[2])
    with torch.no_grad():  # by hand: the first step from zeros, the second from what the first handed on
        again = make(Carrying)
        first = again._next_batches()[0][0].tensors
        hidden = again.model(first[0]).hidden
    assert torch.allclose(carries[1], hidden.mean(1) / 2, atol=1e-6)
    assert not carries[1].requires_grad


def test_accumulated_parts_have_their_rows_of_the_carry() -> None:
    whole, halves = make(Carrying), make(Carrying, accumulate=2)
    for _ in range(4):
        a, b = whole.step(), halves.step()
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
    assert torch.allclose(whole.compute.carry[0], halves.compute.carry[0], atol=1e-5)


def test_a_checkpoint_holds_the_carry() -> None:
    straight, stopped, resumed = make(Carrying), make(Carrying), make(Carrying)
    for _ in range(5):
        straight.step()
    for _ in range(3):
        stopped.step()
    tensors, counters = collect(stopped)
    saved = {file: {name: t.detach().clone() for name, t in named.items()} for file, named in tensors.items()}
    restore(resumed, saved, counters)
    for _ in range(2):
        resumed.step()
    assert all(torch.equal(a, b) for a, b in zip(weights(straight), weights(resumed), strict=True))
    assert torch.equal(straight.compute.carry[0], resumed.compute.carry[0])


def test_a_dropped_step_hands_nothing_on() -> None:
    loop = make(Carrying, on_nan="skip")
    loop.step()
    before = loop.compute.carry[0]
    with torch.no_grad():
        bias = next(loop.model.parameters())
        kept = bias.clone()
        bias.fill_(math.nan)
    loop.step()
    assert loop.progress.skipped == 1 and loop.compute.carry[0] is before
    with torch.no_grad():
        bias.copy_(kept)
    loop.step()
    assert bool(loop.compute.carry[0].isfinite().all()) and loop.compute.carry[0] is not before


def test_other_tasks_carry_nothing() -> None:
    loop = make(LanguageModelTraining)
    loop.step()
    assert isinstance(loop.compute, Compute) and loop.compute.carry == ()
    assert "carry" not in collect(loop)[0]


def test_a_task_may_change_the_weights_itself() -> None:
    loop = make(Counting, lr=0.25)
    before = weights(loop)
    facts = loop.step()
    after = weights(loop)
    assert facts["grad_norm"] == 0 and facts["lr"] == 0.25
    assert facts["loss"] * ROWS * 8 == pytest.approx(2.5 * 3)
    assert torch.allclose(after[0], before[0] + 0.25)
    assert all(torch.equal(a, b) for a, b in zip(after[1:], before[1:], strict=True))
    assert not any(p.requires_grad and p.grad is not None for p in loop.model.parameters())


def test_such_a_task_cannot_drop_a_step_nor_share_it() -> None:
    with pytest.raises(ConfigError, match="on_nan = skip"):
        make(Counting, on_nan="skip")
    with pytest.raises(ConfigError, match="gpus = 2"):
        make(Counting, World(0, 2, torch.device("cpu")))

    class Broken(Counting):
        def update(self, model: Model, tensors: Sequence[Tensor | None], lr: float) -> float:
            return math.nan

    with pytest.raises(DivergedError):
        make(Broken).step()
