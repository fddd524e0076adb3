"""Nearest neighbours and the linear probe against slow twins."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from headway.tasks.metrics.features import VOTE, nearest_labels, probe_labels, spread


def test_neighbours_vote_by_their_cosine() -> None:
    bank, queries, labels = torch.randn(60, 5), torch.randn(9, 5), torch.randint(0, 4, (60,))
    for k in (1, 20, 100):
        found = nearest_labels(bank, labels, queries, k, 4)
        for query, guess in zip(queries, found, strict=True):
            cosines = sorted(
                ((float(F.cosine_similarity(query, row, 0)), i) for i, row in enumerate(bank)), reverse=True
            )
            votes = [0.0] * 4
            for cosine, i in cosines[:k]:
                votes[int(labels[i])] += math.exp(cosine / VOTE)
            assert int(guess) == votes.index(max(votes))


def test_the_probe_finds_a_linear_rule_and_is_the_same_each_time() -> None:
    rule, x = torch.randn(3, 6), torch.randn(400, 6)
    x[:, 0] *= 50  # scales do not matter
    labels = F.linear(x / torch.tensor([50, 1, 1, 1, 1, 1]), rule).argmax(1)
    found = probe_labels(x[:300], labels[:300], x[300:], 3)
    assert (found == labels[300:]).float().mean() > 0.9
    with torch.no_grad():
        assert torch.equal(probe_labels(x[:300], labels[:300], x[300:], 3), found)
    noise = probe_labels(x[:300], torch.randint(0, 3, (300,)), x[300:], 3)
    assert (noise == labels[300:]).float().mean() < 0.6


def test_spread_is_none_for_one_direction_and_full_for_all() -> None:
    assert spread(torch.ones(5, 3) * torch.arange(1, 6)[:, None]) == pytest.approx(0, abs=1e-9)
    assert spread(torch.cat([torch.eye(4), -torch.eye(4)])) == pytest.approx(1)
