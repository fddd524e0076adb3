"""Rows for masked language models: windows of text, or pairs of spans for next sentence prediction.

A row is [CLS] text [SEP], or [CLS] A [SEP] B [SEP] with token type ids (Devlin et al. 2019); the tokens between A and B
are those of the tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from headway.data.batching.permutation import Index, shuffle_samples, splitmix64
from headway.data.batching.windows import Ids, Tokens, Windows
from headway.errors import DataError, counted

SENTENCE_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?]["')\]”’]))\s+|\n\s*\n""")
MAX_DRAWS = 8
"""Draws of a random second span: the first of about the same length as the true one is taken, or else the best."""
SALT = 0x70616972
"""Makes these random bits differ from others that a run draws with the same seed."""


class SpecialIds(NamedTuple):
    """Ids of the special tokens around a text and between two texts."""

    cls: int
    sep: int
    pad: int
    between: tuple[int, ...]


class EncoderRows(NamedTuple):
    """Input rows of an encoder, (n, width); None for what no row needs."""

    ids: Ids
    attention_mask: Ids | None
    token_type_ids: Ids | None
    next_sentence_label: Ids | None
    """(n,) 0 if the second span follows the first, 1 if it is random, as in `transformers`."""


def sentences(text: str) -> Iterator[str]:
    """Split a text after . ! ? and at empty lines, and normalize white space to single spaces."""
    return (" ".join(part.split()) for part in SENTENCE_END.split(text) if part.strip())


def p99_sentence_count(texts: Iterable[str]) -> int:
    """The 99th percentile of the number of sentences in a text."""
    counts = [sum(1 for _ in sentences(text)) for text in texts]
    return max(1, int(np.quantile(counts, 0.99, method="lower")))


@dataclass(frozen=True)
class TextRows:
    """Full rows of running text (Liu et al. 2019); every epoch cuts the text at other places."""

    ids: Tokens
    length: int
    seed: int
    special: SpecialIds

    def __len__(self) -> int:
        return len(self.windows)

    @cached_property
    def windows(self) -> Windows:
        return Windows(self.ids, self.length - 2, self.seed)

    def read(self, samples: Index) -> EncoderRows:
        return EncoderRows(_add_special(self.windows.read(samples)[0], self.special), None, None, None)


@dataclass(frozen=True)
class EvaluationRows:
    """All of a text in order, for evaluation; the last row may be padded."""

    ids: Tokens
    length: int
    special: SpecialIds

    def __post_init__(self) -> None:
        if len(self) < 1:
            raise DataError("D002", "0 tokens to evaluate on")

    def __len__(self) -> int:
        return -(-len(self.ids) // (self.length - 2))

    def read(self, samples: Index) -> EncoderRows:
        inner = self.length - 2
        cells = samples[:, None] * inner + np.arange(inner)
        text = self.ids[np.minimum(cells, len(self.ids) - 1)].astype(np.int64)
        rows = _add_special(text, self.special)
        size = np.minimum(inner, len(self.ids) - samples * inner)
        if (size == inner).all():
            return EncoderRows(rows, None, None, None)
        place = np.arange(self.length)
        rows[place > size[:, None] + 1] = self.special.pad
        rows[np.arange(len(rows)), size + 1] = self.special.sep
        return EncoderRows(rows, (place < size[:, None] + 2).astype(np.int64), None, None)


def _add_special(text: Ids, special: SpecialIds) -> Ids:
    return np.pad(text, ((0, 0), (1, 1)), constant_values=((0, 0), (special.cls, special.sep)))


@dataclass(frozen=True)
class NextSentences:
    """Pairs of spans of whole sentences; in half of the rows the second span follows the first.

    Sentence s is ids[starts[s] : starts[s + 1]], document d has sentences documents[d] … documents[d + 1] - 1. A
    sentence longer than half a row counts as several units. An epoch takes every span that fills a row once, and draws
    anew where the span is split and which random span replaces its second part.
    """

    ids: Tokens
    starts: Index
    documents: Index
    length: int
    seed: int
    special: SpecialIds

    def __post_init__(self) -> None:
        if len(self) < 2:
            raise DataError(
                "D002", f"{counted(len(self), 'rows')} of two sentences or more: too little text for mlm.next_sentence"
            )

    @property
    def room(self) -> int:
        """Tokens of a row without the special tokens."""
        return self.length - 2 - len(self.special.between)

    @cached_property
    def units(self) -> tuple[Index, Index]:
        """Starts of units (sentences, or parts of long ones) in tokens; starts of documents in units. Both end with the
        total."""
        half = max(1, self.room // 2)
        lengths = np.diff(self.starts)
        count = -(-lengths // half)
        before = np.concatenate([[0], np.cumsum(count)])
        piece = np.arange(before[-1]) - np.repeat(before[:-1], count)
        begins = np.repeat(self.starts[:-1], count) + piece * half
        return np.append(begins, self.starts[-1]), before[self.documents]

    @cached_property
    def spans(self) -> Index:
        """(m, 3): first unit, end, and end of the document, for spans of two or more units that fill a row."""
        begins, documents = (part.tolist() for part in self.units)
        found = []
        for first, end in pairwise(documents):
            while first < end:
                last = self._fill(begins, first, end, self.room)
                if last - first > 1:
                    found.append((first, last, end))
                first = last
        return np.array(found, dtype=np.int64).reshape(-1, 3)

    @staticmethod
    def _fill(begins: list[int], first: int, end: int, room: int) -> int:
        """Return the end of the longest span from `first` with at most `room` tokens; it has at least one unit."""
        last = first + 1
        while last < end and begins[last + 1] - begins[first] <= room:
            last += 1
        return last

    def __len__(self) -> int:
        return len(self.spans)

    def read(self, samples: Index) -> EncoderRows:
        rows = shuffle_samples(samples, len(self), self.seed)
        random_bits = splitmix64(
            samples.astype(np.uint64) ^ splitmix64(splitmix64(np.uint64(self.seed)) ^ np.uint64(SALT))
        )
        drawn = [self._pair(int(row), int(bits)) for row, bits in zip(rows, random_bits, strict=True)]
        ids = np.full((len(rows), self.length), self.special.pad, dtype=np.int64)
        attention_mask, token_type_ids = np.zeros_like(ids), np.zeros_like(ids)
        cls, sep, _, between = self.special
        for i, (first, second, _) in enumerate(drawn):
            a, b = self.ids[slice(*first)], self.ids[slice(*second)]
            row = np.concatenate([[cls], a, between, b, [sep]])
            ids[i, : len(row)], attention_mask[i, : len(row)] = row, 1
            token_type_ids[i, 1 + len(a) + len(between) : len(row)] = 1
        return EncoderRows(
            ids, attention_mask, token_type_ids, np.array([is_random for *_, is_random in drawn], dtype=np.int64)
        )

    def _pair(self, row: int, bits: int) -> tuple[tuple[int, int], tuple[int, int], int]:
        """Return the tokens [begin, end) of both spans, and 1 if the second is random."""
        first, split, last, _ = self._split(row, bits)
        begin, middle, end = (self._begins[unit] for unit in (first, split, last))
        is_random = bits >> 63
        second = (
            self._random_second(row, bits, end - middle, self.room - (middle - begin)) if is_random else (middle, end)
        )
        return (begin, middle), second, is_random

    def _random_second(self, row: int, bits: int, wanted: int, room: int) -> tuple[int, int]:
        """Draw a second span of about the same length, in whole units, from where another span would be split.

        Neither its length nor its end may reveal that it is random.
        """
        best, least = (0, 0), room + wanted
        for _ in range(MAX_DRAWS):
            bits = int(splitmix64(np.uint64(bits)))
            other = (row + 1 + bits % (len(self) - 1)) % len(self)
            _, unit, _, end = self._split(other, int(splitmix64(np.uint64(bits))))
            span = self._nearest_length(unit, end, wanted, room)
            if (miss := abs(span[1] - span[0] - wanted)) < least:
                best, least = span, miss
            if 8 * least <= wanted:
                break
        return best

    def _nearest_length(self, unit: int, end: int, wanted: int, room: int) -> tuple[int, int]:
        """Return the span from `unit` whose length is nearest to `wanted`, truncated to `room`."""
        begins = self._begins
        begin, last = begins[unit], self._fill(begins, unit, end, wanted)
        short = wanted - (begins[last] - begin)
        if last < end and begins[last + 1] - begin <= room and begins[last + 1] - begin - wanted < short:
            last += 1
        return begin, min(begins[last], begin + room)

    def _split(self, row: int, bits: int) -> tuple[int, int, int, int]:
        """Return a span's first unit, the unit where its second part starts, its end, and its document's end."""
        first, last, end = self.spans[row].tolist()
        return first, first + 1 + (bits & 0xFFFFFFFF) % (last - first - 1), last, end

    @cached_property
    def _begins(self) -> list[int]:
        begins: list[int] = self.units[0].tolist()
        return begins
