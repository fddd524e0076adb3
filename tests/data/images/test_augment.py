"""Augmentation: a pure function of seed and sample, on any device, in any batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from headway.config.augment import AugmentConfig
from headway.data.images import augment
from headway.data.images.augment import Draws, apply, draw, middle, mix
from headway.data.synthetic.pictures import make_pictures
from headway.errors import ConfigError

IMAGES = torch.from_numpy(np.stack([picture.pixels for picture in make_pictures(64)]))
SAMPLES = np.arange(64) + 1000
ALL: dict[str, dict[str, Any]] = {
    "crop": {"crop": 0.3},
    "shift": {"shift": 0.2},
    "flip": {"flip": True},
    "trivial": {"policy": "trivial"},
    "rand": {"policy": "rand", "magnitude": 0.8},
    "jitter": {"jitter": 0.4},
    "erase": {"erase": 0.7},
}
EVERY = AugmentConfig(**{key: value for each in ALL.values() for key, value in each.items()}, mixup=0.4, cutmix=1.0)


def made(config: AugmentConfig, samples: Any = SAMPLES, size: int = 32) -> torch.Tensor:
    return apply(config, IMAGES[: len(samples)], draw(config, 5, samples, size / 32), size)


def test_nothing_asked_changes_nothing() -> None:
    assert torch.equal(made(AugmentConfig()), IMAGES / 255)


@pytest.mark.parametrize("name", ALL)
def test_each_setting_changes_images_within_their_range(name: str) -> None:
    config = AugmentConfig(**ALL[name])
    found = made(config)
    assert found.min() >= 0 and found.max() <= 1.0001 and found.isfinite().all()
    changed = (found - IMAGES / 255).abs().flatten(1).amax(1) > 1e-3
    assert changed.float().mean() > 0.4
    assert not torch.equal(found, apply(config, IMAGES, draw(config, 6, SAMPLES), 32)), "the seed does not matter"


def test_a_sample_is_the_same_in_every_batch() -> None:
    whole = draw(EVERY, 5, SAMPLES)
    for part in (slice(0, 7), slice(30, 31), slice(63, 64)):
        for all_of, some in zip(whole, draw(EVERY, 5, SAMPLES[part]), strict=True):
            assert torch.equal(all_of[part], some)
    alone = torch.cat([apply(EVERY, IMAGES[i : i + 1], draw(EVERY, 5, SAMPLES[i : i + 1]), 32) for i in range(64)])
    torch.testing.assert_close(alone, made(EVERY), atol=2e-6, rtol=0)


def test_all_see_all_equals_each_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU every operation is computed for every image; here each for its own only."""
    one = made(EVERY)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(made(EVERY), one, atol=2e-6, rtol=0)


def test_a_flip_is_a_mirror() -> None:
    found, plain = made(AugmentConfig(flip=True)), IMAGES / 255
    mirrored = [torch.allclose(a, b.flip(-1), atol=1e-5) for a, b in zip(found, plain, strict=True)]
    same = [torch.allclose(a, b, atol=1e-5) for a, b in zip(found, plain, strict=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True)) and 16 < sum(mirrored) < 48


def test_a_shift_brings_in_black() -> None:
    config = AugmentConfig(shift=0.25)
    bright = apply(config, torch.full_like(IMAGES, 255), draw(config, 5, SAMPLES), 32)
    shares = bright.flatten(1).mean(1)
    assert shares.min() >= 0.75**2 - 0.02 and shares.mean() < 0.9


def test_a_crop_keeps_the_share_it_should() -> None:
    geometry = draw(AugmentConfig(crop=0.25), 5, np.arange(4000)).geometry
    area = geometry[:, 0, 0].abs() * geometry[:, 1, 1].abs()
    assert 0.2 < area.min() < 0.3 and area.max() <= 1 and 0.55 < area.mean() < 0.68
    reach = geometry[:, :, :2].abs().sum(2) + geometry[:, :, 2].abs()
    assert reach.max() <= 1 + 1e-6, "a crop lies inside the image"


def test_without_a_crop_a_smaller_result_is_the_middle() -> None:
    assert torch.allclose(made(AugmentConfig(), size=24), middle(IMAGES, 24), atol=1e-5)
    assert torch.equal(middle(IMAGES, 24), IMAGES[:, :, 4:28, 4:28] / 255)


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_mixed_images_and_their_share(name: str) -> None:
    config = AugmentConfig(**{name: 0.8})
    first, second = torch.zeros(64, 3, 32, 32), torch.ones(64, 3, 32, 32)
    share = draw(config, 5, SAMPLES).mixed
    found = mix(first, second, share)
    assert torch.allclose(1 - found.mean((1, 2, 3)), share[:, 0], atol=0.05) and share[:, 0].std() > 0.05
    assert set(found.unique().tolist()) == {0.0, 1.0} if name == "cutmix" else len(found.unique()) > 10


@pytest.mark.parametrize("a", [0.05, 0.2, 0.8, 1.0, 4.0, 100.0])
def test_shares_of_mixed_images_have_a_beta_distribution(a: float) -> None:
    ours = np.sort(draw(AugmentConfig(mixup=a), 5, np.arange(20_000)).mixed[:, 0].numpy())
    theirs = np.sort(np.random.default_rng(0).beta(a, a, 20_000))
    places = np.linspace(0.001, 0.999, 201)
    below = [np.searchsorted(each, places) / len(each) for each in (ours, theirs)]
    assert np.abs(below[0] - below[1]).max() < 0.02  # by chance 0.014 in one of a hundred


def test_operations_by_hand() -> None:
    x, half = IMAGES[:4] / 255, torch.full((4, 1, 1, 1), 0.5)
    assert torch.equal(augment._brightness(x, half), x / 2)
    grey = (x * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True)
    torch.testing.assert_close(augment._saturation(x, 0 * half), grey.expand_as(x), atol=1e-6, rtol=0)
    assert augment._posterize(x, 2 * half).mul(255).round().unique().numel() <= 16
    solar = augment._solarize(x, half)
    assert torch.equal(solar[x >= 0.5], 1 - x[x >= 0.5]) and torch.equal(solar[x < 0.5], x[x < 0.5])
    flat = augment._equalize(torch.linspace(0.3, 0.5, 1024).view(1, 1, 32, 32), half[:1])
    assert flat.min() == 0 and flat.max() == 1
    constant = torch.full((1, 3, 8, 8), 0.4)
    for operation in (augment._equalize, augment._autocontrast, augment._sharpness):
        torch.testing.assert_close(operation(constant, half[:1]), constant)


@pytest.mark.slow
def test_compiled_is_eager() -> None:
    draws = draw(EVERY, 5, SAMPLES)
    compiled = torch.compile(lambda images, *d: apply(EVERY, images, Draws(*d), 32))
    torch.testing.assert_close(compiled(IMAGES, *draws), made(EVERY), atol=1e-4, rtol=0)


@pytest.mark.parametrize("wrong", [{"crop": 0}, {"crop": 1.5}, {"mixup": -1}, {"erase": 2}, {"jitter": -0.1}])
def test_wrong_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        replace(AugmentConfig(), **wrong).check_augment("images")
