"""Search among word vectors: the nearest words to a word, or to a sum of words such as paris - france + italy.

Letters: V words, D width.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import DataError, short
from headway.joint.words import WordVectors
from headway.tasks.word2vec.ngrams import all_rows, joined, ngram_rows

ANALOGY = re.compile(r"(\S+)\s+:\s+(\S+)\s+::\s+(\S+)\s+:\s+\?")
"""paris : france :: rome : ?"""
ALIKE, LIKELY = 3, 50_000
"""Near spellings in an error, and how many of the most frequent words are tried for them."""


@dataclass(frozen=True)
class Neighbour:
    """A word that was found."""

    word: str
    cosine: float

    def to_dict(self) -> dict[str, Any]:
        return {"word": self.word, "cosine": round(self.cosine, 6)}


@dataclass(frozen=True)
class Query:
    """Words to add and to subtract."""

    terms: tuple[tuple[str, int], ...]
    """Each word with +1 or -1."""


def parse_query(text: str) -> Query:
    """`paris`, `paris - france + italy`, `france : paris :: italy : ?`; words side by side are added."""
    if found := ANALOGY.fullmatch(text.strip()):
        a, b, c = found.groups()
        return Query(((b, 1), (a, -1), (c, 1)))
    terms: list[tuple[str, int]] = []
    sign, open_ = 1, True
    for part in text.split():
        if part in ("+", "-", "−"):
            if open_ and terms:
                raise DataError("D001", f"{short(text)}: two signs side by side", "paris - france + italy")
            sign, open_ = (1 if part == "+" else -1), True
        else:
            terms.append((part, sign))
            sign, open_ = 1, False
    if open_:
        raise DataError("D001", f"{short(text)}: a sign without a word after it", "paris - france + italy")
    if not any(sign > 0 for _, sign in terms):
        raise DataError("D001", f"{short(text)}: nothing to subtract from", "paris - france + italy")
    return Query(tuple(terms))


@dataclass(frozen=True)
class Search:
    """The vectors of a model's words, of length one."""

    model: WordVectors
    words: list[str]
    vectors: Tensor
    """(V, D), the most frequent word first."""

    @cached_property
    def index(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def place(self, word: str) -> int | None:
        """The row of a word, as it is spelled or as the model's text was."""
        found = self.index.get(word)
        return self.index.get(word.lower()) if found is None and self.model.config.lower else found

    def vector(self, word: str) -> Tensor:
        """(D,) of length one; of a word that was never seen, from its n-grams."""
        place = self.place(word)
        if place is not None:
            return self.vectors[place]
        if rows := ngram_rows(word.lower() if self.model.config.lower else word, self.model.config):
            starts, every = joined([rows])
            with torch.no_grad():
                found = self.model.composed(*_tensors((starts, every), self.model.inputs.device))
            return F.normalize(found.float().cpu(), dim=1)[0]
        raise DataError(
            "D001", f"{short(word)} has no vector{self._alike(word)}", "the text it learned from has other words"
        )

    def query(self, text: str) -> tuple[Tensor, set[int]]:
        """The vector (D,) that a text asks for, and the rows of its own words."""
        query = parse_query(text)
        total = torch.stack([sign * self.vector(word) for word, sign in query.terms]).sum(0)
        own = {place for word, _ in query.terms if (place := self.place(word)) is not None}
        return F.normalize(total, dim=0), own

    def nearest(self, query: tuple[Tensor, set[int]], top: int) -> list[Neighbour]:
        """The words nearest to a vector, the nearest first; those of the query aside."""
        vector, own = query
        cosines = (self.vectors * vector).sum(1).double().numpy()  # a product of matrices may sum in another order
        order = np.argsort(-cosines, kind="stable")[: top + len(own)].tolist()
        return [Neighbour(self.words[i], float(cosines[i])) for i in order if i not in own][:top]

    def _alike(self, word: str) -> str:
        """` — did you mean …?` with near spellings."""
        small = word.lower() if self.model.config.lower else word
        likely: Iterable[str] = (each for each in self.words[:LIKELY] if abs(len(each) - len(small)) < 3)
        found = difflib.get_close_matches(small, list(likely), n=ALIKE, cutoff=0.6)
        return f" — did you mean {', '.join(found)}?" if found else ""


@torch.no_grad()
def word_rows(model: WordVectors, words: list[str]) -> Tensor:
    """(V, D): the vectors of all words, with those of their n-grams."""
    config = model.config
    if not config.ngram_rows:
        return model.inputs.detach()[: len(words)].float().cpu()
    starts, rows = all_rows(words, config)
    own = joined([number, *rows[starts[number] : starts[number + 1]]] for number in range(len(words)))
    return model.composed(*_tensors(own, model.inputs.device)).float().cpu()


def word_vectors(model: WordVectors, words: list[str]) -> Search:
    """The vectors of all words, to search."""
    return Search(model, words, F.normalize(word_rows(model, words), dim=1))


def _tensors(rows: tuple[np.ndarray, np.ndarray], device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(rows[0]).to(device), torch.from_numpy(rows[1].astype(np.int64)).to(device)
