"""Word vectors in use: the nearest words to a word, or to a sum of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from headway.errors import DataError
from headway.joint.words import WordVectors
from headway.tasks.base import Json
from headway.tasks.predictor import Predictor
from headway.tasks.text import TextExample
from headway.tasks.word2vec.corpus import words_in
from headway.tasks.word2vec.search import Neighbour, Search, word_rows, word_vectors
from headway.tasks.word2vec.task import WordVectorsTask


@dataclass(frozen=True)
class Neighbours:
    """The words nearest to a text, the nearest first."""

    found: list[Neighbour]

    def to_dict(self) -> Json:
        return {"neighbours": [each.to_dict() for each in self.found]}


class WordVectorsPredictor(Predictor[TextExample, Neighbours]):
    """Word vectors in use."""

    task = WordVectorsTask()

    @property
    def vectors_model(self) -> WordVectors:
        if not isinstance(self.model, WordVectors):
            raise DataError("D001", f"{self.loaded.name} is no model of word vectors")
        return self.model

    @cached_property
    def words(self) -> list[str]:
        """The words, the most frequent first."""
        return words_in(self.tokenizer, self.vectors_model.config.source.vocab)

    @cached_property
    def search(self) -> Search:
        return word_vectors(self.vectors_model, self.words)

    def rows(self) -> tuple[list[str], Tensor]:
        """All words and their vectors, with the lengths that they have."""
        return self.words, word_rows(self.vectors_model, self.words)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(N, D), of length one."""
        return torch.stack([self.search.query(text)[0] for text in texts])

    def predict(self, examples: Sequence[TextExample]) -> list[Neighbours]:
        search = self.search
        return [Neighbours(search.nearest(search.query(example.text), self.options.top)) for example in examples]
