"""Predicting with a tagger: log-probabilities of words, and entities.

Letters: B texts of a batch, T tokens, W words, L labels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.networks.kinds import AnyConfig
from headway.data.batching.padding import inference_batch_tokens
from headway.data.batching.strides import Context, Subwords, subwords
from headway.data.datasets.tags import scheme_of, spans
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.model.model import Model, evaluating
from headway.tasks.base import Json
from headway.tasks.losses.tokens import upcast
from headway.tasks.predictor import DIGITS, Predictor
from headway.tasks.tagging import entities
from headway.tasks.tagging.entities import LogProbs
from headway.tasks.tagging.evaluate import TaggingResults
from headway.tasks.tagging.rows import Part, lay_out
from headway.tasks.tagging.task import Tagging
from headway.tasks.text import TextExample

WORD = re.compile(
    r"""(?:[^\W\d_]\.){2,}                               # U.S., e.g.
      | ['’](?:s|t|re|ve|ll|d|m)\b                       # what hangs on to a word
      | \d+(?:[.,:]\d+)+                                 # numbers and times of day
      | \w+(?:(?:[-&]|['’](?!(?:s|t|re|ve|ll|d|m)\b))\w+)*
      | \S""",
    re.VERBOSE | re.IGNORECASE,
)
"""A word of running text, much as in the corpora that taggers learn from. All that is not white space is in one."""


class Entity(NamedTuple):
    """A span that a tagger found."""

    text: str
    label: str
    start: int
    """Characters [start, end) of the text as it was given; words given apart count as joined by single spaces."""
    end: int
    score: float
    """Mean probability of the labels of its words."""

    def to_dict(self) -> Json:
        return {**self._asdict(), "score": round(self.score, DIGITS)}


def labels_of(config: AnyConfig) -> tuple[str, ...]:
    """The labels of a finished tagger."""
    if config.tag is None:
        raise DataError("D001", "this model has no labels to give a word", "train one: headway train tag")
    return config.labels


def token_logits(model: Model, ids: Tensor, attention_mask: Tensor) -> Tensor:
    """(B, T, L) in float32."""
    logits: Tensor = model.tag(model(ids, attention_mask=attention_mask).hidden)
    return upcast(logits)


def word_log_probs(
    model: Model, tokenizer: Tokenizer, texts: Sequence[Subwords], context: Sequence[Context] | None = None
) -> list[LogProbs]:
    """Log-probabilities (W, L) of sentences, read in batches of like length, with what stands around them.

    A word that the tokenizer drops has the first label for certain, which is O where entities are tagged.
    """
    count = len(model.config.labels)
    found = [np.full((len(text.word_starts) - 1, count), -np.inf) for text in texts]
    for row in found:
        row[:, 0] = 0.0
    if not any(text.ids for text in texts):
        return found
    rows = lay_out(texts, tokenizer, model.config.max_length, context=context)
    device = next(model.parameters()).device
    with evaluating(model):
        for batch in rows.examples.batches(inference_batch_tokens(device)):
            ids, attention_mask, _ = rows.examples.read(batch)
            places = [(i, t) for i, row in enumerate(batch) for _, t in rows.places[row]]
            at = torch.tensor(places, device=device).T
            logits = token_logits(model, ids.to(device), attention_mask.to(device))[at[0], at[1]]
            values, first = F.log_softmax(logits.double(), -1).cpu().numpy(), 0
            for number in batch:
                words = [word for word, _ in rows.places[number]]
                found[rows.windows[number].sentence][words] = values[first : first + len(words)]
                first += len(words)
    return found


def results(
    model: Model, tokenizer: Tokenizer, part: Part, how: Literal["argmax", "legal"] = "legal"
) -> TaggingResults:
    """What a model says of sentences whose tags are known."""
    labels = labels_of(model.config)
    log_probs = word_log_probs(model, tokenizer, part.pieces, part.context)
    return TaggingResults(part.sentences, entities.decode(log_probs, labels, how), log_probs, labels)


def tag(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[str]],
    *,
    how: Literal["argmax", "legal"] = "legal",
) -> list[list[Entity]]:
    """The entities of each text, in order; a text is a string, or a list of words. Batches are by length."""
    labels = labels_of(model.config)
    scheme = scheme_of(labels)
    whole = [text if isinstance(text, str) else " ".join(text) for text in texts]
    places = [word_places(text) for text in texts]
    words = [[text[a:b] for a, b in spots] for text, spots in zip(whole, places, strict=True)]
    log_probs = word_log_probs(model, tokenizer, subwords(tokenizer, words))
    result = []
    for text, spots, row, tags in zip(whole, places, log_probs, entities.decode(log_probs, labels, how), strict=True):
        chosen = [float(np.exp(row[i, labels.index(name)])) for i, name in enumerate(tags)]
        found = []
        for kind, begin, end in spans(tags, scheme):
            start, stop = spots[begin][0], spots[end - 1][1]
            found.append(Entity(text[start:stop], kind, start, stop, sum(chosen[begin:end]) / (end - begin)))
        result.append(found)
    return result


def word_places(text: str | Sequence[str]) -> list[tuple[int, int]]:
    """Where the words of a text are; for words given apart, where they are when joined by single spaces."""
    if isinstance(text, str):
        return [match.span() for match in WORD.finditer(text)]
    places, at = [], 0
    for word in text:
        places.append((at, at + len(word)))
        at += len(word) + 1
    return places


@dataclass(frozen=True)
class TaggedText:
    """The entities of a text."""

    entities: list[Entity]

    def to_dict(self) -> Json:
        return {"entities": [entity.to_dict() for entity in self.entities]}


class TaggingPredictor(Predictor[TextExample, TaggedText]):
    """A tagger in use."""

    task = Tagging()

    def predict(self, examples: Sequence[TextExample]) -> list[TaggedText]:
        texts = [example.words or example.text for example in examples]
        found = tag(self.model, self.tokenizer, texts, how=self.recipe.settings.decode)
        return [TaggedText(entities) for entities in found]
