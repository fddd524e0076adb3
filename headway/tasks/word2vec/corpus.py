"""A corpus as numbers of words: its vocabulary, and the spans that training reads.

Letters: V words of the vocabulary, S spans, L words of a span.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.data.batching.permutation import Index
from headway.data.datasets.text import Corpus
from headway.data.tokenizers.bounds import MAX_TOKEN_CHARACTERS
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError, counted
from headway.hub.vectors.model import PATTERNS, UNKNOWN
from headway.progress import bar
from headway.tasks.word2vec.task import Settings

END = -1
"""What stands in a span where a document ends, and after the last word."""
Spans = NDArray[np.int32]


@dataclass(frozen=True)
class Words:
    """How a text is split into words."""

    split: str
    lower: bool

    def of(self, text: str) -> list[str]:
        return re.findall(PATTERNS[self.split], text.lower() if self.lower else text)


@dataclass(frozen=True)
class Vocabulary:
    """The words that have vectors, the most frequent first."""

    words: list[str]
    counts: Index
    """(V,): how often each occurs in the training text."""

    @property
    def index(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}


def count_words(texts: Corpus, words: Words) -> Counter[str]:
    """How often each word occurs."""
    found: Counter[str] = Counter()
    with bar("counting words", unit="bytes") as tick:
        for text in texts.read():
            for part in _parts(text):
                found.update(words.of(part))
                tick(len(part))
    return found


def frequent(counts: Mapping[str, int], settings: Settings, most: int) -> Vocabulary:
    """The words that occur often enough, at most so many (0: all); of equals, the first by spelling."""
    common = sorted((word for word, n in counts.items() if n >= settings.min_count), key=lambda w: (-counts[w], w))
    common = [word for word in common if len(word) <= MAX_TOKEN_CHARACTERS and UNKNOWN not in word][: most or None]
    if not common:
        raise _no_words(counts, settings)
    if len(common) < 2:
        hint = "give more text, or a smaller word2vec.min_count"
        raise DataError("D002", f"the vocabulary has one word, {common[0]!r}: it has no other words beside it", hint)
    return Vocabulary(common, np.array([counts[word] for word in common], np.int64))


def _no_words(counts: Mapping[str, int], settings: Settings) -> DataError:
    if not counts:
        return DataError("D002", "the text has no words", "word2vec.split says what a word is")
    best = max(counts, key=lambda word: (counts[word], word))
    often = f"the most frequent one, {best[:40]!r}, occurs {counted(counts[best], 'times')}"
    what = f"no word occurs word2vec.min_count = {settings.min_count} times: {often}"
    return DataError("D002", what, f"give more text, or set word2vec.min_count={counts[best]} or less")


def known(words: list[str], counts: Mapping[str, int]) -> Vocabulary:
    """The vocabulary of a model, with the counts of another text."""
    found = np.array([counts.get(word, 0) for word in words], np.int64)
    if (found > 0).sum() < 2:
        raise DataError("D002", f"the text has {int((found > 0).sum())} of the {len(words):,} words of model.from")
    return Vocabulary(words, found)


def make_spans(texts: Corpus, words: Words, index: Mapping[str, int], length: int) -> Spans:
    """(S, L): the words of a corpus without those that have no vector; END between documents and after the last."""
    numbers = array("i")
    with bar("reading words", unit="bytes") as tick:
        for text in texts.read():
            for part in _parts(text):
                numbers.extend(index[word] for word in words.of(part) if word in index)
                tick(len(part))
            if texts.multi_document:
                numbers.append(END)
    rows = -(-len(numbers) // length)
    spans = np.full(rows * length, END, np.int32)
    spans[: len(numbers)] = np.frombuffer(numbers, np.int32) if numbers else []
    return spans.reshape(rows, length)


def check_size(spans: Spans, settings: Settings, what: str) -> None:
    """Refuse a text in which no word has a full window."""
    words = int((spans != END).sum())
    if words <= settings.window:
        hint = "give more text, or a smaller word2vec.min_count or word2vec.window"
        why = (
            f"{what} has {counted(words, 'words')} of the vocabulary, no more than word2vec.window = {settings.window}"
        )
        raise DataError("D002", why, hint)


def _parts(text: str, letters: int = 1 << 20) -> Iterator[str]:
    """A text in parts that end at white space, so that a large one is not copied as a whole."""
    begin = 0
    while len(text) - begin > letters:
        found = re.compile(r"\s").search(text, begin + letters)
        end = len(text) if found is None else found.start()
        yield text[begin:end]
        begin = end
    yield text[begin:]


def words_in(tokenizer: Tokenizer, count: int) -> list[str]:
    """The words of a model, in the order of their rows."""
    vocab = tokenizer.backend.get_vocab()
    found = sorted(vocab, key=vocab.__getitem__)[:count]
    if [vocab[word] for word in found] != list(range(count)):
        raise DataError("D001", f"the tokenizer does not have a word for each of the {count:,} rows")
    return found
