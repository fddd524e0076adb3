"""Disentangled attention: rows of distances and their scores, against loops over pairs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headway.kernels.distances import distance_rows, distance_scores


def row_of(distance: int, buckets: int, longest: int) -> int:
    """The row by the definition, one distance at a time."""
    span, far = buckets or longest, abs(distance)
    if buckets and far > buckets // 2:
        near = buckets // 2
        far = math.ceil(math.log(far / near) / math.log((longest - 1) / near) * (near - 1)) + near
    return min(max(int(math.copysign(far, distance)) + span, 0), 2 * span - 1)


@pytest.mark.parametrize(("buckets", "longest"), [(8, 20), (16, 40), (0, 6), (256, 512)])
def test_near_distances_have_their_own_rows(buckets: int, longest: int) -> None:
    places = torch.arange(30)[None]
    found = distance_rows(places, places, buckets, longest)[0]
    assert found.tolist() == [[row_of(i - j, buckets, longest) for j in range(30)] for i in range(30)]
    assert int(found.min()) >= 0 and int(found.max()) < 2 * (buckets or longest)


def test_scores_are_those_of_a_loop_over_pairs() -> None:
    q, k, far_q, far_k = (
        torch.randn(*shape, dtype=torch.float64) for shape in [(2, 3, 4, 5), (2, 3, 6, 5)] + [(3, 8, 5)] * 2
    )
    rows = torch.randint(0, 8, (2, 4, 6))
    found = distance_scores(q, k, far_q, far_k, rows)
    right: Tensor = torch.zeros(2, 3, 4, 6, dtype=torch.float64)
    for b, h, i, j in torch.cartesian_prod(*(torch.arange(n) for n in right.shape)).tolist():
        row = int(rows[b, i, j])
        right[b, h, i, j] = q[b, h, i] @ far_k[h, row] + k[b, h, j] @ far_q[h, row]
    assert torch.allclose(found, right, atol=1e-12)
