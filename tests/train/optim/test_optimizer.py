"""Learning rates by depth: smaller for lower blocks, and zero until they are unfrozen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from headway.config.model import ClassifyHeadConfig
from headway.config.recipe import ShapeConfig, TrainConfig
from headway.config.shape import encoder_config
from headway.model.model import Model, Transformer
from headway.train.optim.optimizer import Optimizer, depths, make_optimizer
from headway.train.optim.schedule import unfrozen_depth


def model() -> Model:
    shape = ShapeConfig(depth=3, width=16, heads=2, norm_at="post")
    return Transformer(replace(encoder_config(shape, 30, 16), classify=ClassifyHeadConfig(dense="tanh")))


def rates(model: Model, optimizer: Optimizer) -> dict[str, float]:
    names = {id(tensor): name for name, tensor in optimizer.named.items()}
    return {names[id(p)]: float(group["lr"]) for group in optimizer.groups for p in group["params"]}


def test_depths_are_counted_from_the_heads() -> None:
    found = depths(model(), dict(model().named_parameters()))
    assert found["classify.output.weight"] == found["classify.dense.bias"] == 0
    assert [found[f"encoder.blocks.{i}.ffn.up.weight"] for i in range(3)] == [3, 2, 1]
    assert found["source.table.weight"] == found["source.norm.weight"] == 4


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
def test_lower_blocks_learn_more_slowly(optimizer: Any) -> None:
    net = model()
    config = TrainConfig(steps=1, lr=0.1, layer_decay=0.5, optimizer=optimizer)
    made = make_optimizer(net, config, 16)
    found = rates(net, made)
    assert len(found) == len(made.named) >= len(list(net.parameters()))
    assert found["classify.output.weight"] == pytest.approx(0.1)
    block = [found[f"encoder.blocks.{i}.ffn.down.weight"] for i in range(3)]
    assert block == pytest.approx([0.0125, 0.025, 0.05])
    assert found["source.table.weight"] == pytest.approx(0.1 / 16)


def test_without_either_there_are_two_groups_as_ever() -> None:
    groups = make_optimizer(model(), TrainConfig(steps=1, lr=0.1), 16).groups
    assert [(float(g["lr"]), g["weight_decay"]) for g in groups] == [(0.1, 0.1), (0.1, 0.0)]


def test_blocks_wait_for_their_turn() -> None:
    config = TrainConfig(steps=10, lr=0.1, unfreeze=2)
    assert [unfrozen_depth(config, step) for step in range(6)] == [0, 0, 1, 1, 2, 2]
    assert unfrozen_depth(TrainConfig(steps=10), 3) is None
    net = model()
    made = make_optimizer(net, config, 16)
    peaks = [float(group["lr"]) for group in made.groups]
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    for step in range(4):
        made.set_rate(peaks, 1.0, unfrozen_depth(config, step))
        net.classify(net(torch.arange(8)[None]).hidden).square().sum().backward()
        made.step()
        made.zero_grad()
    moved = {name for name, p in net.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {n for n in before if n.startswith(("classify.", "encoder.blocks.2."))}
    made.set_rate(peaks, 0.5, unfrozen_depth(config, 8))
    assert set(rates(net, made).values()) == {0.05}
