"""Settings of published decoders beside the first families, as their config.json files have them; data only."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def _common(kind: str, words: str, **more: Any) -> Config:
    return dict(
        model_type=kind, architectures=[f"{words}ForCausalLM"], initializer_range=0.02, use_cache=True,
        torch_dtype="bfloat16", transformers_version="4.44.0", **more,
    )  # fmt: skip


def _sized(base: Config, width: int, ff: int, layers: int, heads: int, groups: int, **more: Any) -> Config:
    return base | dict(
        hidden_size=width, intermediate_size=ff, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=groups, **more,
    )  # fmt: skip


_LLAMA: Config = dict(attention_dropout=0.0, hidden_act="silu", rms_norm_eps=1e-6, tie_word_embeddings=False)

# --------------------------------------------------------------------------- Qwen

_QWEN2: Config = _common(
    "qwen2", "Qwen2", **_LLAMA, bos_token_id=151643, eos_token_id=151643, max_position_embeddings=32768,
    max_window_layers=28, rope_theta=1000000.0, sliding_window=32768, use_sliding_window=False, vocab_size=151936,
    use_mrope=False,
)  # fmt: skip
_QWEN3: Config = _common(
    "qwen3", "Qwen3", **_LLAMA, attention_bias=False, bos_token_id=151643, eos_token_id=151645, head_dim=128,
    max_position_embeddings=40960, max_window_layers=36, rope_scaling=None, rope_theta=1000000, sliding_window=None,
    use_sliding_window=False, vocab_size=151936,
)  # fmt: skip
_QWEN3_MOE: Config = _QWEN3 | dict(
    model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], decoder_sparse_step=1, mlp_only_layers=[],
    norm_topk_prob=True, num_experts=128, num_experts_per_tok=8, output_router_logits=False,
    router_aux_loss_coef=0.001,
)  # fmt: skip
_QWENS: dict[str, Config] = {
    "Qwen/Qwen2-0.5B": _sized(_QWEN2, 896, 4864, 24, 14, 2, max_window_layers=24, sliding_window=131072,
        max_position_embeddings=131072, tie_word_embeddings=True),
    "Qwen/Qwen2-7B": _sized(_QWEN2, 3584, 18944, 28, 28, 4, vocab_size=152064, sliding_window=131072),
    "Qwen/Qwen2.5-0.5B-Instruct": _sized(
        _QWEN2, 896, 4864, 24, 14, 2, max_window_layers=21, tie_word_embeddings=True, eos_token_id=151645
    ),
    "Qwen/Qwen2.5-1.5B": _sized(_QWEN2, 1536, 8960, 28, 12, 2, tie_word_embeddings=True),
    "Qwen/Qwen2.5-3B": _sized(_QWEN2, 2048, 11008, 36, 16, 2, max_window_layers=36, tie_word_embeddings=True),
    "Qwen/Qwen2.5-7B-Instruct": _sized(_QWEN2, 3584, 18944, 28, 28, 4, vocab_size=152064, eos_token_id=151645),
    "Qwen/Qwen2.5-14B": _sized(_QWEN2, 5120, 13824, 48, 40, 8, vocab_size=152064, max_window_layers=48),
    "Qwen/Qwen2.5-32B": _sized(_QWEN2, 5120, 27648, 64, 40, 8, vocab_size=152064, max_window_layers=64),
    "Qwen/Qwen2.5-72B": _sized(_QWEN2, 8192, 29568, 80, 64, 8, vocab_size=152064, max_window_layers=80),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": _sized(
        _QWEN2, 1536, 8960, 28, 12, 2, max_window_layers=21, rope_theta=10000, sliding_window=4096,
        max_position_embeddings=131072,
    ),
    "Qwen/Qwen3-0.6B": _sized(_QWEN3, 1024, 3072, 28, 16, 8, max_window_layers=28, tie_word_embeddings=True),
    "Qwen/Qwen3-1.7B": _sized(_QWEN3, 2048, 6144, 28, 16, 8, max_window_layers=28, tie_word_embeddings=True),
    "Qwen/Qwen3-4B": _sized(_QWEN3, 2560, 9728, 36, 32, 8, tie_word_embeddings=True),
    "Qwen/Qwen3-8B": _sized(_QWEN3, 4096, 12288, 36, 32, 8),
    "Qwen/Qwen3-14B": _sized(_QWEN3, 5120, 17408, 40, 40, 8, max_window_layers=40),
    "Qwen/Qwen3-32B": _sized(_QWEN3, 5120, 25600, 64, 64, 8, max_window_layers=64),
    "Qwen/Qwen1.5-MoE-A2.7B": _sized(
        _QWEN2, 2048, 5632, 24, 16, 16, model_type="qwen2_moe", architectures=["Qwen2MoeForCausalLM"],
        decoder_sparse_step=1, max_position_embeddings=8192, max_window_layers=21, moe_intermediate_size=1408,
        norm_topk_prob=False, num_experts=60, num_experts_per_tok=4, output_router_logits=False,
        router_aux_loss_coef=0.001, shared_expert_intermediate_size=5632,
    ),
    "Qwen/Qwen3-30B-A3B": _sized(_QWEN3_MOE, 2048, 6144, 48, 32, 4, moe_intermediate_size=768, max_window_layers=48),
    "Qwen/Qwen3-235B-A22B": _sized(
        _QWEN3_MOE, 4096, 12288, 94, 64, 4, moe_intermediate_size=1536, max_window_layers=94
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- Mixtral, Phi-3

_MIXTRAL: Config = _common(
    "mixtral", "Mixtral", **_LLAMA | {"rms_norm_eps": 1e-5}, bos_token_id=1, eos_token_id=2, num_experts_per_tok=2,
    num_local_experts=8, output_router_logits=False, rope_theta=1000000.0, router_aux_loss_coef=0.02,
    sliding_window=None, vocab_size=32000, max_position_embeddings=32768,
)  # fmt: skip
_PHI3: Config = _common(
    "phi3", "Phi3", **_LLAMA | {"rms_norm_eps": 1e-5}, bos_token_id=1, eos_token_id=32000, pad_token_id=32000,
    embd_pdrop=0.0, resid_pdrop=0.0, max_position_embeddings=4096, original_max_position_embeddings=4096,
    rope_scaling=None, rope_theta=10000.0, sliding_window=2047, vocab_size=32064, attention_bias=False,
)  # fmt: skip
_OTHERS: dict[str, Config] = {
    "mistralai/Mixtral-8x7B-v0.1": _sized(_MIXTRAL, 4096, 14336, 32, 32, 8),
    "mistralai/Mixtral-8x22B-v0.1": _sized(_MIXTRAL, 6144, 16384, 56, 48, 8, max_position_embeddings=65536),
    "microsoft/Phi-3-mini-4k-instruct": _sized(_PHI3, 3072, 8192, 32, 32, 32),
    "microsoft/Phi-3-medium-4k-instruct": _sized(_PHI3, 5120, 17920, 40, 40, 10),
    "microsoft/phi-4": _sized(
        _PHI3, 5120, 17920, 40, 40, 10, bos_token_id=100257, eos_token_id=100265, pad_token_id=100349,
        max_position_embeddings=16384, original_max_position_embeddings=16384, rope_theta=250000,
        sliding_window=None, vocab_size=100352,
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- Gemma

_GEMMA2: Config = _common(
    "gemma2", "Gemma2", attention_bias=False, attention_dropout=0.0, attn_logit_softcapping=50.0, bos_token_id=2,
    cache_implementation="hybrid", eos_token_id=1, final_logit_softcapping=30.0, head_dim=256,
    hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh", max_position_embeddings=8192,
    pad_token_id=0, query_pre_attn_scalar=256, rms_norm_eps=1e-6, rope_theta=10000.0, sliding_window=4096,
    vocab_size=256000,
)  # fmt: skip
_GEMMA3: Config = _common(
    "gemma3_text", "Gemma3", attention_bias=False, attention_dropout=0.0, attn_logit_softcapping=None, bos_token_id=2,
    eos_token_id=[1, 106], final_logit_softcapping=None, head_dim=256, hidden_activation="gelu_pytorch_tanh",
    max_position_embeddings=32768, pad_token_id=0, query_pre_attn_scalar=256, rms_norm_eps=1e-6,
    rope_local_base_freq=10000, rope_scaling=None, rope_theta=1000000, sliding_window=512, vocab_size=262144,
)  # fmt: skip
_GEMMAS: dict[str, Config] = {
    "google/gemma-2-2b": _sized(_GEMMA2, 2304, 9216, 26, 8, 4),
    "google/gemma-2-9b-it": _sized(_GEMMA2, 3584, 14336, 42, 16, 8),
    "google/gemma-2-27b": _sized(_GEMMA2, 4608, 36864, 46, 32, 16, head_dim=128, query_pre_attn_scalar=144),
    "google/gemma-3-1b-it": _sized(
        _GEMMA3, 1152, 6912, 26, 4, 1, sliding_window_pattern=6, cache_implementation="hybrid"
    ),
    "google/gemma-3-270m": _sized(
        _GEMMA3, 640, 2048, 18, 4, 1, _sliding_window_pattern=6, use_bidirectional_attention=False, eos_token_id=1,
        layer_types=["sliding_attention" if (layer + 1) % 6 else "full_attention" for layer in range(18)],
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- Granite, OLMo 2, SmolLM3, StarCoder2

_GRANITE: Config = _common(
    "granite", "Granite", attention_bias=False, attention_dropout=0.1, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    embedding_multiplier=12.0, hidden_act="silu", max_position_embeddings=4096, mlp_bias=False,
    residual_multiplier=0.22, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000, tie_word_embeddings=True,
    vocab_size=49155,
)  # fmt: skip
_OLMO2: Config = _common(
    "olmo2", "Olmo2", **_LLAMA, attention_bias=False, eos_token_id=100257, pad_token_id=100277,
    max_position_embeddings=4096, rope_scaling=None, rope_theta=500000, vocab_size=100352,
)  # fmt: skip
_STARCODER2: Config = _common(
    "starcoder2", "Starcoder2", attention_dropout=0.1, bos_token_id=0, eos_token_id=0, embedding_dropout=0.1,
    hidden_act="gelu_pytorch_tanh", max_position_embeddings=16384, mlp_type="default", norm_epsilon=1e-5,
    norm_type="layer_norm", residual_dropout=0.1, rope_theta=999999.4420358813, sliding_window=4096, use_bias=True,
    vocab_size=49152,
)  # fmt: skip
_LLAMA_LIKE: dict[str, Config] = {
    "ibm-granite/granite-3.0-2b-base": _sized(
        _GRANITE, 2048, 8192, 40, 32, 8, attention_multiplier=0.015625, logits_scaling=8.0
    ),
    "ibm-granite/granite-3.0-8b-base": _sized(
        _GRANITE, 4096, 12800, 40, 32, 8, attention_multiplier=0.0078125, logits_scaling=16.0
    ),
    "allenai/OLMo-2-0425-1B": _sized(_OLMO2, 2048, 8192, 16, 16, 16),
    "allenai/OLMo-2-1124-7B": _sized(_OLMO2, 4096, 11008, 32, 32, 32),
    "allenai/OLMo-2-1124-13B": _sized(_OLMO2, 5120, 13824, 40, 40, 40),
    "HuggingFaceTB/SmolLM3-3B": _sized(
        _common(
            "smollm3", "SmolLM3", **_LLAMA | {"tie_word_embeddings": True}, attention_bias=False, mlp_bias=False,
            bos_token_id=None, eos_token_id=128012, pad_token_id=128004, max_position_embeddings=65536,
            max_window_layers=28, no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0] * 9, rope_scaling=None,
            rope_theta=5000000.0, sliding_window=None, use_sliding_window=False, vocab_size=128256,
            layer_types=["full_attention"] * 36,
        ),
        2048, 11008, 36, 16, 4,
    ),
    "bigcode/starcoder2-3b": _sized(_STARCODER2, 3072, 12288, 30, 24, 2),
    "bigcode/starcoder2-7b": _sized(_STARCODER2, 4608, 18432, 32, 36, 4, rope_theta=1000000),
}  # fmt: skip

# --------------------------------------------------------------------------- StableLM, Cohere, GPT-NeoX, Falcon

_STABLELM: Config = _common(
    "stablelm", "StableLm", bos_token_id=0, eos_token_id=0, hidden_act="silu", layer_norm_eps=1e-5,
    max_position_embeddings=4096, partial_rotary_factor=0.25, rope_theta=10000, tie_word_embeddings=False,
    use_qkv_bias=False, vocab_size=50304,
)  # fmt: skip
_COHERE: Config = _common(
    "cohere", "Cohere", attention_bias=False, attention_dropout=0.0, bos_token_id=5, eos_token_id=255001,
    hidden_act="silu", layer_norm_eps=1e-5, logit_scale=0.0625, max_position_embeddings=8192, pad_token_id=0,
    use_qk_norm=False, vocab_size=256000,
)  # fmt: skip


def _neox(width: int, layers: int, heads: int, vocab: int = 50304, **more: Any) -> Config:
    return _common("gpt_neox", "GPTNeoX") | dict(
        bos_token_id=0, eos_token_id=0, hidden_act="gelu", hidden_size=width, intermediate_size=4 * width,
        layer_norm_eps=1e-5, max_position_embeddings=2048, num_attention_heads=heads, num_hidden_layers=layers,
        rotary_emb_base=10000, rotary_pct=0.25, tie_word_embeddings=False, use_parallel_residual=True,
        vocab_size=vocab, torch_dtype="float16", **more,
    )  # fmt: skip


_FALCON: Config = _common(
    "falcon", "Falcon", alibi=False, apply_residual_connection_post_layernorm=False, attention_dropout=0.0, bias=False,
    bos_token_id=11, eos_token_id=11, hidden_dropout=0.0, layer_norm_epsilon=1e-5, parallel_attn=True,
    vocab_size=65024,
)  # fmt: skip
_PARALLEL: dict[str, Config] = {
    "stabilityai/stablelm-3b-4e1t": _sized(_STABLELM, 2560, 6912, 32, 32, 32),
    "stabilityai/stablelm-2-1_6b": _sized(
        _STABLELM, 2048, 5632, 24, 32, 32, bos_token_id=100257, eos_token_id=100257, use_qkv_bias=True,
        vocab_size=100352,
    ),
    "CohereForAI/c4ai-command-r-v01": _sized(_COHERE, 8192, 22528, 40, 64, 64, rope_theta=8000000.0),
    "CohereForAI/aya-23-8B": _sized(_COHERE, 4096, 14336, 32, 32, 8, rope_theta=10000),
    "EleutherAI/pythia-70m": _neox(512, 6, 8),
    "EleutherAI/pythia-160m": _neox(768, 12, 12),
    "EleutherAI/pythia-410m": _neox(1024, 24, 16),
    "EleutherAI/pythia-1b": _neox(2048, 16, 8),
    "EleutherAI/pythia-1.4b": _neox(2048, 24, 16),
    "EleutherAI/pythia-2.8b": _neox(2560, 32, 32),
    "EleutherAI/pythia-6.9b": _neox(4096, 32, 32, 50432),
    "EleutherAI/pythia-12b": _neox(5120, 36, 40, 50688),
    "EleutherAI/gpt-neox-20b": _neox(6144, 44, 64, 50432, attention_dropout_prob=0, hidden_dropout_prob=0)
    | {"hidden_act": "gelu_fast"},
    "tiiuae/falcon-7b": _FALCON | dict(
        hidden_size=4544, num_attention_heads=71, num_hidden_layers=32, multi_query=True,
        new_decoder_architecture=False,
    ),
    "tiiuae/falcon-40b": _FALCON | dict(
        hidden_size=8192, num_attention_heads=128, num_hidden_layers=60, num_kv_heads=8,
        new_decoder_architecture=True,
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- BLOOM, OPT


def _bloom(width: int, layers: int, heads: int, **more: Any) -> Config:
    return _common("bloom", "Bloom") | dict(
        apply_residual_connection_post_layernorm=False, attention_dropout=0.0, attention_softmax_in_fp32=True,
        bias_dropout_fusion=True, bos_token_id=1, eos_token_id=2, hidden_dropout=0.0, layer_norm_epsilon=1e-5,
        masked_softmax_fusion=True, n_embed=width, n_inner=None, n_layer=layers, num_attention_heads=heads,
        offset_alibi=100, pad_token_id=3, pretraining_tp=1, seq_length=2048, skip_bias_add=True,
        skip_bias_add_qkv=False, unk_token_id=0, vocab_size=250880, **more,
    )  # fmt: skip


def _opt(width: int, layers: int, heads: int, **more: Any) -> Config:
    return dict(
        model_type="opt", architectures=["OPTForCausalLM"], _remove_final_layer_norm=False, activation_dropout=0.0,
        activation_function="relu", attention_dropout=0.0, bos_token_id=2, do_layer_norm_before=True, dropout=0.1,
        eos_token_id=2, ffn_dim=4 * width, hidden_size=width, init_std=0.02, layerdrop=0.0,
        max_position_embeddings=2048, num_attention_heads=heads, num_hidden_layers=layers, pad_token_id=1,
        prefix="</s>", torch_dtype="float16", use_cache=True, vocab_size=50272, word_embed_proj_dim=width,
    ) | more  # fmt: skip


_ABSOLUTE: dict[str, Config] = {
    "bigscience/bloom-560m": _bloom(1024, 24, 16),
    "bigscience/bloom-1b1": _bloom(1536, 24, 16),
    "bigscience/bloom-1b7": _bloom(2048, 24, 16),
    "bigscience/bloom-3b": _bloom(2560, 30, 32),
    "bigscience/bloom-7b1": _bloom(4096, 30, 32),
    "facebook/opt-125m": _opt(768, 12, 12),
    "facebook/opt-350m": _opt(1024, 24, 16, do_layer_norm_before=False, word_embed_proj_dim=512),
    "facebook/opt-1.3b": _opt(2048, 24, 32),
    "facebook/opt-2.7b": _opt(2560, 32, 32),
    "facebook/opt-6.7b": _opt(4096, 32, 32),
    "facebook/opt-13b": _opt(5120, 40, 40),
}

DECODERS: dict[str, Config] = {**_QWENS, **_OTHERS, **_GEMMAS, **_LLAMA_LIKE, **_PARALLEL, **_ABSOLUTE}

DECODER_PARAMETERS: dict[str, int] = {
    "Qwen/Qwen2-0.5B": 494_032_768,
    "Qwen/Qwen2-7B": 7_615_616_512,
    "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "mistralai/Mixtral-8x22B-v0.1": 140_620_634_112,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "microsoft/Phi-3-medium-4k-instruct": 13_960_238_080,
    "microsoft/phi-4": 14_659_507_200,
    "google/gemma-2-2b": 2_614_341_888,
    "google/gemma-2-9b-it": 9_241_705_984,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-3-1b-it": 999_885_952,
    "google/gemma-3-270m": 268_098_176,
    "ibm-granite/granite-3.0-2b-base": 2_533_531_648,
    "ibm-granite/granite-3.0-8b-base": 8_170_848_256,
    "allenai/OLMo-2-0425-1B": 1_484_916_736,
    "allenai/OLMo-2-1124-7B": 7_298_617_344,
    "allenai/OLMo-2-1124-13B": 13_716_198_400,
    "HuggingFaceTB/SmolLM3-3B": 3_075_098_624,
    "bigcode/starcoder2-3b": 3_030_371_328,
    "bigcode/starcoder2-7b": 7_173_923_840,
    "stabilityai/stablelm-3b-4e1t": 2_795_443_200,
    "stabilityai/stablelm-2-1_6b": 1_644_515_328,
    "CohereForAI/c4ai-command-r-v01": 34_980_831_232,
    "CohereForAI/aya-23-8B": 8_028_033_024,
    "EleutherAI/pythia-70m": 70_426_624,
    "EleutherAI/pythia-160m": 162_322_944,
    "EleutherAI/pythia-410m": 405_334_016,
    "EleutherAI/pythia-1b": 1_011_781_632,
    "EleutherAI/pythia-1.4b": 1_414_647_808,
    "EleutherAI/pythia-2.8b": 2_775_208_960,
    "EleutherAI/pythia-6.9b": 6_857_302_016,
    "EleutherAI/pythia-12b": 11_846_072_320,
    "EleutherAI/gpt-neox-20b": 20_554_567_680,
    "tiiuae/falcon-7b": 6_921_720_704,
    "tiiuae/falcon-40b": 41_303_293_952,
    "bigscience/bloom-560m": 559_214_592,
    "bigscience/bloom-1b1": 1_065_314_304,
    "bigscience/bloom-1b7": 1_722_408_960,
    "bigscience/bloom-3b": 3_002_557_440,
    "bigscience/bloom-7b1": 7_069_016_064,
    "facebook/opt-125m": 125_239_296,
    "facebook/opt-350m": 331_196_416,
    "facebook/opt-1.3b": 1_315_758_080,
    "facebook/opt-2.7b": 2_651_596_800,
    "facebook/opt-6.7b": 6_658_473_984,
    "facebook/opt-13b": 12_853_473_280,
}
