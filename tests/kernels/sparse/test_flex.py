"""FlexAttention over tiles: its block mask and its outputs against the formula; on a GPU its gradients too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.config.model import LMHeadConfig, ModelConfig, PositionConfig, RopeConfig, SparseConfig, StackConfig
from headway.config.model import TokensConfig as Tokens
from headway.kernels.sparse import choice, tiles
from headway.kernels.sparse.flex import flex_over_bias
from headway.kernels.sparse.pattern import Seen
from headway.model.attention import AttentionBias, attend
from headway.model.masks import Layout, long_attention_bias, self_attention_bias
from headway.model.model import Transformer
from headway.model.stack import Stack

BASE = StackConfig(d_model=32, n_layers=1, n_heads=2, d_ff=16)
PATTERNS: dict[str, dict[str, Any]] = {
    "window": dict(window=20),
    "wide window": dict(window=150),
    "random": dict(sparse=SparseConfig(block=16, random=2, seed=1)),
    "tiles are blocks": dict(sparse=SparseConfig(block=32, random=1, seed=3)),
    "first block counts more": dict(sparse=SparseConfig(block=16, random=2)),
    "alibi": dict(window=30, alibi=True),
}
uncompiled = pytest.mark.filterwarnings("ignore:flex_attention called without")


def masks(length: int) -> dict[str, Tensor | None]:
    left, right = (torch.ones(2, length, dtype=torch.bool) for _ in range(2))
    left[1, : length // 3] = False
    right[1, -length // 3 :] = False
    packed = torch.ones(2, length, dtype=torch.long)
    packed[0, length // 2 :] = packed[1, length // 5 :] = 2
    packed[1, -length // 6 :] = 0
    return {"none": None, "left": left, "right": right, "packed": packed}


@pytest.fixture
def flex(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sequences are long, and every device has FlexAttention."""
    monkeypatch.setattr(tiles, "LONG", 0)
    monkeypatch.setattr(tiles, "FLEX_TOKENS", 0)
    monkeypatch.setattr(choice, "FLEX_DEVICES", ("cpu", "cuda"))


def dense(config: StackConfig, layout: Layout) -> Tensor:
    """(B, T, T): the visible pairs by the definition."""
    bias = self_attention_bias(config, None, layout, layout, "eager").tensor
    assert bias is not None
    return (bias if bias.dtype == torch.bool else bias > -torch.inf)[:, 0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_block_mask_is_the_dense_mask(pattern: str, causal: bool, flex: None) -> None:
    """Every visible pair is in a tile that is computed, full tiles have no hidden pair, and the function says which."""
    config = replace(BASE, causal=causal, **PATTERNS[pattern])
    for length in (333, 384, 7):
        for mask in masks(length).values():
            layout = Layout.of(length, mask, torch.device("cpu"))
            kernel: Any = long_attention_bias(config, None, layout, 2, 0.0).kernel
            blocks, expected = kernel.args[0], dense(config, layout)
            rows = torch.arange(len(expected))[:, None, None]
            index = torch.arange(length)
            found = blocks.mask_mod(rows, None, index[:, None], index)
            real = torch.ones(len(expected), length, dtype=torch.bool) if mask is None else mask != 0
            assert torch.equal((found & real[:, :, None]).expand_as(expected), expected & real[:, :, None])
            size, count = blocks.BLOCK_SIZE[0], -(-length // blocks.BLOCK_SIZE[0])
            part, full = torch.zeros(2, len(expected), count, count, dtype=torch.bool).unbind()
            for seen, numbers, order in (
                (part, blocks.kv_num_blocks, blocks.kv_indices),
                (full, blocks.full_kv_num_blocks, blocks.full_kv_indices),
            ):
                for b in range(len(expected)):
                    for i in range(count):
                        seen[b, i, order[b, 0, i, : numbers[b, 0, i]]] = True
            assert not bool((part & full).any())
            spread = (part | full).repeat_interleave(size, 1).repeat_interleave(size, 2)[:, :length, :length]
            assert not bool((expected & real[:, :, None] & ~spread).any())
            whole = full.repeat_interleave(size, 1).repeat_interleave(size, 2)
            assert not bool(whole[:, length:].any()) and not bool(whole[:, :, length:].any())
            assert not bool((whole[:, :length, :length] & ~expected).any())


@pytest.mark.parametrize(("causal", "pattern"), [(False, "random"), (True, "tiles are blocks"), (True, "window")])
def test_most_tiles_are_never_computed(causal: bool, pattern: str) -> None:
    config = replace(BASE, causal=causal, **PATTERNS[pattern])
    layout = Layout.of(4096, None, torch.device("cpu"))
    seen = Seen.of(config, layout.positions, None)
    assert seen is not None
    found = tiles.Tiles.of(seen.ranges, layout.positions, None, tiles.tile_size(config))
    assert float(found.seen.float().mean()) < 0.25
    if pattern == "tiles are blocks":
        assert found.full is not None and int(found.full.sum()) > 0


@uncompiled
@torch.no_grad()  # FlexAttention has no backward pass on a CPU
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", ["wide window", "tiles are blocks", "first block counts more", "alibi"])
def test_flex_is_the_formula(pattern: str, causal: bool, flex: None) -> None:
    stack = Stack(replace(BASE, causal=causal, **PATTERNS[pattern])).eval()
    for length, kind in ((150, "none"), (150, "packed"), (7, "left")):
        x, mask = torch.randn(2, length, 32), masks(length)[kind]
        layout = Layout.of(length, mask, x.device)
        real = torch.ones(2, length, dtype=torch.bool) if mask is None else mask != 0
        found, expected = (stack(x, layout, backend=backend)[real] for backend in ("fused", "eager"))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@uncompiled
@torch.no_grad()
def test_a_bias_of_all_pairs_is_the_formula() -> None:
    q, k, v = torch.randn(3, 2, 4, 150, 16).unbind()
    seen = torch.rand(2, 1, 150, 150) < 0.05
    seen[:, :, 64:, :64] = False
    bias = torch.randn(2, 4, 150, 150).masked_fill(~(seen | torch.eye(150, dtype=torch.bool)), -torch.inf)
    found = attend(q, k, v, AttentionBias(kernel=flex_over_bias(bias, 32)), 0.3)
    torch.testing.assert_close(found, attend(q, k, v, AttentionBias(bias, backend="eager"), 0.3), atol=1e-5, rtol=1e-4)


@uncompiled
def test_what_flex_cannot_do_takes_gathered_tiles(flex: None) -> None:
    layout = Layout.of(70, None, torch.device("cpu"))
    config = replace(BASE, window=9)
    for able, wanted, dropout in (
        (True, config, 0.0),
        (False, config, 0.1),
        (False, replace(config, n_heads=1, d_head=12), 0.0),
    ):
        kernel: Any = long_attention_bias(wanted, None, layout, 1, dropout).kernel
        assert (kernel.func.__name__ == "flex_attention_over") is able


@uncompiled
def test_compiled_steps_take_the_block_mask(flex: None) -> None:
    """Dynamo sees through it: the whole model is compiled, and gives what it gives uncompiled."""
    stack = Stack(replace(BASE, causal=True, **PATTERNS["random"])).eval()
    x, layout = torch.randn(1, 150, 32), Layout.of(150, None, torch.device("cpu"))
    with torch.no_grad():
        compiled = torch.compile(stack, backend="eager")
        torch.testing.assert_close(compiled(x, layout), stack(x, layout))


def model_of(**fields: Any) -> Transformer:
    config = StackConfig(d_model=256, n_layers=2, n_heads=4, d_ff=256, causal=True, **fields)
    front = Tokens(vocab=50, positions=PositionConfig(kind="none"))
    return Transformer(ModelConfig(decoder=config, target=front, lm=LMHeadConfig()))


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("pattern", ["wide window", "random", "tiles are blocks", "first block counts more", "alibi"])
def test_a_step_on_a_gpu_is_the_formula_s(pattern: str, compiled: bool) -> None:
    """Outputs and gradients of long rows, compiled and not, with and without packing."""
    model = model_of(**{"rope": RopeConfig()} | PATTERNS[pattern]).cuda()
    ids = torch.randint(0, 50, (2, 4100), device="cuda")
    packed = torch.ones_like(ids)
    packed[1, 1500:] = 2
    step = torch.compile(model) if compiled else model
    for mask in (None, packed):
        found = []
        for run, backend in ((step, "fused"), (model, "eager")):
            model.zero_grad()
            hidden = run(ids, attention_mask=mask, backend=backend).hidden
            hidden.square().sum().backward()
            found.append([hidden.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
        for ours, theirs in zip(*found, strict=True):
            assert float((ours - theirs).abs().max()) <= 1e-3 * max(1.0, float(theirs.abs().max()))


@pytest.mark.gpu
def test_a_step_on_a_gpu_makes_no_square() -> None:
    """A step on 65,536 tokens in bfloat16 takes less memory than one mask of all pairs."""
    model = model_of(sparse=SparseConfig(block=64, random=3, seed=0)).cuda()
    torch.cuda.reset_peak_memory_stats()
    with torch.autocast("cuda", torch.bfloat16):
        hidden = torch.compile(model)(torch.randint(0, 50, (1, 65536), device="cuda")).hidden
    hidden.float().square().mean().backward()
    assert torch.cuda.max_memory_allocated() < 65536**2
