"""Long texts as overlapping windows: subwords of words, special tokens around them, and where to cut.

No word is lost: a text that does not fit is read in several windows with overlap, and each word is labeled in the
window with the most context around it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise

import numpy as np

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError

OVERLAP = 4
"""Adjacent windows overlap by at most this fraction of their tokens: one in OVERLAP."""


@dataclass(frozen=True)
class SpecialLayout:
    """Special tokens before, between and after two texts, or around one; as (ids, token type ids)."""

    before: tuple[list[int], list[int]]
    between: tuple[list[int], list[int]]
    after: tuple[list[int], list[int]]
    token_type_ids: tuple[int, int]
    """Token type ids of the first and the second text."""

    @property
    def size(self) -> int:
        return sum(len(part[0]) for part in (self.before, self.between, self.after))

    def wrap(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """Add special tokens to a text or a pair; returns ids and token type ids."""
        ids, token_type_ids = [*self.before[0], *first], [*self.before[1], *[self.token_type_ids[0]] * len(first)]
        if second is not None:
            ids += [*self.between[0], *second]
            token_type_ids += [*self.between[1], *[self.token_type_ids[1]] * len(second)]
        return ids + self.after[0], token_type_ids + self.after[1]


def special_layout(tokenizer: Tokenizer, *, pair: bool = False) -> SpecialLayout:
    """Find a tokenizer's layout by encoding a short text, or two."""
    probe = _probe(tokenizer)
    text = tokenizer.encode(probe, probe if pair else None)
    groups: list[tuple[list[int], list[int]]] = [([], []), ([], []), ([], [])]
    token_type_ids, place, last = [0, 0], 0, int(pair)
    for token, segment, owner in zip(text.ids, text.token_type_ids, text.texts, strict=True):
        if owner is not None:
            token_type_ids[owner] = segment
            place = 2 if owner == last else 1
        else:
            groups[place][0].append(token)
            groups[place][1].append(segment)
    return SpecialLayout(groups[0], groups[1], groups[2], (token_type_ids[0], token_type_ids[1]))


def _probe(tokenizer: Tokenizer) -> str:
    """Return a text with at least one token: a letter, or else an entry of the vocabulary."""
    for text in chain("a", tokenizer.pieces(range(tokenizer.vocab_size))):
        if text and tokenizer.encode(text, special=False).ids:
            return text
    raise ConfigError("C004", f"the tokenizer encodes none of its own {tokenizer.vocab_size:,} tokens")


@dataclass(frozen=True)
class Subwords:
    """The words of a sentence as ids, without special tokens."""

    ids: list[int]
    word_starts: list[int]
    """The first subword of each word, and at the end the number of subwords. A word may have none, for example a lone
    control character."""


def subwords(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[Subwords]:
    """Encode sentences with one space between words.

    A subword belongs to the word in which it ends, because byte-level subwords start with the space before the word.
    """
    found = []
    texts = tokenizer.encode_batch([" ".join(words) for words in sentences], special=False)
    for words, text in zip(sentences, texts, strict=True):
        starts = [0, *accumulate(len(word) + 1 for word in words)][: len(words)]
        ends = np.array([end for _, end in text.offsets], dtype=np.int64)
        owner = np.maximum(np.searchsorted(starts, ends - 1, side="right") - 1, 0)
        first = np.searchsorted(owner, np.arange(len(words) + 1))
        found.append(Subwords(text.ids, [int(i) for i in first]))
    return found


Context = tuple[list[int], list[int]]
"""Ids before a text and after it, in its document."""


def document_context(texts: Sequence[Subwords], documents: Sequence[Hashable], size: int) -> list[Context]:
    """For each sentence, return the last `size` ids before it in its document, and the first `size` after it."""
    found: list[Context] = []
    for _, group in groupby(range(len(texts)), key=lambda i: documents[i]):
        inside = [texts[i].ids for i in group]
        ids, ends = [token for row in inside for token in row], list(accumulate(map(len, inside)))
        for begin, end in pairwise([0, *ends]):
            found.append((ids[max(0, begin - size) : begin], ids[end : end + size]))
    return found


def fit_context(around: Context, spare: int | None) -> Context:
    """Truncate a context to `spare` tokens, half for each side; a side that needs less leaves more to the other."""
    before, after = around
    if spare is None or len(before) + len(after) <= spare:
        return around
    left = min(len(before), max(spare // 2, spare - len(after)))
    return before[len(before) - left :], after[: spare - left]


@dataclass(frozen=True)
class Window:
    """Words begin … end-1 of a sentence; this window labels the words label_begin … label_end-1."""

    sentence: int
    begin: int
    end: int
    label_begin: int
    label_end: int


def word_windows(sizes: Sequence[int], budget: int, sentence: int = 0) -> list[Window]:
    """Split a sentence, given by the number of subwords of each word, into windows of at most `budget` subwords."""
    sizes = [min(size, budget) for size in sizes]
    borders = [(0, _first_beyond(sizes, 0, budget))]
    while (end := borders[-1][1]) < len(sizes):
        begin, spare = end, min(budget // OVERLAP, budget - sizes[end])
        while begin - 1 > borders[-1][0] and sizes[begin - 1] <= spare:
            begin -= 1
            spare -= sizes[begin]
        borders.append((begin, _first_beyond(sizes, begin, budget)))
    cuts = [0, *((b + e + 1) // 2 for (_, e), (b, _) in pairwise(borders)), len(sizes)]
    return [Window(sentence, b, e, cuts[i], cuts[i + 1]) for i, (b, e) in enumerate(borders)]


def _first_beyond(sizes: Sequence[int], begin: int, budget: int) -> int:
    """Return the first word that no longer fits."""
    end = begin
    while end < len(sizes) and sizes[end] <= budget:
        budget -= sizes[end]
        end += 1
    return end


def sentence_windows(texts: Sequence[Subwords], layout: SpecialLayout, limit: int | None) -> Iterator[Window]:
    """Yield the windows of all sentences in order; without a limit each sentence is one window."""
    budget = max_text_tokens(layout, limit)
    for number, text in enumerate(texts):
        count = len(text.word_starts) - 1
        if budget is None or len(text.ids) <= budget:
            yield Window(number, 0, count, 0, count)
        else:
            yield from word_windows(np.diff(text.word_starts).tolist(), budget, number)


def window_ids(text: Subwords, window: Window, budget: int | None) -> tuple[list[int], list[int]]:
    """Return the ids of a window, and the index of each word's first subword, -1 for a word without subwords.

    A word longer than a window is truncated.
    """
    ids: list[int] = []
    first: list[int] = []
    for word in range(window.begin, window.end):
        part = text.ids[text.word_starts[word] : text.word_starts[word + 1]][:budget]
        first.append(len(ids) if part else -1)
        ids += part
    return ids, first


def max_text_tokens(layout: SpecialLayout, limit: int | None) -> int | None:
    """Tokens of a window that are left for the text, without special tokens."""
    if limit is None:
        return None
    if limit <= layout.size:
        raise ConfigError("C003", f"{limit} tokens: the {layout.size} special tokens leave no room for a text")
    return limit - layout.size


def token_windows(count: int, budget: int | None, stride: int) -> list[tuple[int, int]]:
    """Return begin and end of windows over `count` tokens; adjacent windows share `stride` tokens, at most half."""
    if budget is None or count <= budget:
        return [(0, count)]
    step = budget - min(stride, budget // 2)
    starts = [at for at in range(0, count, step) if at == 0 or at + budget - step < count]
    return [(at, min(at + budget, count)) for at in starts]
