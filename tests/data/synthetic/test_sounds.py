"""Synthetic sounds: deterministic, of the kinds they claim, and with true times."""

from __future__ import annotations

import numpy as np
import pytest

from headway.data.sounds.mel import log_mel
from headway.data.synthetic.sounds import KINDS, SYLLABLES, syllables, tones


def test_equal_seeds_give_equal_sounds() -> None:
    first, again, other = tones(9, 1), tones(9, 1), tones(9, 2)
    assert [each.kind for each in first] == [*KINDS, KINDS[0]]
    assert all(np.array_equal(a.samples, b.samples) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0].samples, other[0].samples)
    assert all(np.array_equal(a.samples, b.samples) for a, b in zip(syllables(3, 1), syllables(3, 1), strict=True))


def test_tones_rise_and_fall() -> None:
    for sound in tones(20, 3, kinds=("rising", "falling")):
        frames = log_mel(sound.samples, 40, sound.rate)
        loud = frames.max(0) > frames.max() - 0.3
        peaks = frames.argmax(0)[loud]
        third = len(peaks) // 3
        assert (peaks[-third:].mean() > peaks[:third].mean()) == (sound.kind == "rising")


@pytest.mark.parametrize("rate", [8000, 16000])
def test_times_of_syllables_are_where_the_sound_is(rate: int) -> None:
    for spoken in syllables(10, 4, rate=rate):
        assert spoken.samples.dtype == np.float32 and np.abs(spoken.samples).max() <= 1
        assert [word in SYLLABLES for word in spoken.text.split()] == [True] * len(spoken.times)
        inside = np.zeros(len(spoken.samples), bool)
        for start, end in spoken.times:
            assert 0.1 < end - start < 0.4
            inside[round(start * rate) : round(end * rate)] = True
        assert spoken.samples[inside].std() > 8 * spoken.samples[~inside].std()


def test_vowels_differ_by_their_formants() -> None:
    """The strongest frequency below 1000 Hz is near the first formant: high in `a`, low in `i`."""
    peaks: dict[str, list[float]] = {"a": [], "i": []}
    for spoken in syllables(60, 5, words=(1, 1)):
        if spoken.text[1] in peaks:
            start, end = spoken.times[0]
            wave = spoken.samples[round((start + 0.55 * (end - start)) * 8000) : round(end * 8000)]
            power = np.abs(np.fft.rfft(wave * np.hanning(len(wave)), 4096)) ** 2
            hertz = np.fft.rfftfreq(4096, 1 / 8000)
            peaks[spoken.text[1]].append(float((hertz * power)[hertz < 1200].sum() / power[hertz < 1200].sum()))
    assert min(peaks["a"]) > max(peaks["i"])
