"""Long sequences by tiles: outputs and gradients are those of all pairs with the pattern as a mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from headway.config.model import (
    LMHeadConfig,
    ModelConfig,
    PositionConfig,
    RelativeConfig,
    RopeConfig,
    SparseConfig,
    StackConfig,
    TokensConfig,
)
from headway.kernels.sparse import choice, gathered, tiles
from headway.model.masks import Layout, long_attention_bias
from headway.model.model import Transformer, evaluating
from headway.model.stack import Stack

BASE = StackConfig(d_model=32, n_layers=2, n_heads=2, d_ff=16)
PATTERNS: dict[str, dict[str, Any]] = {
    "window": dict(window=20),
    "wide window": dict(window=150),
    "random": dict(sparse=SparseConfig(block=16, random=2, seed=1)),
    "small blocks": dict(sparse=SparseConfig(block=5, random=1, seed=1)),
    "tiles are blocks": dict(sparse=SparseConfig(block=32, random=1, seed=3)),
    "first block counts more": dict(sparse=SparseConfig(block=16, random=2)),
}
POSITIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "alibi": dict(alibi=True),
    "relative": dict(relative=RelativeConfig()),
    "rope and groups": dict(rope=RopeConfig(), n_kv_heads=1),
}


def masks(length: int) -> dict[str, Tensor | None]:
    left, right, holes = (torch.ones(2, length, dtype=torch.bool) for _ in range(3))
    left[1, : length // 3] = False
    right[1, -length // 3 :] = False
    holes[0, length // 4 : length // 2 : 2] = False
    packed = torch.ones(2, length, dtype=torch.long)
    packed[0, length // 2 :] = packed[1, length // 5 :] = 2
    packed[1, length // 4 :] = 3
    packed[1, -length // 6 :] = 0
    return {"none": None, "left": left, "right": right, "packed": packed, "holes": holes}


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """All sequences are long; which kernels were used."""
    used: list[str] = []

    def counted(name: str, real: Any) -> Any:
        return lambda *given: (used.append(name), real(*given))[1]

    monkeypatch.setattr(tiles, "LONG", 0)
    monkeypatch.setattr(choice, "gathered_attention", counted("gathered", choice.gathered_attention))
    monkeypatch.setattr(choice, "make_flex", counted("flex", choice.make_flex))
    yield used


def gradients(stack: Stack, x: Tensor, mask: Tensor | None, backend: str) -> list[Tensor]:
    """Outputs of real tokens, and what a weighted sum of them gives as gradients."""
    x = x.clone().requires_grad_()
    stack.zero_grad()
    y = stack(x, Layout.of(x.shape[1], mask, x.device), backend=backend)
    y = y if mask is None else y * (mask != 0)[..., None]
    weights = torch.linspace(-1, 1, y.numel()).view_as(y)
    (y * weights).sum().backward()
    assert x.grad is not None
    return [y.detach(), x.grad, *(p.grad.clone() for p in stack.parameters() if p.grad is not None)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("positions", POSITIONS)
def test_tiles_are_all_pairs_with_a_mask(causal: bool, pattern: str, positions: str, long: list[str]) -> None:
    stack = Stack(replace(BASE, causal=causal, **PATTERNS[pattern], **POSITIONS[positions]))
    for length in (333, 7):
        x = torch.randn(2, length, 32)
        for kind, mask in masks(length).items():
            long.clear()
            found, expected = (gradients(stack, x, mask, backend) for backend in ("fused", "eager"))
            assert long == ["gathered"] * 2
            for ours, theirs in zip(found, expected, strict=True):
                worst, largest = float((ours - theirs).abs().max()), float(theirs.abs().max())
                assert worst <= 2e-5 * max(1.0, largest), f"{kind}, {length} tokens: {worst} of {largest}"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_row_of_a_batch_is_that_row_alone(pattern: str, long: list[str]) -> None:
    stack = Stack(replace(BASE, **PATTERNS[pattern], alibi=True)).eval()
    x, (left, right) = torch.randn(2, 300, 32), (masks(300)[side] for side in ("left", "right"))
    assert left is not None and right is not None
    alone = stack(x[1:, :200], Layout.of(200, None, x.device))
    moved = torch.cat([x[1:, :100], x[1:, :200]], 1)
    batch = stack(torch.cat([x[:1], moved]), Layout.of(300, left, x.device))
    torch.testing.assert_close(batch[1:, 100:], alone, atol=1e-5, rtol=1e-4)
    batch = stack(x, Layout.of(300, right, x.device))
    torch.testing.assert_close(batch[1:, :200], alone, atol=1e-5, rtol=1e-4)


def test_half_precision(long: list[str]) -> None:
    stack = Stack(replace(BASE, causal=True, **PATTERNS["random"])).bfloat16()
    x = torch.randn(2, 333, 32).bfloat16()
    for ours, theirs in zip(*(gradients(stack, x, None, backend) for backend in ("fused", "eager")), strict=True):
        assert ours.dtype == torch.bfloat16
        assert float((ours - theirs).abs().max()) <= 0.03 * float(theirs.abs().max())


def test_dropout_drops_weights_the_same_forwards_and_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kept weights known, the formula by hand gives the same outputs and gradients."""
    config = replace(BASE, n_heads=1, window=9, causal=True)
    layout = Layout.of(50, None, torch.device("cpu"))
    bias = long_attention_bias(config, None, layout, 1, 0.5)
    kept: list[Tensor] = []
    real = gathered._dropped

    def record(weights: Tensor, dropout: float, seed: int) -> Tensor:
        kept.append(real(torch.ones_like(weights), dropout, seed))
        return real(weights, dropout, seed)

    monkeypatch.setattr(gathered, "_dropped", record)
    q, k, v = (torch.randn(1, 1, 50, 8, requires_grad=True) for _ in range(3))
    assert bias.kernel is not None
    out = bias.kernel(q, k, v, 0.3, 0.5)
    out.square().sum().backward()
    assert torch.equal(kept[0], kept[1]) and torch.equal(kept[0], kept[2])
    assert 0.4 < float((kept[0] == 0).float().mean()) < 0.6 and set(kept[0].unique().tolist()) == {0.0, 2.0}
    found = [x.grad for x in (q, k, v)]
    for x in (q, k, v):
        x.grad = None
    rows = torch.arange(50)
    seen = (rows[:, None] - rows >= 0) & (rows[:, None] - rows < 9)
    scores = (q @ k.mT * 0.3)[0, 0].masked_fill(~seen, -torch.inf)
    expected = (scores.softmax(-1) * kept[0][0, 0, 0, :50, :50]) @ v
    expected.square().sum().backward()
    torch.testing.assert_close(out, expected)
    for ours, x in zip(found, (q, k, v), strict=True):
        torch.testing.assert_close(ours, x.grad)


def test_a_short_sequence_takes_torch_s_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(BASE, causal=True, window=64)
    least = tiles.long_from(config, torch.device("cpu"))
    assert least is not None and 64 < least < 64 * 16
    calls: list[int] = []
    real = choice.gathered_attention
    monkeypatch.setattr(choice, "gathered_attention", lambda *given: (calls.append(1), real(*given))[1])
    for length, used in ((least - 1, 0), (least, 2)):
        Stack(config)(torch.randn(1, length, 32), Layout.of(length, None, torch.device("cpu")))
        assert len(calls) == used
    assert tiles.long_from(BASE, torch.device("cpu")) is None


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation returns."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else [found]:
            if isinstance(each, Tensor):
                self.elements = max(self.elements, each.numel())
        return found


@pytest.mark.parametrize("fields", [*POSITIONS.values(), dict(causal=False)], ids=[*POSITIONS, "encoder"])
def test_training_on_long_sequences_makes_no_square(fields: dict[str, Any]) -> None:
    """A step on 16,384 tokens: no tensor has a tenth of the elements of a mask, and twice the length needs twice that.

    The dense way is seen to make a square, at a length where it can be afforded.
    """
    config = replace(BASE, n_layers=1, **dict(causal=True) | fields, sparse=SparseConfig(block=64, random=1, seed=0))
    front, side = (
        TokensConfig(vocab=9, positions=PositionConfig(kind="none")),
        "decoder" if config.causal else "encoder",
    )
    parts: dict[str, Any] = {side: config, "target" if config.causal else "source": front}
    model = Transformer(ModelConfig(**parts, lm=LMHeadConfig()))

    def largest(length: int, backend: Any = "fused") -> int:
        with Largest() as seen:
            hidden = model(torch.randint(0, 9, (1, length)), backend=backend).hidden
            model.lm(hidden).square().mean().backward()
        return seen.elements

    assert largest(2048, "eager") >= 2048**2
    half, whole = largest(8192), largest(16384)
    assert whole < 16384**2 / 10
    assert whole <= 2.1 * half


def test_a_cache_sees_the_pattern_row_by_row(long: list[str]) -> None:
    config = replace(BASE, causal=True, rope=RopeConfig(), sparse=SparseConfig(block=8, random=2, seed=0))
    front = TokensConfig(vocab=23, positions=PositionConfig(kind="none", length=256))
    model = Transformer(ModelConfig(decoder=config, target=front, lm=LMHeadConfig()))
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    ids, mask = torch.randint(0, 23, (2, 150)), torch.ones(2, 150, dtype=torch.bool)
    mask[0, :9] = False
    with evaluating(model):
        whole = model.lm(model(ids, attention_mask=mask).hidden)
        cache = model.start(batch=2, capacity=150)
        parts = [
            model.extend(cache, ids[:, a:b], mask[:, a:b]) for a, b in ((0, 100), (100, 101), (101, 149), (149, 150))
        ]
    assert long == ["gathered"] * 4
    found = model.lm(torch.cat(parts, 1))
    torch.testing.assert_close(found[mask], whole[mask], atol=1e-5, rtol=1e-4)


def test_compiled_is_eager(long: list[str]) -> None:
    stack = Stack(replace(BASE, causal=True, **PATTERNS["random"]))
    x = torch.randn(1, 100, 32)
    layout = Layout.of(100, None, x.device)
    compiled = torch.compile(stack, backend="eager")
    torch.testing.assert_close(compiled(x, layout), stack(x, layout))
    assert "gathered" in long
