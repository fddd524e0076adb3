"""How a tokenizer splits a text: pieces, ids, bytes, positions; and the merges of each word."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from headway.config.presets import PRESETS
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.data.tokenizers.train import KINDS, byte_ids, merge_steps, train_tokenizer
from headway.errors import DataError, NotFoundError
from headway.hub.download import local_model, resolve, tokenizer_folder
from headway.jsonfile import show

STEPS_LIMIT = 400
"""The most characters of a text whose words are shown step by step."""
FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
"""How sentencepiece vocabularies spell a byte."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """One token of a text."""

    id: int
    piece: str
    """As the vocabulary spells it."""
    data: bytes
    """The bytes that the token stands for."""
    start: int
    end: int
    """The token's characters in the text; tokens that share a character both include it."""
    unknown: bool
    inserted: bool
    """Added by the tokenizer's template; it stands for no part of the text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizedText:
    """A text and its tokens."""

    text: str
    tokens: list[Token]

    @property
    def of_text(self) -> int:
        """The number of tokens that stand for a part of the text."""
        return sum(not token.inserted for token in self.tokens)

    @property
    def unknown(self) -> int:
        return sum(token.unknown for token in self.tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """A word and how it is split."""

    text: str
    steps: list[list[str]]
    """BPE: from characters to pieces, one merge at a time. Other tokenizers: only the pieces."""
    scores: list[float]
    """Unigram: the log-probability of each piece."""
    runner_up: list[str]
    """Unigram: the second best segmentation; empty if there is only one."""
    runner_up_score: float

    @property
    def pieces(self) -> list[str]:
        return self.steps[-1]


def open_tokenizer(name: str) -> Tokenizer:
    """A tokenizer by folder, run, tokenizer.json, GGUF file, hub id, or `bytes`."""
    path = Path(os.path.expanduser(name))
    if path.is_file() and path.suffix != ".gguf":
        if path.name != "tokenizer.json":
            hint = "give a folder, its tokenizer.json, or a .gguf file"
            raise NotFoundError("F005", f"{show(name)} is not a tokenizer.json", hint)
        return load_tokenizer(path.parent)
    if local_model(name) is None:
        if name == "bytes":
            return train_tokenizer("bytes", ["any text"])
        if name in KINDS or name in PRESETS:
            what = (
                "a kind of tokenizer, which is trained on text" if name in KINDS else "a preset, which has no tokenizer"
            )
            raise NotFoundError("F005", f"{name} is {what}", "give the folder of a trained model, or bytes")
    place = tokenizer_folder(resolve(name))
    if place.is_file() or any(place.glob("*.gguf")):
        from headway.hub.folder import read_tokenizer  # imports torch

        return read_tokenizer(place)
    return load_tokenizer(place)


def tokenize(tokenizer: Tokenizer, text: str) -> TokenizedText:
    """The tokens of a text, with those that the tokenizer's template adds."""
    described = _described(tokenizer)
    bytes_of, unknown = _byte_speller(tokenizer, described), _unknown_ids(described["model"], tokenizer)
    encoded = tokenizer.encode(text)
    pieces = tokenizer.pieces(encoded.ids)
    tokens = []
    for i, piece, (start, end), word in zip(encoded.ids, pieces, encoded.offsets, encoded.words, strict=True):
        data = bytes_of(piece) if word is not None else b""
        tokens.append(
            Token(
                id=i,
                piece=piece,
                data=text[start:end].encode() if data is None else data,
                start=start,
                end=end,
                unknown=i in unknown,
                inserted=word is None,
            )
        )
    return TokenizedText(text=text, tokens=tokens)


def words(tokenizer: Tokenizer, text: str) -> list[Word]:
    """Every distinct word of a text, in order, with its merges."""
    if len(text) > STEPS_LIMIT:
        raise DataError("D001", f"the text has {len(text):,} characters; steps are shown for at most {STEPS_LIMIT}")
    model = _described(tokenizer)["model"]
    encoded = tokenizer.encode(text, special=False)
    numbered = zip(encoded.words, tokenizer.pieces(encoded.ids), encoded.offsets, strict=True)
    groups = [list(group) for _, group in groupby(numbered, key=lambda entry: entry[0])]
    found = [[piece for _, piece, _ in group] for group in groups]
    histories = [[pieces] for pieces in found]
    if model.get("merges"):
        histories = list(_by_word(merge_steps(tokenizer, text), found))
    scores = {piece: score for piece, score in model["vocab"]} if model["type"] == "Unigram" else {}
    distinct: dict[tuple[str, ...], Word] = {}
    for group, steps in zip(groups, histories, strict=True):
        source = text[group[0][2][0] : group[-1][2][1]]
        distinct.setdefault(tuple(steps[-1]), _word(source, steps, scores))
    return list(distinct.values())


def _by_word(steps: list[list[str]], found: list[list[str]]) -> Iterator[list[list[str]]]:
    """The merges of a text, split by word; no piece crosses the end of a word."""
    rows = [iter(row) for row in steps]
    for pieces in found:
        bytes_of, history = "".join(pieces), list[list[str]]()
        for row in rows:
            part, left = list[str](), len(bytes_of)
            while left:
                part.append(next(row))
                left -= len(part[-1])
            if not history or history[-1] != part:
                history.append(part)
        yield history


def _word(text: str, steps: list[list[str]], scores: Mapping[str, float]) -> Word:
    pieces = steps[-1]
    if not all(piece in scores for piece in pieces):
        return Word(text=text, steps=steps, scores=[], runner_up=[], runner_up_score=0.0)
    ranked = [found for found in segmentations("".join(pieces), scores, 2) if found[1] != pieces]
    score, second = ranked[0] if ranked else (0.0, [])
    mine = [scores[piece] for piece in pieces]
    return Word(text=text, steps=steps, scores=mine, runner_up=second, runner_up_score=score)


def segmentations(word: str, scores: Mapping[str, float], best: int) -> list[tuple[float, list[str]]]:
    """The `best` most likely segmentations of a word, by Viterbi's algorithm with several survivors per position."""
    ways: list[list[tuple[float, list[str]]]] = [[(0.0, [])]]
    for end in range(1, len(word) + 1):
        found = [
            (score + scores[word[start:end]], [*tokenized_texts, word[start:end]])
            for start in range(end)
            if word[start:end] in scores
            for score, tokenized_texts in ways[start]
        ]
        ways.append(sorted(found, key=lambda way: (-way[0], len(way[1])))[:best])
    return ways[-1]


def reader(tokenizer: Tokenizer) -> Callable[[str], str]:
    """A function from a piece of the vocabulary to what people read: its text, or its bytes if they are no text."""
    described = _described(tokenizer)
    bytes_of, space = _byte_speller(tokenizer, described), "Metaspace" in set(_types(described))
    joined = any(part in ("Metaspace", "Replace") for part in _types(described["decoder"]))

    def read(piece: str) -> str:
        data: bytes | None = bytes_of(piece)
        if data is None:
            return piece.replace("\u2581", " ") if space or joined else piece
        try:
            return data.decode()
        except UnicodeDecodeError:
            return f"⟨{data.hex('-')}⟩"

    return read


def _described(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of the tokenizer's tokenizer.json."""
    described: dict[str, Any] = json.loads(tokenizer.backend.to_str())
    return described


def _unknown_ids(model: Mapping[str, Any], tokenizer: Tokenizer) -> set[int]:
    named = tokenizer.backend.token_to_id(model["unk_token"]) if model.get("unk_token") else None
    return {i for i in (named, model.get("unk_id"), tokenizer.special.get("unk")) if i is not None}


def _byte_speller(tokenizer: Tokenizer, described: Mapping[str, Any]) -> Any:
    """A function from a piece to the bytes that it spells; None if the piece consists of characters."""
    decoders = set(_types(described["decoder"]))
    whole = {token.content for token in tokenizer.backend.get_added_tokens_decoder().values()}
    table = byte_ids() if "ByteLevel" in decoders else {}

    def bytes_of(piece: str) -> bytes | None:
        if table and piece not in whole and all(char in table for char in piece):
            return bytes(table[char] for char in piece)
        if "ByteFallback" in decoders and (match := FALLBACK.fullmatch(piece)):
            return bytes.fromhex(match[1])
        return None

    return bytes_of


def _types(part: Any) -> Iterator[str]:
    """The `type` of a part of tokenizer.json and of all parts inside it."""
    if isinstance(part, dict):
        yield str(part.get("type"))
        for inner in part.values():
            yield from _types(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _types(inner)
