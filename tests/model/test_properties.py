"""What must hold for every attention, whatever the numbers: the lectures' statements as properties."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.config.model import RelativeConfig, RopeConfig, SparseConfig, StackConfig
from headway.model.attention import AttentionBias, attend, attention_weights, parameter_free_attention
from headway.model.masks import Layout, self_attention_bias
from headway.model.positions import (
    RelativeBias,
    alibi_slopes,
    rotary_angles,
    rotate,
    sinusoidal,
    token_positions,
)
from headway.model.stack import Stack

sizes = st.integers(1, 9)


def stack(seed: int = 0, **fields: object) -> Stack:
    torch.manual_seed(seed)
    base = dict(d_model=16, n_layers=2, n_heads=4, d_ff=32)
    made = Stack(StackConfig(**{**base, **fields})).eval()  # type: ignore[arg-type]
    for parameter in made.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return made


def run(module: Stack, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return module(x, Layout.of(x.shape[1], None, x.device))


@given(sizes, sizes, st.booleans())
def test_attention_rows_sum_to_one(queries: int, keys: int, masked: bool) -> None:
    q, k = torch.randn(2, 3, queries, 8), torch.randn(2, 3, keys, 8)
    visible = torch.rand(2, 1, queries, keys) < 0.5
    visible[..., 0] = True
    weights = attention_weights(q, k, AttentionBias(tensor=visible if masked else None))
    assert bool((weights >= 0).all())
    assert torch.allclose(weights.sum(-1), torch.ones(2, 3, queries), atol=1e-6)
    if masked:
        assert float(weights.masked_fill(visible, 0).abs().max()) == 0


@given(sizes, sizes, st.sampled_from([1, 2, 4]), st.booleans())
def test_fused_equals_eager(queries: int, keys: int, groups: int, bias: bool) -> None:
    q, k, v = torch.randn(2, 4, queries, 8), torch.randn(2, groups, keys, 8), torch.randn(2, groups, keys, 8)
    extra = torch.randn(1, 4, queries, keys) if bias else None
    fused, eager = (attend(q, k, v, AttentionBias(tensor=extra, backend=b), 0.3) for b in ("fused", "eager"))
    assert torch.allclose(fused, eager, atol=1e-5)


def test_the_causal_flag_is_the_causal_mask() -> None:
    q, k, v = torch.randn(3, 1, 2, 6, 8).unbind(0)
    mask = torch.ones(6, 6, dtype=torch.bool).tril()[None, None]
    assert torch.allclose(
        attend(q, k, v, AttentionBias(causal=True)), attend(q, k, v, AttentionBias(tensor=mask)), atol=1e-6
    )


def test_parameter_free_attention_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    near = math.e / (math.e + 1)
    expected = torch.tensor([[near, 1 - near], [1 - near, near]])
    assert torch.allclose(parameter_free_attention(x), expected)


@given(
    st.permutations(range(6)),
    st.sampled_from(["layernorm", "rmsnorm", "dyt"]),
    st.sampled_from(["pre", "post"]),
)
@settings(max_examples=30)
def test_without_positions_a_stack_is_equivariant(order: list[int], norm: str, at: str) -> None:
    module, x = stack(norm=norm, norm_at=at), torch.randn(1, 6, 16)
    assert torch.allclose(run(module, x)[:, order], run(module, x[:, order]), atol=1e-5)


def test_with_positions_it_is_not() -> None:
    for fields in (dict(rope=RopeConfig()), dict(alibi=True), dict(relative=RelativeConfig())):
        module, x = stack(**fields), torch.randn(1, 6, 16)
        order = [1, 0, 3, 5, 2, 4]  # not the reverse: ALiBi looks the same both ways
        assert not torch.allclose(run(module, x)[:, order], run(module, x[:, order]), atol=1e-3)


CAUSAL = [
    {},
    {"rope": RopeConfig()},
    {"alibi": True},
    {"relative": RelativeConfig()},
    {"window": 3},
    {"sparse": SparseConfig(block=1, random=1, seed=0)},
    {"n_kv_heads": 1},
]


@given(st.integers(1, 7), st.sampled_from(CAUSAL))
@settings(max_examples=40)
def test_a_later_token_never_changes_an_earlier_output(at: int, fields: dict[str, object]) -> None:
    module, x = stack(causal=True, **fields), torch.randn(1, 8, 16)
    changed = x.clone()
    changed[:, at:] = torch.randn(1, 8 - at, 16)
    a, b = run(module, x), run(module, changed)
    assert torch.equal(a[:, :at], b[:, :at])
    assert not torch.allclose(a[:, at:], b[:, at:])


@given(
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 1000),
    st.sampled_from(["none", "linear", "llama3"]),
)
def test_rotary_depends_on_the_distance_alone(a: int, b: int, shift: int, scaling: str) -> None:
    config = RopeConfig(scaling=scaling, factor=4.0, original_length=64)  # type: ignore[arg-type]
    q, k = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64).unbind(0)

    def score(i: int, j: int) -> float:
        turned = [
            rotate(x, tuple(t.double() for t in rotary_angles(config, 16, torch.tensor([[p]]))))  # type: ignore[arg-type]
            for x, p in ((q, i), (k, j))
        ]
        return float((turned[0] * turned[1]).sum())

    assert score(a, b) == pytest.approx(score(a + shift, b + shift), abs=2e-3)


@given(st.integers(1, 30), st.sampled_from(["interleaved", "halves"]))
def test_a_sinusoidal_shift_is_linear(shift: int, layout: str) -> None:
    """One matrix takes the encoding at n to that at n + shift, for every n."""
    table = sinusoidal(torch.arange(200), 16, layout).double()
    if layout == "halves":
        table = table.unflatten(-1, (2, 8)).transpose(-1, -2).flatten(-2)
    turns = shift * 10_000 ** (-torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    cos, sin = turns.cos(), turns.sin()
    matrix = torch.block_diag(*(torch.tensor([[c, -s], [s, c]]) for c, s in zip(cos, sin, strict=True)))
    assert float((table[:170] @ matrix - table[shift : 170 + shift]).abs().max()) < 1e-6
    assert float(table.abs().max()) <= 1.0


def test_sinusoidal_by_the_formula() -> None:
    table = sinusoidal(torch.tensor([3]), 6)[0]
    for i in range(6):
        wave = math.sin if i % 2 == 0 else math.cos
        assert float(table[i]) == pytest.approx(wave(3 / 10_000 ** ((i - i % 2) / 6)), abs=1e-7)


def test_positions_come_from_the_mask() -> None:
    attention_mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 1, 0, 1]]).bool()
    assert token_positions(attention_mask).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [0, 0, 1, 1, 2]]
    packed = torch.tensor([[1, 1, 2, 2, 2, 3, 0], [0, 1, 2, 2, 0, 2, 3]])
    assert token_positions(packed).tolist() == [[0, 1, 0, 1, 2, 0, 0], [0, 0, 0, 1, 1, 2, 0]]


def test_alibi_slopes_of_the_paper() -> None:
    assert alibi_slopes(8) == [2**-i for i in range(1, 9)]
    assert alibi_slopes(12) == alibi_slopes(8) + [2 ** -(i + 0.5) for i in range(4)]


@given(st.integers(1, 2000), st.booleans())
def test_relative_buckets_are_in_range_and_monotone(distance: int, causal: bool) -> None:
    bias = RelativeBias(RelativeConfig(), 2, causal)
    near, far = bias.bucket(torch.tensor([-distance, -distance - 1])).tolist()
    assert 0 <= near <= far < 32
    assert int(bias.bucket(torch.tensor(-1))) == 1
    assert (int(bias.bucket(torch.tensor(5))) == 0) is causal


@given(st.integers(1, 12), st.integers(1, 6), st.booleans())
def test_a_window_is_as_wide_as_it_says(length: int, window: int, causal: bool) -> None:
    config = StackConfig(d_model=4, n_layers=1, n_heads=1, d_ff=4, window=window, causal=causal)
    layout = Layout.of(length, None, torch.device("cpu"))
    bias = self_attention_bias(config, None, layout, layout, "fused").tensor
    assert bias is not None
    for i in range(length):
        expected = [j for j in range(length) if abs(i - j) < window and (j <= i or not causal)]
        assert bias[0, 0, i].nonzero().flatten().tolist() == expected


def test_post_and_pre_norm_as_written() -> None:
    """post: LN(x + f(x)); pre: x + f(LN(x)); without residual: what is left of each."""
    x = torch.randn(1, 3, 16)
    for at in ("pre", "post"):
        for residual in (True, False):
            module = stack(n_layers=1, norm_at=at, residual=residual, final_norm=False)
            assert torch.allclose(run(module, x), by_hand(module.blocks[0], x, at, residual), atol=1e-6)


@torch.no_grad()
def by_hand(block: Any, x: torch.Tensor, at: str, residual: bool) -> torch.Tensor:
    branches = ((block.residual1, lambda t: block.attention(t, AttentionBias())), (block.residual2, block.ffn))
    for step, branch in branches:
        stream = x if residual else 0
        x = stream + branch(step.norm(x)) if at == "pre" else step.norm(stream + branch(x))
    return x
