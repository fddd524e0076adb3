"""Settings of published encoders and encoder–decoders beside the first families, as in `published.py`; data only."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def _labels(*names: str) -> Config:
    return {"id2label": {str(i): n for i, n in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}


_BERT: Config = dict(
    attention_probs_dropout_prob=0.1, hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=768,
    initializer_range=0.02, intermediate_size=3072, max_position_embeddings=512, num_attention_heads=12,
    num_hidden_layers=12, type_vocab_size=2, layer_norm_eps=1e-12, pad_token_id=0,
)  # fmt: skip
_LARGE: Config = dict(hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24)
_WRITTEN: Config = dict(torch_dtype="float32", transformers_version="4.18.0", use_cache=True)

# --------------------------------------------------------------------------- XLM-RoBERTa, CamemBERT, MPNet

_XLM_R: Config = dict(
    _BERT, model_type="xlm-roberta", architectures=["XLMRobertaForMaskedLM"], bos_token_id=0, eos_token_id=2,
    pad_token_id=1, layer_norm_eps=1e-05, max_position_embeddings=514, type_vocab_size=1, vocab_size=250002,
    output_past=True, position_embedding_type="absolute",
)  # fmt: skip
_XLM_R_MODEL: Config = dict(_XLM_R, architectures=["XLMRobertaModel"], classifier_dropout=None, **_WRITTEN)
_MPNET: Config = dict(
    {key: value for key, value in _BERT.items() if key != "type_vocab_size"}, model_type="mpnet",
    architectures=["MPNetForMaskedLM"], bos_token_id=0, eos_token_id=2, pad_token_id=1, layer_norm_eps=1e-05,
    max_position_embeddings=514, relative_attention_num_buckets=32, vocab_size=30527,
)  # fmt: skip

_ROBERTA_LIKE: dict[str, Config] = {
    "FacebookAI/xlm-roberta-base": _XLM_R,
    "FacebookAI/xlm-roberta-large": dict(_XLM_R, **_LARGE),
    "FacebookAI/xlm-roberta-large-finetuned-conll03-english": dict(
        _XLM_R, architectures=["XLMRobertaForTokenClassification"], _num_labels=8, **_LARGE,
        **_labels("B-LOC", "B-MISC", "B-ORG", "I-LOC", "I-MISC", "I-ORG", "I-PER", "O"),
    ),
    "intfloat/multilingual-e5-small": dict(
        model_type="bert", architectures=["BertModel"], attention_probs_dropout_prob=0.1, classifier_dropout=None,
        hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=384, initializer_range=0.02, intermediate_size=1536,
        layer_norm_eps=1e-12, max_position_embeddings=512, num_attention_heads=12, num_hidden_layers=12,
        pad_token_id=0, position_embedding_type="absolute", tokenizer_class="XLMRobertaTokenizer", type_vocab_size=2,
        vocab_size=250037, **_WRITTEN,
    ),
    "intfloat/multilingual-e5-base": _XLM_R_MODEL,
    "intfloat/multilingual-e5-large": dict(_XLM_R_MODEL, **_LARGE),
    "BAAI/bge-m3": dict(_XLM_R_MODEL, max_position_embeddings=8194, **_LARGE),
    "BAAI/bge-reranker-v2-m3": dict(
        _XLM_R_MODEL, architectures=["XLMRobertaForSequenceClassification"], max_position_embeddings=8194, **_LARGE,
        **_labels("LABEL_0"),
    ),
    "sentence-transformers/paraphrase-multilingual-mpnet-base-v2": dict(_XLM_R_MODEL, gradient_checkpointing=False),
    "cardiffnlp/twitter-xlm-roberta-base-sentiment": dict(
        _XLM_R, architectures=["XLMRobertaForSequenceClassification"], **_labels("negative", "neutral", "positive")
    ),
    "papluca/xlm-roberta-base-language-detection": dict(
        _XLM_R, architectures=["XLMRobertaForSequenceClassification"], problem_type="single_label_classification",
        classifier_dropout=None, **_labels(*(f"language {i}" for i in range(20))), **_WRITTEN,
    ),
    "almanach/camembert-base": dict(
        _XLM_R, model_type="camembert", architectures=["CamembertForMaskedLM"], bos_token_id=5, eos_token_id=6,
        vocab_size=32005,
    ),
    "microsoft/mpnet-base": _MPNET,
    "sentence-transformers/all-mpnet-base-v2": dict(
        _MPNET, _name_or_path="microsoft/mpnet-base", transformers_version="4.8.2"
    ),
    "sentence-transformers/multi-qa-mpnet-base-dot-v1": dict(
        _MPNET, architectures=["MPNetModel"], torch_dtype="float32", transformers_version="4.11.3"
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- ELECTRA

_ELECTRA: Config = dict(
    _BERT, model_type="electra", architectures=["ElectraForPreTraining"], embedding_size=128, hidden_size=256,
    intermediate_size=1024, num_attention_heads=4, vocab_size=30522, summary_activation="gelu",
    summary_last_dropout=0.1, summary_type="first", summary_use_proj=True,
)  # fmt: skip
_ELECTRA_BASE: Config = dict(
    _ELECTRA, embedding_size=768, hidden_size=768, intermediate_size=3072, num_attention_heads=12
)

_ELECTRAS: dict[str, Config] = {
    "google/electra-small-discriminator": _ELECTRA,
    "google/electra-small-generator": dict(_ELECTRA, architectures=["ElectraForMaskedLM"]),
    "google/electra-base-discriminator": _ELECTRA_BASE,
    "google/electra-base-generator": dict(
        _ELECTRA_BASE, architectures=["ElectraForMaskedLM"], hidden_size=256, intermediate_size=1024,
        num_attention_heads=4,
    ),
    "google/electra-large-discriminator": dict(_ELECTRA, embedding_size=1024, **_LARGE),
    "cross-encoder/ms-marco-electra-base": dict(
        _ELECTRA_BASE, architectures=["ElectraForSequenceClassification"], classifier_dropout=None,
        position_embedding_type="absolute", **_labels("LABEL_0"),
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- ALBERT and ModernBERT

_ALBERT: Config = dict(
    _BERT, model_type="albert", architectures=["AlbertForMaskedLM"], attention_probs_dropout_prob=0, bos_token_id=2,
    classifier_dropout_prob=0.1, down_scale_factor=1, embedding_size=128, eos_token_id=3, gap_size=0,
    hidden_act="gelu_new", hidden_dropout_prob=0, inner_group_num=1, net_structure_type=0, num_hidden_groups=1,
    num_memory_blocks=0, vocab_size=30000,
)  # fmt: skip
_MODERN: Config = dict(
    model_type="modernbert", architectures=["ModernBertForMaskedLM"], attention_bias=False, attention_dropout=0.0,
    bos_token_id=50281, classifier_activation="gelu", classifier_bias=False, classifier_dropout=0.0,
    classifier_pooling="mean", cls_token_id=50281, decoder_bias=True, deterministic_flash_attn=False,
    embedding_dropout=0.0, eos_token_id=50282, global_attn_every_n_layers=3, global_rope_theta=160000.0,
    gradient_checkpointing=False, hidden_activation="gelu", hidden_size=768, initializer_cutoff_factor=2.0,
    initializer_range=0.02, intermediate_size=1152, layer_norm_eps=1e-05, local_attention=128,
    local_rope_theta=10000.0, max_position_embeddings=8192, mlp_bias=False, mlp_dropout=0.0, norm_bias=False,
    norm_eps=1e-05, num_attention_heads=12, num_hidden_layers=22, pad_token_id=50283,
    position_embedding_type="absolute", sep_token_id=50282, tie_word_embeddings=True, torch_dtype="float32",
    vocab_size=50368,
)  # fmt: skip

_DEBERTA: Config = dict(
    _BERT, model_type="deberta-v2", layer_norm_eps=1e-07, max_relative_positions=-1, norm_rel_ebd="layer_norm",
    pos_att_type="p2c|c2p", position_biased_input=False, position_buckets=256, relative_attention=True,
    share_att_key=True, type_vocab_size=0, vocab_size=128100,
)  # fmt: skip
_NLI: Config = dict(
    _DEBERTA, architectures=["DebertaV2ForSequenceClassification"], pooler_dropout=0, pooler_hidden_act="gelu",
    pooler_hidden_size=768, torch_dtype="float32", **_labels("entailment", "neutral", "contradiction"),
)  # fmt: skip

_LATER: dict[str, Config] = {
    "albert/albert-base-v1": dict(
        _ALBERT, attention_probs_dropout_prob=0.1, hidden_act="gelu", hidden_dropout_prob=0.1
    ),
    "albert/albert-base-v2": _ALBERT,
    "albert/albert-large-v2": dict(_ALBERT, **_LARGE),
    "albert/albert-xlarge-v2": dict(
        _ALBERT, hidden_size=2048, intermediate_size=8192, num_attention_heads=16, num_hidden_layers=24
    ),
    "albert/albert-xxlarge-v2": dict(
        _ALBERT, hidden_size=4096, intermediate_size=16384, num_attention_heads=64, layer_norm_eps=1e-12
    ),
    "textattack/albert-base-v2-imdb": dict(
        _ALBERT, architectures=["AlbertForSequenceClassification"], finetuning_task="imdb", **_labels("neg", "pos")
    ),
    "answerdotai/ModernBERT-base": _MODERN,
    "answerdotai/ModernBERT-large": dict(
        _MODERN, hidden_size=1024, intermediate_size=2624, num_attention_heads=16, num_hidden_layers=28
    ),
    "Alibaba-NLP/gte-modernbert-base": dict(_MODERN, architectures=["ModernBertModel"]),
    "nomic-ai/modernbert-embed-base": dict(_MODERN, architectures=["ModernBertModel"]),
    "microsoft/deberta-v3-xsmall": dict(_DEBERTA, hidden_size=384, intermediate_size=1536, num_attention_heads=6),
    "microsoft/deberta-v3-small": dict(_DEBERTA, num_hidden_layers=6),
    "microsoft/deberta-v3-base": _DEBERTA,
    "microsoft/deberta-v3-large": dict(_DEBERTA, **_LARGE),
    "microsoft/mdeberta-v3-base": dict(_DEBERTA, vocab_size=251000),
    "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli": _NLI,
    "cross-encoder/nli-deberta-v3-base": _NLI,
}  # fmt: skip

# --------------------------------------------------------------------------- mT5

_MT5: Config = dict(
    model_type="mt5", architectures=["MT5ForConditionalGeneration"], d_ff=1024, d_kv=64, d_model=512,
    decoder_start_token_id=0, dropout_rate=0.1, eos_token_id=1, feed_forward_proj="gated-gelu",
    initializer_factor=1.0, is_encoder_decoder=True, layer_norm_epsilon=1e-06, num_decoder_layers=8, num_heads=6,
    num_layers=8, output_past=True, pad_token_id=0, relative_attention_num_buckets=32, tie_word_embeddings=False,
    tokenizer_class="T5Tokenizer", use_cache=True, vocab_size=250112,
)  # fmt: skip

_LONGT5: Config = dict(
    {key: value for key, value in _MT5.items() if key != "tokenizer_class"}, model_type="longt5",
    architectures=["LongT5ForConditionalGeneration"], d_ff=2048, d_model=768, encoder_attention_type="local",
    global_block_size=16, local_radius=127, n_positions=4096, num_decoder_layers=12, num_heads=12, num_layers=12,
    relative_attention_max_distance=128, vocab_size=32128,
)  # fmt: skip

_MT5S: dict[str, Config] = {
    "google/mt5-small": _MT5,
    "google/mt5-base": dict(_MT5, d_ff=2048, d_model=768, num_decoder_layers=12, num_heads=12, num_layers=12),
    "google/mt5-large": dict(_MT5, d_ff=2816, d_model=1024, num_decoder_layers=24, num_heads=16, num_layers=24),
    "google/long-t5-local-base": _LONGT5,
    "google/long-t5-local-large": dict(
        _LONGT5, d_ff=2816, d_model=1024, num_decoder_layers=24, num_heads=16, num_layers=24
    ),
    "csebuetnlp/mT5_multilingual_XLSum": dict(
        _MT5, d_ff=2048, d_model=768, num_decoder_layers=12, num_heads=12, num_layers=12, length_penalty=0.6,
        max_length=84, num_beams=4, torch_dtype="float32", transformers_version="4.18.0",
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- mBART, M2M-100, Pegasus

_SIXTEEN: Config = dict(
    d_model=1024, decoder_attention_heads=16, decoder_ffn_dim=4096, decoder_layers=12, encoder_attention_heads=16,
    encoder_ffn_dim=4096, encoder_layers=12, gradient_checkpointing=False, init_std=0.02, is_encoder_decoder=True,
    max_position_embeddings=1024, num_hidden_layers=12, scale_embedding=True, use_cache=True,
)  # fmt: skip
_OLD: Config = dict(
    add_bias_logits=False, add_final_layer_norm=True, normalize_before=True, classif_dropout=0.0,
    classifier_dropout=0.0, decoder_layerdrop=0.0, encoder_layerdrop=0.0, static_position_embeddings=False,
    activation_dropout=0.0, dropout=0.1,
)  # fmt: skip
_MBART: Config = dict(
    _SIXTEEN, **_OLD, model_type="mbart", architectures=["MBartForConditionalGeneration"], attention_dropout=0.0,
    activation_function="gelu", bos_token_id=0, eos_token_id=2, pad_token_id=1, normalize_embedding=True,
    output_past=True, forced_eos_token_id=2, vocab_size=250054, **_labels("LABEL_0", "LABEL_1", "LABEL_2"),
)  # fmt: skip
_M2M: Config = dict(
    _SIXTEEN, model_type="m2m_100", architectures=["M2M100ForConditionalGeneration"], activation_dropout=0.0,
    activation_function="relu", attention_dropout=0.1, bos_token_id=0, decoder_layerdrop=0.05,
    decoder_start_token_id=2, dropout=0.1, early_stopping=True, encoder_layerdrop=0.05, eos_token_id=2,
    max_length=200, num_beams=5, pad_token_id=1, vocab_size=128112,
)  # fmt: skip
_NLLB: Config = dict(
    _M2M, decoder_layerdrop=0, encoder_layerdrop=0, tokenizer_class="NllbTokenizer", torch_dtype="float32",
    vocab_size=256206,
)  # fmt: skip
_DEEP: Config = dict(
    decoder_ffn_dim=8192, decoder_layers=24, encoder_ffn_dim=8192, encoder_layers=24, num_hidden_layers=24
)
_PEGASUS: Config = dict(
    _SIXTEEN | _OLD, model_type="pegasus", architectures=["PegasusForConditionalGeneration"], activation_dropout=0.1,
    activation_function="relu", attention_dropout=0.1, bos_token_id=0, decoder_layers=16, decoder_start_token_id=0,
    do_blenderbot_90_layernorm=False, encoder_layers=16, eos_token_id=1, extra_pos_embeddings=1,
    force_bos_token_to_be_generated=False, forced_eos_token_id=1, length_penalty=0.8, max_length=128,
    max_position_embeddings=1024, normalize_embedding=False, num_beams=8, num_hidden_layers=16, pad_token_id=0,
    static_position_embeddings=True, vocab_size=96103,
)  # fmt: skip

_TRANSLATORS: dict[str, Config] = {
    "facebook/mbart-large-cc25": dict(_MBART, max_length=1024, num_beams=5, vocab_size=250027),
    "facebook/mbart-large-50": dict(
        _MBART, early_stopping=True, max_length=200, num_beams=5, tokenizer_class="MBart50Tokenizer"
    ),
    "facebook/mbart-large-50-many-to-many-mmt": dict(
        _MBART, activation_function="relu", decoder_start_token_id=2, early_stopping=True, max_length=200,
        num_beams=5, tokenizer_class="MBart50Tokenizer",
    ),
    "facebook/m2m100_418M": _M2M,
    "facebook/m2m100_1.2B": dict(_M2M, **_DEEP),
    "facebook/nllb-200-distilled-600M": _NLLB,
    "facebook/nllb-200-distilled-1.3B": dict(_NLLB, **_DEEP),
    "facebook/nllb-200-3.3B": dict(_NLLB, **_DEEP, d_model=2048),
    "google/pegasus-large": _PEGASUS,
    "google/pegasus-xsum": dict(_PEGASUS, length_penalty=0.6, max_length=64, max_position_embeddings=512),
    "google/pegasus-cnn_dailymail": _PEGASUS,
}  # fmt: skip

# --------------------------------------------------------------------------- wav2vec 2.0 and HuBERT

_WAVES: Config = dict(
    activation_dropout=0.1, apply_spec_augment=True, attention_dropout=0.1, bos_token_id=1, conv_bias=False,
    conv_dim=[512] * 7, conv_kernel=[10, 3, 3, 3, 3, 2, 2], conv_stride=[5, 2, 2, 2, 2, 2, 2],
    ctc_loss_reduction="sum", ctc_zero_infinity=False, do_stable_layer_norm=False, eos_token_id=2,
    feat_extract_activation="gelu", feat_extract_dropout=0.0, feat_extract_norm="group", feat_proj_dropout=0.1,
    final_dropout=0.1, gradient_checkpointing=False, hidden_act="gelu", hidden_dropout=0.1, hidden_dropout_prob=0.1,
    hidden_size=768, initializer_range=0.02, intermediate_size=3072, layer_norm_eps=1e-05, layerdrop=0.1,
    mask_feature_length=10, mask_feature_prob=0.0, mask_time_length=10, mask_time_prob=0.05, num_attention_heads=12,
    num_conv_pos_embedding_groups=16, num_conv_pos_embeddings=128, num_feat_extract_layers=7, num_hidden_layers=12,
    pad_token_id=0, vocab_size=32,
)  # fmt: skip
_WAV2VEC2: Config = dict(
    _WAVES, model_type="wav2vec2", architectures=["Wav2Vec2ForCTC"], codevector_dim=256, diversity_loss_weight=0.1,
    contrastive_logits_temperature=0.1, feat_quantizer_dropout=0.0, num_codevector_groups=2, num_negatives=100,
    num_codevectors_per_group=320, proj_codevector_dim=256,
)  # fmt: skip
_LARGE_WAVES: Config = dict(_LARGE, conv_bias=True, do_stable_layer_norm=True, feat_extract_norm="layer")

_SPEECH: dict[str, Config] = {
    "facebook/wav2vec2-base-960h": _WAV2VEC2,
    "facebook/wav2vec2-large-960h": dict(_WAV2VEC2, **_LARGE),
    "facebook/wav2vec2-large-960h-lv60-self": dict(_WAV2VEC2, **_LARGE_WAVES),
    "facebook/hubert-base-ls960": dict(
        _WAVES, model_type="hubert", architectures=["HubertModel"], feat_proj_layer_norm=True
    ),
    "facebook/hubert-large-ls960-ft": dict(
        _WAVES, model_type="hubert", architectures=["HubertForCTC"], **_LARGE_WAVES
    ),
}  # fmt: skip

ENCODERS: dict[str, Config] = {**_ROBERTA_LIKE, **_ELECTRAS, **_LATER, **_MT5S, **_TRANSLATORS, **_SPEECH}
SEPARATE: tuple[str, ...] = tuple(_MT5S)
COUNTS: dict[str, int] = {
    "answerdotai/ModernBERT-base": 149_655_232,
    "cross-encoder/nli-deberta-v3-base": 184_424_451,
    "intfloat/multilingual-e5-base": 278_043_648,
    "intfloat/multilingual-e5-large": 559_890_432,
    "BAAI/bge-m3": 567_754_752,
    "BAAI/bge-reranker-v2-m3": 567_755_777,
    "google/mt5-small": 300_176_768,
    "google/mt5-base": 582_401_280,
    "google/mt5-large": 1_229_581_312,
    "facebook/m2m100_418M": 483_905_536,
    "facebook/nllb-200-distilled-600M": 615_073_792,
    "facebook/nllb-200-distilled-1.3B": 1_370_638_336,
    "facebook/nllb-200-3.3B": 3_344_863_232,
    "facebook/wav2vec2-base-960h": 94_396_320,
    "facebook/wav2vec2-large-960h-lv60-self": 315_471_520,
    "facebook/hubert-base-ls960": 94_371_712,
}
BARE_COUNTS: dict[str, int] = {
    "FacebookAI/xlm-roberta-base": 278_043_648,
    "sentence-transformers/all-mpnet-base-v2": 109_486_464,
    "google/electra-base-discriminator": 108_891_648,
    "albert/albert-base-v2": 11_683_584,
    "microsoft/deberta-v3-base": 183_831_552,
    "microsoft/deberta-v3-large": 434_012_160,
    "albert/albert-large-v2": 17_683_968,
    "albert/albert-xlarge-v2": 58_724_864,
    "albert/albert-xxlarge-v2": 222_595_584,
    "google/electra-large-discriminator": 334_092_288,
}
