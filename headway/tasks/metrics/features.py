"""How good features are for labels that they were not trained on: nearest neighbours, and a linear probe.

Letters: N images with labels, Q images to label, M numbers of each, L labels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

VOTE = 0.07
"""Divides cosines: nearer neighbours have more votes (Wu et al. 2018)."""
AT_ONCE = 1024
"""Images that are compared with all others at a time."""
DECAY, ROUNDS = 1e-3, 100
"""Weight decay of the probe, and the most iterations that it is fitted for."""


@torch.no_grad()
def nearest_labels(features: Tensor, labels: Tensor, queries: Tensor, neighbours: int, count: int) -> Tensor:
    """(Q,): the label for which the nearest images vote, weighted by their cosine."""
    bank, found = F.normalize(features.float(), dim=-1), []
    for part in F.normalize(queries.float(), dim=-1).split(AT_ONCE):
        cosine, place = (part @ bank.T).topk(min(neighbours, len(bank)), dim=1)
        votes = torch.zeros(len(part), count, device=part.device)
        found.append(votes.scatter_add_(1, labels[place], ((cosine - 1) / VOTE).exp()).argmax(1))
    return torch.cat(found)


def probe_labels(features: Tensor, labels: Tensor, queries: Tensor, count: int) -> Tensor:
    """(Q,): labels by a logistic regression on the features (N, M), which stay as they are."""
    mean, std = features.float().mean(0), features.float().std(0).clamp(min=1e-6)
    x, y = (features.float() - mean) / std, (queries.float() - mean) / std
    weight = torch.zeros(count, x.shape[1], device=x.device, requires_grad=True)
    bias = torch.zeros(count, device=x.device, requires_grad=True)
    fit = torch.optim.LBFGS([weight, bias], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        fit.zero_grad()
        value = F.cross_entropy(F.linear(x, weight, bias), labels) + DECAY * weight.square().sum() / 2
        value.backward()
        return value

    with torch.enable_grad():
        fit.step(loss)
    return F.linear(y, weight, bias).argmax(1).detach()


def spread(features: Tensor) -> float:
    """How far apart vectors of length one point: 0 if all are the same, 1 if no direction is usual."""
    mean = F.normalize(features.double(), dim=-1).mean(0)
    return float(1 - mean.square().sum())
