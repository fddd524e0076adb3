"""Decoders beside the first families: class, config class and settings; data only."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = dict(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
    pad_token_id=1, bos_token_id=0, eos_token_id=2,
)  # fmt: skip
LLAMA: dict[str, Any] = dict(SMALL, num_key_value_heads=2, intermediate_size=48)
MIXTURE: dict[str, Any] = dict(LLAMA, num_local_experts=4)
QWEN_MIXTURE: dict[str, Any] = dict(MIXTURE, moe_intermediate_size=24, num_experts_per_tok=2, head_dim=16)
SHARED_MIXTURE: dict[str, Any] = dict(
    LLAMA, num_experts=4, moe_intermediate_size=24, num_experts_per_tok=2, shared_expert_intermediate_size=40
)
GEMMA: dict[str, Any] = dict(LLAMA, head_dim=16, sliding_window=5, query_pre_attn_scalar=20, num_hidden_layers=3)
GRANITE: dict[str, Any] = dict(
    LLAMA, attention_multiplier=0.2, residual_multiplier=0.3, embedding_multiplier=6.0, logits_scaling=3.0
)
LINEAR: dict[str, Any] = dict(rope_type="linear", rope_theta=5_000.0, factor=4.0)
FALCON: dict[str, Any] = dict(SMALL, bias=True)
NEW_FALCON: dict[str, Any] = dict(FALCON, new_decoder_architecture=True, num_kv_heads=2)

LM = {"-lm": "ForCausalLM"}
BASE = {"": "Model", **LM}
CLASSIFY = {"-classify": "ForSequenceClassification"}
TAG = {"-tag": "ForTokenClassification"}
SPAN = {"-span": "ForQuestionAnswering"}


def cases(name: str, words: str, settings: dict[str, Any], *tables: dict[str, str], config: str = "") -> dict[str, Any]:
    """A case for each head of a family; heads with labels have three."""
    every = {suffix: head for table in tables for suffix, head in table.items()}
    labelled = {suffix: settings | ({"num_labels": 3} if suffix in ("-tag", "-classify") else {}) for suffix in every}
    return {name + s: (words + head, config or f"{words}Config", labelled[s]) for s, head in every.items()}


DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    **cases("mixtral", "Mixtral", MIXTURE, BASE, CLASSIFY, TAG, SPAN),
    **cases("mixtral-windowed", "Mixtral", dict(MIXTURE, sliding_window=5, num_experts_per_tok=3), LM),
    **cases("qwen2", "Qwen2", LLAMA, BASE, CLASSIFY, TAG, SPAN),
    **cases(
        "qwen2-windowed", "Qwen2",
        dict(LLAMA, use_sliding_window=True, sliding_window=5, max_window_layers=1, tie_word_embeddings=True), LM,
    ),
    **cases("qwen3", "Qwen3", dict(LLAMA, head_dim=16), BASE, CLASSIFY, TAG, SPAN),
    **cases("qwen3-windowed", "Qwen3", dict(LLAMA, head_dim=16, attention_bias=True, use_sliding_window=True,
        sliding_window=5, layer_types=["sliding_attention", "full_attention"]), LM),
    **cases("qwen2-moe", "Qwen2Moe", SHARED_MIXTURE, BASE, CLASSIFY, TAG, SPAN),
    **cases("qwen2-moe-mixed", "Qwen2Moe", dict(SHARED_MIXTURE, norm_topk_prob=True, mlp_only_layers=[1],
        qkv_bias=False), LM),
    **cases("qwen3-moe", "Qwen3Moe", QWEN_MIXTURE, BASE, CLASSIFY, TAG, SPAN),
    **cases("qwen3-moe-mixed", "Qwen3Moe", dict(QWEN_MIXTURE, norm_topk_prob=True, num_hidden_layers=4,
        mlp_only_layers=[1], decoder_sparse_step=2), LM),
    **cases("phi3", "Phi3", dict(LLAMA, sliding_window=7), BASE, CLASSIFY, TAG),
    **cases("phi3-partial", "Phi3", dict(LLAMA, partial_rotary_factor=0.5), LM),
    **cases("gemma2", "Gemma2", GEMMA, BASE, CLASSIFY, TAG),
    **cases("gemma2-plain", "Gemma2", dict(GEMMA, attn_logit_softcapping=None, final_logit_softcapping=None,
        num_hidden_layers=2, layer_types=["full_attention"] * 2), LM),
    "gemma3": ("Gemma3TextModel", "Gemma3TextConfig", GEMMA),
    "gemma3-lm": ("Gemma3ForCausalLM", "Gemma3TextConfig", dict(GEMMA, sliding_window_pattern=2)),
    "gemma3-local": ("Gemma3ForCausalLM", "Gemma3TextConfig", GEMMA),
    "gemma3-linear": ("Gemma3ForCausalLM", "Gemma3TextConfig", dict(GEMMA, sliding_window_pattern=3,
        rope_parameters={"full_attention": LINEAR, "sliding_attention": {"rope_type": "default", "rope_theta": 77.0}})),
    "gemma3-classify": ("Gemma3TextForSequenceClassification", "Gemma3TextConfig", dict(GEMMA, num_labels=3)),
    **cases("granite", "Granite", GRANITE, BASE),
    **cases("granite-tied", "Granite", dict(GRANITE, tie_word_embeddings=True, attention_bias=True, mlp_bias=True), LM),
    **cases("olmo2", "Olmo2", LLAMA, BASE, CLASSIFY),
    **cases("smollm3", "SmolLM3", dict(LLAMA, num_hidden_layers=5), BASE, CLASSIFY, TAG, SPAN),
    **cases("smollm3-windowed", "SmolLM3", dict(LLAMA, num_hidden_layers=3, no_rope_layer_interval=2,
        use_sliding_window=True, sliding_window=5), LM),
    **cases("starcoder2", "Starcoder2", dict(LLAMA, sliding_window=5), BASE, CLASSIFY, TAG),
    **cases("stablelm", "StableLm", LLAMA, BASE, CLASSIFY, TAG),
    **cases("stablelm-parallel", "StableLm", dict(LLAMA, use_parallel_residual=True, use_qkv_bias=True,
        partial_rotary_factor=0.75, tie_word_embeddings=True), LM),
    **cases("cohere", "Cohere", LLAMA, BASE),
    **cases("cohere-biased", "Cohere", dict(LLAMA, attention_bias=True, logit_scale=0.3), LM),
    **cases("neox", "GPTNeoX", dict(SMALL, intermediate_size=48), BASE, CLASSIFY, TAG, SPAN),
    **cases("neox-serial", "GPTNeoX", dict(SMALL, intermediate_size=48, use_parallel_residual=False,
        attention_bias=False, rotary_pct=1.0, tie_word_embeddings=True), LM),
    **cases("falcon", "Falcon", FALCON, BASE, CLASSIFY, TAG, SPAN),
    **cases("falcon-new", "Falcon", NEW_FALCON, LM),
    **cases("falcon-one-norm", "Falcon", dict(NEW_FALCON, num_ln_in_parallel_attn=1, ffn_hidden_size=40), LM),
    **cases("falcon-serial", "Falcon", dict(FALCON, multi_query=False, parallel_attn=False), LM),
    **cases("bloom", "Bloom", dict(vocab_size=50, hidden_size=32, n_layer=2, n_head=4, pad_token_id=1),
        BASE, CLASSIFY, TAG, SPAN),
    **cases("bloom-six", "Bloom", dict(vocab_size=50, hidden_size=36, n_layer=2, n_head=6, pad_token_id=1), LM),
    **cases("opt", "OPT", dict(SMALL, ffn_dim=48), BASE, CLASSIFY, SPAN),
    **cases("opt-narrow", "OPT", dict(SMALL, ffn_dim=48, word_embed_proj_dim=12, do_layer_norm_before=False,
        activation_function="gelu"), LM),
    **cases("opt-plain", "OPT", dict(SMALL, ffn_dim=48, enable_bias=False, _remove_final_layer_norm=True), LM),
}  # fmt: skip
KINDS = frozenset(
    {"mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "phi3", "gemma2", "gemma3_text", "granite", "olmo2"}
    | {"smollm3", "starcoder2", "stablelm", "cohere", "gpt_neox", "falcon", "bloom", "opt"}
)
"""Their values of model_type."""
ABSOLUTE = frozenset({"bloom", "opt"})
"""Of these, those that count positions by the attention mask."""
