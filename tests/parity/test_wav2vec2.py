"""wav2vec 2.0 and HuBERT beside the outputs of `test_families`: padding, masks, older files, checks, int8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headway.checks.equivalence.suite import check_model
from headway.front.waves import WaveEmbedding
from headway.hub.folder import load_model, save_model
from headway.hub.weights import open_weights, write_weights
from headway.model.model import Transformer
from headway.model.quantize import quantize_
from tests.parity.conftest import Case
from tests.parity.encoder_cases import SOUND_ENCODERS

MakeCase = Callable[[str], Case]
LENGTHS = (900, 77, 411)


def read(folder: Path) -> Transformer:
    model = load_model(folder)
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize("name", SOUND_ENCODERS)
def test_padded_sounds_are_each_as_if_alone(name: str, case: MakeCase) -> None:
    """In a batch of `transformers`, the norm over time reads the padding; alone there is none."""
    this, model = case(name), read(case(name).folder)
    sounds = torch.randn(len(LENGTHS), max(LENGTHS), generator=torch.Generator().manual_seed(3))
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    with torch.no_grad():
        together = model(sounds, attention_mask=mask)
        assert together.attention_mask is not None
        for row, length in enumerate(LENGTHS):
            theirs = this.oracle(sounds[row : row + 1, :length])
            right = theirs.logits[0] if "logits" in theirs else theirs.last_hidden_state[0]
            found = model.tag(together.hidden) if "logits" in theirs else together.hidden
            assert int(together.attention_mask[row].sum()) == len(right)
            assert float((found[row][together.attention_mask[row]] - right).abs().max()) <= 1e-5


@pytest.mark.parametrize("name", ["wav2vec2", "hubert-ctc"])
def test_masked_positions_have_the_learned_vector(name: str, case: MakeCase) -> None:
    this, model = case(name), read(case(name).folder)
    assert isinstance(model.source, WaveEmbedding)
    oracle = getattr(this.oracle, "hubert", this.oracle)
    sounds = torch.randn(2, 400, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        masked = torch.zeros(model.source(sounds).x.shape[:2], dtype=torch.bool)
        masked[0, 2:5] = masked[1, 0] = True
        front = model.source(sounds, None, masked)
        found = model.encoder(front.x, front.layout)
        right = oracle(sounds, mask_time_indices=masked).last_hidden_state
        assert float((found - right).abs().max()) <= 1e-5
        assert float((model(sounds).hidden - right).abs().max()) > 1e-3


def test_older_files_have_other_names_for_the_gain_and_the_direction(case: MakeCase, tmp_path: Path) -> None:
    folder = case("wav2vec2-ctc").folder
    weights = open_weights(folder)
    old = {name: weights.read(name).clone() for name in weights.names}
    taps = "wav2vec2.encoder.pos_conv_embed.conv"
    for new, suffix in enumerate("gv"):
        old[f"{taps}.weight_{suffix}"] = old.pop(f"{taps}.parametrizations.weight.original{new}")
    write_weights(tmp_path, old)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    for a, b in zip(read(tmp_path).parameters(), read(folder).parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["wav2vec2-ctc", "wav2vec2-stable", "hubert-ctc"])
def test_every_check_passes(name: str, case: MakeCase) -> None:
    results = list(check_model(read(case(name).folder), compiled=False))
    assert [result for result in results if not result.ok] == []
    meant = {result.name for result in results if result.means}
    assert {"right padding = none", "batch = single", "LoRA merged = beside", "saved = loaded"} <= meant


def test_int8_is_close_and_read_back_to_the_bit(case: MakeCase, tmp_path: Path) -> None:
    whole, small = (read(case("wav2vec2-ctc").folder) for _ in range(2))
    again = load_model(save_model(quantize_(small), tmp_path / "int8"))
    sounds = torch.randn(2, 400, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        right, close, same = (model.tag(model(sounds).hidden) for model in (whole, small, again))
    assert torch.equal(close, same)
    assert 0 < float((close - right).norm()) < 0.05 * float(right.norm())
