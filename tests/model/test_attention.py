"""The ways to compute attention give the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from headway.model import attention
from headway.model.attention import AttentionBias


@pytest.mark.parametrize("queries", [1, 3, 4, 5])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("kind", ["none", "mask", "bias"])
def test_few_queries_see_what_many_see(queries: int, groups: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The formula, which a CPU uses for few queries, against torch's kernel."""
    q, (k, v) = torch.randn(2, 4, queries, 8), torch.randn(2, 2, groups, 7, 8)
    seen = torch.rand(2, 1, queries, 7) < 0.7
    seen[..., 0] = True
    bias = {"none": None, "mask": seen, "bias": torch.randn(1, 4, queries, 7).masked_fill(~seen[:1], -torch.inf)}[kind]
    calls = []
    kernel = F.scaled_dot_product_attention

    def counted(*tensors: torch.Tensor, **how: object) -> torch.Tensor:
        calls.append(how)
        return kernel(*tensors, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    found = attention.attend(q, k, v, AttentionBias(bias), 0.3)
    assert bool(calls) == (queries > attention.FEW_QUERIES or groups == 1)
    monkeypatch.setattr(attention, "FEW_QUERIES", 0)
    assert torch.allclose(found, attention.attend(q, k, v, AttentionBias(bias), 0.3), atol=1e-6)
