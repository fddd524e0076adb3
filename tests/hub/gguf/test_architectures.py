"""GGUF files of several architectures, with the names and values of llama.cpp's converter, against `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from headway.errors import HeadwayError
from headway.hub.folder import describe, load_model
from headway.hub.gguf.architectures import ARCHITECTURES
from headway.hub.gguf.tokenizer import _words
from tests.parity.decoder_cases import GEMMA, LLAMA

gguf = pytest.importorskip("gguf")

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", LLAMA),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", dict(LLAMA, head_dim=16, tie_word_embeddings=True)),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", dict(LLAMA, sliding_window=5)),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", dict(GEMMA, query_pre_attn_scalar=16)),
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        dict(GEMMA, query_pre_attn_scalar=16, num_hidden_layers=7),
    ),
}


def oracle_of(kind: str) -> Any:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    words, config, settings = CASES[kind]
    torch.manual_seed(0)
    made = getattr(transformers, words)(getattr(transformers, config)(**settings)).eval()
    for parameter in made.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape)
    return made


def write(path: Path, kind: str, oracle: Any, **changes: Any) -> Path:
    """Names are those of the gguf package, which the converter uses too."""
    theirs, writer = oracle.config, gguf.GGUFWriter(path, kind)
    writer.add_block_count(theirs.num_hidden_layers)
    writer.add_context_length(theirs.max_position_embeddings)
    writer.add_embedding_length(theirs.hidden_size)
    writer.add_feed_forward_length(theirs.intermediate_size)
    writer.add_head_count(theirs.num_attention_heads)
    writer.add_head_count_kv(theirs.num_key_value_heads)
    writer.add_layer_norm_rms_eps(theirs.rms_norm_eps)
    rope = theirs.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if width := getattr(theirs, "head_dim", None):
        writer.add_key_length(width)
        writer.add_value_length(width)
    if kind == "phi3" or kind.startswith("gemma"):
        writer.add_sliding_window(theirs.sliding_window)
    if kind == "phi3":
        writer.add_rope_dimension_count(theirs.hidden_size // theirs.num_attention_heads)
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(theirs.attn_logit_softcapping)
        writer.add_final_logit_softcapping(theirs.final_logit_softcapping)
    for key, value in changes.items():
        writer.add_uint32(f"{kind}.{key.replace('__', '.')}", value)
    names = gguf.get_tensor_name_map(
        {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}[kind], theirs.num_hidden_layers
    )
    for name, tensor in oracle.state_dict().items():
        if name == "lm_head.weight" and theirs.tie_word_embeddings:
            continue
        raised = kind.startswith("gemma") and name.endswith("norm.weight")
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), (tensor + 1 if raised else tensor).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", CASES)
def test_logits_are_those_of_the_model_that_was_converted(kind: str, tmp_path: Path) -> None:
    oracle = oracle_of(kind)
    model: Any = load_model(write(tmp_path / "tiny.gguf", kind, oracle))
    ids = torch.randint(0, 50, (2, 21), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        torch.testing.assert_close(model.lm(model(ids).hidden), oracle(ids).logits, atol=2e-5, rtol=1e-5)
    family, _ = describe(model)
    assert family is not None and family.name == ARCHITECTURES[kind].family


def test_every_architecture_is_tested() -> None:
    assert {*CASES, "llama"} == set(ARCHITECTURES)


@pytest.mark.parametrize(
    ("kind", "changes", "code", "words"),
    [
        ("qwen2", {"expert_count": 4}, "C021", "qwen2.expert_count = 4"),
        ("qwen2", {"attention__key_length": 16}, "C022", "qwen2.attention.key_length = 16, heads of 8"),
        ("qwen3", {"rope__dimension_count": 8}, "C022", "qwen3.rope.dimension_count = 8, heads of 16"),
    ],
)
def test_metadata_that_headway_does_not_support(
    kind: str, changes: dict[str, int], code: str, words: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "tiny.gguf", kind, oracle_of(kind), **changes)
    with pytest.raises(HeadwayError) as caught:
        load_model(path)
    assert caught.value.code == code and words in caught.value.message


@pytest.mark.parametrize(
    ("kind", "blocks", "width", "head", "expected"),
    [("gemma2", 46, 4608, 128, 144), ("gemma3", 62, 5376, 128, 168), ("gemma2", 42, 3584, 256, 256)],
)
def test_the_largest_gemmas_scale_by_the_width_of_a_head(
    kind: str, blocks: int, width: int, head: int, expected: int
) -> None:
    """Their files do not say so."""
    own = {"embedding_length": width, "attention.head_count": 32, "block_count": blocks, "attention.key_length": head}
    assert ARCHITECTURES[kind].read(own, {}) == {"query_pre_attn_scalar": expected}


def test_every_digit_is_a_word_of_qwen() -> None:
    from tokenizers.pre_tokenizers import Sequence

    pieces = [piece for piece, _ in Sequence(list(_words("qwen2"))).pre_tokenize_str("It's 2024\n\nnow")]
    assert pieces == ["It", "'s", "Ġ", "2", "0", "2", "4", "ĊĊ", "now"]
