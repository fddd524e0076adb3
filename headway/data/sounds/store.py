"""Stores of sounds: decoded and resampled once, as 16-bit samples one after the other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.batching.permutation import Index
from headway.data.files.readers import Flaw
from headway.data.media.store import digest_of, kept
from headway.data.sounds.decode import Samples, read_seconds
from headway.data.sounds.resample import resampled
from headway.data.sounds.rows import SoundRow, stored

Pcm = NDArray[np.int16]
"""(n,) mono samples of 16 bits"""
FULL = 32767
"""The 16-bit sample that stands for 1."""


@dataclass(frozen=True)
class SoundStore:
    """Sounds of one rate with their rows; the samples may be mapped from a file."""

    samples: Pcm
    """Those of all sounds, one after the other."""
    edges: Index
    """(N + 1,): sound i has the samples edges[i] … edges[i + 1]."""
    rate: int
    rows: list[SoundRow]
    flaws: list[Flaw]
    """Sounds and rows that cannot be used."""
    digest: str
    """SHA-256 of samples and rows."""

    def __len__(self) -> int:
        return len(self.rows)

    def sound(self, place: int) -> Pcm:
        """The samples of one sound."""
        return self.samples[self.edges[place] : self.edges[place + 1]]


def build_store(rows: Iterable[SoundRow | Flaw], rate: int, key: str, cache: Path | None = None) -> SoundStore:
    """The sounds of rows at one rate. `key` names what rows come from."""

    def decode(row: SoundRow) -> Pcm:
        return pcm_of(row, rate)

    found = kept(rows, decode, _line, [key, rate], kind="sounds", dtype=np.int16, cache=cache)
    made = [stored(SoundRow(None, *each[:6]), place) for place, each in enumerate(found.rows)]
    return SoundStore(found.values, _edges(each[6] for each in found.rows), rate, made, found.flaws, found.digest)


def store_of(sounds: Sequence[Samples], rate: int, rows: Sequence[SoundRow]) -> SoundStore:
    """Sounds that are in memory and have the right rate."""
    parts = [as_pcm(samples) for samples in sounds]
    flat = np.concatenate(parts)
    digest = digest_of(flat, map(_line, rows, parts))
    made = [stored(row, place) for place, row in enumerate(rows)]
    return SoundStore(flat, _edges(map(len, parts)), rate, made, [], digest)


def pcm_of(row: SoundRow, rate: int) -> Pcm:
    """A row's sound, decoded and resampled; a DataError says why it cannot be."""
    found = read_seconds(row.sound, row.start, row.end, row.shown)
    return as_pcm(resampled(found.samples, found.rate, rate))


def as_pcm(samples: Samples) -> Pcm:
    """Samples from -1 to 1 with 16 bits; louder ones are clipped."""
    return (samples.clip(-1, 1) * FULL).round().astype(np.int16)


def _edges(lengths: Iterable[int]) -> Index:
    found: Index = np.cumsum([0, *lengths], dtype=np.int64)
    return found


def _line(row: SoundRow, samples: Any) -> str:
    values = [row.label, row.text, row.file, row.line, row.start, row.end, len(samples)]
    return json.dumps(values, ensure_ascii=False) + "\n"
