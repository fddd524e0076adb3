"""What a block can have beside the plain one: each field against its definition, and off by default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.model import (
    ExpertsConfig,
    LayerConfig,
    LMHeadConfig,
    ModelConfig,
    PositionConfig,
    RopeConfig,
    StackConfig,
    TokensConfig,
)
from headway.config.networks.kinds import AnyConfig
from headway.config.toml import build, to_dict
from headway.model.attention import Attention
from headway.model.feed_forward import balance_loss
from headway.model.masks import Layout
from headway.model.model import Transformer
from headway.model.norms import RMSNorm
from headway.model.quantize import quantize_
from headway.model.stack import Block, Stack

PLAIN = StackConfig(d_model=16, n_layers=3, n_heads=4, d_ff=24, n_kv_heads=2, causal=True, norm="rmsnorm")
LOCAL, GLOBAL = LayerConfig(window=3, rope=RopeConfig(theta=100.0)), LayerConfig(rope=RopeConfig())
EXPERTS = ExpertsConfig(count=4, top_k=2, d_ff=12)


def made(cls: Any, config: StackConfig, *rest: Any) -> Any:
    torch.manual_seed(0)
    module = cls(config, *rest)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return module


def x_of(length: int = 9) -> Tensor:
    return torch.randn(2, length, 16, generator=torch.Generator().manual_seed(1))


def read(stack: Stack, x: Tensor, **more: Any) -> Tensor:
    found: Tensor = stack(x, Layout.of(x.shape[1], None, x.device), **more)
    return found


def branches(block: Block, x: Tensor) -> tuple[Any, Any]:
    """Attention and feed-forward network of a block, for texts of the length of x."""
    from headway.model.masks import self_attention_bias

    layout = Layout.of(x.shape[1], None, x.device)
    bias = self_attention_bias(PLAIN, None, layout, layout, "eager")
    return (lambda y: block.attention(y, bias)), block.ffn


def run(block: Block, x: Tensor) -> Tensor:
    from headway.model.masks import self_attention_bias

    layout = Layout.of(x.shape[1], None, x.device)
    found: Tensor = block(x, self_attention_bias(PLAIN, None, layout, layout, "eager"))
    return found


# --- where norms are, and what a branch adds --------------------------------------------------------------------------


def sandwich(block: Block, x: Tensor) -> Tensor:
    f, g = branches(block, x)
    first, second = block.residual1, block.residual2
    y = x + first.after(f(first.norm(x)))  # type: ignore[misc]
    return y + second.after(g(second.norm(y)))  # type: ignore[no-any-return, misc]


def branch(block: Block, x: Tensor) -> Tensor:
    f, g = branches(block, x)
    y = x + block.residual1.norm(f(x))  # type: ignore[misc]
    return y + block.residual2.norm(g(y))  # type: ignore[no-any-return, misc]


def two(block: Block, x: Tensor) -> Tensor:
    f, g = branches(block, x)
    return x + f(block.residual1.norm(x)) + g(block.residual2.norm(x))  # type: ignore[no-any-return, misc]


def one(block: Block, x: Tensor) -> Tensor:
    f, g = branches(block, x)
    y = block.residual1.norm(x)  # type: ignore[misc]
    return x + f(y) + g(y)  # type: ignore[no-any-return]


def scaled(block: Block, x: Tensor) -> Tensor:
    f, g = branches(block, x)
    y = x + 0.25 * f(block.residual1.norm(x))  # type: ignore[misc]
    return y + 0.25 * g(block.residual2.norm(y))  # type: ignore[no-any-return, misc]


def unnormed(block: Block, x: Tensor) -> Tensor:
    f, g = branches(block, x)
    y = x + f(x)
    return y + g(block.residual2.norm(y))  # type: ignore[no-any-return, misc]


@pytest.mark.parametrize(
    ("fields", "expected", "norms"),
    [
        ({"norm_at": "sandwich"}, sandwich, 4),
        ({"norm_at": "branch"}, branch, 2),
        ({"parallel": "two"}, two, 2),
        ({"parallel": "one"}, one, 1),
        ({"residual_scale": 0.25}, scaled, 2),
        ({"first_norm": False}, unnormed, 1),
    ],
)
def test_branches_and_norms_are_where_the_config_says(fields: Any, expected: Any, norms: int) -> None:
    block = made(Block, replace(PLAIN, **fields))
    assert sum(isinstance(part, RMSNorm) for part in block.modules()) == norms
    torch.testing.assert_close(run(block, x_of()), expected(block, x_of()))
    plain = made(Block, PLAIN)
    plain.load_state_dict(block.state_dict(), strict=False)
    assert not torch.allclose(run(plain, x_of()), expected(block, x_of()), atol=1e-2)


def test_only_the_first_block_has_no_norm() -> None:
    stack = made(Stack, replace(PLAIN, first_norm=False))
    assert [block.residual1.norm is None for block in stack.blocks] == [True, False, False]


# --- attention --------------------------------------------------------------------------------------------------------


def explicit(attention: Attention, x: Tensor, softcap: float | None = None) -> Tensor:
    """Attention by its formula, head by head."""
    q, k, v = attention.qkv(x).split([16, 8, 8], -1)
    if attention.whole:
        q, k = attention.q_norm(q), attention.k_norm(k)
    found = []
    for head in range(4):
        own, group = slice(4 * head, 4 * head + 4), slice(4 * (head // 2), 4 * (head // 2) + 4)
        query, key = q[..., own], k[..., group]
        if hasattr(attention, "q_norm") and not attention.whole:
            query, key = attention.q_norm(query), attention.k_norm(key)
        scores = query @ key.transpose(1, 2) / 2
        scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        found.append(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v[..., group])
    return attention.out(torch.cat(found, -1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("backend", ["fused", "eager"])
@pytest.mark.parametrize("fields", [{"qk_norm": "head"}, {"qk_norm": "whole"}, {"softcap": 0.7}, {}])
def test_queries_and_keys_are_normalised_and_scores_bounded(fields: dict[str, Any], backend: Any) -> None:
    from headway.model.masks import self_attention_bias

    config = replace(PLAIN, **fields)
    attention, layout = made(Attention, config), Layout.of(9, None, torch.device("cpu"))
    bias = self_attention_bias(config, None, layout, layout, backend)
    expected = explicit(attention, x_of(), config.softcap)
    torch.testing.assert_close(attention(x_of(), bias), expected)
    if fields:
        without = explicit(made(Attention, PLAIN), x_of())
        assert not torch.allclose(expected, without, atol=1e-3)


def test_a_softcap_holds_for_maps_padding_and_one_query() -> None:
    """A padded batch has a mask in place of the causal flag; one query has neither."""
    config = replace(PLAIN, softcap=0.5, n_layers=1)
    stack, x = made(Stack, config).requires_grad_(False), x_of()
    whole = read(stack, x)
    maps: dict[str, Tensor] = {}
    read(stack, x, hook=lambda name, make: maps.update({name: make()}) if name.endswith("weights") else None)
    weights = maps["blocks.0.attention.weights"]
    assert float((weights / weights.roll(1, -1))[..., -1, 1:].max()) <= 2.72  # scores differ by 2 · 0.5 at most
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[:, 7:] = False
    found = stack(x, Layout.of(9, mask, x.device))
    torch.testing.assert_close(found[:, :7], whole[:, :7])


def test_a_long_window_with_a_softcap_takes_the_formula() -> None:
    config = replace(PLAIN, window=4, softcap=0.5, n_layers=1)
    stack, x = made(Stack, config), x_of(600)
    torch.testing.assert_close(read(stack, x), read(stack, x, backend="eager"))


# --- blocks that differ -----------------------------------------------------------------------------------------------


def test_blocks_take_the_windows_and_rotary_positions_of_the_pattern_in_turn() -> None:
    stack = made(Stack, replace(PLAIN, pattern=(LOCAL, GLOBAL)))
    x = x_of()
    for number, block in enumerate(stack.blocks):
        own = (LOCAL, GLOBAL, LOCAL)[number]
        single = made(Stack, replace(PLAIN, n_layers=1, final_norm=False, window=own.window, rope=own.rope))
        single.blocks[0].load_state_dict(block.state_dict())
        x = read(single, x)
    torch.testing.assert_close(read(stack, x_of()), stack.norm(x))
    other = made(Stack, replace(PLAIN, pattern=(GLOBAL, LOCAL)))
    assert not torch.allclose(read(other, x_of()), read(stack, x_of()), atol=1e-3)


def test_long_sequences_of_a_pattern_take_kernels_of_their_own() -> None:
    stack = made(Stack, replace(PLAIN, pattern=(LayerConfig(window=4), LayerConfig())))
    torch.testing.assert_close(read(stack, x_of(400)), read(stack, x_of(400), backend="eager"))


def test_blocks_share_all_weights() -> None:
    stack = made(Stack, replace(PLAIN, shared=True))
    assert len(stack.blocks) == 3 and len({id(block) for block in stack.blocks}) == 1
    assert len(list(stack.parameters())) == len(list(stack.blocks[0].parameters())) + 1
    x = x_of()
    for _ in range(3):
        x = run(stack.blocks[0], x)
    torch.testing.assert_close(read(stack, x_of()), stack.norm(x))


# --- experts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "experts",
    [
        EXPERTS,
        replace(EXPERTS, normalised=False),
        replace(EXPERTS, top_k=4),
        replace(EXPERTS, shared=6),
        replace(EXPERTS, shared=6, shared_gate=True),
    ],
)
@pytest.mark.parametrize("gated", [False, True])
def test_tokens_go_through_the_experts_of_the_largest_probabilities(experts: ExpertsConfig, gated: bool) -> None:
    ffn = made(Block, replace(PLAIN, experts=experts, gated=gated)).ffn
    x, up, down = x_of(), ffn.up.weight.view(4, -1, 16), ffn.down.weight.view(4, 16, 12)
    expected = torch.zeros_like(x)
    for row in range(2):
        for place in range(9):
            token = x[row, place]
            chances = ffn.router(token).softmax(-1)
            best = chances.argsort(descending=True)[: experts.top_k]
            total = chances[best].sum() if experts.normalised else 1.0
            for expert in best.tolist():
                hidden = up[expert] @ token
                hidden = F.gelu(hidden[:12]) * hidden[12:] if gated else F.gelu(hidden)
                expected[row, place] += chances[expert] / total * (down[expert] @ hidden)
            if experts.shared:
                factor = torch.sigmoid(ffn.shared_gate(token)) if experts.shared_gate else 1.0
                expected[row, place] += factor * ffn.shared(token)
    torch.testing.assert_close(ffn(x), expected)
    torch.testing.assert_close(ffn.one_by_one(x), expected)


def test_gradients_of_sorted_tokens_are_those_of_the_definition() -> None:
    ffn = made(Block, replace(PLAIN, experts=EXPERTS, gated=True)).ffn
    found = []
    for way in (ffn, ffn.one_by_one):
        ffn.zero_grad()
        way(x_of()).square().sum().backward()
        found.append([parameter.grad.clone() for parameter in ffn.parameters()])
    torch.testing.assert_close(*found)


def test_a_dense_block_has_a_plain_network() -> None:
    stack = made(Stack, replace(PLAIN, experts=EXPERTS, pattern=(LayerConfig(dense=True), LayerConfig())))
    assert [type(block.ffn).__name__ for block in stack.blocks] == ["FeedForward", "Experts", "FeedForward"]


def mixture(pattern: tuple[LayerConfig, ...] = ()) -> Transformer:
    torch.manual_seed(0)
    return Transformer(
        ModelConfig(
            decoder=replace(PLAIN, experts=replace(EXPERTS, balance=0.1), pattern=pattern),
            target=TokensConfig(vocab=23, positions=PositionConfig(kind="none")),
            lm=LMHeadConfig(),
        )
    )


def test_the_balance_loss_is_least_when_experts_are_equally_busy() -> None:
    even = 9.0 * torch.eye(4) + 9.0 * torch.eye(4).roll(1, 1)  # each expert is one of the two of two tokens
    same = 9.0 * torch.tensor([[1.0, 1.0, 0.0, 0.0]]).expand(4, 4)
    assert float(balance_loss([even, even], EXPERTS, None)) == pytest.approx(2.0)
    chance = float(same[0].softmax(-1)[0])
    assert float(balance_loss([same, same], EXPERTS, None)) == pytest.approx(4 * 2 * chance)


def test_training_is_punished_for_experts_that_are_not_equally_busy() -> None:
    model, ids, routes = mixture().train(), torch.randint(0, 23, (2, 9)), list[Tensor]()
    penalty = model(ids).penalty
    front = model.target(ids)
    model.decoder(front.x, front.layout, routes=routes)
    assert len(routes) == 3 and penalty is not None and penalty.requires_grad
    torch.testing.assert_close(penalty, 0.1 * balance_loss(routes, EXPERTS, None))
    assert model.eval()(ids).penalty is None


def test_padding_does_not_count_as_tokens_of_an_expert() -> None:
    model = mixture().train()
    ids, mask = torch.randint(0, 23, (1, 9)), torch.ones(1, 12, dtype=torch.bool)
    mask[:, 9:] = False
    padded = F.pad(ids, (0, 3))
    torch.testing.assert_close(model(ids).penalty, model(padded, attention_mask=mask).penalty)


def test_experts_are_quantized_too() -> None:
    model, x = mixture(), 9 * x_of()
    ffn = model.decoder.blocks[0].ffn
    with torch.no_grad():
        before, routes = ffn(x), ffn.route(x)
        quantize_(model)
        after = ffn(x)
    assert not any(name.endswith(("up.weight", "down.weight")) for name, _ in model.named_parameters())
    assert float((before - after).abs().max()) < 0.05 * float(before.abs().max())
    assert not torch.equal(before, after)
    torch.testing.assert_close(ffn.one_by_one(x), after)
    assert torch.equal(ffn.route(x)[0], routes[0]), "a rounded router would choose others"


# --- front end and head -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("project", ["last", "first"])
def test_a_narrow_table_is_widened(project: Any) -> None:
    config = TokensConfig(vocab=23, width=6, project=project, norm=True, positions=PositionConfig(length=16))
    torch.manual_seed(0)
    model = Transformer(ModelConfig(decoder=PLAIN, target=config, lm=LMHeadConfig())).eval()
    front, ids = model.target, torch.randint(0, 23, (2, 9))
    assert front.table.weight.shape[1] == 6 and front.project is not None
    vectors, places = front.table(ids), front.positions.table(torch.arange(9))  # type: ignore[union-attr]
    if project == "last":
        expected = front.project(front.norm(vectors + places))  # type: ignore[misc]
    else:
        expected = front.norm(front.project(vectors) + places)  # type: ignore[misc]
    torch.testing.assert_close(front(ids).x, expected)
    assert (front.project.bias is not None) == (project == "last")
    hidden = torch.randn(3, 16)
    assert model.lm.output.weight is front.table.weight and model.lm.project is not None
    torch.testing.assert_close(model.lm(hidden), model.lm.project(hidden) @ front.table.weight[:23].T)


def test_logits_are_bounded_in_every_form() -> None:
    from headway.tasks.losses.tokens import token_loss

    target = TokensConfig(vocab=23, positions=PositionConfig(kind="none"))
    torch.manual_seed(0)
    model = Transformer(ModelConfig(decoder=PLAIN, target=target, lm=LMHeadConfig(softcap=2.0, bias="trained")))
    hidden, head = 50 * torch.randn(5, 16), model.lm
    plain = hidden @ head.output.weight[:23].T + head.output.bias[:23]
    expected = 2 * torch.tanh(plain / 2)
    torch.testing.assert_close(head(hidden), expected)
    wide = head.padded_logits(hidden)
    torch.testing.assert_close(wide[:, :23], expected)
    assert wide.shape[1] == 64 and bool((wide[:, 23:] == -torch.inf).all())
    loss, count = token_loss(head, hidden, torch.arange(5))
    torch.testing.assert_close(loss, F.cross_entropy(expected, torch.arange(5), reduction="sum"))
    assert int(count) == 5


# --- old configs ------------------------------------------------------------------------------------------------------


def test_what_an_old_config_does_not_name_is_off() -> None:
    old = dict(d_model=16, n_layers=3, n_heads=4, d_ff=24, n_kv_heads=2, causal=True, norm="rmsnorm")
    assert build(StackConfig, old) == PLAIN
    assert {name for name, _ in made(Block, PLAIN).named_parameters()} == {
        *(f"attention.{name}" for name in ("qkv.weight", "qkv.bias", "out.weight", "out.bias")),
        *(f"ffn.{name}" for name in ("up.weight", "up.bias", "down.weight", "down.bias")),
        *("residual1.norm.weight", "residual2.norm.weight"),
    }


def test_patterns_and_experts_are_saved_as_plain_values() -> None:
    config: AnyConfig = mixture(pattern=(LOCAL, LayerConfig(dense=True))).config
    values = to_dict(config)
    assert values["decoder"]["pattern"][0] == {"window": 3, "rope": to_dict(RopeConfig(theta=100.0)), "dense": False}
    assert build(ModelConfig, values) == config
