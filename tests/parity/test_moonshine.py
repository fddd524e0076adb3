"""Moonshine in batches: each sound gives what `transformers` gives for it alone, and what it writes then.

In a batch of their own the norm of the front end reads the padding, so that a sound depends on those beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from headway.config.generation import Beam
from headway.generate.beam.search import beam_search
from headway.generate.protocol import Source
from headway.hub.folder import load_model
from tests.parity.conftest import PAD, VOCAB, Case

LENGTHS = (9000, 895, 6161)
MakeCase = Callable[[str], Case]


@pytest.fixture
def sounds() -> tuple[list[Tensor], Tensor, Tensor]:
    """Sounds of different lengths; the same padded, with noise where no sound is; and the attention mask."""
    generator = torch.Generator().manual_seed(3)
    whole = torch.randn(len(LENGTHS), max(LENGTHS), generator=generator)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return [row[:length] for row, length in zip(whole, LENGTHS, strict=True)], whole, mask


@pytest.mark.parametrize("name", ["moonshine-lm", "moonshine-wide"])
def test_padded_sounds_are_each_as_if_alone(
    name: str, case: MakeCase, sounds: tuple[list[Tensor], Tensor, Tensor]
) -> None:
    this, (alone, padded, mask) = case(name), sounds
    model = load_model(this.folder)
    targets = torch.randint(4, VOCAB, (len(alone), 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        together = model.logits(model(padded, targets, attention_mask=mask))["lm"]
        for row, sound in enumerate(alone):
            theirs = this.oracle(input_values=sound[None], decoder_input_ids=targets[row : row + 1]).logits[0]
            assert float((together[row] - theirs).abs().max()) <= 1e-5
            state = model.encode(padded, attention_mask=mask)
            length = this.oracle._get_feat_extract_output_lengths(len(sound))
            assert state.attention_mask is not None and int(state.attention_mask[row].sum()) == length


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("name", ["moonshine-lm", "moonshine-wide"])
def test_texts_are_those_of_transformers(
    name: str, width: int, case: MakeCase, sounds: tuple[list[Tensor], Tensor, Tensor]
) -> None:
    this, (alone, padded, mask) = case(name), sounds
    model = load_model(this.folder)
    found = beam_search(model, Beam(width=width, max_tokens=15), source=Source(padded, mask))
    for sound, (best, *_) in zip(alone, found, strict=True):
        theirs = this.oracle.generate(sound[None], num_beams=width, max_new_tokens=15, do_sample=False)[0].tolist()
        while theirs[-1] == PAD:
            theirs.pop()
        assert best.tokens == theirs[1:]
