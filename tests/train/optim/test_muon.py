"""Muon over many matrices at once equals torch's, which takes them one by one; and fused matrices are taken apart."""

from __future__ import annotations

from dataclasses import replace

import torch

from headway.config.model import ExpertsConfig, ModelConfig
from headway.config.recipe import ShapeConfig, TrainConfig
from headway.config.shape import decoder_config
from headway.model.model import Transformer
from headway.train.optim.muon import Muon
from headway.train.optim.optimizer import make_optimizer

SHAPES = [(8, 8), (8, 8), (12, 8), (8, 12), (8, 8)]


def test_the_same_steps_as_torch() -> None:
    start = [torch.randn(shape) for shape in SHAPES]
    gradients = [[torch.randn(shape) for shape in SHAPES] for _ in range(4)]
    results = []
    for kind in (Muon, torch.optim.Muon):
        parameters = [torch.nn.Parameter(tensor.clone()) for tensor in start]
        optimizer = kind(parameters, lr=0.05, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
        for step in gradients:
            for parameter, gradient in zip(parameters, step, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
        results.append(parameters)
    for ours, theirs in zip(*results, strict=True):
        assert float((ours - theirs).detach().abs().max()) < 2e-2 * 0.05  # bfloat16 inside, in another order
    assert float((results[0][0] - start[0]).detach().abs().max()) > 0.05


def test_experts_are_orthogonalised_apart() -> None:
    base = decoder_config(ShapeConfig(depth=1, width=16, heads=4, gated=True), 20, 8)
    assert isinstance(base, ModelConfig) and base.decoder is not None
    model = Transformer(replace(base, decoder=replace(base.decoder, experts=ExpertsConfig(count=3, d_ff=24))))
    optimizer = make_optimizer(model, TrainConfig(steps=1, optimizer="muon", lr=0.1, weight_decay=0.0), 16)
    up, down = model.decoder.blocks[0].ffn.up.weight, model.decoder.blocks[0].ffn.down.weight
    before = up.detach().clone(), down.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    up.grad[:24] *= 1000
    down.grad[16:32] *= 1000
    optimizer.step()
    for weight, old, rows in ((up, before[0], 24), (down, before[1], 16)):
        for part in (weight.detach() - old).split(rows):
            values = torch.linalg.svdvals(part / (0.1 * 0.2 * 24**0.5))
            assert float(values.min()) > 0.3 and float(values.max()) < 1.5
    assert {name.partition("[")[0] for name in optimizer.named} == {name for name, _ in model.named_parameters()}


def test_fused_matrices_are_orthogonalised_apart() -> None:
    """Queries, keys and values each get an update of full rank; taken together, one could drown the others."""
    torch.manual_seed(0)
    shape = ShapeConfig(depth=1, width=16, heads=4, kv_heads=2, gated=True)
    model = Transformer(decoder_config(shape, 20, 8))
    config = TrainConfig(steps=1, optimizer="muon", lr=0.1, weight_decay=0.0)
    optimizer = make_optimizer(model, config, 16)
    qkv, up = model.decoder.blocks[0].attention.qkv.weight, model.decoder.blocks[0].ffn.up.weight
    before = qkv.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    qkv.grad[:16] *= 1000  # type: ignore[index]
    optimizer.step()
    change = (qkv.detach() - before) / (0.1 * 0.2 * 4)
    for rows in (slice(0, 16), slice(16, 24), slice(24, 32)):
        values = torch.linalg.svdvals(change[rows])
        assert float(values.min()) > 0.3 and float(values.max()) < 1.5, rows
    names = set(optimizer.named)
    assert {f"decoder.blocks.0.attention.qkv.weight[{a}:{b}]" for a, b in ((0, 16), (16, 24), (24, 32))} <= names
    assert f"decoder.blocks.0.ffn.up.weight[0:{len(up) // 2}]" in names
    assert "target.table.weight" in names and "decoder.blocks.0.ffn.down.weight" in names
    assert {name.partition("[")[0] for name in names} == {name for name, _ in model.named_parameters()}
