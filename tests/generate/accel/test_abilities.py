"""Fast ways take only what they can compute: every field of a config with every kind of value, and fields to come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields, make_dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import Tensor, nn

from headway.config import model as configs
from headway.config.model import (
    LMHeadConfig,
    ModelConfig,
    PositionConfig,
    RelativeConfig,
    RopeConfig,
    SpecialTokens,
    StackConfig,
    TokensConfig,
)
from headway.config.presets import gpt2, llama, transformer
from headway.errors import ConfigError
from headway.generate.accel import abilities
from headway.generate.accel import dispatch as fast
from headway.generate.accel.abilities import CPU, CUDA, CUDA_BEAMS, KNOWN_CONFIGS, can, within
from headway.kernels.quantized import Int8Linear
from headway.model.model import Model, Transformer
from tests.generate.conftest import made
from tests.generate.twin import Twin

VOCAB = 90


def seq2seq(**fields_: Any) -> ModelConfig:
    base = transformer(2, 32, 4, 48, dropout=0.0)
    assert isinstance(base.source, TokensConfig) and base.target and base.encoder and base.decoder
    return replace(
        base,
        source=replace(base.source, vocab=VOCAB),
        target=replace(base.target, vocab=VOCAB),
        encoder=replace(base.encoder, **fields_),
        decoder=replace(base.decoder, **fields_),
    )


BASES = {
    "llama": llama(2, 32, 4, 2, 48, VOCAB),
    "gpt2": gpt2(2, 32, 4, VOCAB, 64),
    "post": seq2seq(),
    "pre": seq2seq(norm_at="pre", final_norm=True),
}
YES_OR_NO = (False, True)
VALUES: dict[type, dict[str, tuple[Any, ...]]] = {
    StackConfig: {
        "d_model": (16, 48), "n_layers": (0, 1), "n_heads": (1, 2), "d_ff": (30, 64), "n_kv_heads": (None, 1, 2, 4),
        "d_head": (None, 6, 7, 16), "causal": YES_OR_NO, "cross": YES_OR_NO, "norm_eps": (0.0, 0.1),
        "norm_bias": YES_OR_NO,
        "norm_offset": (0.0, 1.0), "final_norm": YES_OR_NO, "residual": YES_OR_NO, "layer_scale": (None, 0.5),
        "gated": YES_OR_NO, "qkv_bias": YES_OR_NO, "key_bias": YES_OR_NO, "out_bias": YES_OR_NO,
        "ffn_bias": YES_OR_NO, "scale": (None, 0.0, 0.4, -0.3, 1.0), "window": (None, 1, 3),
        "rope": (None, RopeConfig()), "relative": (None, RelativeConfig()), "alibi": YES_OR_NO,
        "sparse": (None, configs.SparseConfig()), "dropout": (0.0, 0.5), "attention_dropout": (0.0, 0.5),
        "activation_dropout": (0.0, 0.5), "drop_path": (0.0, 0.5), "modulation": YES_OR_NO, "first_norm": YES_OR_NO,
        "residual_scale": (1.0, 0.5), "softcap": (None, 1.5), "shared": YES_OR_NO,
        "pattern": ((), (configs.LayerConfig(window=3), configs.LayerConfig(rope=RopeConfig()))),
        "experts": (None, configs.ExpertsConfig(count=4, d_ff=24)),
        "distances": (None, configs.DistancesConfig(buckets=6, max_distance=5)),
    },
    configs.LayerConfig: {"window": (None, 2), "rope": (None, RopeConfig(theta=7.0)), "dense": YES_OR_NO},
    RopeConfig: {
        "theta": (10_000.0, 7.0), "factor": (1.0, 3.0), "low_factor": (1.0, 0.5), "high_factor": (4.0, 2.0),
        "original_length": (8192, 4), "partial": (1.0, 0.5),
    },
    PositionConfig: {"length": (40, 64), "offset": (0, 2), "every_layer": YES_OR_NO},
    TokensConfig: {
        "vocab": (65, VOCAB), "positions": (PositionConfig(kind="none"), PositionConfig(length=64)),
        "width": (None, 16),
        "segments": (0, 2), "scale": (1.0, 3.0), "norm": YES_OR_NO, "norm_eps": (1e-5, 0.5), "dropout": (0.0, 0.5),
        "norm_bias": YES_OR_NO,
    },
    LMHeadConfig: {
        "tied": YES_OR_NO, "transform": (None, "gelu"), "dense_bias": YES_OR_NO, "scale": (1.0, 0.25),
        "softcap": (None, 0.5),
    },
    ModelConfig: {
        "shared_embedding": YES_OR_NO, "special": (SpecialTokens(pad=1),), "labels": ((), ("a", "b")),
        "init": (configs.InitConfig(kind="xavier"),), "family": ("headway", "gpt2"),
        "nsp": (configs.ClassifyHeadConfig(),), "classify": (configs.ClassifyHeadConfig(),),
        "tag": (configs.TagHeadConfig(),), "span": (configs.SpanHeadConfig(),),
        "denoise": (configs.DenoiseHeadConfig(),),
        "distill": (configs.DistillConfig(outputs=4, hidden=4, bottleneck=4),),
        "condition": (configs.ConditionConfig(),),
    },
}  # fmt: skip
"""Of fields whose type does not name their values."""
STRUCTURE = {(ModelConfig, name) for name in ("encoder", "decoder", "source", "target", "lm")}
"""Parts that are a config themselves, or decide what kind of model it is."""


def values(kind: type, name: str) -> tuple[Any, ...]:
    hint = get_type_hints(kind)[name]
    if get_origin(hint) is Literal:
        return get_args(hint)
    return VALUES[kind][name]


CASES = [
    pytest.param(kind, f.name, value, id=f"{kind.__name__}.{f.name}={value}"[:70])
    for kind in KNOWN_CONFIGS
    for f in fields(kind)
    if (kind, f.name) not in STRUCTURE
    for value in values(kind, f.name)
]


def changed(base: ModelConfig, kind: type, change: Callable[[Any], Any]) -> ModelConfig:
    """A model's config with one of its parts changed."""
    assert base.decoder is not None and base.target is not None
    if kind is ModelConfig:
        found = change(base)
        assert isinstance(found, ModelConfig)
        return found
    if kind is StackConfig:
        return replace(base, decoder=change(base.decoder))
    if kind is configs.LayerConfig:
        pattern = change(configs.LayerConfig(rope=base.decoder.rope)), configs.LayerConfig()
        return replace(base, decoder=replace(base.decoder, window=None, rope=None, pattern=pattern))
    if kind is RopeConfig:
        return replace(base, decoder=replace(base.decoder, rope=change(base.decoder.rope or RopeConfig())))
    if kind is TokensConfig:
        return replace(base, target=change(base.target))
    if kind is PositionConfig:
        return replace(base, target=replace(base.target, positions=change(base.target.positions)))
    return replace(base, lm=change(base.lm))


def model_with(base: str, kind: type, name: str, value: Any) -> Transformer:
    def change(part: Any) -> Any:
        if (kind, name) == (RopeConfig, "theta") or kind is not RopeConfig or name == "scaling":
            return replace(part, **{name: value})
        return replace(part, **{"scaling": "linear" if name == "factor" else "llama3", "factor": 2.0, name: value})

    try:
        return made(changed(BASES[base], kind, change))
    except ConfigError:
        pytest.skip("no such model")


def near(model: Transformer) -> dict[str, float]:
    """With whole numbers the model rounds what it multiplies, and the kernels do not."""
    return dict.fromkeys(("atol", "rtol"), 1e-3 if model.config.quantization == "none" else 5e-2)


@torch.no_grad()
def texts_agree(model: Transformer) -> None:
    from headway.generate.accel.cpu.decoder import CpuDecoder

    found = []
    for way in (CpuDecoder, Twin):
        cache_ = model.start(batch=3, capacity=12)
        decoder: Any = way(model, cache_.keys, cache_.values)
        steps = [decoder.prefill({row: (0, [3 + row, 4, 5][: 1 + row]) for row in range(3)})]
        for step in range(3):
            decoder.ids.copy_(torch.tensor([7 + step, 9, 11]))
            decoder.end.copy_(torch.tensor([1, 2, 3]) + step)
            steps.append(decoder.step().clone())
        found.append(torch.stack(steps))
    torch.testing.assert_close(*found, **near(model))


@torch.no_grad()
def beams_agree(model: Transformer, inputs: int) -> type:
    """The logits of what beam search would read with, and those of the model."""
    reader: Any = fast.beam_decoder(model, inputs, 2)
    source = torch.arange(inputs * 5).view(inputs, 5) % 60 + 2
    found: list[Tensor] = []
    for way in (reader, model):
        state = way.start(source, capacity=6)
        way.step(state, torch.full((inputs, 2), 4))
        state = way.reorder(state, torch.arange(inputs).repeat_interleave(2))
        for token in (5, 6):
            ids = (torch.arange(inputs * 2)[:, None] + token) % 60
            logits = way.step(state, ids).clone()
            found.append(logits)
    torch.testing.assert_close(torch.stack(found[:2]), torch.stack(found[2:]), **near(model))
    return type(reader)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(("kind", "name", "value"), CASES)
def test_a_fast_way_computes_what_the_model_does_or_refuses(
    kind: type, name: str, value: Any, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(fast, "MIN_WEIGHTS", 0)
    model = model_with(base, kind, name, value)
    if model.config.encoder is None:
        if fast.accelerates(model, 3):
            texts_agree(model)
    else:
        beams_agree(model, 2)


def test_the_ways_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would prove nothing."""
    pytest.importorskip("numba")
    monkeypatch.setattr(fast, "MIN_WEIGHTS", 0)
    assert all(fast.accelerates(made(BASES[base]), 3) for base in ("llama", "gpt2"))
    names = [[beams_agree(made(BASES[base]), inputs).__name__ for inputs in (2, 10)] for base in ("post", "pre")]
    assert names == [["CpuBeamDecoder", "Transformer"]] * 2


@pytest.mark.parametrize("kind", KNOWN_CONFIGS)
def test_every_field_is_listed(kind: type) -> None:
    """Who adds a field to a config says here what the fast ways make of it."""
    tables = {
        ModelConfig: abilities.MODEL,
        StackConfig: abilities.STACK,
        configs.LayerConfig: abilities.LAYER,
        RopeConfig: abilities.ROPE,
        TokensConfig: abilities.TOKENS,
        PositionConfig: abilities.POSITIONS,
        LMHeadConfig: abilities.HEAD,
    }
    assert set(tables[kind]) == {f.name for f in fields(kind)}


@cache
def tomorrow(kind: type) -> type:
    """The config with a field that nobody knows yet."""
    return make_dataclass(
        f"Tomorrows{kind.__name__}", [("novel", int, field(default=0))], bases=(kind,), frozen=True, kw_only=True
    )


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("kind", KNOWN_CONFIGS)
def test_a_field_of_tomorrow_is_refused_unless_it_is_off(
    kind: type, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "MIN_WEIGHTS", 0)
    monkeypatch.setattr(fast, "_threads", lambda: True)

    def grown(novel: int) -> Transformer:
        def change(part: Any) -> Any:
            return tomorrow(kind)(**{f.name: getattr(part, f.name) for f in fields(part)}, novel=novel)

        model = made(changed(BASES[base], RopeConfig, lambda rope: rope) if kind is RopeConfig else BASES[base])
        model.config = changed(model.config, kind, change)
        return model

    off, on = grown(0), grown(1)
    for rules in (CPU, CUDA, CUDA_BEAMS):
        before = can(made(off.config), rules, nn.Linear, Int8Linear)
        assert can(off, rules, nn.Linear, Int8Linear) == before
        assert not can(on, rules, nn.Linear, Int8Linear)
    assert not fast.accelerates(on, 1)
    assert type(fast.beam_decoder(on, 1, 2)) is Transformer


def test_a_field_without_a_default_is_refused_until_it_is_listed() -> None:
    kind = make_dataclass("Needed", [("novel", int)], frozen=True, kw_only=True)
    assert not within(kind(novel=0), {}) and within(kind(novel=0), {"novel": lambda value: True})


class Louder(nn.Linear):
    """A linear map that computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_parts_that_kernels_do_not_know_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "MIN_WEIGHTS", 0)
    monkeypatch.setattr(fast, "_threads", lambda: True)

    def louder(model: Transformer) -> None:
        model.decoder.blocks[0].ffn.down.__class__ = Louder

    def heard(model: Transformer) -> None:
        model.decoder.blocks[1].register_forward_hook(lambda module, given, out: out * 2)

    def half(model: Transformer) -> None:
        model.decoder.blocks[1].ffn.half()

    for change in (louder, heard, half):
        model, beams = made(BASES["llama"]), made(BASES["pre"])
        assert fast.accelerates(model, 1) and type(fast.beam_decoder(beams, 2, 2)) is not Model
        change(model)
        change(beams)
        assert not fast.accelerates(model, 1) and type(fast.beam_decoder(beams, 2, 2)) is Transformer
    listened = made(BASES["pre"])
    listened.lm.output.register_forward_hook(lambda module, given, out: out * 2)
    assert type(fast.beam_decoder(listened, 2, 2)) is Transformer
