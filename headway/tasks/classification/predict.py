"""Predicting with a classifier: logits of texts, and labels with probabilities.

Letters: N examples, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from headway.config.networks.kinds import AnyConfig
from headway.data.batching.padding import Examples, inference_batch_tokens, truncate
from headway.data.batching.permutation import Index
from headway.data.datasets.labeled import Kind
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.model.model import Model, evaluating
from headway.progress import track
from headway.tasks.backbone import limit_of
from headway.tasks.base import Json
from headway.tasks.batch import ProcessGroup
from headway.tasks.classification.evaluate import (
    ClassificationResults,
    probabilities,
)
from headway.tasks.classification.task import Classification
from headway.tasks.losses.labels import label_logits
from headway.tasks.metrics.classification import Numbers
from headway.tasks.predictor import DIGITS, Predictor
from headway.tasks.recipe import Recipe
from headway.tasks.text import TextExample, second_texts


class Prediction(NamedTuple):
    """What a classifier says of a text."""

    label: Any
    """A name, a list of names, or a number."""
    probability: float | None
    """Of that label; of the least certain yes or no where there are several; None for a number."""
    probabilities: dict[str, float]
    """Of all labels."""

    def __repr__(self) -> str:
        sure = "" if self.probability is None else f", probability={self.probability:.4f}"
        return f"Prediction(label={self.label!r}{sure})"

    def to_dict(self) -> Json:
        if self.probability is None:
            return {"label": round(self.label, DIGITS)}
        return {
            "label": self.label,
            "probability": round(self.probability, DIGITS),
            "probabilities": {name: round(p, DIGITS) for name, p in self.probabilities.items()},
        }


def check_pairs(config: AnyConfig, pairs: bool) -> None:
    """Two texts for a model that was trained on pairs, one for the others; where nobody knows, either will do."""
    known = None if config.classify is None else config.classify.pairs
    if known is None or known == pairs:
        return
    if known:
        message = 'the model was trained on pairs of texts, here is one: pair="…" or data.pair=COLUMN gives the second'
    else:
        message = "the model was trained on single texts, here are two: data.text=COLUMN names a single one"
    raise DataError("D001", message)


def kind_of(config: AnyConfig) -> Kind:
    """What a finished model says of a text."""
    if config.classify is None or not config.classify.labels:
        raise DataError("D001", "this model has no labels to give a text", "train one: headway train classify")
    if config.classify.labels == 1:
        return "regression"
    return "multi" if config.classify.several else "single"


def read_texts(
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    tokenizer: Tokenizer,
    limit: int | None,
    recipe: Recipe | None = None,
) -> Examples:
    """Texts as ids."""
    encoded = tokenizer.encode_batch(texts, pairs)
    rows = [truncate(text, limit) for text in encoded]
    whole = [len(text.ids) for text in encoded]
    for number, (ids, _) in enumerate(rows, start=1):
        if not ids:
            raise DataError("D001", f"text {number} has no token that the tokenizer knows")
    seed, by_length = (recipe.seed, bool(recipe.train.batch_tokens)) if recipe else (0, False)
    return Examples([ids for ids, _ in rows], [kinds for _, kinds in rows], seed, by_length, whole)


def predict_logits(model: Model, examples: Examples, labels: int, world: ProcessGroup | None = None) -> Numbers:
    """(N, L), read in batches of like length; every process reads as many and knows the scores of all."""
    device = next(model.parameters()).device
    batches = [np.asarray(rows) for rows in examples.batches(inference_batch_tokens(device))]

    def logits_of(rows: Index) -> Tensor:
        return label_logits(model, *(t.to(device) for t in examples.read(rows)))

    return gather_logits(model, batches, labels, logits_of, world)


def gather_logits(
    model: Model,
    batches: Sequence[Index],
    labels: int,
    logits_of: Callable[[Index], Tensor],
    world: ProcessGroup | None = None,
) -> Numbers:
    """(N, L) of the examples in batches, each process computing some of them and knowing all."""
    rank, size = (world.rank, world.size) if world else (0, 1)
    with evaluating(model):
        found = np.zeros((sum(map(len, batches)), labels))
        for first in track(range(0, len(batches), size), "computing", unit="batches"):
            mine = first + rank
            rows = batches[min(mine, len(batches) - 1)]
            logits = logits_of(rows)
            if mine < len(batches):  # too few for all: the last process reads again what counts once
                found[rows] = logits.double().cpu().numpy()
    if world is not None and size > 1:
        found = np.array(world.sum(*found.ravel().tolist())).reshape(found.shape)
    return found


def classify(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    length: int | None = None,
) -> list[Prediction]:
    """What a model says of each text, or of each text with its second one; batches are by length."""
    kind, labels = kind_of(model.config), model.config.labels
    check_pairs(model.config, pairs is not None)
    if not texts:
        return []
    examples = read_texts(texts, pairs, tokenizer, limit_of(model, length))
    return as_predictions(kind, labels, predict_logits(model, examples, len(labels)))


def as_predictions(kind: Kind, labels: tuple[str, ...], logits: Numbers) -> list[Prediction]:
    """What logits (N, L) say."""
    results = ClassificationResults(kind, labels, np.zeros(len(logits)), logits)
    if kind == "regression":
        return [Prediction(results.guess(i), None, {}) for i in range(len(logits))]
    sure = probabilities(kind, logits)
    best = sure.max(1) if kind == "single" else np.maximum(sure, 1 - sure).min(1)
    return [
        Prediction(results.guess(i), float(best[i]), dict(zip(labels, sure[i].tolist(), strict=True)))
        for i in range(len(logits))
    ]


class ClassificationPredictor(Predictor[TextExample, Prediction]):
    """A classifier in use."""

    task = Classification()

    def predict(self, examples: Sequence[TextExample]) -> list[Prediction]:
        texts = [example.text for example in examples]
        length = self.recipe.data.length
        return classify(self.model, self.tokenizer, texts, second_texts(examples), length=length)

    def truncated(self, examples: Sequence[TextExample]) -> tuple[int, int]:
        if (limit := limit_of(self.model, self.recipe.data.length)) is None:
            return 0, 0
        read = self.tokenizer.encode_batch([example.text for example in examples], second_texts(examples))
        return sum(len(text.ids) > limit for text in read), limit
