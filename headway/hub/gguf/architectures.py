"""Architectures of llama.cpp that headway reads: their tensors and metadata by the names of the Hugging Face layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Facts = Mapping[str, Any]
Fields = dict[str, Any]

TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "model.layers.{i}.input_layernorm",
    "attn_q": "model.layers.{i}.self_attn.q_proj",
    "attn_k": "model.layers.{i}.self_attn.k_proj",
    "attn_v": "model.layers.{i}.self_attn.v_proj",
    "attn_output": "model.layers.{i}.self_attn.o_proj",
    "ffn_norm": "model.layers.{i}.post_attention_layernorm",
    "ffn_gate": "model.layers.{i}.mlp.gate_proj",
    "ffn_up": "model.layers.{i}.mlp.up_proj",
    "ffn_down": "model.layers.{i}.mlp.down_proj",
}
"""Names in llama.cpp → names in the Hugging Face layout."""
_QK_NORMS = {
    "attn_q_norm": "model.layers.{i}.self_attn.q_norm",
    "attn_k_norm": "model.layers.{i}.self_attn.k_norm",
}
_SANDWICH = TENSORS | {
    "post_attention_norm": "model.layers.{i}.post_attention_layernorm",
    "ffn_norm": "model.layers.{i}.pre_feedforward_layernorm",
    "post_ffw_norm": "model.layers.{i}.post_feedforward_layernorm",
}
_FUSED = {
    "attn_qkv": "model.layers.{i}.self_attn.qkv_proj",
    "ffn_up": "model.layers.{i}.mlp.gate_up_proj",
}
FIELDS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
"""Keys of the metadata → fields of config.json."""
_HEAD = {"attention.key_length": "head_dim"}
_WINDOW = {"attention.sliding_window": "sliding_window"}


def _nothing(own: Facts, tensors: Mapping[str, Any]) -> Fields:
    return {}


def _biases(own: Facts, tensors: Mapping[str, Any]) -> Fields:
    return {"attention_bias": "blk.0.attn_q.bias" in tensors, "mlp_bias": "blk.0.ffn_up.bias" in tensors}


def _query_width(largest: int) -> Callable[[Facts, Mapping[str, Any]], Fields]:
    """Gemma's factor on q·k: llama.cpp knows by the number of blocks that the largest model has its own."""

    def read(own: Facts, tensors: Mapping[str, Any]) -> Fields:
        width, heads = own["embedding_length"], own["attention.head_count"]
        is_largest = own["block_count"] == largest and type(width) is int and type(heads) is int and heads > 0
        return {"query_pre_attn_scalar": width // heads if is_largest else own.get("attention.key_length", 256)}

    return read


@dataclass(frozen=True)
class Architecture:
    """One value of general.architecture."""

    family: str
    """The model_type in config.json."""
    tensors: Mapping[str, str] = field(default_factory=lambda: TENSORS)
    more: Mapping[str, str] = field(default_factory=dict)
    """Keys of the metadata beside `FIELDS` → fields of config.json."""
    pairs: bool = False
    """Whether the converter has made neighbouring rows of queries and keys rotary pairs."""
    raised: bool = False
    """Whether the weights of norms include the 1 that Gemma adds to them."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Fields of config.json that all files share."""
    read: Callable[[Facts, Mapping[str, Any]], Fields] = _nothing
    """Fields of config.json that follow from metadata and tensors."""

    @property
    def fields(self) -> dict[str, str]:
        return {**FIELDS, **self.more}


ARCHITECTURES = {
    "llama": Architecture("llama", more=_HEAD, pairs=True, read=_biases),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3", TENSORS | _QK_NORMS, more=_HEAD),
    "phi3": Architecture("phi3", TENSORS | _FUSED, more=_WINDOW),
    "gemma2": Architecture(
        "gemma2",
        _SANDWICH,
        more={
            **_HEAD,
            **_WINDOW,
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        raised=True,
        read=_query_width(46),
    ),
    "gemma3": Architecture(
        "gemma3_text",
        _SANDWICH | _QK_NORMS,
        more={**_HEAD, **_WINDOW},
        raised=True,
        given={"sliding_window_pattern": 6, "rope_local_base_freq": 10_000.0},
        read=_query_width(62),
    ),
}
"""By general.architecture."""
