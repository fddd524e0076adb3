"""Disentangled attention (He et al. 2021): scores between content and distance, for DeBERTa.

Letters: B batch, T queries, S keys, H heads, D width of a head, P rows of the table of distances.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def distance_rows(q_pos: Tensor, k_pos: Tensor, buckets: int, max_distance: int) -> Tensor:
    """(B, T, S): for each pair the row of its distance. Near distances have a row each, far ones share rows.

    Without buckets every distance up to the largest has its own.
    """
    distance = q_pos[:, :, None] - k_pos[:, None, :]
    span = buckets or max_distance
    if buckets:
        near = buckets // 2
        ratio = torch.log(distance.abs().clamp(min=near) / near) / math.log((max_distance - 1) / near)
        far = (torch.ceil(ratio * (near - 1)) + near).long() * distance.sign()
        distance = torch.where(distance.abs() <= near, distance, far)
    return (distance + span).clamp(0, 2 * span - 1)


def distance_scores(q: Tensor, k: Tensor, far_q: Tensor, far_k: Tensor, rows: Tensor) -> Tensor:
    """(B, H, T, S): queries with the keys of distances, plus keys with the queries of distances.

    `far_q` and `far_k` (H, P, D) are projections of the table of distances, `rows` (B, T, S) says which pair has which.
    """
    rows = rows[:, None].expand(len(q), q.shape[1], -1, -1)
    content = (q @ far_k.transpose(1, 2)).gather(3, rows)
    return content + (k @ far_q.transpose(1, 2)).gather(3, rows.transpose(2, 3)).transpose(2, 3)
