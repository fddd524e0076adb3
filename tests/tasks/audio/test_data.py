"""Sounds of a run: how they are prepared, cut into clips and windows, and augmented."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.data.files.rows import BadRows
from headway.data.sounds.mel import log_mel
from headway.data.sounds.preprocess import SoundPreprocess
from headway.data.sounds.rows import SoundRow
from headway.data.sounds.store import store_of
from headway.data.sounds.wav import wav_bytes
from headway.data.synthetic.sounds import tones
from headway.errors import ConfigError, DataError
from headway.tasks.audio.data import Listener, Sounds, Windows, heard, load_sounds, measured, training_clips
from headway.tasks.recipe import Recipe, load_recipe

READY = SoundPreprocess(8000, 0.5, 40, -0.3, 0.5)


def sounds(count: int = 6, seconds: float = 1.0) -> Sounds:
    made = tones(count, seconds=seconds)
    rows = [SoundRow(None, tone.kind, line=i + 1) for i, tone in enumerate(made)]
    store = store_of([tone.samples for tone in made], 8000, rows)
    return Sounds(store, store.rows)


def recipe(**settings: Any) -> Recipe:
    return load_recipe("audio_classification", [f"audio_classification.{k}={v}" for k, v in settings.items()])[1]


def test_a_listener_gives_normalised_log_mel() -> None:
    part = sounds()
    clip = READY.clip(part.pcm(1), 100)
    found = Listener(READY)(torch.from_numpy(clip)[None])
    wanted = (log_mel(clip / np.float32(32767), 40, 8000) + 0.3) / 0.5
    assert found.shape == (1, 1, 40, 50)
    np.testing.assert_allclose(found[0, 0].numpy(), wanted, atol=5e-3)


def test_measured_sounds_have_mean_zero_and_variance_one() -> None:
    part = sounds(40)
    ready = measured(replace(READY, seconds=1.0), part)
    x = Listener(ready)(torch.from_numpy(np.stack([part.pcm(i) for i in range(40)])))
    assert abs(float(x.mean())) < 1e-3 and abs(float(x.std()) - 1) < 1e-3


def test_windows_cover_every_sound_and_average_probabilities() -> None:
    part = sounds(3, 0.9)
    several = [part.pcm(0)[:3000], part.pcm(1), part.pcm(2)[:4001]]
    windows = Windows(several, READY)
    owners, starts = windows.places
    assert owners.tolist() == [0, 1, 1, 1, 2, 2] and starts.tolist() == [-500, 0, 1600, 3200, 0, 1]
    clips = windows.clips(np.array([2, 5])).numpy()
    assert np.array_equal(clips[0], several[1][1600:5600]) and np.array_equal(clips[1], several[2][1:])
    logits = np.random.default_rng(0).standard_normal((6, 4)) * 3
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    wanted = np.stack([shares[0], shares[1:4].mean(0), shares[4:].mean(0)])
    np.testing.assert_allclose(np.exp(windows.combined(logits)), wanted, rtol=1e-9)


def test_training_clips_lie_where_they_were_drawn() -> None:
    settings = recipe(shift=0.2).settings
    part, rows, samples = sounds(), np.array([0, 3, 5, 0]), np.arange(7, 11)
    clips, _ = training_clips(part, rows, samples, READY, settings, 1)
    for row, clip in zip(rows, clips.numpy(), strict=True):  # a longer sound: a piece of it
        pcm = part.pcm(row)
        assert any(np.array_equal(clip, pcm[at : at + 4000]) for at in range(len(pcm) - 4000 + 1))
    again, _ = training_clips(part, rows[2:], samples[2:], READY, settings, 1)
    assert torch.equal(again, clips[2:])
    long = replace(READY, seconds=2.0)
    shorter, _ = training_clips(part, rows, samples, long, settings, 1)
    firsts = [int(np.flatnonzero(clip)[0]) for clip in shorter.numpy()]
    assert all(abs(first - 4000) <= 0.2 * 16_000 + 5 for first in firsts) and np.std(firsts) > 300
    for row, clip, first in zip(rows, shorter.numpy(), firsts, strict=True):
        pcm = part.pcm(row)
        begin = first - int(np.flatnonzero(pcm)[0])
        assert np.array_equal(clip[begin : begin + len(pcm)], pcm)


def test_a_mixture_is_of_both_halves() -> None:
    settings = recipe(mixup=0.5, shift=0, gain=0).settings
    part, ready = sounds(8), replace(READY, seconds=1.0)
    clips, draws = training_clips(part, np.arange(8), np.arange(8), ready, settings, 1)
    listen = Listener(ready)
    found = heard(settings, clips, draws, listen.filters, listen.norm, 8000)
    share = draws.mixed[:4, None]
    mixed = (share * clips[:4].float() + (1 - share) * clips[4:].float()) / 32767
    wanted = [(log_mel(row.numpy(), 40, 8000) + 0.3) / 0.5 for row in mixed]
    np.testing.assert_allclose(found[:, 0].numpy(), np.stack(wanted), atol=5e-3)


def write(folder: Path, name: str, seconds: float = 0.4, rate: int = 8000, kind: str = "tone") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wav_bytes(tones(1, len(name), (kind,), rate, seconds)[0].samples, rate))


def test_clips_are_as_long_as_most_sounds(tmp_path: Path) -> None:
    for i in range(10):
        write(tmp_path, f"{'ab'[i % 2]}/{i}.wav", 0.3 + 0.05 * i, 8000 if i % 3 else 11025)
    data = load_sounds(_own(tmp_path), BadRows())
    assert data.preprocess.rate == 16_000 and data.preprocess.mels == 80
    assert data.preprocess.seconds == pytest.approx(0.8)
    assert len(data.train) + len(data.valid) == 10 and data.train.lengths.max() <= 0.75 * 16_000 + 1


def _own(folder: Path, *words: str) -> Recipe:
    return load_recipe("audio_classification", [f"data.train={folder}", *words])[1]


def test_parts_and_bad_files(tmp_path: Path) -> None:
    for part in ("train", "valid", "test"):
        for i in range(4):
            write(tmp_path, f"{part}/{'ab'[i % 2]}/{i}.wav")
    (tmp_path / "train" / "a" / "broken.wav").write_bytes(b"RIFF nothing")
    with pytest.raises(DataError, match=r"broken\.wav"):
        load_sounds(_own(tmp_path), BadRows())
    bad = BadRows("skip")
    data = load_sounds(_own(tmp_path), bad)
    assert (len(data.train), len(data.valid), bad.count) == (4, 4, 1) and data.test.endswith("test")
    assert data.about["bad_rows"] == 1


def test_made_up_sounds_keep_their_rate() -> None:
    with pytest.raises(ConfigError, match="8000"):
        load_sounds(recipe(rate=16000), BadRows())
