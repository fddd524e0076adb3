"""Estimated operations beside those that torch counts while a tiny model trains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from headway.baselines.build import make_model
from headway.config.model import ExpertsConfig, ModelConfig
from headway.config.recipe import ShapeConfig
from headway.config.shape import decoder_config
from headway.tasks.lm.training import LanguageModelTraining
from headway.tasks.recipe import Recipe, load_recipe
from headway.train.log.cost import model_flops_per_token, multiplied_parameters

VOCAB, LENGTH = 64, 32


def recipe_of(**shape: object) -> Recipe:
    words = [f"model.{key}={str(value).lower()}" for key, value in shape.items()]
    return load_recipe("tiny", [f"data.length={LENGTH}", "model.depth=2", "model.width=64", *words])[1]


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # of switching mkldnn off
@pytest.mark.parametrize(
    "shape",
    [
        {"heads": 2},
        {"heads": 2, "tied": False, "positions": "none"},
        {"kind": "elman"},
        {"kind": "gru"},
        {"kind": "lstm"},
        {"kind": "lstm", "tied": False},
        {"kind": "conv"},
    ],
    ids=str,
)
def test_an_estimate_is_what_torch_counts(shape: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Six operations for each weight that is multiplied, and attention's products: within 4 % of a counted step."""
    monkeypatch.setattr("headway.kernels.linear.onednn_is_faster", lambda: False)  # its products are not counted
    recipe = recipe_of(**shape)
    model = make_model(decoder_config(recipe.model, VOCAB, LENGTH))
    ids = torch.randint(0, VOCAB, (4, LENGTH))
    seen = sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False)  # fused kernels are not counted
    with seen[0], seen[1], FlopCounterMode(display=False) as counter:
        LanguageModelTraining.loss(model, ids, ids, None).backward()
    estimate = model_flops_per_token(recipe, model) * ids.numel()
    assert counter.get_total_flops() == pytest.approx(estimate, rel=0.04)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("fields", [{"experts": ExpertsConfig(count=8, d_ff=96, shared=32)}, {"shared": True}], ids=str)
def test_experts_and_shared_blocks_are_counted_as_they_are_used(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.kernels.linear.onednn_is_faster", lambda: False)
    recipe = recipe_of(heads=2)
    config = decoder_config(recipe.model, VOCAB, LENGTH)
    assert isinstance(config, ModelConfig) and config.decoder is not None
    model = make_model(replace(config, decoder=replace(config.decoder, n_layers=4, **fields)))
    ids = torch.randint(0, VOCAB, (4, LENGTH))
    seen = sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False)
    with seen[0], seen[1], FlopCounterMode(display=False) as counter:
        LanguageModelTraining.loss(model, ids, ids, None).backward()
    estimate = model_flops_per_token(recipe, model) * ids.numel()
    assert counter.get_total_flops() == pytest.approx(estimate, rel=0.04)


def test_tables_of_which_rows_are_taken_are_not_multiplied() -> None:
    """Tied, the table of tokens is the output matrix; untied, and for positions, it is a table only."""
    for tied in (True, False):
        shape = ShapeConfig(width=16, heads=2, depth=1, tied=tied)
        model = make_model(decoder_config(shape, VOCAB - 3, LENGTH))
        tables = LENGTH * 16 + (0 if tied else (VOCAB - 3) * 16)
        assert multiplied_parameters(model) == model.parameter_count() - tables
