"""Fields of config.json that do not change what a model computes, by the reason why.

`transformers` writes or keeps them. A field that is neither here nor in the table of its family is an error, unless
it is off.
"""

from __future__ import annotations

# fmt: off
IGNORED: dict[str, tuple[str, ...]] = {
    "handled for all families alike: labels, special tokens, the architecture": (
        "architectures", "bos_token_id", "decoder_start_token_id", "eos_token_id", "id2label", "label2id", "model_type",
        "num_labels", "pad_token_id", "problem_type", "text_pairs",
    ),
    "another name or an older place of a value that another field holds": (
        "_num_labels", "eos_token_ids", "max_sequence_length", "n_ctx",
    ),
    "where a file came from, which version wrote it, and its dtype": (
        "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "dtype", "finetuning_task", "is_llama_config",
        "language", "name", "name_or_path", "tokenizer_class", "torch_dtype", "transformers.js_config",
        "transformers_version", "use_bfloat16",
    ),
    "a generation setting: see hub/generation_config": (
        "alignment_heads", "assistant_confidence_threshold", "assistant_lookbehind", "bad_words_ids",
        "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
        "encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty",
        "force_bos_token_to_be_generated", "forced_bos_token_id", "forced_decoder_ids", "forced_eos_token_id",
        "guidance_scale", "is_multilingual", "lang_ids", "lang_to_id", "length_penalty", "max_initial_timestamp_index",
        "max_length", "max_new_tokens", "min_length", "min_new_tokens", "min_p", "no_repeat_ngram_size",
        "no_timestamps_token_id", "num_assistant_tokens", "num_assistant_tokens_schedule", "num_beam_groups",
        "num_beams", "num_return_sequences", "prefix", "prev_sot_token_id", "remove_invalid_values",
        "renormalize_logits", "repetition_penalty", "return_timestamps", "suppress_ids", "suppress_ids_begin",
        "suppress_tokens", "target_lookbehind", "task_specific_params", "task_to_id", "temperature", "top_k", "top_p",
        "typical_p",
    ),
    "the form of a call's result, or its memory": (
        "chunk_size_feed_forward", "output_attentions", "output_hidden_states", "output_past", "output_scores",
        "return_dict", "return_dict_in_generate", "torchscript", "use_cache",
    ),
    "initial weights, dropout in training, and distillation": (
        "classif_dropout", "classifier_dropout", "decoder_layerdrop", "encoder_layerdrop", "gradient_checkpointing",
        "init_std", "initializer_factor", "initializer_range", "layerdrop", "pretraining_tp", "replacing_rate",
        "save_step", "student_decoder_layers", "student_encoder_layers", "tf_legacy_loss",
    ),
    "a head or a wrapper that headway does not have": (
        "cross_attention_hidden_size", "is_encoder_decoder", "n_special", "predict_special_tokens",
        "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    ),
    "a setting of another library, which `transformers` keeps and does not read": (
        "_flash_attn_2_enabled", "neftune_noise_alpha", "sentence_transformers", "unsloth_fixed", "unsloth_version",
    ),
    "special tokens of the tokenizer, which has files of its own": ("mask_token_id", "sep_token_id", "unk_token_id"),
    "in the first BERT files; `transformers` never used it": (
        "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
        "pooler_size_per_head", "pooler_type",
    ),
    "sliding windows of the upper layers, which only Qwen2 and Qwen3 have": ("max_window_layers",),
}
# fmt: on

NAMES = frozenset(name for names in IGNORED.values() for name in names)
