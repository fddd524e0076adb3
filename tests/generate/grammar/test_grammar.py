"""Text held to a pattern: whatever the model and the seed, what is written matches."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError, NotFoundError
from headway.generate.decode import Sampling, decode
from headway.generate.grammar.grammar import Patterns, token_bytes
from tests.generate.conftest import tiny_model

pytest.importorskip("llguidance")

TEXTS = ['the quick brown fox {"name": "fox", "age": 12, "tags": ["a", "b"]} true false null été 東京']
TOKENIZERS = {
    kind: train_tokenizer(kind, TEXTS, size, special=("<eos>",))
    for kind, size in (("bytes", 0), ("bpe", 300), ("unigram", 300))
}
MODELS = {kind: tiny_model(made.vocab_size + 5, 200, 16, depth=1) for kind, made in TOKENIZERS.items()}
"""Vocabularies are rounded up: the last five tokens stand for nothing."""

PATTERNS = (
    r"[a-c]{2,9}(-[0-9]{3})?",
    r"(yes|no|[éà東]{1,3}|\{\})",
    r"a?b?c?",
    r"[e-s<>]{5,9}",
    r"[0-9]{1,3}\.[0-9]{2}",
)


def write(kind: str, mask: Any, seeds: list[int], stop: tuple[int, ...]) -> list[tuple[str, str | None]]:
    """The text of each seed, and why it ended."""
    how = [Sampling(seed=seed, temperature=2.0, max_tokens=150, stop=stop) for seed in seeds]
    texts, ends = [""] * len(seeds), [""] * len(seeds)
    for piece in decode(MODELS[kind], [[1]] * len(seeds), how, tokenizer=TOKENIZERS[kind], mask=mask):
        texts[piece.row] += piece.text
        ends[piece.row] = piece.finish or ""
    return list(zip(texts, ends, strict=True))


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=10)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=4), st.sampled_from(PATTERNS), st.booleans())
def test_text_matches_a_regular_expression(kind: str, seeds: list[int], pattern: str, ends: bool) -> None:
    made = TOKENIZERS[kind]
    stop = (made.special["eos"],) if ends else ()
    mask = Patterns(made, MODELS[kind].config.output_front.vocab, stop).regular(pattern)
    for row, (text, why) in enumerate(write(kind, mask, seeds, stop)):
        assert why == "stop" and re.fullmatch(pattern, text), text
        assert mask.matches(row)


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "ok": {"type": ["boolean", "null"]},
    },
    "required": ["name", "age", "ok"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=8)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=3))
def test_text_is_json_by_a_schema(kind: str, seeds: list[int]) -> None:
    mask = Patterns(TOKENIZERS[kind], MODELS[kind].config.output_front.vocab).schema(SCHEMA)
    for text, why in write(kind, mask, seeds, ()):
        value = json.loads(text)
        assert why == "stop" and value.keys() >= {"name", "age", "ok"} and value.keys() <= {"name", "age", "ok", "tags"}
        assert len(value["name"]) <= 6 and value["ok"] in (True, False, None)
        assert type(value["age"]) is int and 0 <= value["age"] <= 130
        assert set(value.get("tags", [])) <= {"a", "b"} and len(value.get("tags", [])) <= 2


def test_a_pattern_leaves_no_choice_only_where_it_has_none() -> None:
    made = TOKENIZERS["bytes"]
    mask = Patterns(made, made.vocab_size).regular("ab|ac")
    first = mask.allowed(0)
    assert first is not None and first.nonzero().flatten().tolist() == [97]
    mask.accept(0, 97)
    second, other = mask.allowed(0), mask.allowed(1)
    assert second is not None and second.nonzero().flatten().tolist() == [98, 99]
    assert other is not None and torch.equal(other, first)  # rows do not know of each other
    mask.accept(0, 99)
    assert mask.matches(0) and not mask.matches(1)
    over = mask.allowed(0)
    assert over is not None and not over.any()
    for stop in ((), (made.special["eos"],)):
        optional = Patterns(made, made.vocab_size, stop).regular("a*").allowed(0)
        assert optional is not None and optional.nonzero().flatten().tolist() == [97, *stop]
    with pytest.raises(DataError, match="token 98"):
        mask.accept(1, 98)


@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram", "chars"])
def test_bytes_of_tokens_make_the_text(kind: str) -> None:
    made = TOKENIZERS.get(kind) or train_tokenizer(kind, [*TEXTS, "▁"], special=("<eos>",))
    spelled = token_bytes(made)
    for text in ("the fox, été 東京", 'a "b"', "▁"):
        ids = made.encode(text, special=False).ids
        assert b"".join(spelled[i] for i in ids).decode() == made.decode(ids)


def test_bytes_of_sentencepiece_tokens() -> None:
    import tokenizers as tk

    pieces = ["<unk>", "</s>", "<0x41>", "<0xE2>", "▁the", "fox"]
    backend = tk.Tokenizer(tk.models.BPE({p: i for i, p in enumerate(pieces)}, [], byte_fallback=True))
    backend.decoder = tk.decoders.Sequence(
        [tk.decoders.Replace("▁", " "), tk.decoders.ByteFallback(), tk.decoders.Fuse()]
    )
    assert token_bytes(Tokenizer(backend))[2:] == [b"A", b"\xe2", b" the", b"fox"]


def test_what_cannot_be_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    made = TOKENIZERS["bytes"]
    with pytest.raises(ConfigError, match="unclosed group") as error:
        Patterns(made, made.vocab_size).regular("(")
    assert error.value.code == "C003"
    with pytest.raises(ConfigError, match="C003"):
        Patterns(made, made.vocab_size).schema({"type": "nonsense"})
    with pytest.raises(DataError, match="WordPiece"):
        Patterns(train_tokenizer("wordpiece", TEXTS, 100), 100)
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(NotFoundError, match="headway\\[grammar\\]") as missing:
        Patterns(made, made.vocab_size)
    assert missing.value.code == "F003"
