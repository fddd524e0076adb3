"""Synthetic sounds: tones, sweeps and noises of several kinds; and syllables by formant synthesis, with their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Wave = NDArray[np.float64]
RATE = 8000
"""Samples per second, where nobody says otherwise."""
SECONDS = 1.0
"""Length of a tone with the silence around it."""
HUSH = (0.002, 0.02)
"""Bounds of the deviation of the noise behind a sound."""


@dataclass(frozen=True)
class Tone:
    """A sound of one kind."""

    samples: NDArray[np.float32]
    rate: int
    kind: str


@dataclass(frozen=True)
class Spoken:
    """Syllables, what they are, and when each of them is spoken."""

    samples: NDArray[np.float32]
    rate: int
    text: str
    """The syllables with spaces between them."""
    times: tuple[tuple[float, float], ...]
    """Beginning and end of each syllable, in seconds."""


# --- tones

_Kind = Callable[[np.random.Generator, Wave, float], Wave]
"""A sound from a random generator, the times of its samples and its length, both in seconds."""


def _turns(hertz: Wave, time: Wave) -> Wave:
    """The phase of a tone whose frequency changes, in radians."""
    found: Wave = 2 * np.pi * np.cumsum(hertz) * (time[1] - time[0])
    return found


def _sweep(rng: np.random.Generator, time: Wave, long: float, direction: int) -> Wave:
    low = rng.uniform(250, 700)
    octaves = rng.uniform(0.7, 1.6)
    place = time / long if direction > 0 else 1 - time / long
    return np.sin(_turns(low * 2 ** (octaves * place), time))


def _bursts(rng: np.random.Generator, time: Wave, long: float) -> Wave:
    return rng.standard_normal(len(time)) * 0.5 * (np.sin(2 * np.pi * rng.uniform(5, 9) * time) > 0.2)


def _chord(rng: np.random.Generator, time: Wave, long: float) -> Wave:
    low = rng.uniform(250, 600)
    found: Wave = np.sin(2 * np.pi * low * time[:, None] * np.array([1, 1.25, 1.5])).mean(1)
    return found


def _buzz(rng: np.random.Generator, time: Wave, long: float) -> Wave:
    turns = rng.uniform(90, 180) * time
    return 2 * (turns % 1) - 1


def _warble(rng: np.random.Generator, time: Wave, long: float) -> Wave:
    wave = np.sin(2 * np.pi * rng.uniform(5, 8) * time)
    return np.sin(_turns(rng.uniform(400, 1200) * (1 + 0.12 * wave), time))


TONES: dict[str, _Kind] = {
    "tone": lambda rng, time, long: np.sin(2 * np.pi * rng.uniform(300, 1500) * time),
    "chord": _chord,
    "rising": lambda rng, time, long: _sweep(rng, time, long, 1),
    "falling": lambda rng, time, long: _sweep(rng, time, long, -1),
    "warble": _warble,
    "buzz": _buzz,
    "noise": lambda rng, time, long: 0.5 * rng.standard_normal(len(time)),
    "bursts": _bursts,
}
"""Kinds of sounds."""
KINDS = tuple(TONES)


def tones(
    count: int, seed: int = 0, kinds: Sequence[str] = KINDS, rate: int = RATE, seconds: float = SECONDS
) -> list[Tone]:
    """Return `count` sounds; equal seeds give equal sounds. Loudness, length, place and the noise behind them vary."""
    rng = np.random.default_rng(seed)
    return [_tone(rng, kinds[number % len(kinds)], rate, seconds) for number in range(count)]


def _tone(rng: np.random.Generator, kind: str, rate: int, seconds: float) -> Tone:
    whole = round(rate * seconds)
    long = round(whole * rng.uniform(0.5, 0.9))
    wave = TONES[kind](rng, np.arange(long) / rate, long / rate) * _fade(long, rate // 50)
    samples = rng.uniform(*HUSH) * rng.standard_normal(whole)
    at = rng.integers(whole - long)
    samples[at : at + long] += rng.uniform(0.15, 0.6) * wave
    return Tone(samples.clip(-1, 1).astype(np.float32), rate, kind)


def _fade(count: int, edge: int) -> Wave:
    """From 0 to 1 and back to 0."""
    place = np.minimum(np.arange(count), np.arange(count)[::-1])
    found: Wave = np.clip((place + 1) / edge, 0, 1)
    return found


# --- syllables

VOWELS = {
    "a": (730, 1090, 2440), "e": (530, 1840, 2480), "i": (270, 2290, 3010), "o": (570, 840, 2410), "u": (300, 870, 2240)
}  # fmt: skip
"""Frequencies of the first three formants, in hertz (Peterson & Barney 1952)."""
HUMS = {"m": (250, 1000, 2200), "n": (250, 1500, 2500), "l": (360, 1300, 2700)}
"""Consonants of the voice: their formants."""
HISSES = {"s": (2700, 3900), "f": (800, 3800), "h": (400, 1800)}
"""Consonants of breath: the band of their noise."""
BURSTS = {"p": (200, 900), "k": (1200, 1900), "t": (2600, 3800)}
"""Consonants that begin with silence: the band of the noise after it."""
SYLLABLES = tuple(first + vowel for first in (*HUMS, *HISSES, *BURSTS) for vowel in VOWELS)
BANDWIDTH = (80.0, 110.0, 160.0)
"""Of the three formants, in hertz."""


def syllables(count: int, seed: int = 0, rate: int = RATE, words: tuple[int, int] = (2, 5)) -> list[Spoken]:
    """Return `count` sequences of syllables, each as long as `words` allows; equal seeds give equal sounds."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        places = rng.integers(len(SYLLABLES), size=int(rng.integers(words[0], words[1] + 1)))
        found.append(_spoken(rng, rate, [SYLLABLES[i] for i in places]))
    return found


def speak(said: Sequence[str], seed: int = 0, rate: int = RATE) -> Spoken:
    """These syllables, by the voice of a seed; all must be among SYLLABLES."""
    return _spoken(np.random.default_rng(seed), rate, said)


def _spoken(rng: np.random.Generator, rate: int, said: Sequence[str]) -> Spoken:
    pitch, tract, pace = rng.uniform(95, 210), rng.uniform(0.93, 1.08), rng.uniform(0.85, 1.15)
    parts = [np.zeros(round(rate * rng.uniform(0.03, 0.12)))]
    times, length = [], len(parts[0])
    for syllable in said:
        wave = _syllable(rng, syllable, rate, pitch * rng.uniform(0.92, 1.08), tract, pace)
        gap = np.zeros(round(rate * rng.uniform(0.02, 0.08)))
        times.append((length / rate, (length + len(wave)) / rate))
        length += len(wave) + len(gap)
        parts += [wave, gap]
    samples = np.concatenate(parts)
    samples *= rng.uniform(0.3, 0.8) / np.abs(samples).max()
    samples += rng.uniform(*HUSH) / 4 * rng.standard_normal(len(samples))
    return Spoken(samples.clip(-1, 1).astype(np.float32), rate, " ".join(said), tuple(times))


def _syllable(rng: np.random.Generator, name: str, rate: int, pitch: float, tract: float, pace: float) -> Wave:
    consonant, vowel = name[0], name[1]
    begin, end = (round(rate * pace * rng.uniform(low, high)) for low, high in ((0.06, 0.1), (0.13, 0.2)))
    glide = round(rate * 0.03)
    voice = _pulses(begin + end, rate, pitch)
    place = np.clip((np.arange(begin + end) - begin + glide) / (2 * glide), 0, 1)  # 0: consonant, 1: vowel
    sound = _through(voice, rate, VOWELS[vowel], tract) * place
    if consonant in HUMS:
        sound += 0.5 * _through(voice, rate, HUMS[consonant], tract) * (1 - place)
    elif consonant in HISSES:
        sound += 0.6 * _hiss(rng, begin + end, rate, HISSES[consonant]) * (1 - place)
    else:
        burst = np.exp(-np.maximum(0, np.arange(begin + end) - 0.6 * begin) / (0.012 * rate))
        sound += 1.2 * _hiss(rng, begin + end, rate, BURSTS[consonant]) * burst * (np.arange(begin + end) > 0.6 * begin)
    return sound * _fade(begin + end, rate // 100)


def _pulses(count: int, rate: int, pitch: float) -> Wave:
    """Pulses of the voice, whose pitch falls a little."""
    turns = np.cumsum(np.linspace(1.06, 0.92, count)) * pitch / rate
    found: Wave = np.diff(np.floor(turns), prepend=0.0)
    return found


def _through(voice: Wave, rate: int, formants: tuple[int, ...], tract: float) -> Wave:
    """A voice through resonances; its deviation is that of the noises. `tract` is the size of a speaker."""
    size = 1 << (len(voice) + rate // 20).bit_length()
    hertz = np.fft.rfftfreq(size, 1 / rate)
    response = np.ones(len(hertz), complex)
    for formant, wide in zip(formants, BANDWIDTH, strict=True):
        middle = formant * tract
        response *= middle**2 / (middle**2 - hertz**2 + 1j * wide * hertz)
    found: Wave = np.fft.irfft(np.fft.rfft(voice, size) * response * hertz / (hertz + 100), size)[: len(voice)]
    return found / max(1e-9, float(found.std()))


def _hiss(rng: np.random.Generator, count: int, rate: int, band: tuple[int, int]) -> Wave:
    """Noise of a band of frequencies."""
    size = 1 << count.bit_length()
    noise: Wave = np.fft.irfft(np.fft.rfft(rng.standard_normal(size)) * _band(size, rate, band), size)[:count]
    return noise / max(1e-9, float(noise.std()))


@lru_cache(maxsize=64)
def _band(size: int, rate: int, band: tuple[int, int]) -> Wave:
    hertz = np.fft.rfftfreq(size, 1 / rate)
    found: Wave = 1 / (1 + (band[0] / np.maximum(hertz, 1)) ** 6) / (1 + (hertz / band[1]) ** 6)
    return found
