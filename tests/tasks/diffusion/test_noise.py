"""Normal random numbers by number."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headway.tasks.diffusion.noise import normal, sample_keys


def test_noise_is_a_function_of_the_sample_alone() -> None:
    keys = sample_keys(3, np.arange(10))
    whole = normal(keys, (3, 5, 7))
    assert whole.shape == (10, 3, 5, 7) and whole.dtype == torch.float32
    assert torch.equal(torch.cat([normal(part, (3, 5, 7)) for part in keys.split(3)]), whole)
    assert torch.equal(normal(keys.flip(0), (3, 5, 7)), whole.flip(0))


def test_other_samples_seeds_and_streams_have_other_noise() -> None:
    many = np.arange(3000)
    keys = sample_keys(3, many)
    assert len(keys.unique()) == 3000 and not set(keys.tolist()) & set(sample_keys(4, many).tolist())
    first, second = normal(keys, (64,)), normal(keys, (64,), stream=1)
    for other in (second, normal(sample_keys(4, many), (64,)), first.roll(1, 0), first.roll(1, 1)):
        assert abs(float((first * other).mean())) < 4 / (3000 * 64) ** 0.5


@pytest.mark.parametrize("seed", [0, 1, 1 << 40])
def test_noise_is_normal(seed: int) -> None:
    found = normal(sample_keys(seed, np.arange(1000)), (301,)).double()
    assert [float(found.pow(n).mean()) for n in (1, 2, 3, 4)] == pytest.approx([0, 1, 0, 3], abs=0.05)
    for across in (0, 1):  # neither samples nor places are alike
        assert float(found.mean(across).std() * found.shape[across] ** 0.5) == pytest.approx(1, abs=0.15)
    ordered = torch.special.ndtr(found.flatten().sort().values)
    assert float((ordered - torch.linspace(0, 1, len(ordered))).abs().max()) < 2 / len(ordered) ** 0.5  # Kolmogorov
