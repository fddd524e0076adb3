"""Settings: nothing is guessed, every mistake is named with its place, and what is written reads back equal."""

from __future__ import annotations

import json
import math
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.config import model as config
from headway.config.model import (
    ClassifyHeadConfig,
    ConditionConfig,
    DenoiseHeadConfig,
    DistancesConfig,
    DistillConfig,
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
    SpecialTokens,
    StackConfig,
    TagHeadConfig,
    TokensConfig,
)
from headway.config.networks.sounds import SamplesConfig, WavesConfig
from headway.config.presets import PRESETS, preset
from headway.config.toml import build, merge, parse_overrides, read_toml, to_dict, to_toml
from headway.errors import ConfigError, HeadwayError, NotFoundError

DECODER = dict(d_model=8, n_layers=2, n_heads=2, d_ff=16, causal=True)
MODEL = {"decoder": DECODER, "target": {"kind": "tokens", "vocab": 50}}

GOOD = """\
[decoder]
d_model = 8
n_layers = 2
n_heads = 2
d_ff = 16

[target]
kind = "tokens"
vocab = 50

[target.positions]
length = 32
"""


def refused(code: str, data: dict[str, Any], cls: type = ModelConfig, source: str = "") -> str:
    with pytest.raises(HeadwayError) as caught:
        build(cls, data, source=source)
    assert (caught.value.code, type(caught.value)) == (code, ConfigError), str(caught.value)
    return caught.value.message


def refused_text(code: str, text: str) -> str:
    return refused(code, tomllib.loads(text), source=text)


# --- strictness ---------------------------------------------------------------------------------


def test_the_text_that_the_bad_ones_differ_from_is_good() -> None:
    model = build(ModelConfig, tomllib.loads(GOOD), source=GOOD)
    assert model.decoder == StackConfig(d_model=8, n_layers=2, n_heads=2, d_ff=16)
    assert model.target == TokensConfig(vocab=50, positions=PositionConfig(length=32))


@pytest.mark.parametrize(
    ("text", "key", "line", "nearest"),
    [
        (GOOD.replace("n_heads", "n_headz"), "decoder.n_headz", 4, '"decoder.n_heads"'),
        (GOOD + "lenght = 3\n", "target.positions.lenght", 13, '"target.positions.length"'),
        ("entirely_else = 1\n" + GOOD, "entirely_else", 1, ""),
        (GOOD + "\n[decodr]\nx = 1\n", "decodr", 14, '"decoder"'),
        (
            'source = {kind = "tokens", vocab = 9}\ndecoder = {d_model = 8, n_layr = 2}\n',
            "decoder.n_layr",
            2,
            '"decoder.n_layers"',
        ),
    ],
)
def test_an_unknown_key_names_the_nearest_one_and_its_line(text: str, key: str, line: int, nearest: str) -> None:
    message = refused_text("C014", text)
    assert f"'{key}' (line {line})" in message and nearest in message
    assert ("did you mean" in message) == bool(nearest)


def test_the_line_is_that_of_the_table_the_key_is_in() -> None:
    first, second = GOOD.replace("decoder", "encoder").replace("target", "source"), GOOD.replace("16", '"x"')
    assert "decoder.d_ff = 'x' (line 17)" in refused_text("C002", first + second)


def test_a_key_of_any_length_and_any_characters_stays_on_one_line() -> None:
    message = refused("C014", {"x" * 5000: 1, "decoder": {}})
    assert len(message) < 300
    message = refused("C014", {"a\n\x1b[31m": 1})
    assert message.isprintable()


@pytest.mark.parametrize(
    ("where", "value", "should"),
    [
        ("decoder.n_layers", "2", "a whole number"),
        ("decoder.n_layers", 2.0, "a whole number"),
        ("decoder.n_layers", True, "a whole number"),
        ("decoder.n_layers", None, "a whole number"),
        ("decoder.n_layers", [2], "a whole number"),
        ("decoder.causal", 1, "true or false"),
        ("decoder.causal", "true", "true or false"),
        ("decoder.norm_eps", "1e-5", "a number"),
        ("decoder.norm_eps", False, "a number"),
        ("decoder.scale", True, "a number"),
        ("decoder.rope", 3, "a table"),
        ("decoder", [1], "a table"),
        ("family", 7, "text"),
        ("labels", "abc", "a list"),
        ("labels", [1], "text"),
        ("special.eos", "</s>", "a list"),
        ("special.eos", [1, "x"], "a whole number"),
        ("special.eos", {"a": 1}, "a list"),
    ],
)
def test_a_wrong_type_is_refused(where: str, value: Any, should: str) -> None:
    data = merge(MODEL, {"special": {}})
    *parents, last = where.split(".")
    node = data
    for parent in parents:
        node[parent] = dict(node[parent])
        node = node[parent]
    node[last] = value
    message = refused("C002", data)
    assert message.startswith(f"{where} = ")
    assert should in message


@pytest.mark.parametrize("value", ["layer_norm", "", 1, True, None, ["rmsnorm"], {"a": 1}])
def test_a_value_that_is_not_one_of_the_choices(value: Any) -> None:
    message = refused("C003", merge(MODEL, {"decoder": {"norm": value}}))
    assert message.endswith("is not one of 'layernorm', 'rmsnorm', 'dyt'")


def test_a_missing_setting_is_named() -> None:
    for name in ("d_model", "n_layers", "n_heads", "d_ff"):
        less = {key: value for key, value in DECODER.items() if key != name}
        assert f'"decoder.{name}"' in refused("C004", MODEL | {"decoder": less})
    assert '"target.vocab"' in refused("C004", MODEL | {"target": {"kind": "tokens"}})


def test_a_front_end_is_chosen_by_its_kind() -> None:
    encoder = {key: value for key, value in DECODER.items() if key != "causal"}
    for front, cls in (
        ({"kind": "tokens", "vocab": 5}, TokensConfig),
        ({"kind": "patches", "patch": 8}, PatchesConfig),
        ({"kind": "frames"}, FramesConfig),
        ({"kind": "samples"}, SamplesConfig),
        ({"kind": "waves", "channels": [8, 8], "kernels": [4, 3], "strides": [2, 1]}, WavesConfig),
    ):
        assert type(build(ModelConfig, {"encoder": encoder, "source": front}).source) is cls
    for front in ({"vocab": 5}, {"kind": "pixels"}, {"kind": ["tokens"]}, {"kind": None}, {"kind": {}}):
        message = refused("C003", {"encoder": encoder, "source": front})
        assert message.endswith("is not one of 'tokens', 'patches', 'frames', 'samples', 'waves'")
    message = refused("C014", {"encoder": encoder, "source": {"kind": "frames", "vocab": 5}})
    assert "'source.vocab'" in message


def test_a_wrong_kind_names_its_line() -> None:
    text = GOOD.replace("decoder", "encoder").replace("target", "source").replace("tokens", "token")
    assert "source.kind = 'token' (line 8)" in refused_text("C003", text)


def test_whole_numbers_serve_as_numbers_but_not_the_other_way_round() -> None:
    model = build(ModelConfig, merge(MODEL, {"decoder": {"scale": 1, "dropout": 0}}))
    assert model.decoder is not None
    assert [type(x) for x in (model.decoder.scale, model.decoder.dropout)] == [float, float]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)])
def test_a_number_that_is_not_finite_is_refused(value: float) -> None:
    for path in ("norm_eps", "norm_offset", "scale", "layer_scale", "dropout"):
        message = refused("C003", merge(MODEL, {"decoder": {path: value}}))
        assert message.startswith(f"decoder.{path} = ")
        assert len(message) < 300


def test_read_toml_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(GOOD)
    assert read_toml(tmp_path / "good.toml") == (tomllib.loads(GOOD), GOOD)
    for text in (b"a = ", b"a = 1\na = 2", b"[a", b"a = \xff", b"a = " + b"9" * 5000, b"a = " + b"[" * 9999):
        (tmp_path / "bad.toml").write_bytes(text)
        with pytest.raises(ConfigError, match=r"C001.*bad\.toml is not valid TOML"):
            read_toml(tmp_path / "bad.toml")
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(NotFoundError, match="F001"):
            read_toml(path)


# --- what is written reads back equal -----------------------------------------------------------

sizes = st.integers(1, 64)
shares = st.floats(0, 1)
numbers = st.floats(-1e6, 1e6)
positive = st.floats(1.0, 1e6)
maybe_id = st.none() | st.integers(0, 1 << 30)
words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


def literal(cls: type, name: str) -> st.SearchStrategy[Any]:
    """Any of the choices of a field."""
    return st.sampled_from(get_args(get_type_hints(cls)[name]))


ropes = st.builds(
    RopeConfig,
    theta=positive,
    scaling=literal(RopeConfig, "scaling"),
    factor=positive,
    low_factor=st.floats(0, 1),
    high_factor=st.floats(2, 9),
    original_length=sizes,
    partial=shares,
)
relatives = st.builds(RelativeConfig, buckets=st.integers(4, 32), max_distance=st.integers(33, 999))
distances = st.builds(
    DistancesConfig, buckets=st.just(0) | st.integers(2, 64), max_distance=st.integers(34, 999), norm=st.booleans()
)
sparses = st.builds(SparseConfig, block=sizes, random=sizes, seed=maybe_id)


@st.composite
def stacks(draw: st.DrawFn, **fixed: Any) -> StackConfig:
    groups, repeats, half = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 8))
    causal = fixed.get("causal", draw(st.booleans()))
    heads, window = groups * repeats, draw(st.none() | sizes)
    values = dict(
        d_model=heads * half * 2,
        n_layers=draw(st.integers(0, 5)),
        n_heads=heads,
        n_kv_heads=draw(st.sampled_from([None, groups])),
        d_head=draw(st.sampled_from([None, 2 * half])),
        d_ff=draw(sizes),
        causal=causal,
        layer_scale=draw(st.none() | numbers),
        scale=draw(st.none() | numbers),
        window=window,
        rope=draw(st.none() | ropes),
        relative=draw(st.none() | relatives),
        sparse=None if window else draw(st.none() | sparses),
        norm_eps=draw(shares),
        norm_offset=draw(numbers),
    )
    if values["sparse"] is None and values["n_kv_heads"] in (None, heads):
        values["distances"] = draw(st.none() | distances)
    for name in ("norm", "norm_at", "activation"):
        values[name] = draw(literal(StackConfig, name))
    for name in ("final_norm", "residual", "gated", "qkv_bias", "key_bias", "out_bias", "ffn_bias", "alibi"):
        values[name] = draw(st.booleans())
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        values[name] = draw(shares)
    return StackConfig(**values | fixed)


positions = st.builds(
    PositionConfig,
    kind=literal(PositionConfig, "kind"),
    length=sizes,
    offset=st.integers(0, 4),
    layout=literal(PositionConfig, "layout"),
    every_layer=st.booleans(),
)
tokens = st.builds(
    TokensConfig,
    vocab=sizes,
    positions=positions,
    segments=st.integers(0, 3),
    scale=numbers,
    norm=st.booleans(),
    norm_eps=shares,
    dropout=shares,
)
patches = st.builds(PatchesConfig, image=st.integers(8, 64), patch=st.integers(1, 8), mask_token=st.booleans())
frames = st.builds(FramesConfig, channels=sizes, positions=positions, dropout=shares)
samples = st.builds(SamplesConfig, dropout=shares)
waves = st.builds(
    WavesConfig, norm_in=literal(WavesConfig, "norm_in"), norm=st.booleans(), place_kernel=sizes, dropout=shares
)
lm_heads = st.builds(
    LMHeadConfig,
    tied=st.booleans(),
    transform=st.none() | st.sampled_from(["gelu", "tanh"]),
    bias=literal(LMHeadConfig, "bias"),
    scale=numbers,
)
poolers = st.builds(
    ClassifyHeadConfig,
    labels=st.integers(0, 9),
    pool=literal(ClassifyHeadConfig, "pool"),
    dense=st.none() | st.sampled_from(["gelu", "tanh"]),
    bias=st.booleans(),
    dropout=shares,
)
specials = st.builds(
    SpecialTokens,
    pad=maybe_id,
    bos=maybe_id,
    eos=maybe_id | st.lists(st.integers(0, 9), max_size=3).map(tuple),
    start=maybe_id,
)


@st.composite
def models(draw: st.DrawFn) -> ModelConfig:
    kind = draw(st.sampled_from(["encoder", "decoder", "both"]))
    encoder = None if kind == "decoder" else draw(stacks())
    source = None if kind == "decoder" else draw(st.one_of(tokens, patches, frames, samples, waves))
    decoder = None if kind == "encoder" else draw(stacks(causal=True, cross=kind == "both"))
    target = None if kind == "encoder" else draw(tokens)
    if kind == "both":
        assert encoder is not None
        decoder = replace(encoder, causal=True, cross=True)
    shared = kind == "both" and isinstance(source, TokensConfig) and draw(st.booleans())
    return ModelConfig(
        encoder=encoder,
        decoder=decoder,
        source=source,
        target=source if shared else target,
        shared_embedding=shared,
        lm=draw(lm_heads) if isinstance(target or source, TokensConfig) else None,
        nsp=draw(st.none() | poolers),
        classify=draw(st.none() | poolers),
        tag=draw(st.none() | st.builds(TagHeadConfig, labels=sizes, dropout=shares)),
        span=draw(st.none() | st.builds(SpanHeadConfig, ffn=st.booleans())),
        special=draw(specials),
        labels=tuple(draw(st.lists(words, max_size=3))),
        init=InitConfig(kind=draw(literal(InitConfig, "kind")), std=draw(shares)),
        family=draw(words),
    )


@given(models())
def test_a_config_survives_toml(model: ModelConfig) -> None:
    text = to_toml(to_dict(model))
    again = build(ModelConfig, tomllib.loads(text), source=text)
    assert again == model
    assert to_toml(to_dict(again)) == text


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_toml(name: str) -> None:
    assert build(ModelConfig, tomllib.loads(to_toml(to_dict(preset(name))))) == preset(name)


def test_any_text_survives_toml() -> None:
    label = "".join(map(chr, range(0x180))) + "\u2028字😀"
    assert tomllib.loads(to_toml({"labels": [label], "family": label})) == {"labels": [label], "family": label}


def test_plain_values_are_those_of_toml_and_json() -> None:
    plain = to_dict(preset("vit-tiny"))
    assert type(plain["labels"]) is list
    assert tomllib.loads(to_toml(plain)) == json.loads(json.dumps(plain)) == plain


def test_none_is_left_out_and_tables_follow_simple_keys() -> None:
    text = to_toml({"family": "x", "decoder": {"rope": {"theta": 1e-7}, "causal": True}, "init": {}})
    assert text == 'family = "x"\n\n[decoder]\ncausal = true\n\n[decoder.rope]\ntheta = 1e-07\n\n[init]\n'
    assert "encoder" not in to_dict(preset("gpt2-tiny"))


# --- key=value words ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("x=1", 1),
        ("x=1_000", 1000),
        ("x=-1.5e-3", -1.5e-3),
        ("x=true", True),
        ('x="true"', "true"),
        ("x=[1, 2]", [1, 2]),
        ("x={a = 1}", {"a": 1}),
        ("x=rmsnorm", "rmsnorm"),
        ("x=True", "True"),
        ("x=", ""),
        ("x=a=b", "a=b"),
        ("x=a path/to file", "a path/to file"),
        ("x=[1", "[1"),
        ("x=" + "9" * 5000, "9" * 5000),
        ("x=" + "[" * 5000, "[" * 5000),
    ],
)
def test_a_value_is_read_as_toml_or_else_is_text(word: str, value: Any) -> None:
    found = parse_overrides([word])["x"]
    assert (found, type(found)) == (value, type(value))


def test_dotted_keys_nest_and_the_last_word_wins() -> None:
    words = ["decoder.rope.theta=5", "decoder.n_layers=1", "decoder.n_layers=3", "a-b_c=1"]
    assert parse_overrides(words) == {"decoder": {"rope": {"theta": 5}, "n_layers": 3}, "a-b_c": 1}
    assert parse_overrides([]) == {}


@pytest.mark.parametrize("word", ["", "x", "=1", ".x=1", "x.=1", "a..b=1", "1x=1", "--x=1", "a b=1", "é\n=1"])
def test_a_word_that_is_not_key_and_value(word: str) -> None:
    with pytest.raises(ConfigError, match=r"C001.*key=value"):
        parse_overrides([word])


def test_a_part_of_a_plain_value_cannot_be_set() -> None:
    with pytest.raises(ConfigError, match=r"C004.*'a\.b=2'"):
        parse_overrides(["a=1", "a.b=2"])
    assert parse_overrides(["a={c = 1}", "a.b=2"]) == {"a": {"c": 1, "b": 2}}


def test_precedence_is_default_then_preset_then_file_then_word(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("[decoder]\nn_layers = 3\nn_heads = 8\n\n[init]\nstd = 0.5\n")
    base = to_dict(preset("gpt2-tiny"))
    before = {key: dict(value) if isinstance(value, dict) else value for key, value in base.items()}
    merged = merge(merge(base, read_toml(path)[0]), parse_overrides(["decoder.n_heads=2", "lm.tied=false"]))
    model = build(ModelConfig, merged)
    tiny = preset("gpt2-tiny")
    assert tiny.decoder is not None
    assert model.decoder == replace(tiny.decoder, n_layers=3, n_heads=2)  # file over preset, word over file
    assert model.init == replace(tiny.init, std=0.5)  # a table is merged, not replaced
    assert model.lm == LMHeadConfig(tied=False)
    assert model.span is None  # default
    assert base == before


# --- settings that contradict each other --------------------------------------------------------

STACK = dict(d_model=8, n_layers=2, n_heads=2, d_ff=16)


def stack(**changes: Any) -> StackConfig:
    return StackConfig(**STACK | changes)


TOKENS = TokensConfig(vocab=9)

CONTRADICTIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "heads do not divide the width": (lambda: stack(n_heads=3), ("d_model = 8", "n_heads = 3")),
    "groups do not divide the heads": (
        lambda: stack(d_model=12, n_heads=6, n_kv_heads=4),
        ("n_heads = 6", "n_kv_heads = 4"),
    ),
    "rotary of odd width": (lambda: stack(d_head=3, rope=RopeConfig()), ("d_head = 3", "rope = 10000.0")),
    "sparse and a window": (lambda: stack(sparse=SparseConfig(), window=7), ("sparse", "window = 7")),
    "near and far meet": (
        lambda: stack(causal=True, relative=RelativeConfig(buckets=32, max_distance=16)),
        ("relative.max_distance = 16", "relative.buckets = 32"),
    ),
    "near and far meet, both ways": (
        lambda: stack(relative=RelativeConfig(buckets=32, max_distance=8)),
        ("relative.max_distance = 8", "relative.buckets = 32"),
    ),
    "no far distances": (
        lambda: stack(distances=DistancesConfig(buckets=32, max_distance=17)),
        ("distances.buckets = 32", "distances.max_distance = 17"),
    ),
    "distances of grouped heads": (
        lambda: stack(n_kv_heads=1, distances=DistancesConfig()),
        ("distances", "n_kv_heads = 1"),
    ),
    "three labels of one output": (lambda: TagHeadConfig(labels=3, binary=True), ("binary = true", "labels = 3")),
    "an empty band of frequencies": (
        lambda: RopeConfig(scaling="llama3", low_factor=4.0, high_factor=4.0),
        ("low_factor = 4.0", "high_factor = 4.0"),
    ),
    "no stack": (lambda: ModelConfig(), ("encoder", "decoder")),
    "encoder without front end": (lambda: ModelConfig(encoder=stack()), ("encoder", "source")),
    "front end without encoder": (
        lambda: ModelConfig(decoder=stack(), target=TOKENS, source=TOKENS),
        ("encoder", "source"),
    ),
    "decoder without front end": (lambda: ModelConfig(decoder=stack()), ("decoder", "target")),
    "cross without encoder": (
        lambda: ModelConfig(decoder=stack(cross=True), target=TOKENS),
        ("decoder.cross", "encoder"),
    ),
    "encoder without cross": (
        lambda: ModelConfig(encoder=stack(), source=TOKENS, decoder=stack(), target=TOKENS),
        ("decoder.cross", "encoder"),
    ),
    "two widths": (
        lambda: ModelConfig(encoder=stack(), source=TOKENS, decoder=stack(d_model=4, cross=True), target=TOKENS),
        ("encoder.d_model = 8", "decoder.d_model = 4"),
    ),
    "one table for two vocabularies": (
        lambda: ModelConfig(
            encoder=stack(),
            source=TOKENS,
            decoder=stack(cross=True),
            target=TokensConfig(vocab=10),
            shared_embedding=True,
        ),
        ("shared_embedding", "vocabulary"),
    ),
    "one table without a second reader": (
        lambda: ModelConfig(encoder=stack(), source=TOKENS, shared_embedding=True),
        ("shared_embedding", "front ends"),
    ),
    "one table of two widths": (
        lambda: ModelConfig(
            encoder=stack(),
            source=TOKENS,
            decoder=stack(cross=True),
            target=replace(TOKENS, width=4),
            shared_embedding=True,
        ),
        ("shared_embedding", "width"),
    ),
    "parallel branches with norms after them": (
        lambda: stack(parallel="two", norm_at="post"),
        ("parallel = two", "norm_at = post"),
    ),
    "parallel branches with cross-attention": (lambda: stack(parallel="one", cross=True), ("parallel = one",)),
    "shared weights in blocks that differ": (lambda: stack(shared=True, drop_path=0.1), ("shared", "drop_path")),
    "a dense layer among shared experts": (
        lambda: stack(shared=True, experts=ExpertsConfig(), pattern=(LayerConfig(), LayerConfig(dense=True))),
        ("shared", "dense"),
    ),
    "windows of a stack and of its blocks": (
        lambda: stack(window=4, pattern=(LayerConfig(window=2), LayerConfig())),
        ("pattern", "window"),
    ),
    "rotary positions of an odd width in one block": (
        lambda: stack(d_head=3, pattern=(LayerConfig(rope=RopeConfig()), LayerConfig())),
        ("d_head = 3", "rope"),
    ),
    "narrow positions before every block": (
        lambda: TokensConfig(vocab=9, width=4, positions=PositionConfig(every_layer=True)),
        ("width = 4", "every_layer"),
    ),
    "a gate of no shared expert": (lambda: ExpertsConfig(shared_gate=True), ("shared_gate", "shared = 0")),
    "words from an image": (
        lambda: ModelConfig(encoder=stack(), source=PatchesConfig(), lm=LMHeadConfig()),
        ("lm", "token front end"),
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_name_both_settings(case: str) -> None:
    make, names = CONTRADICTIONS[case]
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.code == "C004"
    assert all(name in caught.value.message for name in names), caught.value.message


def test_settings_close_to_the_contradictions_are_accepted() -> None:
    """The control: each differs from a contradiction above in one value."""
    stack(n_heads=4)
    stack(n_heads=3, d_head=5)
    stack(d_model=12, n_heads=6, n_kv_heads=3)
    stack(d_head=4, rope=RopeConfig())
    stack(d_head=3)
    stack(sparse=SparseConfig(), causal=True)
    stack(window=7)
    stack(parallel="two")
    stack(shared=True, experts=ExpertsConfig(), pattern=(LayerConfig(window=2), LayerConfig(rope=RopeConfig())))
    stack(d_head=3, pattern=(LayerConfig(), LayerConfig(window=2)))
    TokensConfig(vocab=9, width=4, project="first", positions=PositionConfig(every_layer=True))
    stack(causal=True, relative=RelativeConfig(buckets=32, max_distance=17))
    stack(relative=RelativeConfig(buckets=32, max_distance=9))
    RopeConfig(low_factor=4.0, high_factor=4.0)
    ModelConfig(encoder=stack(), source=TOKENS, decoder=stack(cross=True), target=TOKENS, shared_embedding=True)
    ModelConfig(encoder=stack(), source=PatchesConfig())


NAN, HUGE = math.nan, 1 << 40
IMPOSSIBLE: dict[type, list[dict[str, Any]]] = {
    StackConfig: [
        *({"n_layers": value} for value in (10**9, -1)),
        *({"d_model": value} for value in (0, HUGE, 10**400)),
        *({"n_heads": value} for value in (0, 16)),
        *({"n_kv_heads": value} for value in (0, 4)),
        *({"d_head": value} for value in (0, -4)),
        *({"norm_eps": value} for value in (NAN, -1e-5)),
        *({"d_ff": 0}, {"scale": NAN}, {"layer_scale": math.inf}, {"norm_offset": NAN}, {"window": 0}),
        *({"dropout": 1.5}, {"attention_dropout": NAN}, {"activation_dropout": -0.1}),
        *({"residual_scale": NAN}, {"softcap": 0.0}, {"softcap": NAN}, {"pattern": (LayerConfig(),) * 1001}),
    ],
    ExpertsConfig: [
        *({"count": value} for value in (0, HUGE)),
        *({"top_k": value} for value in (0, 9)),
        *({"d_ff": 0}, {"shared": -1}, {"balance": -0.1}, {"balance": NAN}),
    ],
    RopeConfig: [
        *({"theta": value} for value in (0.0, NAN)),
        *({"scaling": "linear", "factor": 0.0}, {"scaling": "llama3", "original_length": 0}),
        *({"low_factor": -1.0}, {"high_factor": NAN}, {"partial": 1.1}, {"partial": NAN}),
    ],
    DistancesConfig: [{"buckets": -1}, {"buckets": HUGE}, {"max_distance": 1}],
    RelativeConfig: [{"buckets": 0}, {"buckets": 1 << 62}, {"max_distance": 0}],
    SparseConfig: [{"block": 0}, {"random": -1}, {"random": 1 << 20}],
    PositionConfig: [{"length": 0}, {"length": HUGE}, {"offset": -1}],
    TokensConfig: [
        *({"vocab": value} for value in (0, HUGE)),
        *({"segments": -1}, {"scale": NAN}, {"norm_eps": NAN}, {"dropout": 2.0}, {"width": 0}, {"width": HUGE}),
    ],
    PatchesConfig: [{"image": 0}, {"image": 8, "patch": 9}, {"patch": 0}, {"channels": 0}, {"dropout": NAN}],
    FramesConfig: [{"channels": 0}, {"dropout": NAN}],
    SamplesConfig: [{"dropout": NAN}],
    WavesConfig: [
        *({"dropout": NAN}, {"norm_eps": NAN}, {"place_kernel": 0}, {"place_groups": 0}),
        *({"channels": (0,) * 7}, {"kernels": (HUGE,) * 7}, {"strides": (0,) * 7}),
    ],
    LMHeadConfig: [{"scale": NAN}, {"softcap": 0.0}, {"softcap": NAN}],
    ClassifyHeadConfig: [{"labels": -1}, {"labels": HUGE}, {"dropout": NAN}],
    TagHeadConfig: [{"labels": 0}, {"dropout": 1.1}],
    SpanHeadConfig: [{"dropout": NAN}],
    ConditionConfig: [{"classes": -1}, {"classes": HUGE}, {"frequencies": 0}],
    DenoiseHeadConfig: [{"patch": 0}, {"channels": 0}, {"channels": HUGE}],
    DistillConfig: [{"outputs": 1}, {"outputs": HUGE}, {"hidden": 0}, {"bottleneck": 0}],
    InitConfig: [{"std": NAN}, {"std": -1.0}],
}
NEEDED: dict[type, dict[str, Any]] = {
    **{StackConfig: STACK, TokensConfig: {"vocab": 9}},
    DistillConfig: {"outputs": 4, "hidden": 4, "bottleneck": 4},
}


@pytest.mark.parametrize("channels", [(), (8, 8)])
def test_convolutions_need_all_their_numbers(channels: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        WavesConfig(channels=channels)
    assert caught.value.code == "C004" and "each convolution" in caught.value.message


@pytest.mark.parametrize(("cls", "values"), [(cls, values) for cls, cases in IMPOSSIBLE.items() for values in cases])
def test_an_impossible_value_is_refused_at_once(cls: type, values: dict[str, Any]) -> None:
    start = time.perf_counter()
    with pytest.raises(ConfigError) as caught:
        cls(**NEEDED.get(cls, {}) | values)
    assert time.perf_counter() - start < 1
    assert caught.value.code == "C003" and list(values)[-1] in caught.value.message
    assert len(caught.value.message) < 300


def test_every_bounded_config_is_covered() -> None:
    """A new config with a rule of its own needs cases above."""
    ruled = {cls for cls in vars(config).values() if "__post_init__" in getattr(cls, "__dict__", {})}
    assert ruled == {*IMPOSSIBLE, ModelConfig}
