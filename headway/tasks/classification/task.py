"""Classification: one label, several, or a number for a text or a pair of texts.

Letters: B texts of a batch, N examples, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.config.baselines import AnyConfig
from headway.config.model import ClassifyHeadConfig, ModelConfig, SpecialTokens
from headway.config.recipe import DataConfig, Recipe
from headway.config.shape import encoder_config
from headway.config.tasks import ClassificationConfig
from headway.data.batching.batch_sampler import BatchSampler
from headway.data.batching.padding import Examples, inference_batch_tokens, truncate
from headway.data.batching.permutation import Index
from headway.data.datasets.labeled import (
    Kind,
    LabeledText,
    has_pairs,
    hold_out,
    label_kind,
    label_set,
    parse_labels,
    read_labeled,
    with_known_labels,
)  # fmt: skip
from headway.data.datasets.text import Corpus, corpus_of_lines, train_or_load_tokenizer
from headway.data.files.rows import BadRows, fingerprint
from headway.data.synthetic.reviews import make_reviews
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError, counted
from headway.hub.tables import FAMILIES
from headway.model.model import Model, evaluating
from headway.tasks.backbone import limit_of
from headway.tasks.base import ScoredTask, TaskContext
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.classification.evaluate import (
    METRICS,
    ClassificationResults,
    evaluation,
    probabilities,
    said_of,
    shortened,
)
from headway.tasks.losses.labels import label_logits, label_loss, loss_count, loss_from_logits
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.classification import Numbers

GENERATED = 4000
"""Reviews that are made up where no file is given."""
SAMPLES = 6
MOST_APART = 6
"""Texts that may all have different labels: more, and the labels are names, numbers or texts of another kind."""


class Prediction(NamedTuple):
    """What a model makes of a text."""

    label: Any
    """A name, a list of names, or a number."""
    probability: float | None
    """Of that label; of the least sure yes or no where there are several; None for a number."""
    probabilities: dict[str, float]
    """Of all labels."""


@dataclass(frozen=True)
class Part:
    """Labelled texts as a model reads them, and what it should say (see `ClassificationResults.truth`)."""

    rows: list[LabeledText]
    examples: Examples
    truth: Numbers
    cut: int
    """Texts that were longer than the model reads."""


@dataclass(frozen=True)
class Classification(ScoredTask[Part]):
    """Texts and their labels."""

    recipe: Recipe
    tokenizer: Tokenizer
    kind: Kind
    labels: tuple[str, ...]
    train: Part
    valid: Part
    about: dict[str, Any] = field(default_factory=dict)
    """Where the texts came from."""

    @classmethod
    def prepare(cls, context: TaskContext) -> Classification:
        recipe, data, bad = context.recipe, context.recipe.data, BadRows(context.recipe.data.bad_rows)
        rows = read_labeled(data.train, data, bad) if data.train else make_reviews(GENERATED)
        kind = label_kind(rows, recipe.classify.kind)
        _check_settings(recipe.classify, kind)
        rows = parse_labels(rows, kind, bad, data.label)
        labels = label_set(rows, kind)
        _check_labels(rows, labels, kind)
        train, valid = (rows, _read(data.valid, data, kind, labels, bad)) if data.valid else hold_out(rows)
        has_pairs([*train, *valid])
        tokenizer = context.base or context.rank_zero_first(
            lambda: train_or_load_tokenizer(context.folder, data, _texts(train))
        )
        about = {
            "train": data.train or "generated reviews",
            "valid": data.valid,
            "fingerprint": fingerprint(data.train) if data.train else f"reviews {GENERATED}",
            "bad_rows": bad.count,
        }
        first, second = (make_part(p, tokenizer, kind, labels, data.length, recipe) for p in (train, valid))
        return cls(recipe, tokenizer, kind, labels, first, second, about)

    @property
    def primary_metric(self) -> str:  # type: ignore[override]
        return METRICS[self.kind][0]

    higher_is_better = True

    @property
    def facts(self) -> dict[str, Any]:
        examples = self.train.examples
        return {
            **self.about,
            "documents": len(examples),
            "samples": len(examples),
            "tokens": int(examples.lengths.sum()),
            "valid_samples": len(self.valid.examples),
            "valid_tokens": int(self.valid.examples.lengths.sum()),
            "vocab": self.tokenizer.vocab_size,
            "labelling": self.kind,
            "labels": len(self.labels),
            "cut": self.train.cut + self.valid.cut,
        }

    def config(self, base: AnyConfig | None) -> AnyConfig:
        length, settings, count = self.recipe.data.length, self.recipe.classify, len(self.labels)
        if base is None:
            special = SpecialTokens(pad=self.tokenizer.special.get("pad"))
            base = encoder_config(self.recipe.model, self.tokenizer.vocab_size, length)
            base = replace(base, special=special)
        what = self.recipe.model.from_
        if not isinstance(base, ModelConfig) or base.kind == "encoder-decoder" or base.output_front.kind != "tokens":
            raise ConfigError("C004", f"task classify reads texts with one stack, model.from = {what} is another kind")
        if base.max_length is not None and length > base.max_length:
            raise ConfigError("C004", f"data.length = {length}, but {what} reads {base.max_length} tokens at most")
        head = ClassifyHeadConfig(
            labels=count,
            pool=settings.pool,
            dropout=settings.dropout,
            several=self.kind == "multi",
            pairs=self.train.rows[0].pair is not None,
        )
        if base.kind == "decoder":  # only the last token has seen all of the text
            head = replace(head, pool="last", bias=False, dropout=0.0)
        elif settings.pool == "first":
            head = replace(head, dense=_pooler(base))
        return replace(base, classify=head, labels=self.labels, lm=None, nsp=None, tag=None, span=None)

    def plan(self, batch: int) -> BatchSampler:
        return self.train.examples.plan(batch, self.recipe.train.batch_tokens)

    def batch(self, samples: Index) -> Batch:
        rows = self.train.examples.rows(samples)
        return self._batch(self.train, rows, self.weights)

    def _batch(self, part: Part, rows: Sequence[int] | Index, weights: Numbers | None = None) -> Batch:
        ids, attention_mask, token_type_ids = part.examples.read(rows)
        truth = torch.from_numpy(part.truth[list(rows)])
        targets = truth.long() if self.kind == "single" else truth.float()
        each = None if weights is None else torch.from_numpy(weights).float()
        return Batch(
            (ids, attention_mask, token_type_ids, targets, each),
            loss_count(self.kind, targets, each),
            int(attention_mask.sum()),
        )

    @cached_property
    def weights(self) -> Numbers | None:
        """What a class counts (L,); with several labels, what its being there counts against its not being there."""
        if self.recipe.classify.class_weights == "none":
            return None
        truth, count = self.train.truth, len(self.labels)
        if self.kind == "single":
            share = np.bincount(truth.astype(np.int64), minlength=count) / len(truth)
            return np.asarray(1 / (count * np.maximum(share, 1 / len(truth))))
        there = np.maximum(truth.sum(0), 1)
        return np.asarray((len(truth) - there).clip(1) / there)

    @property
    def loss(self) -> Callable[..., Tensor]:
        return label_loss(self.kind, self.recipe.classify)

    @property
    def valid_part(self) -> Part:
        return self.valid

    def read_test(self, spec: str) -> Part:
        data = self.recipe.data
        rows = _read(spec, data, self.kind, self.labels, self.bad_tests)
        has_pairs([self.train.rows[0], *rows])
        return make_part(rows, self.tokenizer, self.kind, self.labels, data.length, self.recipe)

    def loss_and_metrics(self, model: Model, part: Part, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        """The loss is that of the labels as they are, however it is smoothed in training."""
        logits = predict_logits(model, part.examples, len(self.labels), world)
        targets = torch.from_numpy(part.truth)
        targets = targets.long() if self.kind == "single" else targets.float()
        loss = float(loss_from_logits(self.kind, torch.from_numpy(logits).float(), targets)) / len(logits)
        return loss, ClassificationResults(self.kind, self.labels, part.truth, logits).metrics()

    def evaluate_in_full(self, model: Model, part: Part) -> Evaluation:
        return evaluate_in_full(model, self.kind, self.labels, part)

    def sample(self, model: Model) -> str:
        """The first held-out texts and what the model says of them."""
        rows = self.valid.rows[:SAMPLES]
        pairs = [r.pair or "" for r in rows] if rows[0].pair is not None else None
        guesses = classify(model, self.tokenizer, [r.text for r in rows], pairs, length=self.recipe.data.length)
        lines = []
        for row, (label, sure, _) in zip(rows, guesses, strict=True):
            said = said_of(label) if sure is None else f"{said_of(label)} ({sure:.2f})"
            lines.append(f"{shortened(row)[:100]}\n  → {said}, in truth {said_of(row.label)}")
        return "\n".join(lines)

    @classmethod
    def evaluate_file(cls, model: Model, tokenizer: Tokenizer, recipe: Recipe, spec: str) -> Evaluation:
        """On data of the user's; without a spec, on what the run has not learned from."""
        kind, labels, data = kind_of(model.config), model.config.labels, recipe.data
        bad, spec = BadRows(data.bad_rows), spec or data.test or data.valid
        if spec:
            rows = _read(spec, data, kind, labels, bad)
        else:
            every = read_labeled(data.train, data, bad) if data.train else make_reviews(GENERATED)
            rows = with_known_labels(hold_out(parse_labels(every, kind, bad, data.label))[1], labels, kind, bad)
        check_pairs(model.config, has_pairs(rows))
        part = make_part(rows, tokenizer, kind, labels, limit_of(model, data.length), recipe)
        return evaluate_in_full(model, kind, labels, part, bad.count)


def _check_settings(settings: ClassificationConfig, kind: Kind) -> None:
    """What is only for some labels."""
    if kind == "regression" and settings.class_weights != "none":
        raise ConfigError("C004", "classify.class_weights = balanced is for classes: the labels are numbers")
    for name in ("label_smoothing", "r_drop"):
        if (value := getattr(settings, name)) and kind != "single":
            has = "the labels are numbers" if kind == "regression" else "there are several"
            raise ConfigError("C004", f"classify.{name} = {value} is for one label a text: {has}")


def _check_labels(rows: Sequence[LabeledText], labels: Sequence[str], kind: Kind) -> None:
    """Whether there is anything to tell apart, and anything in common."""
    if kind != "regression" and len(labels) < 2:
        message = (
            f"nothing to tell apart: the label is {labels[0] if labels else 'none'!r} in {counted(len(rows), 'rows')}"
        )
        raise DataError("D002", message, "data.label names another column")
    if kind == "single" and len(labels) == len(rows) >= MOST_APART:
        message = f"each of the {len(rows):,} texts has a label of its own, such as {labels[0]!r}: nothing is in common"
        raise DataError("D002", message, "data.label names another column; classify.kind=regression is for numbers")


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


def _pooler(base: AnyConfig) -> Any:
    """The activation of the dense layer that the base's family has before the labels of a text."""
    family = FAMILIES.get(base.family)
    heads = family.heads.values() if family else ()
    found = (head.settings.get("classify.dense") for head in heads if head.labels == "classify.labels")
    return next((dense for dense in found if dense), "tanh")


def kind_of(config: AnyConfig) -> Kind:
    """What a finished model says of a text."""
    if config.classify is None or not config.classify.labels:
        raise DataError("D001", "this model has no labels to give a text", "train one: headway train classify")
    if config.classify.labels == 1:
        return "regression"
    return "multi" if config.classify.several else "single"


def _read(spec: str, data: DataConfig, kind: Kind, labels: Sequence[str], bad: BadRows) -> list[LabeledText]:
    return with_known_labels(parse_labels(read_labeled(spec, data, bad), kind, bad, data.label), labels, kind, bad)


def _texts(rows: Sequence[LabeledText]) -> Corpus:
    """For a tokenizer to be trained on."""
    return corpus_of_lines([text for row in rows for text in (row.text, row.pair) if text is not None])


def make_part(
    rows: Sequence[LabeledText],
    tokenizer: Tokenizer,
    kind: Kind,
    labels: Sequence[str],
    limit: int | None,
    recipe: Recipe,
) -> Part:
    """Rows as ids, at most `limit` of each, and what is true of them."""
    pairs = [row.pair or "" for row in rows] if rows[0].pair is not None else None
    examples, shorter = read_texts([row.text for row in rows], pairs, tokenizer, limit, recipe)
    place = {name: i for i, name in enumerate(labels)}
    if kind == "single":
        truth = np.array([place[row.label] for row in rows], dtype=np.float64)
    elif kind == "multi":
        truth = np.zeros((len(rows), len(labels)))
        for i, row in enumerate(rows):
            truth[i, [place[name] for name in row.label]] = 1
    else:
        truth = np.array([row.label for row in rows], dtype=np.float64)
    return Part(list(rows), examples, truth, shorter)


def read_texts(
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    tokenizer: Tokenizer,
    limit: int | None,
    recipe: Recipe | None = None,
) -> tuple[Examples, int]:
    """Texts as ids, and how many of them had to be cut."""
    encoded = tokenizer.encode_batch(texts, pairs)
    rows = [truncate(text, limit) for text in encoded]
    shorter = sum(limit is not None and len(text.ids) > limit for text in encoded)
    for number, (ids, _) in enumerate(rows, start=1):
        if not ids:
            raise DataError("D001", f"text {number} has no token that the tokenizer knows")
    seed, by_length = (recipe.seed, bool(recipe.train.batch_tokens)) if recipe else (0, False)
    return Examples([ids for ids, _ in rows], [kinds for _, kinds in rows], seed, by_length), shorter


def predict_logits(model: Model, examples: Examples, labels: int, world: ProcessGroup | None = None) -> Numbers:
    """(N, L), read in batches of like length; every process reads as many and knows the scores of all."""
    rank, size = (world.rank, world.size) if world else (0, 1)
    device = next(model.parameters()).device
    with evaluating(model):
        found = np.zeros((len(examples), labels))
        batches = list(examples.batches(inference_batch_tokens(device)))
        for first in range(0, len(batches), size):
            mine = first + rank
            rows = batches[min(mine, len(batches) - 1)]
            logits = label_logits(model, *(t.to(device) for t in examples.read(rows)))
            if mine < len(batches):  # too few for all: the last process reads again what counts once
                found[rows] = logits.double().cpu().numpy()
    if world is not None and size > 1:
        found = np.array(world.sum(*found.ravel().tolist())).reshape(found.shape)
    return found


def evaluate_in_full(model: Model, kind: Kind, labels: tuple[str, ...], part: Part, bad: int = 0) -> Evaluation:
    """A model on labelled texts, in full."""
    logits = predict_logits(model, part.examples, len(labels))
    facts = {"cut": part.cut, "bad_rows": bad}
    return evaluation(ClassificationResults(kind, labels, part.truth, logits), part.rows, part.examples.lengths, facts)


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
    examples, _ = read_texts(texts, pairs, tokenizer, limit_of(model, length))
    logits = predict_logits(model, examples, len(labels))
    results = ClassificationResults(kind, labels, np.zeros(len(texts)), logits)
    if kind == "regression":
        return [Prediction(results.guess(i), None, {}) for i in range(len(texts))]
    sure = probabilities(kind, logits)
    best = sure.max(1) if kind == "single" else np.maximum(sure, 1 - sure).min(1)
    return [
        Prediction(results.guess(i), float(best[i]), dict(zip(labels, sure[i].tolist(), strict=True)))
        for i in range(len(texts))
    ]
