"""The merges of byte pair encoding over a text, one after another, each with how often its pair stood there."""

from __future__ import annotations

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError

LONGEST = 50_000
"""The most characters of a text whose merges are shown."""
Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Merge:
    """One pair that became one piece, wherever it stood in the text."""

    pair: Pair
    count: int
    """How often the pair stood in the text."""
    tokens: int
    """Tokens of the text after the merge."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeHistory:
    """From characters to tokens."""

    words: list[tuple[list[str], int]]
    """The distinct words of the text as characters, in their order, each with how often it is there."""
    tokens: int
    """Tokens before the first merge: characters, or bytes."""
    merges: list[Merge]


def merge_history(tokenizer: Tokenizer, text: str) -> MergeHistory:
    """The merges that the tokenizer does in a text, in the order of its vocabulary, which is that of its training."""
    if len(text) > LONGEST:
        raise DataError("D001", f"the text has {len(text):,} characters; merges are shown for at most {LONGEST:,}")
    backend = tokenizer.backend
    model = json.loads(backend.to_str())["model"]
    if not model.get("merges"):
        kind = "it has only single characters" if model["type"] == "BPE" else f"its model is {model['type']}"
        raise ConfigError("C003", f"only byte pair encoding merges; {kind}", "train one of kind bpe")
    text = backend.normalizer.normalize_str(text) if backend.normalizer else text
    parts = backend.pre_tokenizer.pre_tokenize_str(text) if backend.pre_tokenizer else [(text, (0, len(text)))]
    counts = Counter(part for part, _ in parts)
    replay = _Replay(counts, {tuple(pair): rank for rank, pair in enumerate(model["merges"])})
    words, tokens = [(list(word), count) for word, count in counts.items()], replay.tokens
    return MergeHistory(words=words, tokens=tokens, merges=replay.run())


class _Replay:
    """The words of a text while they are merged. Only words that hold a pair are touched when it is merged."""

    def __init__(self, counts: Mapping[str, int], ranks: Mapping[tuple[str, ...], int]) -> None:
        self.ranks = ranks
        self.words, self.counts = [list(word) for word in counts], list(counts.values())
        self.tokens = sum(len(word) * count for word, count in zip(self.words, self.counts, strict=True))
        self.holders: dict[Pair, set[int]] = defaultdict(set)
        """The words in which a pair stands, or stood."""
        self.waiting: list[tuple[int, Pair]] = []
        for place, word in enumerate(self.words):
            self._note(place, word)

    def _note(self, place: int, word: list[str]) -> None:
        for pair in set(pairwise(word)):
            if pair in self.ranks and place not in self.holders[pair]:
                self.holders[pair].add(place)
                heapq.heappush(self.waiting, (self.ranks[pair], pair))

    def run(self) -> list[Merge]:
        found = []
        while self.waiting:
            _, pair = heapq.heappop(self.waiting)
            count = sum(self._merge(place, pair) for place in sorted(self.holders.pop(pair, ())))
            if count:
                self.tokens -= count
                found.append(Merge(pair=pair, count=count, tokens=self.tokens))
        return found

    def _merge(self, place: int, pair: Pair) -> int:
        """Merge a pair in one word; returns how often it stood in the text because of this word."""
        word, merged, at = self.words[place], list[str](), 0
        while at < len(word):
            both = tuple(word[at : at + 2]) == pair
            merged.append("".join(pair) if both else word[at])
            at += 2 if both else 1
        times = len(word) - len(merged)
        self.words[place] = merged
        self._note(place, merged)
        return times * self.counts[place]
