"""BPE-dropout: skips merges at random, so a word has several segmentations (Provilkov et al. 2020).

The dropout of `tokenizers` uses a generator that cannot be seeded. Here each word has a fixed set of segmentations, and
the number of a sample selects one of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from headway.data.batching.permutation import splitmix64
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError

VARIANTS = 16
"""Segmentations of a word."""

WORD_PART = 128
"""The most characters that are merged together: merging takes quadratic time, and longer strings are not words."""


class BpeDropout:
    """Encodes words with BPE-dropout. Threads may share it: a segmentation computed twice is the same."""

    def __init__(self, tokenizer: Tokenizer, dropout: float, seed: int) -> None:
        model = json.loads(tokenizer.backend.to_str())["model"]
        if not model.get("merges"):
            raise ConfigError("C004", f"seq2seq.bpe_dropout = {dropout} needs data.tokenizer = bpe")
        self.backend, self.dropout, self.seed = tokenizer.backend, dropout, seed
        self.ranks = {tuple(pair): i for i, pair in enumerate(model["merges"])}
        self.vocab: dict[str, int] = model["vocab"]
        self._known: dict[tuple[str, int], tuple[int, ...]] = {}

    def words(self, text: str) -> list[str]:
        """Split a text into words; no merge crosses from one word into the next."""
        backend = self.backend
        text = backend.normalizer.normalize_str(text) if backend.normalizer else text
        return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]

    def ids(self, words: Sequence[str], sample: int, side: int = 0) -> list[int]:
        """Encode the words of a sample; `side` distinguishes the two texts of a pair."""
        cells = (np.uint64(sample) << np.uint64(24)) | np.arange(side << 20, (side << 20) + len(words), dtype=np.uint64)
        rng = splitmix64(cells ^ splitmix64(np.uint64(self.seed))) % np.uint64(VARIANTS)
        return [i for word, variant in zip(words, rng.tolist(), strict=True) for i in self.variant(word, variant)]

    def variant(self, word: str, number: int) -> tuple[int, ...]:
        """Return one of a word's segmentations as ids."""
        if (word, number) not in self._known:
            rng = random.Random(f"{self.seed} {number} {word}")
            parts = (word[at : at + WORD_PART] for at in range(0, len(word), WORD_PART))
            pieces = [piece for part in parts for piece in segment(part, self.ranks, self.dropout, rng)]
            self._known[word, number] = tuple(self.vocab[piece] for piece in pieces)
        return self._known[word, number]


def segment(word: str, ranks: dict[tuple[str, ...], int], dropout: float, rng: random.Random) -> list[str]:
    """Merge characters, the earliest learned pair first; each merge is skipped with probability `dropout` per round."""
    pieces = list(word)
    while found := [(ranks[p], i) for i, p in enumerate(pairwise(pieces)) if p in ranks and rng.random() >= dropout]:
        _, i = min(found)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    return pieces
