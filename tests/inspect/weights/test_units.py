"""Units: silent neurons, loud ones, channels that stand out."""

from __future__ import annotations

import torch

from headway.api import Bundle
from headway.inspect.weights.units import units


def test_a_neuron_that_nothing_wakes_is_silent(bundle: Bundle) -> None:
    ffn = bundle.model.decoder.blocks[0].ffn  # type: ignore[union-attr]
    assert units(bundle.inspect("To be"))[0].silent == 0
    with torch.no_grad():
        ffn.up.weight[3] = 0  # type: ignore[union-attr,index,operator]
        ffn.up.bias[3] = -50  # type: ignore[union-attr,index,operator]
        ffn.up.bias[7] = 50  # type: ignore[union-attr,index,operator]
    first, second = units(bundle.inspect("To be"))
    assert (first.neurons, first.silent, second.silent) == (128, 1, 0)
    assert first.loudest[0][0] == 7 and first.loudest[0][1] > 40


def test_a_channel_that_stands_out(bundle: Bundle) -> None:
    with torch.no_grad():
        bundle.model.decoder.blocks[1].ffn.down.bias[5] = 100.0  # type: ignore[union-attr,index,operator]
    first, second = units(bundle.inspect("To be"))
    assert first.outliers == []
    assert [channel for channel, _ in second.outliers] == [5]
    assert second.to_dict()["outliers"][0]["ratio"] > 6
