"""The Fréchet distance of two sets of features, as if each were normally distributed (Heusel et al. 2017).

Letters: N images, D features.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from headway.tasks.metrics.bootstrap import Interval, Numbers

DRAWS = 100
"""Resamples behind the interval."""
Moments = tuple[Numbers, Numbers]
"""Mean (D,) and covariance (D, D)."""


class FrechetReference:
    """The features (N, D) of real images, which those of drawn images are compared with."""

    def __init__(self, features: Numbers) -> None:
        self.mean, self.covariance = moments(features)

    @cached_property
    def root(self) -> Numbers:
        """The symmetric square root of the covariance."""
        values, vectors = np.linalg.eigh(self.covariance)
        root: Numbers = (vectors * np.sqrt(values.clip(0))) @ vectors.T
        return root

    def distance(self, mean: Numbers, covariance: Numbers) -> float:
        """|μ - μ'|² + tr(Σ + Σ' - 2 √(√Σ Σ' √Σ)): the root of a symmetric matrix, so that no number is complex."""
        values = np.linalg.eigvalsh(self.root @ covariance @ self.root).clip(0)
        apart = np.square(self.mean - mean).sum() + np.trace(self.covariance) + np.trace(covariance)
        return float(max(0.0, apart - 2 * np.sqrt(values).sum()))

    def interval(self, features: Numbers, seed: int = 0) -> Interval:
        """The distance of drawn images, plus and minus 1.96 deviations of resamples.

        Resamples repeat images, so their own distances are too large: only their spread is used.
        """
        value, generator = self.distance(*moments(features)), np.random.default_rng(seed)
        rows = generator.integers(0, len(features), (DRAWS, len(features)))
        spread = 1.96 * float(np.std([self.distance(*moments(features[some])) for some in rows]))
        return value, max(0.0, value - spread), value + spread


def moments(features: Numbers) -> Moments:
    """Mean and covariance of features (N, D), in float64; one image alone has no spread."""
    mean = features.astype(np.float64).mean(0)
    apart = features - mean
    return mean, apart.T @ apart / max(1, len(features) - 1)
