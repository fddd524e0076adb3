"""Resampling: against soxr, in its bands, and in blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from headway.data.sounds import resample
from headway.data.sounds.resample import resampled

RATES = [(8000, 16000), (44100, 16000), (48000, 16000), (22050, 16000), (16000, 8000), (11025, 16000), (16000, 44100)]


def sweep(rate: int, low: float, high: float, seconds: float = 2.0) -> Any:
    time = np.arange(int(rate * seconds)) / rate
    return np.sin(2 * np.pi * (low * time + (high - low) * time**2 / (2 * seconds))).astype(np.float32)


@pytest.mark.parametrize(("rate", "wanted"), RATES)
def test_the_pass_band_is_that_of_soxr(rate: int, wanted: int) -> None:
    import soxr

    samples = sweep(rate, 20, 0.9 * min(rate, wanted) / 2)
    found, oracle = resampled(samples, rate, wanted), soxr.resample(samples, rate, wanted, "VHQ")
    assert found.dtype == np.float32
    assert len(found) == math.ceil(len(samples) * wanted / rate)
    edge, end = wanted // 20, min(len(found), len(oracle)) - wanted // 20  # the edges ring differently
    assert abs(found[edge:end] - oracle[edge:end]).max() < 1e-3


@pytest.mark.parametrize(("rate", "wanted"), [pair for pair in RATES if pair[1] < pair[0]])
def test_the_stop_band_is_quiet(rate: int, wanted: int) -> None:
    samples = sweep(rate, 1.005 * wanted / 2, rate / 2)
    found = resampled(samples, rate, wanted)
    edge = wanted // 20
    loudest = abs(found[edge:-edge]).max()
    assert 20 * np.log10(loudest) < -60


@pytest.mark.parametrize(("rate", "wanted"), [(44100, 16000), (8000, 16000), (15999, 16000), (48000, 16000)])
def test_blocks_equal_the_whole(rate: int, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = np.random.default_rng(0).standard_normal(3 * rate + 17).astype(np.float32)
    whole = resampled(samples, rate, wanted)
    monkeypatch.setattr(resample, "BLOCK", 7000)
    np.testing.assert_allclose(resampled(samples, rate, wanted), whole, atol=1e-5)


@pytest.mark.parametrize(("rate", "wanted"), [(44100, 16000), (7999, 16000)])
def test_equals_the_definition(rate: int, wanted: int) -> None:
    """Sample by sample, by the sum that a windowed sinc is."""
    samples = np.random.default_rng(1).standard_normal(400)
    found = resampled(samples.astype(np.float32), rate, wanted)
    cut = resample.PASS * min(1, wanted / rate)
    half = math.ceil(resample.ZEROS * max(1, rate / wanted))
    for j in range(0, len(found), 7):
        distance = np.arange(-half, len(samples) + half) - j * rate / wanted
        inside = np.abs(distance) <= half
        window = np.where(inside, np.i0(resample.BETA * np.sqrt(np.clip(1 - (distance / half) ** 2, 0, None))), 0)
        weights = np.sinc(cut * distance) * window
        wanted_sample = (weights[half : half + len(samples)] * samples).sum() / weights.sum()
        assert abs(found[j] - wanted_sample) < 1e-4


def test_the_same_rate_changes_nothing() -> None:
    samples = np.ones(5, np.float32)
    assert resampled(samples, 8000, 8000) is samples


def test_tiny_sounds() -> None:
    assert len(resampled(np.ones(2, np.float32), 768_000, 16_000)) == 1
    assert len(resampled(np.ones(2, np.float32), 8000, 16_000)) == 4
