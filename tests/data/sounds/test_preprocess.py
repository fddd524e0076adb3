"""Preprocessing of sounds: clips, windows and the file that holds the settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.data.sounds.preprocess import SoundPreprocess, preprocess_of
from headway.errors import ConfigError

READY = SoundPreprocess(8000, 0.1, 40, -0.5, 0.4)


def test_a_clip_has_zeros_outside_of_its_sound() -> None:
    sound = np.arange(1, 1001, dtype=np.int16)
    assert READY.samples == 800 and READY.frames == 10
    assert np.array_equal(READY.clip(sound, 100), sound[100:900])
    early, late = READY.clip(sound, -300), READY.clip(sound, 600)
    assert (early[:300] == 0).all() and np.array_equal(early[300:], sound[:500])
    assert (late[400:] == 0).all() and np.array_equal(late[:400], sound[600:])
    assert (READY.clip(sound, 5000) == 0).all() and (READY.clip(sound, -5000) == 0).all()


@pytest.mark.parametrize("length", [2, 500, 800, 801, 1200, 1201, 10_000])
def test_windows_cover_a_sound(length: int) -> None:
    starts = READY.starts(length)
    if length <= 800:
        assert len(starts) == 1 and abs(2 * starts[0] + 800 - length) <= 1  # in the middle
        return
    assert starts[0] == 0 and starts[-1] == length - 800 and (np.diff(starts) <= 400).all()
    assert len(starts) == -(-(length - 800) // 400) + 1


def test_the_file_says_it() -> None:
    assert preprocess_of(READY.to_dict()) == READY


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"sound": 3},
        {"sound": {"rate": 8000}},
        {"sound": {**READY.to_dict()["sound"], "rate": 0}},
        {"sound": {**READY.to_dict()["sound"], "seconds": 1e9}},
        {"sound": {**READY.to_dict()["sound"], "std": 0}},
        {"sound": {**READY.to_dict()["sound"], "mean": float("nan")}},
        {"sound": {**READY.to_dict()["sound"], "mels": "80"}},
        {"sound": {**READY.to_dict()["sound"], "seconds": 0.001}},
    ],
)
def test_files_that_say_nonsense(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="sounds"):
        preprocess_of(values)
