"""Patching maps: each cell is what one patch does."""

from __future__ import annotations

import numpy as np
import pytest

from headway.api import Bundle
from headway.errors import DataError
from headway.inspect.changes import Patch

FIRST, SECOND = "To be or not", "To me or not"


def test_each_cell_is_one_patch(any_bundle: Bundle) -> None:
    session = any_bundle.session
    found = session.patching(FIRST, SECOND)
    target = "" if any_bundle.config.kind == "encoder-decoder" else None
    first, second = (session.run(text, target=target) for text in (FIRST, SECOND))
    names = [session.require_readout().name(i) for i in range(first.logits().shape[-1])]
    answers = [names.index(answer) for answer in found.answers]

    def measure(seen):  # type: ignore[no-untyped-def]
        logits = seen.logits()[found.position]
        return float(logits[answers[1]] - logits[answers[0]])

    low, high = measure(first), measure(second)
    for layer in range(2):
        for kind, cells, place in (
            ("positions", found.positions, {"position": 3 if found.kind != "decoder" or target is None else 0}),
            ("heads", found.heads, {"head": 1}),
        ):
            patch = Patch(layer=layer, source=second.activations, **place)
            moved = (measure(session.run(FIRST, target=target, changes=[patch])) - low) / (high - low)
            assert cells[layer, next(iter(place.values()))] == pytest.approx(moved, abs=1e-3), kind


def test_the_last_position_of_the_last_layer_decides(bundle: Bundle) -> None:
    found = bundle.session.patching(FIRST, SECOND)
    expected = np.zeros(12)
    expected[-1] = 1
    np.testing.assert_allclose(found.positions[-1], expected, atol=1e-5)
    assert found.positions[0, 3] != 0
    assert np.allclose(found.positions[:, :3], 0)  # before the word that differs, both inputs are equal


def test_a_metric_of_ones_own(bundle: Bundle) -> None:
    found = bundle.session.patching(FIRST, SECOND, lambda logits: logits[:, 65])
    assert found.positions[-1, -1] == pytest.approx(1, abs=1e-5)


def test_the_source_of_an_encoder_decoder_is_patched(seq2seq: Bundle) -> None:
    found = seq2seq.session.patching(FIRST, SECOND, kind="encoder")
    assert found.positions.shape == (2, 12)
    assert found.heads.shape == (2, 4)


def test_inputs_that_cannot_be_compared(bundle: Bundle) -> None:
    with pytest.raises(DataError, match="12 tokens and 2"):
        bundle.session.patching(FIRST, "To")
    with pytest.raises(DataError, match="both inputs give the same answer"):
        bundle.session.patching(FIRST, FIRST)
