"""Unknown keys: which setting was meant, by its spelling, its section, or the word of another tool. No torch here."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headway.errors import ConfigError, short

ELSEWHERE = {
    "train.lr": "learning_rate rate max_lr peak_lr",
    "train.epochs": "num_train_epochs num_epochs max_epochs n_epochs epoch",
    "train.steps": "max_steps max_iters iterations total_steps num_steps step",
    "train.batch": "batch_size bs per_device_train_batch_size train_batch_size",
    "train.accumulate": "gradient_accumulation_steps gradient_accumulation grad_accum accumulate_grad_batches",
    "train.warmup": "warmup_steps num_warmup_steps warmup_iters warmup_ratio",
    "train.schedule": "lr_scheduler_type lr_scheduler lr_schedule scheduler",
    "train.clip": "max_grad_norm grad_clip clip_norm gradient_clip_val gradient_clipping",
    "train.weight_decay": "wd l2",
    "train.betas": "adam_betas beta1 beta2 adam_beta1 adam_beta2",
    "train.optimizer": "optim opt",
    "train.final_lr": "min_lr end_lr",
    "train.dtype": "bf16 fp16 precision mixed_precision torch_dtype",
    "train.eval_every": "eval_steps eval_interval",
    "train.save_every": "save_steps save_interval",
    "train.keep": "save_total_limit",
    "train.keep_best": "load_best_model_at_end save_best",
    "train.patience": "early_stopping early_stopping_patience",
    "train.sinks": "report_to log_with loggers wandb tensorboard",
    "train.compile": "torch_compile",
    "model.width": "hidden_size d_model n_embd embed_dim hidden_dim dim",
    "model.depth": "num_hidden_layers num_layers n_layer n_layers layers",
    "model.heads": "num_attention_heads num_heads n_head n_heads",
    "model.kv_heads": "num_key_value_heads n_kv_heads",
    "model.ff": "intermediate_size d_ff ffn_dim",
    "model.activation": "hidden_act activation_function act",
    "model.positions": "position_embedding_type pos",
    "model.from": "model_name_or_path model_name pretrained base_model base init_from from_pretrained checkpoint",
    "model.lora": "lora_r lora_rank rank",
    "model.lora_targets": "target_modules",
    "model.tied": "tie_word_embeddings tie_weights",
    "model.kind": "architecture rnn",
    "data.train": "dataset dataset_name train_file train_data file input",
    "data.valid": "validation_file validation valid_file val dev eval_file",
    "data.test": "test_file test_data",
    "data.length": "max_length max_seq_length max_seq_len seq_len seq_length block_size context context_length",
    "data.vocab": "vocab_size",
    "data.text": "text_column column",
    "data.label": "label_column labels",
    "data.workers": "num_workers dataloader_num_workers",
    "data.lower": "lowercase do_lower_case",
    "data.rows": "packing",
    "seed": "random_seed random_state",
    "out": "output_dir output out_dir save_dir",
    "gpus": "num_gpus n_gpus devices nproc_per_node",
    "max_tokens": "max_new_tokens num_predict n_predict",
    "temperature": "temp",
    "repetition": "repetition_penalty repeat_penalty",
    "presence": "presence_penalty",
    "frequency": "frequency_penalty",
    "no_repeat": "no_repeat_ngram_size",
    "n_best": "num_return_sequences",
    "groups": "num_beam_groups",
    "diversity": "diversity_penalty",
    "early": "early_stopping",
    "stop_strings": "stop_sequences",
    "epsilon": "epsilon_cutoff",
    "eta": "eta_cutoff",
    "quant": "quantize quantization",
    "slots": "batch_size max_batch_size",
}
"""Keys of headway → words that other tools have for them."""


def dotted_keys(cls: type, section: str = "") -> list[str]:
    """The keys of a dataclass as they are typed; `from_` is `from`, since that is a word of Python."""
    names = (field.name.rstrip("_") for field in dataclasses.fields(cls))
    return [f"{section}.{name}" if section else name for name in names]


def same_setting(key: str, known: Collection[str]) -> list[str]:
    """The known keys that a word stands for as it is spelt: without its section, or as another tool calls it."""
    key = key.replace("-", "_")
    name = key.rpartition(".")[2]
    if key in known:
        return [key]
    by_name = [each for each in known if each.rpartition(".")[2] == name]
    return by_name or [each for each in known if name.lower() in ELSEWHERE.get(each, "").split()]


def meant(key: str, known: Collection[str]) -> list[str]:
    """The keys that were probably meant, the likeliest first; none if nothing is close."""
    if found := same_setting(key, known):
        return found
    section, _, name = key.lower().rpartition(".")
    words: dict[str, str] = {}
    for each in sorted(known, key=lambda each: each.rpartition(".")[0] != section):  # its own section first
        for word in (each.rpartition(".")[2], *ELSEWHERE.get(each, "").split()):
            words.setdefault(word, each)
    if close := difflib.get_close_matches(name, list(words), n=1, cutoff=0.7):
        return [words[close[0]]]
    return difflib.get_close_matches(key, list(known), n=1, cutoff=0.6)


def did_you_mean(key: str, known: Collection[str]) -> str:
    """` — did you mean "train.lr"?` with the keys that were probably meant; empty if nothing is close."""
    quoted = [f'"{each}"' for each in meant(key, known)[:3]]
    return f" — did you mean {' or '.join(quoted)}?" if quoted else ""


def check_keys(values: Mapping[str, Any], known: Collection[str], where: Callable[[str], str]) -> None:
    """Refuse keys of a nested recipe that are not known; `where` says at which line of a file a key is."""
    sections = {key.partition(".")[0] for key in known if "." in key}
    for key, value in values.items():
        if key in known or (key in sections and not isinstance(value, Mapping)):
            continue  # a wrong type is found later
        inside = {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, Mapping) else {key: value}
        for path, each in inside.items():
            if path not in known:
                raise _unknown(path, each, known, where(path))


def _unknown(key: str, value: Any, known: Collection[str], line: str) -> ConfigError:
    found, hint = meant(key, known), "headway explain lists all settings"
    if found and line:
        section, _, name = found[0].rpartition(".")
        hint = f"write {name} = … {f'under [{section}]' if section else 'above the first section'}"
    elif found and not isinstance(value, Mapping | list | tuple):
        hint = f"write {found[0]}={value if isinstance(value, str) else json.dumps(value, default=str)}"
    return ConfigError("C014", f"unknown setting {short(key)}{line}{did_you_mean(key, known)}", hint)
