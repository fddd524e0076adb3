"""Renamed recipe settings, old key → new key: older recipes and runs still load. No torch here.

To rename a setting, rename the field of its dataclass and add one line to `ALIASES`: the old dotted key and the new
one. A whole section is renamed in the same way ("old": "new"). `current_keys` is applied wherever settings are read:
recipe files, `key=value` words and nested overrides; and, without a note, the recipes in run folders and checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from headway.errors import ConfigError

ALIASES = {
    "train.record": "train.cuda_graphs",
    "train.checkpointing": "train.gradient_checkpointing",
    "mlm.share": "mlm.probability",
    "mlm.mask": "mlm.mask_replace_prob",
    "mlm.random": "mlm.random_replace_prob",
    "mlm.words": "mlm.whole_word_mask",
    "mlm.pairs": "mlm.next_sentence",
    "classify.weights": "classify.class_weights",
    "classify.smoothing": "classify.label_smoothing",
    "classify.rdrop": "classify.r_drop",
    "tag.smoothing": "tag.label_smoothing",
    "answer.longest": "answer.max_answer_length",
    "answer.best": "answer.n_best",
    "answer.none": "answer.no_answer",
    "seq2seq.rdrop": "seq2seq.r_drop",
    "seq2seq.longest": "seq2seq.max_new_tokens",
    "seq2seq.shortest": "seq2seq.min_new_tokens",
    "seq2seq.no_repeat": "seq2seq.no_repeat_ngram_size",
    "seq2seq.every": "seq2seq.generate_every",
}
"""Old dotted key → new dotted key."""


def current_keys(values: Mapping[str, Any], note: bool = True) -> dict[str, Any]:
    """Nested settings under their current keys; `note` logs each old key once, which prints it on stderr."""
    result = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    for old, new in ALIASES.items():
        table, key = _table(result, old)
        if table is None or key not in table:
            continue
        value = table.pop(key)
        target, name = _table(result, new, create=True)
        if target is None or name in target:
            raise ConfigError("C004", f"{old} is now called {new}, and both are given: remove {old}")
        target[name] = value
        if note:
            _note(old, new)
    return result


def _table(values: dict[str, Any], key: str, *, create: bool = False) -> tuple[dict[str, Any] | None, str]:
    """The table that a dotted key belongs to, and its last part; None if there is no such table."""
    section, _, name = key.rpartition(".")
    if not section:
        return values, name
    table = values.setdefault(section, {}) if create else values.get(section)
    return (table if isinstance(table, dict) else None), name


@cache
def _note(old: str, new: str) -> None:
    logging.getLogger("headway").warning("%s is now called %s", old, new)
