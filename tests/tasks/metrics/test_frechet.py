"""The Fréchet distance against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from headway.tasks.metrics.frechet import FrechetReference, moments


def reference(mean: list[float], covariance: np.ndarray) -> FrechetReference:
    found = FrechetReference.__new__(FrechetReference)
    found.mean, found.covariance = np.array(mean), covariance
    return found


def test_equal_sets_are_at_distance_zero_and_a_shift_is_its_square() -> None:
    features = np.random.default_rng(0).normal(size=(200, 6)) @ np.random.default_rng(1).normal(size=(6, 6))
    made = FrechetReference(features)
    assert made.distance(*moments(features)) == pytest.approx(0, abs=1e-9)
    assert made.distance(*moments(features + np.array([3, 4, 0, 0, 0, 0]))) == pytest.approx(25)


def test_moments_are_those_of_numpy_and_one_image_has_no_spread() -> None:
    features = np.random.default_rng(0).normal(size=(20, 3))
    assert moments(features)[1] == pytest.approx(np.cov(features, rowvar=False))
    assert not moments(features[:1])[1].any()
    assert FrechetReference(features[:1]).distance(*moments(features[:1] + 2)) == pytest.approx(12)


def test_diagonal_covariances_have_a_closed_form() -> None:
    ours, theirs = np.array([1.0, 4.0, 9.0]), np.array([4.0, 4.0, 0.0])
    found = reference([0, 0, 1], np.diag(ours)).distance(np.array([2.0, 0, 1]), np.diag(theirs))
    assert found == pytest.approx(4 + ((np.sqrt(ours) - np.sqrt(theirs)) ** 2).sum())


def test_covariances_of_two_by_two_have_a_closed_form() -> None:
    """tr √(AB) = √(tr AB + 2 √det AB) for 2 × 2 matrices, which do not commute here."""
    a, b = np.array([[2.0, 0.7], [0.7, 1.0]]), np.array([[1.0, -0.4], [-0.4, 3.0]])
    root = np.sqrt(np.trace(a @ b) + 2 * np.sqrt(np.linalg.det(a) * np.linalg.det(b)))
    found = reference([0, 0], a).distance(np.zeros(2), b)
    assert found == pytest.approx(np.trace(a) + np.trace(b) - 2 * root)
    assert found == pytest.approx(reference([0, 0], b).distance(np.zeros(2), a))


def test_the_interval_holds_the_value_and_shrinks_with_more_images() -> None:
    rng = np.random.default_rng(0)
    made = FrechetReference(rng.normal(size=(2000, 4)))
    few, many = (made.interval(rng.normal(size=(count, 4)) + 0.5) for count in (50, 800))
    assert all(low <= value <= high for value, low, high in (few, many))
    assert many[2] - many[1] < few[2] - few[1]
