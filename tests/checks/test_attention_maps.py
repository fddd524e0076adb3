"""Attention maps on request: the eager weights, for the layers and heads asked for, and only those computed."""

from __future__ import annotations

import pytest
import torch

from headway.checks import attention_maps as maps
from headway.checks.attention_maps import attention_maps
from headway.config.presets import preset
from headway.errors import DataError
from headway.model import attention
from headway.model.model import Transformer


@pytest.fixture
def model() -> Transformer:
    return Transformer(preset("llama-tiny")).eval()


IDS = torch.arange(10)[None]


def test_all_maps_are_there_and_causal(model: Transformer) -> None:
    found = attention_maps(model, IDS)
    assert list(found) == [f"decoder.blocks.{i}.attention" for i in range(4)]
    for weights in found.values():
        assert weights.shape == (1, 4, 10, 10)
        assert torch.allclose(weights.sum(-1), torch.ones(1, 4, 10))
        assert float(weights.triu(1).abs().max()) == 0


def test_some_layers_and_heads_are_a_part_of_all(model: Transformer) -> None:
    whole = attention_maps(model, IDS)
    part = attention_maps(model, IDS, layers=[1, 3], heads=[2, 0])
    assert list(part) == ["decoder.blocks.1.attention", "decoder.blocks.3.attention"]
    for name, weights in part.items():
        assert torch.equal(weights, whole[name][:, [2, 0]])


def test_only_what_is_asked_for_is_computed(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    real = attention.attention_weights

    def spy(q: torch.Tensor, *rest: object) -> torch.Tensor:
        shapes.append(tuple(q.shape))
        return real(q, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(attention, "attention_weights", spy)
    attention_maps(model, IDS, layers=[2], heads=[1])
    assert shapes == [(1, 1, 10, 32)]


def test_relative_biases_go_with_their_heads() -> None:
    model = Transformer(preset("t5-small")).eval()
    targets = torch.arange(6)[None]
    whole = attention_maps(model, IDS, targets)
    assert {n.split(".")[-1] for n in whole} == {"attention", "cross"}
    part = attention_maps(model, IDS, targets, layers=[0], heads=[5])
    for name, weights in part.items():
        assert torch.allclose(weights, whole[name][:, [5]], atol=1e-6)


def test_what_is_not_there_is_named(model: Transformer) -> None:
    with pytest.raises(DataError, match=r"D001.*layer 4"):
        attention_maps(model, IDS, layers=[4])
    with pytest.raises(DataError, match=r"D001.*head 9"):
        maps.attention_maps(model, IDS, heads=[9])
