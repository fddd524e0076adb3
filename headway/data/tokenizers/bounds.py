"""Bounds on an untrusted tokenizer, checked before the `tokenizers` library reads it.

That library trusts its files: it allocates for the largest id, follows nested steps until the stack overflows (which
ends the process), and applies any chain of replacements, however long a text becomes. No real tokenizer comes near the
bounds. Each check raises a ValueError of one line.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway.config.model import MAX_VOCAB
from headway.data.tokenizers.charsmap import charsmap_growth
from headway.data.tokenizers.patterns import pattern_shape
from headway.errors import DamagedError
from headway.jsonfile import show

TOKENIZER_VALUES = 2_500_000
"""The most values of a tokenizer.json; one with 256 thousand tokens and half a million merges has 1.9 million."""
MAX_TOKEN_CHARACTERS, MAX_TEXT_CHARACTERS, MAX_WORD_CHARACTERS, MAX_MARK_CHARACTERS = 4096, 1024, 256, 64
"""The most characters of a token; of a replacement and its pattern; of a word that WordPiece splits, which takes cubic
time; of a prefix, suffix or separator of pieces."""
MAX_ADDED, MAX_ADDED_CHARACTERS = 1 << 16, 1 << 20
"""The most added tokens, and characters of all of them."""
MAX_STEPS, MAX_DEPTH, MAX_PARTS = 64, 4, 64
"""The most steps of a chain, depth of nested chains, and parts of a post-processor's template."""
MAX_GROWTH = 256
"""The most that a chain may lengthen a text; Unicode's own rules make one character eleven times as long."""
SPARE_IDS = 1 << 16
"""Ids without a token that are allowed, in addition to the number of tokens."""
SEGMENTS = 4
CHAINS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
"""Parts of tokenizer.json that may be chains → the key of a chain's steps."""
GROWTH = {
    "NFC": 3,
    "NFD": 3,
    "NFKC": 11,
    "NFKD": 11,
    "Lowercase": 2,
    "BertNormalizer": 6,
    "ByteLevel": 2,
    "Metaspace": 4,
}
"""Type of a step → the most bytes that it makes of one byte."""


@contextmanager
def bounded(path: Path | str) -> Iterator[None]:
    """Convert the ValueError of a check to an error that names the file."""
    try:
        yield
    except ValueError as error:
        hint = "no real tokenizer needs this: get the file from the model's authors, or do not use the model"
        raise DamagedError("X001", f"{show(path)}: {error}", hint) from None


def check_tokenizer(found: Mapping[str, Any]) -> None:
    """Check a parsed tokenizer.json."""
    size = _check_ids(found)
    for part, steps in CHAINS.items():
        chain = list(_steps(found.get(part), steps, part))
        if part == "post_processor":
            for step in chain:
                _check_post_processor(step, size)
        elif (times := growth(chain)) > MAX_GROWTH:
            raise ValueError(f"its {part} may make a text {times:,.0f} times as long; the limit is {MAX_GROWTH}")
    model = found["model"]
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(str(model.get(name) or "")) > MAX_MARK_CHARACTERS:
            raise ValueError(f"its {name} has more than {MAX_MARK_CHARACTERS} characters")
    if not 0 <= _whole(model.get("max_input_chars_per_word", 100), "max_input_chars_per_word") <= MAX_WORD_CHARACTERS:
        raise ValueError(f"max_input_chars_per_word is more than {MAX_WORD_CHARACTERS}")


def check_names(names: Iterable[str], count: int) -> None:
    """Check the tokens of a vocabulary."""
    if count > MAX_VOCAB:
        raise ValueError(f"a vocabulary of {count:,} tokens; the limit is {MAX_VOCAB:,}")
    names = list(names)
    if {*map(type, names)} <= {str} and max(map(len, names), default=0) <= MAX_TOKEN_CHARACTERS:
        return  # the loop below without its steps, for the many that are right
    for name in names:
        if not isinstance(name, str) or len(name) > MAX_TOKEN_CHARACTERS:
            size = (
                f"a token of {len(name):,} characters" if isinstance(name, str) else f"{str(name)[:40]!r} for a token"
            )
            raise ValueError(f"{size}; the limit is {MAX_TOKEN_CHARACTERS:,} characters")


def check_largest(largest: int, count: int) -> None:
    """Check the largest id: the library allocates a table up to it, so few tokens must not have a huge id."""
    if largest >= min(MAX_VOCAB, 2 * count + SPARE_IDS):
        raise ValueError(f"ids up to {largest:,} for {count:,} tokens")


def check_added(names: Iterable[str]) -> None:
    """Check added tokens: the library builds a search tree with a node for each of their characters."""
    count = size = 0
    for name in names:
        count, size = count + 1, size + len(name)
        if len(name) > MAX_TOKEN_CHARACTERS:
            raise ValueError(f"an added token of {len(name):,} characters; the limit is {MAX_TOKEN_CHARACTERS:,}")
        if count > MAX_ADDED or size > MAX_ADDED_CHARACTERS:
            raise ValueError(f"more than {MAX_ADDED:,} added tokens, or {MAX_ADDED_CHARACTERS:,} characters of them")


def _check_ids(found: Mapping[str, Any]) -> int:
    """Check the vocabulary and the added tokens; returns the number of ids."""
    model, added = found.get("model"), found.get("added_tokens") or []
    if not isinstance(model, dict) or not isinstance(added, list) or not all(isinstance(t, dict) for t in added):
        raise ValueError("it has no model, or its added tokens are not a list of objects")
    vocab, merges = model.get("vocab"), model.get("merges") or []
    if isinstance(vocab, dict):
        names: Iterable[Any] = vocab.keys()
        if not {*map(type, vocab.values())} <= {int} or min(vocab.values(), default=0) < 0:
            for name, i in vocab.items():
                _whole(i, f"the id of {name[:40]!r}")
        largest = max(vocab.values(), default=-1)
    elif isinstance(vocab, list) and all(isinstance(pair, list) and pair for pair in vocab):
        names, largest = [pair[0] for pair in vocab], len(vocab) - 1
    else:
        raise ValueError("a model without a vocabulary")
    check_names(names, len(vocab))
    if not isinstance(merges, list):
        raise ValueError("its merges are not a list")
    check_names((part for merge in merges for part in (merge if isinstance(merge, list) else [merge])), len(merges))
    check_added([_text(token.get("content"), "an added token") for token in added])
    largest = max([largest, *(_whole(token.get("id"), "the id of an added token") for token in added)])
    check_largest(largest, len(vocab) + len(added))
    return largest + 1


def _whole(value: Any, what: str) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{what} is {str(value)[:40]!r}, not an integer")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} is {str(value)[:40]!r}, not a text")
    return value


def _steps(part: Any, key: str, what: str) -> Iterator[Mapping[str, Any]]:
    """Return all steps of a chain in order, with those of nested chains."""
    pending, count = [(part, 0)] if part is not None else [], 0
    while pending:
        step, depth = pending.pop()
        if not isinstance(step, dict):
            raise ValueError(f"its {what} is {str(step)[:40]!r}, not an object")
        inner = step.get(key)
        if inner is None:
            yield step
            continue
        if depth >= MAX_DEPTH or not isinstance(inner, list) or (count := count + len(inner)) > MAX_STEPS:
            raise ValueError(f"its {what} has more than {MAX_STEPS} steps, or chains {MAX_DEPTH} deep")
        pending += [(each, depth + 1) for each in reversed(inner)]


def growth(chain: Iterable[Mapping[str, Any]]) -> float:
    """The most that a chain lengthens a text, as a factor; also checks its patterns."""
    times = 1.0
    for step in chain:
        times *= _step_growth(step)
    return times


def growth_of(normalizer: Any) -> float:
    """The most that a backend's normalizer lengthens a text; 1 without one."""
    state = json.loads(normalizer.__getstate__()) if normalizer is not None else None
    return growth(_steps(state, CHAINS["normalizer"], "normalizer"))


def _step_growth(step: Mapping[str, Any]) -> float:
    kind = str(step.get("type"))
    for name, value in step.items():
        if isinstance(value, str) and name != "precompiled_charsmap" and len(value) > MAX_TEXT_CHARACTERS:
            raise ValueError(
                f"{name[:40]!r} of a {kind[:40]} has {len(value):,} characters; limit {MAX_TEXT_CHARACTERS:,}"
            )
    least = _least_match(step["pattern"]) if "pattern" in step else 1
    if kind == "Replace":
        size = len(_text(step.get("content"), "the replacement of a pattern").encode())
        return max(1.0, size / least) if least else 1.0 + size
    if kind == "Prepend" and len(_text(step.get("prepend"), "the prefix of a text")) > MAX_MARK_CHARACTERS:
        raise ValueError(f"its prefix of a text has more than {MAX_MARK_CHARACTERS} characters")
    if kind == "Precompiled":
        return charsmap_growth(_table(step.get("precompiled_charsmap")))
    return GROWTH.get(kind, 1)


def _least_match(pattern: Any) -> int:
    """Bytes of a pattern's shortest match."""
    if isinstance(pattern, dict) and isinstance(regex := pattern.get("Regex"), str):
        return pattern_shape(regex).least
    text = _text(pattern.get("String") if isinstance(pattern, dict) else pattern, "a pattern")
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ValueError(f"a pattern of {len(text):,} characters; the limit is {MAX_TEXT_CHARACTERS:,}")
    return len(text.encode())


def _table(value: Any) -> bytes:
    try:
        return base64.b64decode(value or b"", validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise ValueError("its normalization table is not in base 64") from None


def _check_post_processor(step: Mapping[str, Any], size: int) -> None:
    """Check a post-processor: few special tokens, with existing ids, and each text once."""
    for name in ("sep", "cls"):
        if name in step:
            pair = step[name]
            if not isinstance(pair, list) or len(pair) != 2 or not _whole(pair[1], f"the id of {name}") < size:
                raise ValueError(f"its post-processor adds {str(pair)[:40]!r}, but it has only {size:,} ids")
    special = step.get("special_tokens", {})
    if not isinstance(special, dict) or len(special) > MAX_PARTS:
        raise ValueError(f"its post-processor has more than {MAX_PARTS} special tokens")
    for name, token in special.items():
        ids = token.get("ids") if isinstance(token, dict) else None
        if not isinstance(ids, list) or len(ids) > MAX_PARTS:
            raise ValueError(f"more than {MAX_PARTS} ids for {name[:40]!r}")
        if any(_whole(i, f"the id of {name[:40]!r}") >= size for i in ids):
            raise ValueError(f"its post-processor adds {name[:40]!r}, but it has only {size:,} ids")
    for name in ("single", "pair"):
        _check_template(step.get(name, []), name)


def _check_template(parts: Any, name: str) -> None:
    if not isinstance(parts, list) or len(parts) > MAX_PARTS or not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"its template for a {name} is not a list of at most {MAX_PARTS} parts")
    inside = [inner for part in parts for inner in part.values()]
    if any(not isinstance(i, dict) or not _whole(i.get("type_id", 0), "a segment id") < SEGMENTS for i in inside):
        raise ValueError(f"its template for a {name} has token types beyond {SEGMENTS}, or unknown parts")
    texts = [str(part["Sequence"].get("id")) for part in parts if "Sequence" in part]
    if len(set(texts)) < len(texts):
        raise ValueError(f"its template for a {name} has the same text twice")
