"""Predicting with a language model: continuations of texts, or how likely a text is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.config.toml import build
from headway.data.prompts import PromptEncoder
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.generate.decode import Sampling, decode
from headway.generate.score import Scored, score
from headway.model.model import Model
from headway.tasks.base import Json
from headway.tasks.lm.task import LanguageModeling
from headway.tasks.predictor import Predictor, TextScore
from headway.tasks.text import TextExample


@dataclass(frozen=True)
class Continuation:
    """The new text after a prompt."""

    new: str

    def to_dict(self) -> Json:
        return {"new": self.new}


def score_texts(model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Scored]:
    """How likely a model finds each text. A text without a beginning-of-sequence token has its first token given."""
    start = model.config.special.bos
    first = [] if start is None or tokenizer.prefix_ids else [start]
    rows = [[*first, *ids] for ids in tokenizer.ids(texts, special=True)]
    if short := [text for text, row in zip(texts, rows, strict=True) if len(row) < 2]:
        raise DataError("D001", f"{short[0]!r} has no token to predict")
    found = score(model, rows, [1] * len(rows))
    return [Scored(text, float(row.sum()), len(row)) for text, row in zip(texts, found, strict=True)]


class LanguageModelPredictor(Predictor[TextExample, Continuation | TextScore]):
    """A language model in use. `headway run` and the server stream its tokens by other ways to the same decoder."""

    task = LanguageModeling()

    def predict(self, examples: Sequence[TextExample]) -> list[Continuation | TextScore]:
        texts, tokenizer = [example.text for example in examples], self.tokenizer
        if self.options.score:
            found = score_texts(self.model, tokenizer, texts)
            return [TextScore(each.log_probability, each.tokens, each.perplexity) for each in found]
        prompts = PromptEncoder(tokenizer, self.model.config.special, self.loaded.name)
        ids, new = [prompts.text(text) for text in texts], [""] * len(texts)
        sampling = self.options.sampling or build(Sampling, self.loaded.generation.fields({}))
        for piece in decode(self.model, ids, sampling, tokenizer=tokenizer) if ids else ():
            new[piece.row] += piece.text
        return [Continuation(text) for text in new]
