"""Predicting with a masked language model: words for blanks, or how likely a text is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.tasks.base import Json
from headway.tasks.masked_lm.fill import Filled, fill_all, pseudo_perplexity
from headway.tasks.masked_lm.task import MaskedLM
from headway.tasks.predictor import DIGITS, Predictor, TextScore
from headway.tasks.text import TextExample


@dataclass(frozen=True)
class FilledText:
    """A text with its blanks filled."""

    filled: Filled

    def to_dict(self) -> Json:
        blanks = [
            {
                "start": blank.span[0],
                "end": blank.span[1],
                "choices": [{"text": text, "probability": round(p, DIGITS)} for text, p in blank.choices],
            }
            for blank in self.filled.blanks
        ]
        return {"best": self.filled.best, "blanks": blanks}


class MaskedLMPredictor(Predictor[TextExample, FilledText | TextScore]):
    """A masked language model in use."""

    task = MaskedLM()

    def predict(self, examples: Sequence[TextExample]) -> list[FilledText | TextScore]:
        texts = [example.text for example in examples]
        if self.options.score:
            found = pseudo_perplexity(self.model, self.tokenizer, texts)
            return [TextScore(each.log_probability, each.tokens, each.perplexity) for each in found]
        return [FilledText(each) for each in fill_all(self.model, self.tokenizer, texts, self.options.top)]
