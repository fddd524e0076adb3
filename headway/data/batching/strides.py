"""Texts as windows that a model can read: pieces of words, the tokens around them, and what is cut where.

No word is lost: what does not fit into one window is read in several that overlap, and each word belongs to the one
where it has most around it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise

import numpy as np

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError

OVERLAP = 4
"""Neighbouring windows share so small a part of their room, one in four."""


@dataclass(frozen=True)
class SpecialLayout:
    """The tokens that a tokenizer puts before, between and after two texts, or around one; and their segments."""

    before: tuple[list[int], list[int]]
    between: tuple[list[int], list[int]]
    after: tuple[list[int], list[int]]
    token_type_ids: tuple[int, int]
    """Of the first text and of the second."""

    @property
    def size(self) -> int:
        return sum(len(part[0]) for part in (self.before, self.between, self.after))

    def wrap(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """Ids and segments of a text, or of a pair."""
        ids, token_type_ids = [*self.before[0], *first], [*self.before[1], *[self.token_type_ids[0]] * len(first)]
        if second is not None:
            ids += [*self.between[0], *second]
            token_type_ids += [*self.between[1], *[self.token_type_ids[1]] * len(second)]
        return ids + self.after[0], token_type_ids + self.after[1]


def special_layout(tokenizer: Tokenizer, *, pair: bool = False) -> SpecialLayout:
    """Read off from what becomes of a short text, or of two."""
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
    """A text that has a token: a letter, or where a vocabulary lacks that one, something it has."""
    for text in chain("a", tokenizer.pieces(range(tokenizer.vocab_size))):
        if text and tokenizer.encode(text, special=False).ids:
            return text
    raise ConfigError("C004", f"the tokenizer knows none of its own {tokenizer.vocab_size:,} tokens in a text")


@dataclass(frozen=True)
class Subwords:
    """The words of a sentence as ids, nothing around them."""

    ids: list[int]
    word_starts: list[int]
    """Where the pieces of each word begin, and at the end their number. A word may have none: a lone control
    character, for one."""


def subwords(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[Subwords]:
    """Words are read with one space between them, whatever the tokenizer makes of spaces.

    A piece is of the word in which it ends: byte-level pieces begin with the space before it.
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
"""Ids of what stands before a text and after it."""


def document_context(texts: Sequence[Subwords], documents: Sequence[Hashable], size: int) -> list[Context]:
    """For each sentence, the last `size` ids before it in its document, and the first after it."""
    found: list[Context] = []
    for _, group in groupby(range(len(texts)), key=lambda i: documents[i]):
        inside = [texts[i].ids for i in group]
        ids, ends = [token for row in inside for token in row], list(accumulate(map(len, inside)))
        for begin, end in pairwise([0, *ends]):
            found.append((ids[max(0, begin - size) : begin], ids[end : end + size]))
    return found


def fit_context(around: Context, spare: int | None) -> Context:
    """As much of both sides as there is room for, alike; what one does not need is the other's."""
    before, after = around
    if spare is None or len(before) + len(after) <= spare:
        return around
    left = min(len(before), max(spare // 2, spare - len(after)))
    return before[len(before) - left :], after[: spare - left]


@dataclass(frozen=True)
class Window:
    """Words begin … end-1 of a sentence; those from `label_begin` to `label_end`-1 are this window's to label."""

    sentence: int
    begin: int
    end: int
    label_begin: int
    label_end: int


def word_windows(sizes: Sequence[int], budget: int, sentence: int = 0) -> list[Window]:
    """Words with so many pieces each, in as few windows of at most `budget` pieces as overlap allows."""
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
    """The word after the last that fits."""
    end = begin
    while end < len(sizes) and sizes[end] <= budget:
        budget -= sizes[end]
        end += 1
    return end


def sentence_windows(texts: Sequence[Subwords], layout: SpecialLayout, limit: int | None) -> Iterator[Window]:
    """The windows of all sentences, in order; a limit of None reads each whole."""
    budget = max_text_tokens(layout, limit)
    for number, text in enumerate(texts):
        count = len(text.word_starts) - 1
        if budget is None or len(text.ids) <= budget:
            yield Window(number, 0, count, 0, count)
        else:
            yield from word_windows(np.diff(text.word_starts).tolist(), budget, number)


def window_ids(text: Subwords, window: Window, budget: int | None) -> tuple[list[int], list[int]]:
    """Ids, and for each word of the window where its first piece is among them, -1 for a word that has none.

    A word longer than a whole window is cut to its beginning.
    """
    ids: list[int] = []
    first: list[int] = []
    for word in range(window.begin, window.end):
        part = text.ids[text.word_starts[word] : text.word_starts[word + 1]][:budget]
        first.append(len(ids) if part else -1)
        ids += part
    return ids, first


def max_text_tokens(layout: SpecialLayout, limit: int | None) -> int | None:
    """What is left of a window for the text itself."""
    if limit is None:
        return None
    if limit <= layout.size:
        raise ConfigError("C003", f"{limit} tokens: the {layout.size} around a text leave no room for it")
    return limit - layout.size


def token_windows(count: int, budget: int | None, stride: int) -> list[tuple[int, int]]:
    """Begin and end of windows over so many tokens; neighbours share `stride` tokens, at most half a window."""
    if budget is None or count <= budget:
        return [(0, count)]
    step = budget - min(stride, budget // 2)
    starts = [at for at in range(0, count, step) if at == 0 or at + budget - step < count]
    return [(at, min(at + budget, count)) for at in starts]
