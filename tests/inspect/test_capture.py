"""Capture of activations by name."""

from __future__ import annotations

import pytest
import torch

from headway.api import Bundle
from headway.errors import DataError
from headway.inspect.capture import capture

IDS = torch.arange(6)[None]


def test_modules_inputs_and_the_models_own(bundle: Bundle) -> None:
    model = bundle.model
    names = ["decoder.blocks.*.ffn", "decoder.blocks.1.input", "decoder.blocks.0.attention.weights", "target"]
    with capture(model, names) as seen, torch.no_grad():
        model(IDS)
    assert set(seen) == {
        *("decoder.blocks.0.ffn", "decoder.blocks.1.ffn", "decoder.blocks.1.input"),
        *("decoder.blocks.0.attention.weights", "target"),
    }
    assert seen["target"].shape == (1, 6, 32)
    assert seen["decoder.blocks.0.attention.weights"].shape == (1, 4, 6, 6)


def test_each_pass_fills_it_anew_and_nothing_stays(bundle: Bundle) -> None:
    model = bundle.model
    with capture(model, "decoder.norm") as seen, torch.no_grad():
        first = model(IDS).hidden
        assert torch.equal(seen["decoder.norm"], first)
        second = model(IDS + 1).hidden
        assert torch.equal(seen["decoder.norm"], second)
    seen.clear()
    model(IDS)
    assert not seen
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_callers_hook_is_called_too(bundle: Bundle) -> None:
    names: list[str] = []
    with capture(bundle.model, "*.residual") as seen, torch.no_grad():
        bundle.model(IDS, hook=lambda name, make: names.append(name))
    assert set(seen) == {"decoder.blocks.0.residual", "decoder.blocks.1.residual"}
    assert "decoder.blocks.0.residual" in names


def test_a_name_that_is_no_module(bundle: Bundle) -> None:
    with (
        pytest.raises(DataError, match=r"no module 'decoder\.blocks\.0\.fnn' — did you mean"),
        capture(bundle.model, "decoder.blocks.0.fnn"),
    ):
        pass
    assert not any(module._forward_hooks for module in bundle.model.modules())
