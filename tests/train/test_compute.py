"""A captured step equals an eager one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch

from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.config.shape import decoder_config
from headway.data.batching.token_store import TokenStore
from headway.data.tokenizers.train import train_tokenizer
from headway.model.model import Transformer
from headway.tasks.lm.training import LanguageModelTraining
from headway.tasks.recipe import Recipe
from headway.train.compute import EAGER_STEPS, Compute
from headway.train.distributed import World
from headway.train.loop import Loop
from headway.train.optim.optimizer import make_optimizer
from headway.train.state import collect, restore

TOKENIZER = train_tokenizer("bytes", [])


def make(
    optimizer: str, captures: bool, accumulate: int = 1, device: str = "cuda", rows: Literal["stream", "pad"] = "stream"
) -> Loop:
    torch.manual_seed(3)
    model = Transformer(decoder_config(ShapeConfig(depth=2, width=64, heads=2), 30, 32)).to(device)
    ids = np.random.default_rng(0).integers(0, 30, 5000)
    ends = np.array([0, len(ids)])
    if rows == "pad":
        ends = np.concatenate([[0], np.random.default_rng(1).integers(2, 30, 200).cumsum()])
        ids = np.arange(ends[-1]) % 7  # something to learn
    store = TokenStore(ids[: ends[-1]], ends, int(ends[-1]), None)
    config = TrainConfig(steps=40, batch=8, lr=1e-2, warmup=5, accumulate=accumulate, cuda_graphs=captures)
    config = replace(config, optimizer=optimizer, on_nan="skip")  # type: ignore[arg-type]
    task = LanguageModelTraining(Recipe(seed=1, data=DataConfig(length=32, rows=rows)), TOKENIZER, store, store)
    world = World(0, 1, torch.device(device))
    loop = Loop(model, task, make_optimizer(model, config, 64), config, task.plan(8), world, 0)
    model.train()
    return loop


class FakeGraph:
    """Stands in for a captured step: keeps its inputs, and computes again."""

    made = 0

    def __init__(self, compute: Compute, parts: Any) -> None:
        type(self).made += 1
        self.compute = compute
        self.inputs = [[None if t is None else t.clone() for t in batch.tensors] for batch, _ in parts]

    def gradients(self, parts: Any, count: float) -> tuple[float, float]:
        for (batch, _), own in zip(parts, self.inputs, strict=True):
            for tensor, place in zip(batch.tensors, own, strict=True):
                assert (tensor is None) == (place is None)
                if tensor is not None and place is not None:
                    place.copy_(tensor)
        loss, norm = self.compute._gradients(self.inputs, [1] * len(parts), 1 / count).tolist()
        self.kept = [p.grad for p in self.compute.model.parameters()]
        self.compute.optimizer.zero_grad()
        return loss, norm

    def update(self) -> None:
        for parameter, gradient in zip(self.compute.model.parameters(), self.kept, strict=True):
            parameter.grad = gradient
        self.compute.optimizer.step()
        self.compute.optimizer.zero_grad()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> type[FakeGraph]:
    class Here(FakeGraph):
        made = 0

    monkeypatch.setattr("headway.train.compute._CapturedStep", Here)
    return Here


@pytest.mark.parametrize("rows", ["stream", "pad"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_is_captured_when_its_shape_repeats(
    rows: Literal["stream", "pad"], accumulate: int, graphs: type[FakeGraph]
) -> None:
    eager, other = (make("adamw", True, accumulate, "cpu", rows) for _ in range(2))
    other.compute.captures = True
    seen: list[Any] = []
    for step in range(30):
        parts = other._make_batches(step)
        shapes = tuple(tuple(None if t is None else t.shape for t in batch.tensors) for batch, _ in parts)
        before = dict(other.compute.captured)
        assert eager.step() == pytest.approx(other.step(), rel=1e-5)
        if shapes not in seen or step < EAGER_STEPS:
            assert other.compute.captured == before  # the first step of a shape is eager
        else:
            assert shapes in other.compute.captured
        seen.append(shapes)
    assert graphs.made == len(other.compute.captured) == len({s for i, s in enumerate(seen) if s in seen[:i]})
    assert (graphs.made > 1) == (rows == "pad")
    for a, b in zip(eager.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_the_number_of_graphs_is_bounded(graphs: type[FakeGraph], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.train.compute.MAX_GRAPHS", 1)
    loop = make("adamw", True, 1, "cpu", "pad")
    loop.compute.captures = True
    for _ in range(40):
        loop.step()
    assert len(loop.compute.captured) == graphs.made == 1


def test_micro_batches_that_count_nothing_are_not_captured(graphs: type[FakeGraph]) -> None:
    loop = make("adamw", True, 1, "cpu")
    loop.compute.captures = True
    counting, idle = loop._make_batches(0)[0][0], loop._make_batches(1)[0][0]
    alone = loop.compute.gradients([(counting, 1)], counting.count)
    loop.compute.discard()
    for _ in range(6):
        assert loop.compute.gradients([(counting, 1), (idle, 0)], counting.count) == pytest.approx(alone, rel=1e-5)
        loop.compute.discard()
    assert not loop.compute.captured


def test_training_continues_if_capturing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(compute: Compute, parts: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr("headway.train.compute._CapturedStep", refuse)
    eager, other = (make("adamw", True, 1, "cpu") for _ in range(2))
    other.compute.captures = True
    with pytest.warns(RuntimeWarning, match="not permitted"):
        for _ in range(8):
            assert eager.step() == other.step()
    assert not other.compute.captures


def test_a_bad_gradient_of_a_captured_step_is_named(graphs: type[FakeGraph]) -> None:
    loop = make("adamw", True, 1, "cpu")
    loop.compute.captures = True
    for _ in range(6):
        loop.step()
    weight = loop.model.decoder.blocks[1].ffn.up.weight
    weight.data[0, 0] = torch.nan
    before = loop.model.lm.output.weight.detach().clone()
    wrong: list[str] = []
    loop._skip_step = lambda what: (wrong.append(what), loop.compute.discard())  # type: ignore[method-assign,assignment,func-returns-value]
    loop.step()
    assert "first gradient that is not finite: " in wrong[0] and "none" not in wrong[0]
    assert torch.equal(loop.model.lm.output.weight, before)
    assert all(p.grad is None for p in loop.model.parameters())


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_captured_equals_eager(optimizer: str, accumulate: int) -> None:
    eager, captured = make(optimizer, False, accumulate), make(optimizer, True, accumulate)
    pairs = [(eager.step(), captured.step()) for _ in range(15)]
    assert len(captured.compute.captured) == 1 and not eager.compute.captured
    for a, b in pairs:
        assert a["loss"] == pytest.approx(b["loss"], abs=2e-2)
        assert a["lr"] == b["lr"]
    assert pairs[-1][0]["loss"] != pairs[3][0]["loss"]


@pytest.mark.gpu
def test_a_captured_run_is_restored() -> None:
    loop = make("adamw", True)
    for _ in range(8):
        loop.step()
    tensors, counters = collect(loop)
    saved = {file: {n: t.cpu().clone() for n, t in inner.items()} for file, inner in tensors.items()}
    ahead = [loop.step()["loss"] for _ in range(8)]
    restore(loop, saved, counters)
    assert [loop.step()["loss"] for _ in range(8)] == pytest.approx(ahead, abs=1e-2)


@pytest.mark.gpu
def test_batches_of_several_shapes_are_captured() -> None:
    eager, captured = make("adamw", False, rows="pad"), make("adamw", True, rows="pad")
    pairs = [(eager.step(), captured.step()) for _ in range(40)]
    assert len(captured.compute.captured) > 1
    for a, b in pairs:
        assert a["loss"] == pytest.approx(b["loss"], abs=2e-2)
    assert pairs[-1][0]["loss"] < pairs[0][0]["loss"]
