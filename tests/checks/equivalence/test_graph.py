"""`headway check` of graph models: it passes for right ones, and sees a wrong path."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headway.baselines.build import make_model
from headway.checks.equivalence.result import MEANINGS
from headway.checks.equivalence.suite import check_model
from headway.config.model import ClassifyHeadConfig, StackConfig
from headway.config.networks.graph import GraphConfig, NodesConfig
from headway.joint import graph
from headway.model.model import Model


def model(hops: int = 0) -> Model:
    front = NodesConfig(columns=("x", "words:0", "words:2"), tags=("tag=a", "tag=b"), edge_columns=("w",))
    stack = StackConfig(d_model=16, n_layers=2, n_heads=2, d_ff=32)
    head = ClassifyHeadConfig(labels=3, pool="mean")
    made = make_model(GraphConfig(encoder=stack, source=front, classify=head, hops=hops, labels=("p", "q", "r")))
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return made


@pytest.mark.parametrize("hops", [0, 2])
def test_a_right_model_passes(hops: int) -> None:
    results = list(check_model(model(hops), compiled=False))
    assert all(result.ok for result in results) and {result.name for result in results} <= MEANINGS.keys()
    skipped = [result.name for result in results if result.difference is None]
    assert skipped == ([] if hops else ["near pairs = dense"])


def test_a_wrong_kernel_of_near_pairs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = graph.neighbour_attention

    def wrong(pairs: Tensor, bias: Tensor, *rest: object) -> Tensor:
        return right(pairs, bias * 0.5, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(graph, "neighbour_attention", wrong)
    failed = {result.name for result in check_model(model(2), compiled=False) if not result.ok}
    assert "near pairs = dense" in failed
