"""Settings of well-known published models as their config.json files have them, old keys included; data only.

`MODELS[name]` is the content of config.json. `PARAMETERS[name]` is the widely published count of weights for the
architecture that the file names. `SEPARATE_HEAD` lists models whose weights hold an output matrix that config.json does
not tell of.
"""

from __future__ import annotations

from typing import Any

from tests.hub.published_decoders import DECODER_PARAMETERS, DECODERS
from tests.hub.published_encoders import BARE_COUNTS, COUNTS, ENCODERS, SEPARATE

Config = dict[str, Any]


def _labels(*names: str) -> Config:
    return {"id2label": {str(i): n for i, n in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}


# --------------------------------------------------------------------------- BERT

_BERT: Config = dict(
    model_type="bert", attention_probs_dropout_prob=0.1, hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=768,
    initializer_range=0.02, intermediate_size=3072, max_position_embeddings=512, num_attention_heads=12,
    num_hidden_layers=12, type_vocab_size=2, vocab_size=30522, layer_norm_eps=1e-12, pad_token_id=0,
)  # fmt: skip
_BERT_LARGE: Config = dict(
    _BERT, hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24
)
_BERT_MLM: Config = dict(_BERT, architectures=["BertForMaskedLM"])
_BERT_NEW: Config = dict(
    _BERT, architectures=["BertModel"], classifier_dropout=None, position_embedding_type="absolute", use_cache=True,
    torch_dtype="float32", transformers_version="4.18.0",
)  # fmt: skip
_MULTILINGUAL: Config = dict(
    _BERT_MLM, directionality="bidi", pooler_fc_size=768, pooler_num_attention_heads=12, pooler_num_fc_layers=3,
    pooler_size_per_head=128, pooler_type="first_token_transform",
)  # fmt: skip
_MINILM: Config = dict(
    _BERT_NEW, _name_or_path="nreimers/MiniLM-L6-H384-uncased", gradient_checkpointing=False, hidden_size=384,
    intermediate_size=1536, num_hidden_layers=6, transformers_version="4.8.2",
)  # fmt: skip
_BGE: Config = dict(_BERT_NEW, **_labels("LABEL_0"), transformers_version="4.30.0")
_CONLL = ("O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")

_BERTS: dict[str, Config] = {
    "google-bert/bert-base-uncased": dict(
        _BERT_MLM, gradient_checkpointing=False, position_embedding_type="absolute", transformers_version="4.6.0.dev0",
        use_cache=True,
    ),
    "google-bert/bert-base-cased": dict(
        _BERT_MLM, gradient_checkpointing=False, position_embedding_type="absolute", transformers_version="4.6.0.dev0",
        use_cache=True, vocab_size=28996,
    ),
    "google-bert/bert-large-uncased": dict(
        _BERT_LARGE, architectures=["BertForMaskedLM"], gradient_checkpointing=False,
        position_embedding_type="absolute", use_cache=True,
    ),
    "google-bert/bert-large-cased": dict(
        _BERT_LARGE, architectures=["BertForMaskedLM"], directionality="bidi", pooler_fc_size=768,
        pooler_num_attention_heads=12, pooler_num_fc_layers=3, pooler_size_per_head=128,
        pooler_type="first_token_transform", vocab_size=28996,
    ),
    "google-bert/bert-large-uncased-whole-word-masking-finetuned-squad": dict(
        _BERT_LARGE, architectures=["BertForQuestionAnswering"]
    ),
    "google-bert/bert-base-multilingual-cased": dict(_MULTILINGUAL, vocab_size=119547),
    "google-bert/bert-base-multilingual-uncased": dict(_MULTILINGUAL, vocab_size=105879),
    "google-bert/bert-base-chinese": dict(_MULTILINGUAL, vocab_size=21128),
    "google-bert/bert-base-german-cased": dict(_BERT_MLM, output_past=True, vocab_size=30000),
    "google/bert_uncased_L-2_H-128_A-2": dict(
        _BERT, hidden_size=128, intermediate_size=512, num_attention_heads=2, num_hidden_layers=2
    ),
    "microsoft/MiniLM-L12-H384-uncased": dict(_BERT, hidden_size=384, intermediate_size=1536),
    "sentence-transformers/all-MiniLM-L6-v2": _MINILM,
    "sentence-transformers/all-MiniLM-L12-v2": dict(_MINILM, num_hidden_layers=12),
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": dict(
        _MINILM, _name_or_path="old_models/paraphrase-multilingual-MiniLM-L12-v2/0_Transformer", num_hidden_layers=12,
        vocab_size=250037,
    ),
    "BAAI/bge-small-en-v1.5": dict(_BGE, hidden_size=384, intermediate_size=1536),
    "BAAI/bge-base-en-v1.5": dict(_BGE, gradient_checkpointing=False),
    "thenlper/gte-small": dict(_BGE, hidden_size=384, intermediate_size=1536, torch_dtype="float16"),
    "cross-encoder/ms-marco-MiniLM-L-6-v2": dict(
        _MINILM, architectures=["BertForSequenceClassification"], **_labels("LABEL_0"),
        sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0.1"},
    ),
    "dslim/bert-base-NER": dict(
        _BERT, architectures=["BertForTokenClassification"], _num_labels=9, output_past=True, vocab_size=28996,
        **_labels(*_CONLL),
    ),
    "dbmdz/bert-large-cased-finetuned-conll03-english": dict(
        _BERT_LARGE, architectures=["BertForTokenClassification"], _num_labels=9, directionality="bidi",
        pooler_fc_size=768, pooler_num_attention_heads=12, pooler_num_fc_layers=3, pooler_size_per_head=128,
        pooler_type="first_token_transform", vocab_size=28996, **_labels(*_CONLL),
    ),
    "nlptown/bert-base-multilingual-uncased-sentiment": dict(
        _MULTILINGUAL, architectures=["BertForSequenceClassification"], _num_labels=5,
        finetuning_task="sentiment-analysis", output_past=True, vocab_size=105879,
        **_labels("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
    ),
    "ProsusAI/finbert": dict(
        _BERT, architectures=["BertForSequenceClassification"], gradient_checkpointing=False,
        position_embedding_type="absolute", **_labels("positive", "negative", "neutral"),
    ),
    "yiyanghkust/finbert-tone": dict(
        _BERT, architectures=["BertForSequenceClassification"], vocab_size=30873, type_vocab_size=2,
        **_labels("Neutral", "Positive", "Negative"),
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- RoBERTa

_ROBERTA: Config = dict(
    _BERT, model_type="roberta", architectures=["RobertaForMaskedLM"], bos_token_id=0, eos_token_id=2, pad_token_id=1,
    layer_norm_eps=1e-05, max_position_embeddings=514, type_vocab_size=1, vocab_size=50265,
)  # fmt: skip
_ROBERTA_LARGE: Config = dict(
    _ROBERTA, hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24
)
_EMOTIONS = ("anger", "disgust", "fear", "joy", "neutral", "sadness", "surprise")

_ROBERTAS: dict[str, Config] = {
    "FacebookAI/roberta-base": _ROBERTA,
    "FacebookAI/roberta-large": _ROBERTA_LARGE,
    "FacebookAI/roberta-large-mnli": dict(
        _ROBERTA_LARGE, architectures=["RobertaForSequenceClassification"], _num_labels=3,
        **_labels("CONTRADICTION", "NEUTRAL", "ENTAILMENT"),
    ),
    "distilbert/distilroberta-base": dict(_ROBERTA, num_hidden_layers=6),
    "cardiffnlp/twitter-roberta-base-sentiment-latest": dict(
        _ROBERTA, architectures=["RobertaForSequenceClassification"], classifier_dropout=None,
        gradient_checkpointing=False, position_embedding_type="absolute", torch_dtype="float32", use_cache=True,
        **_labels("negative", "neutral", "positive"),
    ),
    "deepset/roberta-base-squad2": dict(
        _ROBERTA, architectures=["RobertaForQuestionAnswering"], gradient_checkpointing=False, language="english",
        name="Roberta", position_embedding_type="absolute", use_cache=True,
    ),
    "sentence-transformers/all-distilroberta-v1": dict(
        _ROBERTA, architectures=["RobertaForMaskedLM"], _name_or_path="distilroberta-base", num_hidden_layers=6,
        gradient_checkpointing=False, position_embedding_type="absolute", use_cache=True,
    ),
    "microsoft/codebert-base": dict(_ROBERTA, architectures=["RobertaModel"], output_past=True),
    "j-hartmann/emotion-english-distilroberta-base": dict(
        _ROBERTA, architectures=["RobertaForSequenceClassification"], num_hidden_layers=6,
        gradient_checkpointing=False, position_embedding_type="absolute", problem_type="single_label_classification",
        **_labels(*_EMOTIONS),
    ),
    "SamLowe/roberta-base-go_emotions": dict(
        _ROBERTA, architectures=["RobertaForSequenceClassification"], classifier_dropout=None,
        position_embedding_type="absolute", problem_type="multi_label_classification",
        **_labels(*(f"emotion {i}" for i in range(28))),
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- DistilBERT

_DISTIL: Config = dict(
    model_type="distilbert", activation="gelu", attention_dropout=0.1, dim=768, dropout=0.1, hidden_dim=3072,
    initializer_range=0.02, max_position_embeddings=512, n_heads=12, n_layers=6, pad_token_id=0, qa_dropout=0.1,
    seq_classif_dropout=0.2, sinusoidal_pos_embds=False, tie_weights_=True, vocab_size=30522,
)  # fmt: skip

_DISTILBERTS: dict[str, Config] = {
    "distilbert/distilbert-base-uncased": dict(
        _DISTIL, architectures=["DistilBertForMaskedLM"], transformers_version="4.10.0.dev0"
    ),
    "distilbert/distilbert-base-cased": dict(
        _DISTIL, architectures=["DistilBertForMaskedLM"], output_past=True, vocab_size=28996
    ),
    "distilbert/distilbert-base-multilingual-cased": dict(
        _DISTIL, architectures=["DistilBertForMaskedLM"], output_past=True, vocab_size=119547
    ),
    "distilbert/distilbert-base-uncased-finetuned-sst-2-english": dict(
        _DISTIL, architectures=["DistilBertForSequenceClassification"], finetuning_task="sst-2", output_past=True,
        **_labels("NEGATIVE", "POSITIVE"),
    ),
    "distilbert/distilbert-base-cased-distilled-squad": dict(
        _DISTIL, architectures=["DistilBertForQuestionAnswering"], output_past=True, vocab_size=28996
    ),
    "elastic/distilbert-base-uncased-finetuned-conll03-english": dict(
        _DISTIL, architectures=["DistilBertForTokenClassification"], _num_labels=9, **_labels(*_CONLL)
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- BigBird

_BIGBIRD: Config = dict(
    model_type="big_bird", architectures=["BigBirdForPreTraining"], attention_probs_dropout_prob=0.1,
    attention_type="block_sparse", block_size=64, bos_token_id=1, eos_token_id=2, gradient_checkpointing=False,
    hidden_act="gelu_new", hidden_dropout_prob=0.1, hidden_size=768, initializer_range=0.02, intermediate_size=3072,
    layer_norm_eps=1e-12, max_position_embeddings=4096, num_attention_heads=12, num_hidden_layers=12,
    num_random_blocks=3, pad_token_id=0, position_embedding_type="absolute", rescale_embeddings=False,
    sep_token_id=66, transformers_version="4.4.0.dev0", type_vocab_size=2, use_bias=True, use_cache=True,
    vocab_size=50358,
)  # fmt: skip

_BIGBIRDS: dict[str, Config] = {
    "google/bigbird-roberta-base": _BIGBIRD,
    "google/bigbird-roberta-large": dict(
        _BIGBIRD, hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24
    ),
    "google/bigbird-base-trivia-itc": dict(
        _BIGBIRD, architectures=["BigBirdForQuestionAnswering"], type_vocab_size=16
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- GPT-2

_SUMMARY: Config = dict(
    summary_activation=None, summary_first_dropout=0.1, summary_proj_to_labels=True, summary_type="cls_index",
    summary_use_proj=True,
)  # fmt: skip
_GPT2: Config = dict(
    model_type="gpt2", activation_function="gelu_new", architectures=["GPT2LMHeadModel"], attn_pdrop=0.1,
    bos_token_id=50256, embd_pdrop=0.1, eos_token_id=50256, initializer_range=0.02, layer_norm_epsilon=1e-05,
    n_ctx=1024, n_embd=768, n_head=12, n_layer=12, n_positions=1024, resid_pdrop=0.1, vocab_size=50257,
    task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}}, **_SUMMARY,
)  # fmt: skip
_GPT2_MEDIUM: Config = dict(_GPT2, n_embd=1024, n_head=16, n_layer=24, n_special=0, predict_special_tokens=True)
_DIALOGPT: Config = dict(_GPT2, task_specific_params={"conversational": {"max_length": 1000}})

_GPT2S: dict[str, Config] = {
    "openai-community/gpt2": _GPT2,
    "openai-community/gpt2-medium": _GPT2_MEDIUM,
    "openai-community/gpt2-large": dict(_GPT2, n_embd=1280, n_head=20, n_layer=36),
    "openai-community/gpt2-xl": dict(_GPT2, n_embd=1600, n_head=25, n_layer=48, output_past=True),
    "distilbert/distilgpt2": dict(_GPT2, _num_labels=1, n_layer=6, **_labels("LABEL_0")),
    "microsoft/DialoGPT-small": _DIALOGPT,
    "microsoft/DialoGPT-medium": dict(_DIALOGPT, n_embd=1024, n_head=16, n_layer=24),
    "microsoft/DialoGPT-large": dict(_DIALOGPT, n_embd=1280, n_head=20, n_layer=36),
    "stanford-crfm/alias-gpt2-small-x21": dict(
        _GPT2, reorder_and_upcast_attn=False, scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True,
        use_cache=False, gradient_checkpointing=False, n_inner=None,
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- Llama, Mistral and Gemma

_LLAMA: Config = dict(
    model_type="llama", architectures=["LlamaForCausalLM"], bos_token_id=1, eos_token_id=2, hidden_act="silu",
    hidden_size=4096, initializer_range=0.02, intermediate_size=11008, max_position_embeddings=4096,
    num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=32, pretraining_tp=1, rms_norm_eps=1e-05,
    rope_scaling=None, tie_word_embeddings=False, torch_dtype="float16", transformers_version="4.31.0.dev0",
    use_cache=True, vocab_size=32000,
)  # fmt: skip
_LLAMA3: Config = dict(
    _LLAMA, attention_bias=False, attention_dropout=0.0, bos_token_id=128000, eos_token_id=128001,
    intermediate_size=14336, max_position_embeddings=8192, num_key_value_heads=8, rope_theta=500000.0,
    torch_dtype="bfloat16", vocab_size=128256,
)  # fmt: skip
_LLAMA31: Config = dict(
    _LLAMA3, max_position_embeddings=131072, mlp_bias=False, eos_token_id=[128001, 128008, 128009],
    rope_scaling=dict(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192,
        rope_type="llama3",
    ),
)  # fmt: skip
_LLAMA32: Config = dict(
    _LLAMA31, head_dim=64, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, tie_word_embeddings=True,
    rope_scaling=dict(_LLAMA31["rope_scaling"], factor=32.0),
)  # fmt: skip
_SMOL: Config = dict(
    _LLAMA, attention_bias=False, attention_dropout=0.0, bos_token_id=0, eos_token_id=0, hidden_size=576,
    initializer_range=0.041666666666666664, intermediate_size=1536, is_llama_config=True,
    max_position_embeddings=8192, num_attention_heads=9, num_hidden_layers=30, num_key_value_heads=3,
    rope_interleaved=False, rope_theta=100000, tie_word_embeddings=True, torch_dtype="bfloat16", vocab_size=49152,
)  # fmt: skip
_SMOL1: Config = {k: v for k, v in _SMOL.items() if k not in ("is_llama_config", "rope_interleaved")}
_GEMMA: Config = dict(
    model_type="gemma", architectures=["GemmaForCausalLM"], attention_bias=False, attention_dropout=0.0,
    bos_token_id=2, eos_token_id=1, head_dim=256, hidden_act="gelu", hidden_activation=None, hidden_size=2048,
    initializer_range=0.02, intermediate_size=16384, max_position_embeddings=8192, num_attention_heads=8,
    num_hidden_layers=18, num_key_value_heads=1, pad_token_id=0, rms_norm_eps=1e-06, rope_scaling=None,
    rope_theta=10000.0, torch_dtype="bfloat16", transformers_version="4.38.0.dev0", use_cache=True,
    vocab_size=256000,
)  # fmt: skip
_MISTRAL: Config = dict(
    model_type="mistral", architectures=["MistralForCausalLM"], bos_token_id=1, eos_token_id=2, hidden_act="silu",
    hidden_size=4096, initializer_range=0.02, intermediate_size=14336, max_position_embeddings=32768,
    num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8, rms_norm_eps=1e-05, rope_theta=10000.0,
    sliding_window=4096, tie_word_embeddings=False, torch_dtype="bfloat16", transformers_version="4.34.0.dev0",
    use_cache=True, vocab_size=32000,
)  # fmt: skip

_LLAMAS: dict[str, Config] = {
    "huggyllama/llama-7b": dict(
        {k: v for k, v in _LLAMA.items() if k not in ("num_key_value_heads", "pretraining_tp", "rope_scaling")},
        max_position_embeddings=2048, max_sequence_length=2048, pad_token_id=0, rms_norm_eps=1e-06,
    ),
    "meta-llama/Llama-2-7b-hf": _LLAMA,
    "meta-llama/Llama-2-13b-hf": dict(
        _LLAMA, hidden_size=5120, intermediate_size=13824, num_attention_heads=40, num_hidden_layers=40,
        num_key_value_heads=40,
    ),
    "meta-llama/Llama-2-70b-hf": dict(
        _LLAMA, hidden_size=8192, intermediate_size=28672, num_attention_heads=64, num_hidden_layers=80,
        num_key_value_heads=8,
    ),
    "codellama/CodeLlama-7b-hf": dict(
        _LLAMA, max_position_embeddings=16384, rope_theta=1000000, torch_dtype="bfloat16", vocab_size=32016
    ),
    "lmsys/vicuna-7b-v1.5-16k": dict(_LLAMA, pad_token_id=0, rope_scaling={"factor": 4.0, "type": "linear"}),
    "meta-llama/Meta-Llama-3-8B": _LLAMA3,
    "meta-llama/Meta-Llama-3-70B": dict(
        _LLAMA3, hidden_size=8192, intermediate_size=28672, num_attention_heads=64, num_hidden_layers=80
    ),
    "meta-llama/Llama-3.1-8B": _LLAMA31,
    "meta-llama/Llama-3.2-1B": _LLAMA32,
    "meta-llama/Llama-3.2-3B": dict(
        _LLAMA32, head_dim=128, hidden_size=3072, num_attention_heads=24, num_hidden_layers=28
    ),
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": dict(
        _LLAMA, attention_bias=False, hidden_size=2048, intermediate_size=5632, max_position_embeddings=2048,
        num_hidden_layers=22, num_key_value_heads=4, rope_theta=10000.0, torch_dtype="bfloat16",
    ),
    "HuggingFaceTB/SmolLM-135M": dict(_SMOL1, max_position_embeddings=2048, rope_theta=10000.0),
    "HuggingFaceTB/SmolLM2-135M": _SMOL,
    "HuggingFaceTB/SmolLM2-135M-Instruct": {
        **_SMOL, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2,
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
    },
    "HuggingFaceTB/SmolLM2-360M": dict(
        _SMOL, hidden_size=960, initializer_range=0.02, intermediate_size=2560, num_attention_heads=15,
        num_hidden_layers=32, num_key_value_heads=5,
    ),
    "HuggingFaceTB/SmolLM2-1.7B": dict(
        _SMOL1, hidden_size=2048, initializer_range=0.02, intermediate_size=8192, num_attention_heads=32,
        num_hidden_layers=24, num_key_value_heads=32, rope_theta=130000,
    ),
    "mistralai/Mistral-7B-v0.1": _MISTRAL,
    "mistralai/Mistral-7B-Instruct-v0.2": dict(
        _MISTRAL, attention_dropout=0.0, rope_theta=1000000.0, sliding_window=None
    ),
    "google/gemma-2b": _GEMMA,
    "google/gemma-7b": dict(
        _GEMMA, hidden_size=3072, intermediate_size=24576, num_attention_heads=16, num_hidden_layers=28,
        num_key_value_heads=16,
    ),
    "google/gemma-1.1-2b-it": dict(
        _GEMMA, hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh", transformers_version="4.39.3"
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- T5

_T5: Config = dict(
    model_type="t5", architectures=["T5ForConditionalGeneration"], d_ff=2048, d_kv=64, d_model=512,
    decoder_start_token_id=0, dropout_rate=0.1, eos_token_id=1, initializer_factor=1.0, is_encoder_decoder=True,
    layer_norm_epsilon=1e-06, n_positions=512, num_heads=8, num_layers=6, output_past=True, pad_token_id=0,
    relative_attention_num_buckets=32, use_cache=True, vocab_size=32128,
    task_specific_params={"translation_en_to_de": {"max_length": 300, "num_beams": 4, "prefix": "translate: "}},
)  # fmt: skip
_T5_11: Config = dict(
    model_type="t5", architectures=["T5ForConditionalGeneration"], d_ff=1024, d_kv=64, d_model=512,
    decoder_start_token_id=0, dropout_rate=0.1, eos_token_id=1, feed_forward_proj="gated-gelu",
    initializer_factor=1.0, is_encoder_decoder=True, layer_norm_epsilon=1e-06, num_decoder_layers=8, num_heads=6,
    num_layers=8, output_past=True, pad_token_id=0, relative_attention_num_buckets=32, tie_word_embeddings=False,
    use_cache=True, vocab_size=32128,
)  # fmt: skip
_T5_11_BASE: Config = dict(_T5_11, d_ff=2048, d_model=768, num_decoder_layers=12, num_heads=12, num_layers=12)
_FLAN: Config = dict(n_positions=512, relative_attention_max_distance=128, transformers_version="4.23.1")

_T5S: dict[str, Config] = {
    "google-t5/t5-small": _T5,
    "google-t5/t5-base": dict(_T5, d_ff=3072, d_model=768, num_heads=12, num_layers=12),
    "google-t5/t5-large": dict(_T5, d_ff=4096, d_model=1024, num_heads=16, num_layers=24),
    "google-t5/t5-3b": dict(
        _T5, architectures=["T5WithLMHeadModel"], d_ff=16384, d_kv=128, d_model=1024, num_heads=32, num_layers=24
    ),
    "google/t5-v1_1-small": _T5_11,
    "google/t5-v1_1-base": _T5_11_BASE,
    "google/flan-t5-small": dict(_T5_11, **_FLAN),
    "google/flan-t5-base": dict(_T5_11_BASE, **_FLAN),
    "google/flan-t5-large": dict(
        _T5_11, **_FLAN, d_ff=2816, d_model=1024, num_decoder_layers=24, num_heads=16, num_layers=24
    ),
    "google/flan-t5-xl": dict(
        _T5_11, **_FLAN, d_ff=5120, d_model=2048, num_decoder_layers=24, num_heads=32, num_layers=24
    ),
    "sentence-transformers/sentence-t5-base": dict(
        _T5, architectures=["T5EncoderModel"], d_ff=3072, d_model=768, num_heads=12, num_layers=12,
        num_decoder_layers=12, feed_forward_proj="relu", gradient_checkpointing=False, torch_dtype="float16",
    ),
}  # fmt: skip
SEPARATE_HEAD = (*(name for name in _T5S if "v1_1" in name or "flan" in name), *SEPARATE)

# --------------------------------------------------------------------------- BART and Marian

_BART: Config = dict(
    model_type="bart", architectures=["BartForConditionalGeneration"], activation_dropout=0.0,
    activation_function="gelu", add_bias_logits=False, add_final_layer_norm=False, attention_dropout=0.0,
    bos_token_id=0, classif_dropout=0.0, classifier_dropout=0.0, d_model=1024, decoder_attention_heads=16,
    decoder_ffn_dim=4096, decoder_layerdrop=0.0, decoder_layers=12, decoder_start_token_id=2, dropout=0.1,
    early_stopping=True, encoder_attention_heads=16, encoder_ffn_dim=4096, encoder_layerdrop=0.0, encoder_layers=12,
    eos_token_id=2, forced_eos_token_id=2, gradient_checkpointing=False, init_std=0.02, is_encoder_decoder=True,
    max_position_embeddings=1024, no_repeat_ngram_size=3, normalize_before=False, num_beams=4, num_hidden_layers=12,
    pad_token_id=1, scale_embedding=False, use_cache=True, vocab_size=50265, **_labels("LABEL_0", "LABEL_1", "LABEL_2"),
)  # fmt: skip
_BART_BASE: Config = dict(
    _BART, attention_dropout=0.1, classif_dropout=0.1, activation_dropout=0.1, d_model=768,
    decoder_attention_heads=12, decoder_ffn_dim=3072, decoder_layers=6, encoder_attention_heads=12,
    encoder_ffn_dim=3072, encoder_layers=6, forced_bos_token_id=0, normalize_embedding=True, num_hidden_layers=6,
    task_specific_params={"summarization": {"length_penalty": 1.0, "max_length": 128, "min_length": 12}},
)  # fmt: skip
_BART_CNN: Config = dict(
    _BART, _num_labels=3, force_bos_token_to_be_generated=True, forced_bos_token_id=0, length_penalty=2.0,
    max_length=142, min_length=56, output_past=True, prefix=" ", vocab_size=50264,
)  # fmt: skip
_DISTILBART: Config = dict(
    _BART_CNN, decoder_layers=6, extra_pos_embeddings=2, normalize_embedding=True, replacing_rate=0,
    static_position_embeddings=False, student_decoder_layers=None, student_encoder_layers=None, save_step=9,
)  # fmt: skip
_MARIAN: Config = dict(
    _BART, _num_labels=3, model_type="marian",
    architectures=["MarianMTModel"], activation_function="swish", bad_words_ids=[[58100]], d_model=512,
    decoder_attention_heads=8, decoder_ffn_dim=2048, decoder_layers=6, decoder_start_token_id=58100,
    decoder_vocab_size=58101, do_blenderbot_90_layernorm=False, encoder_attention_heads=8, encoder_ffn_dim=2048,
    encoder_layers=6, eos_token_id=0, extra_pos_embeddings=58101, force_bos_token_to_be_generated=False,
    forced_eos_token_id=0, max_length=512, max_position_embeddings=512, normalize_embedding=False, num_beams=6,
    num_hidden_layers=6, pad_token_id=58100, scale_embedding=True, share_encoder_decoder_embeddings=True,
    static_position_embeddings=True, vocab_size=58101,
)  # fmt: skip


def _opus(vocab: int, **changes: Any) -> Config:
    pad = vocab - 1
    return dict(
        _MARIAN, bad_words_ids=[[pad]], decoder_start_token_id=pad, decoder_vocab_size=vocab,
        extra_pos_embeddings=vocab, pad_token_id=pad, vocab_size=vocab, **changes,
    )  # fmt: skip


_BARTS: dict[str, Config] = {
    "facebook/bart-base": _BART_BASE,
    "facebook/bart-large": dict(_BART, architectures=["BartModel"], forced_bos_token_id=0),
    "facebook/bart-large-cnn": _BART_CNN,
    "facebook/bart-large-xsum": dict(
        _BART_CNN, eos_token_ids=[2], extra_pos_embeddings=2, max_length=62, min_length=11, num_beams=6,
        student_decoder_layers=None, normalize_embedding=True, static_position_embeddings=False, replacing_rate=0,
    ),
    "facebook/bart-large-mnli": dict(
        _BART, _num_labels=3, architectures=["BartForSequenceClassification"], output_past=False,
        **_labels("contradiction", "neutral", "entailment"),
    ),
    "sshleifer/distilbart-cnn-12-6": _DISTILBART,
    "sshleifer/distilbart-cnn-6-6": dict(_DISTILBART, encoder_layers=6, num_hidden_layers=6),
    "sshleifer/distilbart-xsum-12-3": dict(_DISTILBART, decoder_layers=3, max_length=62, min_length=11, num_beams=6),
    "valhalla/distilbart-mnli-12-3": dict(
        _DISTILBART, architectures=["BartForSequenceClassification"], decoder_layers=3, vocab_size=50265,
        **_labels("contradiction", "neutral", "entailment"),
    ),
    "Helsinki-NLP/opus-mt-en-de": _MARIAN,
    "Helsinki-NLP/opus-mt-de-en": _opus(58101),
    "Helsinki-NLP/opus-mt-en-fr": _opus(59514),
    "Helsinki-NLP/opus-mt-fr-en": _opus(59514),
    "Helsinki-NLP/opus-mt-en-zh": _opus(65001),
    "Helsinki-NLP/opus-mt-en-ROMANCE": _opus(65001),
    "Helsinki-NLP/opus-mt-tc-big-en-fr": _opus(
        53017, activation_function="relu", d_model=1024, decoder_attention_heads=16, decoder_ffn_dim=4096,
        encoder_attention_heads=16, encoder_ffn_dim=4096, max_position_embeddings=1024, torch_dtype="float16",
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- Whisper

_SILENT = [1, 2, 7, 8, 9, 10, 14, 25, 26, 27, 28, 29, 31, 58, 59, 60, 61, 62, 63, 90, 91, 92, 93, 50360, 50361, 50362]
_WHISPER: Config = dict(
    model_type="whisper", architectures=["WhisperForConditionalGeneration"], _name_or_path="openai/whisper-tiny",
    activation_dropout=0.0, activation_function="gelu", attention_dropout=0.0, begin_suppress_tokens=[220, 50257],
    bos_token_id=50257, d_model=384, decoder_attention_heads=6, decoder_ffn_dim=1536, decoder_layerdrop=0.0,
    decoder_layers=4, decoder_start_token_id=50258, dropout=0.0, encoder_attention_heads=6, encoder_ffn_dim=1536,
    encoder_layerdrop=0.0, encoder_layers=4, eos_token_id=50257,
    forced_decoder_ids=[[1, 50259], [2, 50359], [3, 50363]], init_std=0.02, is_encoder_decoder=True, max_length=448,
    max_source_positions=1500, max_target_positions=448, num_hidden_layers=4, num_mel_bins=80, pad_token_id=50257,
    scale_embedding=False, suppress_tokens=_SILENT, torch_dtype="float32", transformers_version="4.27.0.dev0",
    use_cache=True, vocab_size=51865,
)  # fmt: skip
_WHISPER_NEW: Config = dict(
    apply_spec_augment=False, classifier_proj_size=256, mask_feature_length=10, mask_feature_min_masks=0,
    mask_feature_prob=0.0, mask_time_length=10, mask_time_min_masks=2, mask_time_prob=0.05, median_filter_width=7,
    use_weighted_layer_sum=False,
)  # fmt: skip


def _whisper(width: int, layers: int, heads: int, **changes: Any) -> Config:
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (("attention_heads", heads), ("ffn_dim", 4 * width), ("layers", layers))
    }
    return {**_WHISPER, **sides, "d_model": width, "num_hidden_layers": layers, **changes}


_LARGE_V3: Config = dict(
    _WHISPER_NEW, begin_suppress_tokens=[220, 50257], num_mel_bins=128, pad_token_id=50256, vocab_size=51866,
    torch_dtype="float16",
)  # fmt: skip
_WHISPERS: dict[str, Config] = {
    "openai/whisper-tiny": _WHISPER,
    "openai/whisper-tiny.en": dict(
        _WHISPER, begin_suppress_tokens=[220, 50256], decoder_start_token_id=50257, eos_token_id=50256,
        forced_decoder_ids=[[1, 50362]], pad_token_id=50256, vocab_size=51864,
    ),
    "openai/whisper-base": _whisper(512, 6, 8),
    "openai/whisper-small": _whisper(768, 12, 12),
    "openai/whisper-medium": _whisper(1024, 24, 16),
    "openai/whisper-large-v2": _whisper(1280, 32, 20, **_WHISPER_NEW),
    "openai/whisper-large-v3": _whisper(1280, 32, 20, **_LARGE_V3),
    "openai/whisper-large-v3-turbo": _whisper(1280, 32, 20, **_LARGE_V3, decoder_layers=4),
    "distil-whisper/distil-large-v2": _whisper(
        1280, 32, 20, **_WHISPER_NEW, decoder_layers=2, forced_decoder_ids=[[1, 50259], [2, 50360], [3, 50364]],
        lang_ids=[50259, 50260], suppress_ids=[-1], alignment_heads=[[1, 0], [1, 1]],
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- Moonshine

_MOONSHINE: Config = dict(
    model_type="moonshine", architectures=["MoonshineForConditionalGeneration"], attention_bias=False,
    attention_dropout=0.0, bos_token_id=1, decoder_hidden_act="silu", decoder_num_attention_heads=8,
    decoder_num_hidden_layers=6, decoder_num_key_value_heads=8, decoder_start_token_id=1, encoder_hidden_act="gelu",
    encoder_num_attention_heads=8, encoder_num_hidden_layers=6, encoder_num_key_value_heads=8, eos_token_id=2,
    hidden_size=288, initializer_range=0.02, intermediate_size=1152, is_encoder_decoder=True,
    max_position_embeddings=194, pad_head_dim_to_multiple_of=8, partial_rotary_factor=0.9, rope_scaling=None,
    rope_theta=10000.0, torch_dtype="float32", transformers_version="4.48.0.dev0", use_cache=True, vocab_size=32768,
)  # fmt: skip
_MOONSHINES: dict[str, Config] = {
    "UsefulSensors/moonshine-tiny": _MOONSHINE,
    "UsefulSensors/moonshine-base": dict(
        _MOONSHINE, decoder_num_hidden_layers=8, encoder_num_hidden_layers=8, hidden_size=416, intermediate_size=1664,
        partial_rotary_factor=0.62,
    ),
}  # fmt: skip

# --------------------------------------------------------------------------- images

_VIT: Config = dict(
    model_type="vit", architectures=["ViTForImageClassification"], attention_probs_dropout_prob=0.0,
    hidden_act="gelu", hidden_dropout_prob=0.0, hidden_size=768, image_size=224, initializer_range=0.02,
    intermediate_size=3072, layer_norm_eps=1e-12, num_attention_heads=12, num_channels=3, num_hidden_layers=12,
    patch_size=16, qkv_bias=True, transformers_version="4.13.0.dev0",
)  # fmt: skip
_IMAGENET = _labels(*(f"class {i}" for i in range(1000)))
_DINO: Config = dict(
    model_type="dinov2", architectures=["Dinov2Model"], attention_probs_dropout_prob=0.0, drop_path_rate=0.0,
    hidden_act="gelu", hidden_dropout_prob=0.0, hidden_size=768, image_size=518, initializer_range=0.02,
    layer_norm_eps=1e-06, layerscale_value=1.0, mlp_ratio=4, num_attention_heads=12, num_channels=3,
    num_hidden_layers=12, patch_size=14, qkv_bias=True, torch_dtype="float32", transformers_version="4.32.0.dev0",
    use_swiglu_ffn=False,
)  # fmt: skip


def _dino(width: int, layers: int, heads: int, **changes: Any) -> Config:
    return dict(_DINO, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, **changes)


_IMAGES: dict[str, Config] = {
    "google/vit-base-patch16-224": dict(_VIT, **_IMAGENET),
    "google/vit-base-patch16-224-in21k": dict(_VIT, architectures=["ViTModel"]),
    "google/vit-base-patch16-384": dict(_VIT, image_size=384, **_IMAGENET),
    "google/vit-base-patch32-384": dict(_VIT, image_size=384, patch_size=32, **_IMAGENET),
    "google/vit-large-patch16-224": dict(
        _VIT, hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24, **_IMAGENET
    ),
    "facebook/dino-vits16": dict(
        _VIT, architectures=["ViTModel"], hidden_size=384, intermediate_size=1536, num_attention_heads=6
    ),
    "Falconsai/nsfw_image_detection": dict(
        _VIT, encoder_stride=16, problem_type="single_label_classification", torch_dtype="float32",
        **_labels("normal", "nsfw"),
    ),
    "facebook/deit-base-patch16-224": dict(_VIT, **_IMAGENET),
    "facebook/deit-base-distilled-patch16-224": {
        **_VIT, **_IMAGENET, "model_type": "deit", "architectures": ["DeiTForImageClassificationWithTeacher"],
    },
    "facebook/deit-tiny-distilled-patch16-224": {
        **_VIT, **_IMAGENET, "model_type": "deit", "architectures": ["DeiTForImageClassificationWithTeacher"],
        "hidden_size": 192, "intermediate_size": 768, "num_attention_heads": 3,
    },
    "facebook/dinov2-small": _dino(
        384, 12, 6, apply_layernorm=True, reshape_hidden_states=True, out_features=["stage12"], out_indices=[12],
        stage_names=["stem", *(f"stage{i}" for i in range(1, 13))],
    ),
    "facebook/dinov2-base": _DINO,
    "facebook/dinov2-large": _dino(1024, 24, 16),
    "facebook/dinov2-giant": _dino(1536, 40, 24, use_swiglu_ffn=True),
    "facebook/dinov2-small-imagenet1k-1-layer": {
        **_dino(384, 12, 6), **_IMAGENET, "architectures": ["Dinov2ForImageClassification"],
    },
}  # fmt: skip

MODELS: dict[str, Config] = {
    **_BERTS, **_ROBERTAS, **_DISTILBERTS, **_BIGBIRDS, **_GPT2S, **_LLAMAS, **_T5S, **_BARTS, **_WHISPERS,
    **_MOONSHINES, **_IMAGES, **DECODERS, **ENCODERS,
}  # fmt: skip

BARE: dict[str, int] = {
    "google-bert/bert-base-uncased": 109_482_240,
    "google-bert/bert-base-cased": 108_310_272,
    "google-bert/bert-large-uncased": 335_141_888,
    "google-bert/bert-base-multilingual-cased": 177_853_440,
    "google-bert/bert-base-chinese": 102_267_648,
    "FacebookAI/roberta-base": 124_645_632,
    "FacebookAI/roberta-large": 355_359_744,
    "distilbert/distilroberta-base": 82_118_400,
    "distilbert/distilbert-base-uncased": 66_362_880,
    **BARE_COUNTS,
}
"""Published counts of the bare model, pooler included where the family has one."""

PARAMETERS: dict[str, int] = {
    "google-bert/bert-base-uncased": 109_514_298,
    "sentence-transformers/all-MiniLM-L6-v2": 22_713_216,
    "FacebookAI/roberta-base": 124_697_433,
    "distilbert/distilbert-base-uncased": 66_985_530,
    "distilbert/distilbert-base-uncased-finetuned-sst-2-english": 66_955_010,
    "openai-community/gpt2": 124_439_808,
    "openai-community/gpt2-medium": 354_823_168,
    "openai-community/gpt2-large": 774_030_080,
    "openai-community/gpt2-xl": 1_557_611_200,
    "distilbert/distilgpt2": 81_912_576,
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "meta-llama/Meta-Llama-3-8B": 8_030_261_248,
    "meta-llama/Meta-Llama-3-70B": 70_553_706_496,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1_100_048_384,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "HuggingFaceTB/SmolLM2-360M": 361_821_120,
    "HuggingFaceTB/SmolLM2-1.7B": 1_711_376_384,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "google/gemma-2b": 2_506_172_416,
    "google/gemma-7b": 8_537_680_896,
    "google-t5/t5-small": 60_506_624,
    "google-t5/t5-base": 222_903_552,
    "google-t5/t5-large": 737_668_096,
    "google-t5/t5-3b": 2_851_598_336,
    "google/flan-t5-small": 76_961_152,
    "google/flan-t5-base": 247_577_856,
    "google/flan-t5-large": 783_150_080,
    "google/flan-t5-xl": 2_849_757_184,
    "facebook/bart-base": 139_470_681,
    "facebook/bart-large": 406_291_456,
    "facebook/bart-large-cnn": 406_340_696,
    "facebook/bart-large-mnli": 407_344_131,
    "openai/whisper-tiny": 37_760_640,
    "openai/whisper-tiny.en": 37_760_256,
    "openai/whisper-base": 72_593_920,
    "openai/whisper-small": 241_734_912,
    "openai/whisper-medium": 763_857_920,
    "openai/whisper-large-v2": 1_543_304_960,
    "openai/whisper-large-v3": 1_543_490_560,
    "openai/whisper-large-v3-turbo": 808_878_080,
    "google/vit-base-patch16-224": 86_567_656,
    "google/vit-base-patch16-224-in21k": 86_389_248,
    "google/vit-large-patch16-224": 304_326_632,
    "facebook/deit-base-distilled-patch16-224": 87_338_192,
    "facebook/deit-tiny-distilled-patch16-224": 5_910_800,
    "facebook/dinov2-small": 22_056_576,
    "facebook/dinov2-base": 86_580_480,
    "facebook/dinov2-large": 304_368_640,
    "facebook/dinov2-giant": 1_136_480_768,
    **COUNTS,
    **DECODER_PARAMETERS,
}
