"""Stores of sounds: equal to decoding each sound alone, built once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.data.files.readers import Flaw
from headway.data.media import store as media
from headway.data.sounds.rows import SoundRow
from headway.data.sounds.store import SoundStore, build_store, pcm_of, store_of
from headway.data.sounds.wav import wav_bytes
from headway.data.synthetic.sounds import tones


def some_rows() -> list[SoundRow | Flaw]:
    made = tones(6, seconds=0.5)
    found: list[SoundRow | Flaw] = [
        SoundRow(wav_bytes(tone.samples, 8000), tone.kind, f"no {i}", "f", i + 1) for i, tone in enumerate(made)
    ]
    part = SoundRow(wav_bytes(made[0].samples, 8000), "part", "", "f", 7, start=0.1, end=0.3)
    late = SoundRow(wav_bytes(made[0].samples, 8000), "late", "", "f", 8, start=3)
    return [*found[:2], SoundRow(b"broken", 0, "", "f", 99), Flaw("f", 100, "missing"), part, late, *found[2:]]


def build(folder: Path, rate: int = 16_000) -> SoundStore:
    return build_store(iter(some_rows()), rate, "k", folder)


@pytest.mark.parametrize("rate", [8000, 16_000])
def test_a_store_is_its_sounds_in_order(tmp_path: Path, rate: int) -> None:
    made = build(tmp_path, rate)
    good = [row for row in some_rows() if isinstance(row, SoundRow) and row.line not in (8, 99)]
    assert len(made) == 7 and len(made.samples) == made.edges[-1]
    for row, kept in zip(good, made.rows, strict=True):
        assert (kept.label, kept.text, kept.line, kept.start, kept.end) == (
            *(row.label, row.text, row.line, row.start, row.end),
        )
        assert np.array_equal(made.sound(kept.place), pcm_of(row, rate)) and kept.sound is None
    assert sorted(flaw.line for flaw in made.flaws) == [8, 99, 100]
    assert len(made.sound(2)) == round(0.2 * rate)


def test_a_store_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(tmp_path)
    monkeypatch.setattr(media, "_write", None)
    again = build(tmp_path)
    assert again.digest == first.digest and again.rows == first.rows and np.array_equal(again.samples, first.samples)


def test_sounds_in_memory_are_a_store() -> None:
    made = tones(3)
    store = store_of([tone.samples for tone in made], 8000, [SoundRow(None, tone.kind) for tone in made])
    assert [row.place for row in store.rows] == [0, 1, 2]
    assert np.abs(store.sound(1) / 32767 - made[1].samples).max() < 1e-4
