"""Predicting with an embedding model: one vector per text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headway.tasks.backbone import limit_of
from headway.tasks.base import Json
from headway.tasks.embedding.task import Embedding
from headway.tasks.embedding.vectors import embed
from headway.tasks.predictor import Predictor
from headway.tasks.text import TextExample


@dataclass(frozen=True)
class Vector:
    """The embedding of a text, of length one."""

    values: list[float]

    def to_dict(self) -> Json:
        return {"embedding": self.values}


class EmbeddingPredictor(Predictor[TextExample, Vector]):
    """An embedding model in use."""

    task = Embedding()

    def predict(self, examples: Sequence[TextExample]) -> list[Vector]:
        return [Vector(row) for row in self.encode(examples).tolist()]

    def encode(self, things: Sequence[Any]) -> Tensor:
        """(N, M) of texts, or of examples."""
        texts = [thing if isinstance(thing, str) else thing.text for thing in things]
        return embed(self.model, self.tokenizer, texts, self.recipe.settings.pool)

    def shown(self, example: TextExample) -> str:
        """What a person knows an example by."""
        return example.text

    def truncated(self, examples: Sequence[TextExample]) -> tuple[int, int]:
        if (limit := limit_of(self.model, None)) is None:
            return 0, 0
        read = self.tokenizer.encode_batch([example.text for example in examples])
        return sum(len(text.ids) > limit for text in read), limit
