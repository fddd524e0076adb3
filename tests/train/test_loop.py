"""Exactness of the loop: accumulated = big batch, resumed = uninterrupted, and a bad step changes nothing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.config.shape import decoder_config
from headway.data.batching.token_store import TokenStore
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DamagedError, DivergedError
from headway.model.model import Transformer
from headway.tasks.batch import Batch
from headway.tasks.lm.training import LanguageModelTraining
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.recipe import Recipe
from headway.train.distributed import World
from headway.train.health import LossEMA
from headway.train.loop import Loop
from headway.train.optim.optimizer import make_optimizer
from headway.train.state import collect, restore

CONFIG = TrainConfig(steps=40, batch=4, lr=1e-2, warmup=5)


TOKENIZER = train_tokenizer("bytes", [])
ALONE = World(0, 1, torch.device("cpu"))


class Ragged(LanguageModelTraining):
    """Sequences of unequal length: the counts of the parts of a batch differ."""

    def batch(self, samples: Any) -> Batch:
        inputs, targets, _ = super().batch(samples).tensors
        assert targets is not None
        for row, sample in enumerate(samples.tolist()):
            targets[row, 3 + sample % 5 :] = IGNORE
        return Batch((inputs, targets, None), int((targets != IGNORE).sum()))


def make(
    config: TrainConfig = CONFIG, dtype: torch.dtype = torch.float32, dropout: float = 0.1, workers: int = 0
) -> Loop:
    torch.manual_seed(3)
    shape = ShapeConfig(depth=2, width=16, heads=2, dropout=dropout)
    model = Transformer(decoder_config(shape, 30, 8)).to(dtype)
    ids = np.random.default_rng(0).integers(0, 30, 200)
    stores = [TokenStore(part, np.array([0, len(part)]), len(part), None) for part in (ids, ids[:50])]
    task = Ragged(Recipe(seed=1, data=DataConfig(length=8)), TOKENIZER, *stores)
    return Loop(model, task, make_optimizer(model, config, 16), config, task.plan(config.batch), ALONE, workers)


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


def test_the_control_shows_a_forgotten_part() -> None:
    """Without the random state, or without the optimizer, the bits differ."""
    for part in ("rng", "optimizer"):
        straight, other = make(), make()
        straight.model.train(), other.model.train()
        for _ in range(3):
            straight.step()
        tensors, counters = collect(straight)
        kept = {file: {n: t.clone() for n, t in inner.items()} for file, inner in tensors.items()}
        kept[part] = {"cpu.0": torch.Generator().manual_seed(5).get_state()} if part == "rng" else {}
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
    first = loop.task.evaluate(loop.model, ALONE)["valid"]
    for _ in range(150):
        loop.step()
    assert loop.task.evaluate(loop.model, ALONE)["valid"] < first - 0.2


@pytest.mark.parametrize(
    ("steps", "stops"),
    [
        (50, (1, 19, 24, 25, 26, 40)),
        pytest.param(200, (1, 37, 99, 100, 101, 150), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("accumulate", "workers"), [(1, 0), (2, 2)])
def test_a_run_stopped_anywhere_ends_in_the_same_bits(
    steps: int, stops: tuple[int, ...], accumulate: int, workers: int
) -> None:
    """Epochs have 24 samples and steps 4: the stops fall into many epochs, the third among them, and between parts."""
    config = replace(CONFIG, steps=steps, accumulate=accumulate, ema=0.9, keep_best=True, eval_every=steps // 5)
    straight = make(config)
    straight.model.train()
    losses, saved = [], {}
    for step in range(1, steps + 1):
        losses.append(straight.step()["loss"])
        if step in stops:
            tensors, counters = collect(straight)
            copies = {file: {name: t.clone() for name, t in inner.items()} for file, inner in tensors.items()}
            saved[step] = copies, json.loads(json.dumps(counters))
    expected = digest(straight)
    for stop, (tensors, counters) in saved.items():
        torch.manual_seed(stop)
        again = make(config, workers=workers)
        again.model.train()
        restore(again, tensors, counters)
        assert [again.step()["loss"] for _ in range(steps - stop)] == losses[stop:], stop
        assert digest(again) == expected, stop
        again.close()


def poison(loop: Loop, at: int) -> None:
    """Make one step's loss infinite."""
    loss = loop.compute.loss

    def bad(model: Transformer, *tensors: torch.Tensor | None) -> torch.Tensor:
        return loss(model, *tensors) * (float("inf") if loop.progress.step == at else 1.0)

    loop.compute.loss = bad


def events(loop: Loop) -> list[tuple[str, dict[str, Any]]]:
    seen: list[tuple[str, dict[str, Any]]] = []
    loop.run(lambda kind, **facts: seen.append((kind, facts)), lambda: None, lambda: {"text": ""})
    return seen


def test_a_bad_step_can_be_skipped() -> None:
    loop = make(replace(CONFIG, steps=8, on_nan="skip"))
    poison(loop, 3)
    seen = events(loop)
    assert [facts["step"] for kind, facts in seen if kind == "nan"] == [4]
    assert loop.progress.step == 8 and loop.progress.skipped == 0
    assert all(p.isfinite().all() for p in loop.model.parameters())


def test_skipping_has_an_end() -> None:
    loop = make(replace(CONFIG, steps=40, on_nan="skip"))
    loop.compute.loss = lambda model, *tensors: sum(p.sum() for p in model.parameters()) * float("nan")
    with pytest.raises(DivergedError):
        events(loop)
    assert loop.progress.step == 10


def test_a_spike_does_not_change_the_average() -> None:
    loss_ema = LossEMA()
    for i in range(80):
        loss_ema = loss_ema.updated(2.0 + 0.1 * (-1) ** i)
    assert not loss_ema.is_spike(2.2) and loss_ema.is_spike(4.0)
    assert loss_ema.updated(4.0) == loss_ema
    assert loss_ema.loss == pytest.approx(2.0, abs=0.02)
    assert not LossEMA().updated(1.0).is_spike(100.0)  # too early to tell


def test_a_spike_is_an_event_of_the_run() -> None:
    loop = make(replace(CONFIG, steps=62, lr=1e-4, eval_every=100, sample_every=100, save_every=100))
    loss = loop.compute.loss
    loop.compute.loss = lambda model, *tensors: loss(model, *tensors) * (5.0 if loop.progress.step == 59 else 1.0)
    spikes = [facts for kind, facts in events(loop) if kind == "spike"]
    assert [facts["step"] for facts in spikes] == [60]
    assert spikes[0]["loss"] > 4 * spikes[0]["usual"]


def test_the_moving_average_of_the_weights() -> None:
    loop = make(replace(CONFIG, ema=0.5))
    loop.model.train()
    name, parameter = next(iter(loop.model.named_parameters()))
    expected = parameter.detach().clone()
    for step in range(1, 6):
        loop.step()
        expected += (1 - min(0.5, (1 + step) / (10 + step))) * (parameter.detach() - expected)
    assert loop.ema is not None
    assert torch.allclose(loop.ema.tensors[name], expected, atol=1e-6)
    last = parameter.detach().clone()
    with loop.ema.swapped_in():
        assert torch.equal(parameter, loop.ema.tensors[name])
    assert torch.equal(parameter, last)


def test_of_two_equal_metrics_the_smaller_loss_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = make(replace(CONFIG, steps=8, patience=2, eval_every=1))
    found = iter([(0.5, 3.0), (0.9, 2.0), (0.9, 1.0), (0.9, 1.0), (0.9, 1.5), (1.0, 0.0)])

    def evaluate(*_: Any) -> dict[str, float]:
        metric, loss = next(found)
        return {"valid": loss, "metric": metric}

    monkeypatch.setattr(type(loop.task), "primary_metric", "metric")
    monkeypatch.setattr(type(loop.task), "higher_is_better", True)
    monkeypatch.setattr(type(loop.task), "evaluate", evaluate)
    seen = events(loop)
    assert [facts["step"] for kind, facts in seen if kind == "best"] == [1, 2, 3]
    assert [facts for kind, facts in seen if kind == "kept"] == [{"step": 5, "best": 3, "early": 2}]


def test_patience_ends_a_run_and_keeps_the_best() -> None:
    loop = make(replace(CONFIG, steps=400, patience=2, eval_every=2))
    scores = iter([3.0, 3.5, 2.0, 2.5, 2.6, 1.0])
    kept = []

    def evaluate(model: Transformer, world: World) -> dict[str, float]:
        kept.append({n: p.detach().clone() for n, p in model.named_parameters()})
        return {"valid": next(scores)}

    object.__setattr__(
        loop,
        "task",
        SimpleNamespace(
            batch=loop.task.batch,
            after_step=loop.task.after_step,
            loss=loop.task.loss,
            evaluate=evaluate,
            after_evaluation=loop.task.after_evaluation,
            primary_metric="valid",
            higher_is_better=False,
        ),
    )
    events(loop)
    assert loop.progress.step == 10 and loop.progress.best == 2.0
    loop.load_final_weights()
    assert all(torch.equal(p, kept[2][n]) for n, p in loop.model.named_parameters())


def test_frozen_weights_that_changed_are_noticed() -> None:
    loop = make()
    loop.model.target.requires_grad_(False)
    tensors, counters = collect(loop)
    with torch.no_grad():
        next(loop.model.target.parameters()).add_(1)
    with pytest.raises(DamagedError, match="X008"):
        restore(loop, tensors, counters)


def test_the_gradient_is_that_of_the_mean() -> None:
    """Over all predictions that count, however the batch is parted; clipped to the norm asked for."""
    for parts, clip in ((1, 0.0), (2, 0.0), (1, 0.01)):
        loop = make(replace(CONFIG, accumulate=parts, clip=clip), torch.float64, dropout=0.0)
        loop.model.train()
        whole = loop.task.batch(np.arange(4))
        (loop.task.loss(loop.model, *whole.tensors) / whole.count).backward()
        expected = [p.grad.clone() for p in loop.model.parameters() if p.grad is not None]
        size = float(torch.stack([g.norm() for g in expected]).norm())
        loop.optimizer.zero_grad()
        _, norm = loop.compute.gradients(loop._next_batches(), whole.count)
        assert norm == pytest.approx(size, rel=1e-9)
        share = min(1.0, clip / size) if clip else 1.0
        for p, g in zip(loop.model.parameters(), expected, strict=True):
            assert p.grad is not None and torch.allclose(p.grad, share * g, rtol=1e-4, atol=1e-12)


def test_an_older_checkpoint_keeps_its_schedule() -> None:
    config = TrainConfig(steps=40, batch=4, lr=1.0, warmup=10, schedule="linear", final_lr=0.0)
    first = make(config)
    tensors, counters = collect(first)
    old = {k: v for k, v in counters.items() if k not in ("decay_from_start", "warm_seconds")} | {"step": 12}
    loop = make(config)
    restore(loop, tensors, old)
    assert loop.step()["lr"] == pytest.approx(1 - 12 / 40)
    again = make(config)
    restore(again, *collect(loop))  # its own checkpoints say so
    assert again.step()["lr"] == pytest.approx(1 - 13 / 40)
    restore(again, tensors, {**counters, "step": 12})
    assert again.step()["lr"] == pytest.approx(1 - 2 / 30)


def test_a_budget_of_time_decays_from_the_end_of_the_warm_up() -> None:
    loop = make(TrainConfig(minutes=1, batch=4, lr=1.0, warmup=2, schedule="linear", final_lr=0.0))
    loop.progress.seconds = 15.0
    rates = [loop.step()["lr"] for _ in range(3)]
    assert rates == [0.0, 0.5, 1.0] and loop.warmup_share == 0.25
    loop.progress.seconds = 37.5
    assert loop.step()["lr"] == pytest.approx(0.5)
    assert collect(loop)[1]["warm_seconds"] == 15.0
    loop.close()
