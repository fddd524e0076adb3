"""Encoders and encoder–decoders beside the first families: class, config class and settings; data only."""

from __future__ import annotations

from typing import Any

BERT: dict[str, Any] = dict(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=64, pad_token_id=1,
)  # fmt: skip
T5: dict[str, Any] = dict(
    vocab_size=50, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=4, pad_token_id=1, decoder_start_token_id=1,
    eos_token_id=2, relative_attention_max_distance=32, initializer_factor=0.3,
)  # fmt: skip
SEQ2SEQ: dict[str, Any] = dict(
    vocab_size=50, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, scale_embedding=True,
    decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=48, max_position_embeddings=64, pad_token_id=1,
    decoder_start_token_id=1, eos_token_id=2, bos_token_id=0, forced_eos_token_id=None,
)  # fmt: skip
WAVES: dict[str, Any] = dict(
    vocab_size=30, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    conv_dim=[12, 16, 20], conv_kernel=[10, 3, 2], conv_stride=[5, 2, 2], num_conv_pos_embeddings=8,
    num_conv_pos_embedding_groups=4,
)  # fmt: skip
DEBERTA: dict[str, Any] = dict(
    BERT, relative_attention=True, position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True,
    pos_att_type="p2c|c2p", max_relative_positions=-1, position_biased_input=False, type_vocab_size=0,
)  # fmt: skip
MODERN: dict[str, Any] = dict(
    {key: value for key, value in BERT.items() if key != "num_hidden_layers"}, num_hidden_layers=5, local_attention=6,
    eos_token_id=2, bos_token_id=0, cls_token_id=0, sep_token_id=2,
)  # fmt: skip
LAYERS: dict[str, Any] = dict(
    layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 500.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
)
LABELS: dict[str, Any] = dict(num_labels=3)

HEADS = {"": "Model", "-mlm": "ForMaskedLM", "-tag": "ForTokenClassification", "-span": "ForQuestionAnswering"}
CLASSIFY = {"-classify": "ForSequenceClassification"}
SEQ2SEQ_HEADS = {"": "Model", "-lm": "ForConditionalGeneration"}


def heads(name: str, words: str, settings: dict[str, Any], *tables: dict[str, str]) -> dict[str, Any]:
    """A case for each head of a family; heads with labels have three."""
    every = {suffix: head for table in tables for suffix, head in table.items()}
    labelled = {suffix: settings | LABELS if suffix in ("-tag", "-classify") else settings for suffix in every}
    return {name + s: (words + head, f"{words}Config", labelled[s]) for s, head in every.items()}


ENCODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    **heads("xlm-roberta", "XLMRoberta", BERT, HEADS, CLASSIFY),
    **heads("camembert", "Camembert", BERT, HEADS, CLASSIFY),
    **heads("mpnet", "MPNet", BERT, HEADS, CLASSIFY),
    **heads("electra", "Electra", dict(BERT, embedding_size=12), HEADS, CLASSIFY),
    "electra-discriminator": (
        "ElectraForPreTraining",
        "ElectraConfig",
        dict(BERT, embedding_size=12, hidden_act="relu"),
    ),
    "electra-wide": ("ElectraForMaskedLM", "ElectraConfig", dict(BERT, embedding_size=32, hidden_act="relu")),
}
ENCODERS |= {
    **heads("albert", "Albert", dict(BERT, embedding_size=12, num_hidden_layers=3), HEADS, CLASSIFY),
    "albert-pretraining": ("AlbertForPreTraining", "AlbertConfig", dict(BERT, embedding_size=32)),
    **heads("nomic", "NomicBert", BERT, {key: HEADS[key] for key in ("", "-mlm", "-tag")}, CLASSIFY),
    "nomic-linear": (
        "NomicBertForMaskedLM",
        "NomicBertConfig",
        dict(BERT, rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=300.0), type_vocab_size=3),
    ),
    **heads("deberta", "DebertaV2", DEBERTA, HEADS, CLASSIFY),
    "deberta-every-distance": (
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        dict(DEBERTA, position_buckets=-1, max_relative_positions=9, norm_rel_ebd="none", type_vocab_size=2),
    ),
    "deberta-plain": ("DebertaV2ForMaskedLM", "DebertaV2Config", BERT),
    **heads("modernbert", "ModernBert", MODERN, HEADS, CLASSIFY),
    "modernbert-mean": (
        "ModernBertForSequenceClassification",
        "ModernBertConfig",
        dict(MODERN, classifier_pooling="mean", norm_bias=True, attention_bias=True, mlp_bias=True, **LABELS),
    ),
    "modernbert-biased-mlm": (
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        dict(MODERN, classifier_bias=True, decoder_bias=False, classifier_activation="relu", **LAYERS),
    ),
}
ENCODER_DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    **heads("mt5", "MT5", T5, SEQ2SEQ_HEADS, CLASSIFY),
    "mt5-relu": ("MT5ForConditionalGeneration", "MT5Config", dict(T5, feed_forward_proj="relu", num_decoder_layers=1)),
    "mt5-encoder": ("MT5EncoderModel", "MT5Config", T5),
    "mt5-tag": ("MT5ForTokenClassification", "MT5Config", T5 | LABELS),
    "mt5-span": ("MT5ForQuestionAnswering", "MT5Config", T5),
    **heads("longt5", "LongT5", dict(T5, local_radius=4), SEQ2SEQ_HEADS),
    "longt5-encoder": ("LongT5EncoderModel", "LongT5Config", dict(T5, local_radius=7, feed_forward_proj="gated-gelu")),
    **heads("mbart", "MBart", SEQ2SEQ, SEQ2SEQ_HEADS, CLASSIFY, {"-span": "ForQuestionAnswering"}),
    "mbart-plain": ("MBartForConditionalGeneration", "MBartConfig", dict(SEQ2SEQ, scale_embedding=False)),
    **heads("m2m-100", "M2M100", dict(SEQ2SEQ, decoder_start_token_id=2), SEQ2SEQ_HEADS),  # it counts no padding
    **heads("pegasus", "Pegasus", SEQ2SEQ, SEQ2SEQ_HEADS),
}
STABLE: dict[str, Any] = dict(WAVES, do_stable_layer_norm=True, feat_extract_norm="layer", conv_bias=True)
SOUND_ENCODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", WAVES),
    "wav2vec2-ctc": ("Wav2Vec2ForCTC", "Wav2Vec2Config", dict(WAVES, num_conv_pos_embeddings=7)),
    "wav2vec2-stable": ("Wav2Vec2Model", "Wav2Vec2Config", dict(STABLE, mask_time_prob=0.0)),
    "wav2vec2-stable-ctc": ("Wav2Vec2ForCTC", "Wav2Vec2Config", STABLE),
    "hubert": ("HubertModel", "HubertConfig", WAVES),
    "hubert-ctc": ("HubertForCTC", "HubertConfig", dict(STABLE, feat_proj_layer_norm=False)),
}
