"""Log-mel spectrograms: equal to those of transformers' Whisper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor

from headway.data.sounds.mel import log_mel, log_mels, mel_filters
from headway.data.synthetic.sounds import syllables

RATE = 16_000


def speech(seed: int) -> Any:
    return np.concatenate([each.samples for each in syllables(3, seed, rate=RATE)])


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("padded", [True, False])
def test_equals_whispers(mels: int, padded: bool) -> None:
    samples = speech(mels)
    extractor = WhisperFeatureExtractor(feature_size=mels)
    how = {"padding": "max_length"} if padded else {"padding": "do_not_pad"}
    wanted = extractor(samples, sampling_rate=RATE, return_tensors="np", **how)["input_features"][0]
    given = np.pad(samples, (0, 30 * RATE - len(samples))) if padded else samples
    found = log_mel(given, mels)
    assert found.dtype == np.float32 and found.shape == wanted.shape
    assert abs(found - wanted).max() < 1e-4
    assert np.ptp(wanted) > 1  # the comparison is of something


def test_filters_are_those_of_transformers() -> None:
    for mels in (80, 128):
        wanted = WhisperFeatureExtractor(feature_size=mels).mel_filters.T
        np.testing.assert_allclose(mel_filters(mels), wanted, atol=1e-9)


def test_a_batch_equals_single_sounds() -> None:
    rows = np.stack([speech(1)[:8000], 0.01 * speech(2)[:8000], np.zeros(8000, np.float32)])
    filters = torch.from_numpy(mel_filters(40)).float()
    found = log_mels(torch.from_numpy(rows), filters).numpy()
    assert found.shape == (3, 40, 50)
    for row, got in zip(rows, found, strict=True):
        np.testing.assert_allclose(got, log_mel(row, 40), atol=2e-3)  # float32 of a batch; float64 of a single one


def test_other_rates_have_the_same_frames() -> None:
    assert log_mel(np.ones(8000, np.float32), 40, 8000).shape == (40, 100)


def test_a_short_sound_is_padded() -> None:
    assert log_mel(np.ones(3, np.float32)).shape == (80, 2)
