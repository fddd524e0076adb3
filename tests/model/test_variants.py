"""Every variant of the block keeps its promises: padded, packed, batched, cached and mapped give the same numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.checks.equivalence.result import CheckResult
from headway.checks.equivalence.suite import check_model
from headway.config.model import (
    ClassifyHeadConfig,
    DistancesConfig,
    ExpertsConfig,
    FramesConfig,
    InitConfig,
    LayerConfig,
    LMHeadConfig,
    ModelConfig,
    PatchesConfig,
    PositionConfig,
    RelativeConfig,
    RopeConfig,
    SpanHeadConfig,
    SparseConfig,
    StackConfig,
    TagHeadConfig,
    TokensConfig,
)
from headway.config.networks.sounds import SamplesConfig
from headway.model.model import Transformer

PATTERN = (
    LayerConfig(window=3, rope=RopeConfig()),
    LayerConfig(dense=True),
    LayerConfig(rope=RopeConfig(theta=100.0)),
)


@st.composite
def stacks(draw: st.DrawFn, causal: bool, cross: bool = False) -> StackConfig:
    heads = draw(st.sampled_from([2, 4]))
    where = draw(
        st.sampled_from(["none", "rope", "alibi", "relative", "window", "sparse", "pattern", "pattern", "distances"])
    )
    extra: dict[str, Any] = {
        "none": {},
        "rope": dict(
            rope=draw(
                st.sampled_from(
                    [
                        RopeConfig(),
                        RopeConfig(partial=0.7),
                        RopeConfig(scaling="llama3", factor=8.0, original_length=8),
                    ]
                )
            )
        ),
        "alibi": dict(alibi=True),
        "relative": dict(relative=RelativeConfig(buckets=8, max_distance=6)),
        "window": dict(window=draw(st.integers(1, 5))),
        "distances": dict(distances=DistancesConfig(buckets=draw(st.sampled_from([0, 6])), max_distance=5)),
        "pattern": dict(pattern=PATTERN[: draw(st.integers(1, 3))]),
        "sparse": dict(sparse=SparseConfig(block=1, random=1, seed=draw(st.sampled_from([None, 3])))),
    }[where]
    norm_at = draw(st.sampled_from(["pre", "pre", "post", "sandwich", "branch"]))
    first_norm = draw(st.sampled_from([True, True, False]))
    residual = draw(st.sampled_from([True, True, False]))
    may_be_parallel = norm_at == "pre" and first_norm and residual and not cross
    return StackConfig(
        d_model=16,
        n_layers=2,
        n_heads=heads,
        n_kv_heads=None if where == "distances" else draw(st.sampled_from([None, 1, 2])),
        d_head=draw(st.sampled_from([None, 6])),
        d_ff=24,
        causal=causal,
        cross=cross,
        norm=draw(st.sampled_from(["layernorm", "rmsnorm", "dyt"])),
        norm_at=norm_at,
        first_norm=first_norm,
        parallel=draw(st.sampled_from(["none", "one", "two"] if may_be_parallel else ["none"])),
        residual_scale=draw(st.sampled_from([1.0, 0.5])),
        softcap=draw(st.sampled_from([None, None, 2.0])),
        qk_norm=draw(st.sampled_from(["none", "head", "whole"])),
        experts=draw(st.sampled_from([None, None, ExpertsConfig(count=4, d_ff=12, shared=8, shared_gate=True)])),
        norm_bias=draw(st.booleans()),
        norm_offset=draw(st.sampled_from([0.0, 1.0])),
        final_norm=draw(st.booleans()),
        residual=residual,
        layer_scale=draw(st.sampled_from([None, 0.5])),
        activation=draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "silu"])),
        gated=draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        key_bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
        ffn_bias=draw(st.booleans()),
        scale=draw(st.sampled_from([None, 1.0])),
        dropout=0.3,
        attention_dropout=0.3,
        **extra,
    )


@st.composite
def tokens(draw: st.DrawFn, segments: bool = False) -> TokensConfig:
    positions = PositionConfig(
        kind=draw(st.sampled_from(["none", "learned", "sinusoidal"])),
        length=16,
        offset=draw(st.sampled_from([0, 2])),
        layout=draw(st.sampled_from(["interleaved", "halves", "fairseq"])),
        every_layer=draw(st.booleans()),
    )
    return TokensConfig(
        vocab=23,
        positions=positions,
        width=draw(st.sampled_from([None, None, 8])),
        project="first" if positions.every_layer else draw(st.sampled_from(["last", "first"])),
        segments=2 if segments else 0,
        scale=draw(st.sampled_from([1.0, 4.0])),
        norm=draw(st.booleans()),
        dropout=0.3,
    )


@st.composite
def models(draw: st.DrawFn) -> ModelConfig:
    kind = draw(st.sampled_from(["encoder", "decoder", "encoder-decoder", "frames", "samples", "images"]))
    init = InitConfig(kind=draw(st.sampled_from(["normal", "residual", "xavier", "t5"])), std=0.2)
    lm = LMHeadConfig(
        tied=draw(st.booleans()),
        transform=draw(st.sampled_from([None, "gelu"])),
        bias=draw(st.sampled_from(["none", "trained", "fixed"])),
        softcap=draw(st.sampled_from([None, None, 3.0])),
    )
    classify = ClassifyHeadConfig(
        labels=draw(st.sampled_from([0, 3])),
        pool=draw(st.sampled_from(["first", "last", "mean"])),
        dense=draw(st.sampled_from([None, "tanh"])),
    )
    if kind == "decoder":
        return ModelConfig(decoder=draw(stacks(True)), target=draw(tokens()), lm=lm, classify=classify, init=init)
    if kind == "images":
        images = PatchesConfig(image=8, patch=4, mask_token=draw(st.booleans()))
        return ModelConfig(encoder=draw(stacks(False)), source=images, classify=classify, init=init)
    if kind == "encoder":
        heads = dict(
            lm=lm,
            classify=classify,
            tag=draw(
                st.sampled_from(
                    [
                        TagHeadConfig(labels=3),
                        TagHeadConfig(dense="gelu", binary=True),
                        TagHeadConfig(dense="relu", dense_bias=False, dense_norm=True),
                    ]
                )
            ),
            span=SpanHeadConfig(ffn=draw(st.booleans()), dense=draw(st.sampled_from([None, "gelu"]))),
        )
        return ModelConfig(encoder=draw(stacks(False)), source=draw(tokens(True)), init=init, **heads)  # type: ignore[arg-type]
    sounds = {"frames": FramesConfig(channels=5, positions=PositionConfig(length=16)), "samples": SamplesConfig()}
    front, target = sounds.get(kind) or draw(tokens()), draw(tokens())
    shared = isinstance(front, TokensConfig) and front.width == target.width and draw(st.booleans())
    return ModelConfig(
        encoder=draw(stacks(False)), decoder=draw(stacks(True, cross=True)), source=front, target=target,
        lm=lm, shared_embedding=shared, init=init,
    )  # fmt: skip


def build(config: ModelConfig) -> Transformer:
    model = Transformer(config)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def failures(model: Transformer) -> list[CheckResult]:
    return [row for row in check_model(model, compiled=False) if not row.ok]


@given(models())
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_any_variant_passes_its_own_check(config: ModelConfig) -> None:
    assert failures(build(config)) == []


@pytest.mark.slow
@given(models())
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
def test_many_variants_pass_their_own_check(config: ModelConfig) -> None:
    assert failures(build(config)) == []


@given(models())
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_every_weight_gets_a_gradient(config: ModelConfig) -> None:
    """Nothing is built that the forward pass does not use."""
    model = build(config).eval()
    if isinstance(config.source, PatchesConfig):
        inputs = torch.randn(2, 3, 8, 8)
    elif isinstance(config.source, FramesConfig):
        inputs = torch.randn(2, 5, 12)
    elif isinstance(config.source, SamplesConfig):
        inputs = torch.randn(2, 2100)
    else:
        inputs = torch.randint(0, 23, (2, 9))
    output = model(inputs, torch.randint(0, 23, (2, 9)) if config.decoder and config.encoder else None)
    sum(s.square().sum() for s in (output.hidden, *model.logits(output).values())).backward()  # type: ignore[union-attr]
    idle = {n for n, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert {n for n in idle if not n.endswith("source.mask")} == set()


DECODER = ModelConfig(
    decoder=StackConfig(d_model=16, n_layers=2, n_heads=4, d_ff=32, causal=True),
    target=TokensConfig(vocab=23, positions=PositionConfig(length=32)),
    lm=LMHeadConfig(),
)


@pytest.mark.parametrize(
    ("broken", "row"),
    [
        ("positions", "left padding = none"),
        ("mask", "packed = separate"),
        ("cache", "cached = uncached"),
        ("reorder", "reordered = fresh"),
        ("maps", "maps = eager weights"),
    ],
)
def test_the_check_sees_a_broken_model(broken: str, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.model import attention, cache, masks

    roomy = TokensConfig(vocab=23, positions=PositionConfig(length=128))  # for positions that run on when packed
    model = build(replace(DECODER, target=roomy))
    if broken == "positions":
        naive = lambda attention_mask: torch.arange(attention_mask.shape[1]).expand(attention_mask.shape)  # noqa: E731
        monkeypatch.setattr(masks, "token_positions", naive)
    elif broken == "mask":
        monkeypatch.setattr(masks, "_same_sequence", lambda q, k: None if k is None else (k != 0)[:, None, :])
    elif broken == "cache":
        monkeypatch.setattr(cache.KVCache, "update", lambda self, layer, k, v: (k, v))
        monkeypatch.setattr(
            "headway.model.stack._cached_layout",
            lambda c: masks.Layout(c.positions[:, c.length : c.span], c.attention_mask[:, c.length : c.span], c.length),
        )
    elif broken == "reorder":
        monkeypatch.setattr(cache.KVCache, "reorder", lambda self, rows: self)
    else:
        real = attention.attention_weights
        monkeypatch.setattr(
            attention, "attention_weights", lambda q, k, attention_bias, scale=None: real(q, k, attention_bias, 0.9)
        )
    assert row in {r.name for r in failures(model)}


def test_dropout_acts_in_training_only() -> None:
    stack = replace(DECODER.decoder, dropout=0.5, attention_dropout=0.5, activation_dropout=0.5)  # type: ignore[type-var]
    model = build(replace(DECODER, decoder=stack))
    ids = torch.randint(0, 23, (1, 8))
    model.eval()
    assert torch.equal(model(ids).hidden, model(ids).hidden)
    model.train()
    assert not torch.equal(model(ids).hidden, model(ids).hidden)


@pytest.mark.parametrize("kind", ["normal", "residual", "xavier", "t5"])
def test_weights_start_as_the_papers_say(kind: str) -> None:
    torch.manual_seed(0)
    stack = StackConfig(d_model=256, n_layers=2, n_heads=4, d_ff=1024, causal=True)
    config = ModelConfig(
        decoder=stack,
        target=TokensConfig(vocab=500),
        lm=LMHeadConfig(),
        init=InitConfig(kind=kind),  # type: ignore[arg-type]
    )
    model = Transformer(config)
    block = model.decoder.blocks[0]
    expected = {
        "normal": (0.02, 0.02, 0.02),
        "residual": (0.02, 0.02, 0.01),  # 1/√(2·2 layers) of 0.02
        "xavier": (256**-0.5, (2 / (256 + 768)) ** 0.5, (2 / (256 + 1024)) ** 0.5),
        "t5": (1.0, 256**-0.5, 1024**-0.5),
    }[kind]
    table, up = model.target.table.weight[:500], block.attention.qkv.weight[256:]
    for weight, std in zip((table, up, block.ffn.down.weight), expected, strict=True):
        assert float(weight.detach().std()) == pytest.approx(std, rel=0.05)
    assert float(model.target.table.weight[500:].detach().abs().max()) == 0
    if kind == "t5":
        assert float(block.attention.qkv.weight[:256].detach().std()) == pytest.approx(256**-0.5 * 64**-0.5, rel=0.05)


def test_an_input_that_does_not_fit_is_an_error_with_numbers() -> None:
    from headway.errors import DataError

    model = build(DECODER)
    with pytest.raises(DataError, match="33 positions, the model knows 32"):
        model(torch.zeros(1, 33, dtype=torch.long))
    with pytest.raises(DataError, match="the vocabulary has 23"):
        model(torch.full((1, 4), 23))
    long = torch.zeros(1, 60, dtype=torch.long)  # longer than the table, but packed: each sequence fits
    model(long, attention_mask=torch.arange(60)[None] // 20 + 1)
    with pytest.raises(DataError, match="5 slots"):
        model.step(model.start(capacity=5), torch.zeros(1, 6, dtype=torch.long))


@pytest.mark.parametrize("bias", ["none", "trained"])
def test_wide_scores_are_the_scores_and_nothing_more(bias: Any) -> None:
    model = build(replace(DECODER, lm=LMHeadConfig(bias=bias)))
    hidden = model(torch.randint(0, 23, (1, 5))).hidden
    wide = model.lm.padded_logits(hidden)
    assert wide.shape[-1] == 64
    assert torch.equal(wide[..., :23], model.lm(hidden))
    assert bool((wide[..., 23:] == -torch.inf).all())
    wide.softmax(-1)[..., 0].sum().backward()
    table = model.target.table.weight.grad
    assert table is not None
    assert float(table[23:].abs().sum()) == 0
