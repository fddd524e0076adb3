"""Augmentation of sounds: a function of seed and sample alone, and what each setting does."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from headway.config.augment import SoundAugmentConfig
from headway.data.sounds.augment import draw, mask, perturb, white_noise
from headway.data.sounds.store import as_pcm
from headway.data.synthetic.sounds import tones

SAMPLES = np.arange(10, 18)
CLIPS = torch.from_numpy(np.stack([as_pcm(tone.samples) for tone in tones(8)]))
ALL: dict[str, Any] = {"gain": 6, "noise": 0.5, "time_masks": 2, "mel_masks": 1, "mixup": 0.4, "shift": 0.2}


def test_draws_do_not_depend_on_the_batch() -> None:
    config = SoundAugmentConfig(**ALL)
    whole, place = draw(config, 3, SAMPLES)
    part, some = draw(config, 3, SAMPLES[4:6])
    assert all(torch.equal(a[4:6], b) for a, b in zip(whole, part, strict=True)) and (place[4:6] == some).all()
    other, _ = draw(config, 4, SAMPLES)
    assert not torch.equal(whole.gain, other.gain)
    x = perturb(config, CLIPS, whole)
    assert torch.equal(x[4:6], perturb(config, CLIPS[4:6], part))


def test_without_settings_nothing_changes() -> None:
    config = SoundAugmentConfig()
    drawn, _ = draw(config, 0, SAMPLES)
    assert torch.equal(perturb(config, CLIPS, drawn), CLIPS.float() / 32767)
    x = torch.randn(8, 5, 7)
    assert torch.equal(mask(config, x, drawn), x)


def test_gain_is_within_its_decibels() -> None:
    config = SoundAugmentConfig(gain=6)
    drawn, _ = draw(config, 0, np.arange(1000))
    decibels = 20 * drawn.gain.log10()
    assert -6 <= decibels.min() < -5.8 and 5.8 < decibels.max() <= 6
    found = perturb(config, CLIPS, draw(config, 0, SAMPLES)[0])
    assert torch.allclose(found.std(1), CLIPS.float().std(1) / 32767 * draw(config, 0, SAMPLES)[0].gain, rtol=1e-4)


def test_noise_has_its_share_and_strength() -> None:
    config = SoundAugmentConfig(noise=0.25, snr=10)
    drawn, _ = draw(config, 0, np.arange(4000))
    assert abs(float((drawn.noise > 0).float().mean()) - 0.25) < 0.03
    strengths = -20 * drawn.noise[drawn.noise > 0].log10()
    assert 10 <= strengths.min() < 11 and 39 < strengths.max() <= 40
    some, _ = draw(SoundAugmentConfig(noise=1, snr=10), 0, SAMPLES)
    plain = CLIPS.float() / 32767
    added = perturb(SoundAugmentConfig(noise=1, snr=10), CLIPS, some) - plain
    ratio = added.std(1) / plain.square().mean(1).sqrt()
    assert torch.allclose(ratio, some.noise, rtol=0.05)


def test_noise_is_white_and_normal() -> None:
    noise = white_noise(torch.tensor([1, 2, 12345678]), 40_000)
    assert noise.mean(1).abs().max() < 0.03 and (noise.std(1) - 1).abs().max() < 0.03
    assert abs(float((noise.abs() < 1).float().mean()) - 0.683) < 0.01
    flat = torch.corrcoef(torch.cat([noise, noise.roll(1, 1), noise.roll(7, 1)]))
    assert (flat - torch.eye(9)).abs().max() < 0.03


def test_masks_hide_what_was_drawn() -> None:
    config = SoundAugmentConfig(time_masks=2, time_mask=0.3, mel_masks=1, mel_mask=0.5)
    drawn, _ = draw(config, 1, SAMPLES)
    found = mask(config, torch.ones(8, 40, 100), drawn)
    for row in range(8):
        columns = (np.arange(100) + 0.5) / 100
        hidden = np.zeros(100, bool)
        for begin, end in drawn.times[row].tolist():
            assert 0 <= begin <= end <= 1 and end - begin <= 0.3
            hidden |= (columns >= begin) & (columns < end)
        bands = (np.arange(40) + 0.5) / 40
        begin, end = drawn.bands[row, 0].tolist()
        silent = (bands >= begin) & (bands < end)
        assert np.array_equal(found[row].numpy() == 0, hidden[None, :] | silent[:, None])
