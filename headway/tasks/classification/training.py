"""ClassificationTraining: one label, several, or a number for a text or a pair of texts.

Letters: B texts of a batch, N examples, L labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.config.model import ClassifyHeadConfig, ModelConfig, SpecialTokens
from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import DataConfig
from headway.config.shape import encoder_config
from headway.data.batching.batch_sampler import BatchSampler
from headway.data.batching.padding import Examples
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
from headway.data.datasets.text import Corpus, corpus_of_lines
from headway.data.files.rows import BadRows, fingerprint
from headway.data.synthetic.byte_files import make_file_types
from headway.data.synthetic.texts.reviews import make_reviews
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError, counted
from headway.model.model import Model
from headway.tasks.backbone import before_output, check_context, limit_of
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.classification.evaluate import (
    METRICS,
    ClassificationResults,
    evaluation,
    said_of,
    shortened,
)
from headway.tasks.classification.predict import check_pairs, classify, kind_of, predict_logits, read_texts
from headway.tasks.classification.task import Settings
from headway.tasks.losses.labels import label_loss, loss_count, loss_from_logits
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.chance import constant_logits
from headway.tasks.metrics.classification import Numbers
from headway.tasks.recipe import Recipe
from headway.tasks.training import ScoredTraining, TaskContext, short_text

GENERATED = 4000
"""Reviews that are made up where no file is given."""
CHUNKS_OF_KIND = 600
"""Chunks of each kind of file that are taken where raw files are learned and none are given."""
SAMPLES = 6
MOST_APART = 6
"""Texts that may all have different labels: more, and the labels are names, numbers or texts of another kind."""


@dataclass(frozen=True)
class Part:
    """Labelled texts as a model reads them, and what it should say (see `ClassificationResults.truth`)."""

    rows: list[LabeledText]
    examples: Examples
    truth: Numbers

    @property
    def cut(self) -> int:
        """Texts that were longer than the model reads."""
        return int(self.examples.truncated.sum())


@dataclass(frozen=True)
class ClassificationTraining(ScoredTraining[Part]):
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
    def prepare(cls, context: TaskContext) -> ClassificationTraining:
        recipe, data, bad = context.recipe, context.recipe.data, BadRows(context.recipe.data.bad_rows)
        rows = read_labeled(data.train, data, bad) if data.train else made_up(data)
        kind = label_kind(rows, recipe.settings.kind)
        _check_settings(recipe.settings, kind)
        rows = parse_labels(rows, kind, bad, data.label)
        labels = label_set(rows, kind)
        _check_labels(rows, labels, kind)
        train, valid = (rows, _read(data.valid, data, kind, labels, bad)) if data.valid else hold_out(rows)
        has_pairs([*train, *valid])
        tokenizer = context.tokenizer(_texts(train))
        digest = _digest(data, rows)
        first, second = (make_part(p, tokenizer, kind, labels, data.length, recipe) for p in (train, valid))
        return cls(recipe, tokenizer, kind, labels, first, second, context.about(digest, bad))

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
            "length_99": examples.length_99,
        }

    @cached_property
    def chance(self) -> dict[str, float]:
        """The same for every text: the most common label, the labels of most texts, or the mean number."""
        truth = self.valid.truth
        logits = np.tile(constant_logits(self.kind, truth, len(self.labels)), (len(truth), 1))
        return {"valid": self._mean_loss(logits, self.valid), **self._results(logits, self.valid).metrics()}

    def config(self, base: AnyConfig | None) -> AnyConfig:
        length, settings, count = self.recipe.data.length, self.recipe.settings, len(self.labels)
        if base is None:
            special = SpecialTokens(pad=self.tokenizer.special.get("pad"))
            base = encoder_config(self.recipe.model, self.tokenizer.vocab_size, length)
            base = replace(base, special=special)
        what = self.recipe.model.from_
        if not isinstance(base, ModelConfig) or base.kind == "encoder-decoder" or base.output_front.kind != "tokens":
            raise ConfigError("C004", f"task classify reads texts with one stack, model.from = {what} is another kind")
        check_context(base, length, what)
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
            found = before_output(base, "classify")
            head = replace(head, **(found if found.get("dense") else {"dense": "tanh"}))
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
        if self.recipe.settings.class_weights == "none":
            return None
        truth, count = self.train.truth, len(self.labels)
        if self.kind == "single":
            share = np.bincount(truth.astype(np.int64), minlength=count) / len(truth)
            return np.asarray(1 / (count * np.maximum(share, 1 / len(truth))))
        there = np.maximum(truth.sum(0), 1)
        return np.asarray((len(truth) - there).clip(1) / there)

    @property
    def loss(self) -> Callable[..., Tensor]:
        return label_loss(self.kind, self.recipe.settings)

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
        return self._mean_loss(logits, part), self._results(logits, part).metrics()

    def _mean_loss(self, logits: Numbers, part: Part) -> float:
        targets = torch.from_numpy(part.truth)
        targets = targets.long() if self.kind == "single" else targets.float()
        return float(loss_from_logits(self.kind, torch.from_numpy(logits).float(), targets)) / len(logits)

    def _results(self, logits: Numbers, part: Part) -> ClassificationResults:
        return ClassificationResults(self.kind, self.labels, part.truth, logits)

    def evaluate_in_full(self, model: Model, part: Part) -> Evaluation:
        return evaluate_in_full(model, self.kind, self.labels, part)

    @property
    def tries(self) -> list[str]:
        row = self.valid.rows[0]
        second = [] if row.pair is None else [f"pair={short_text([row.pair])}"]
        return [short_text([row.text]), *second]

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
            every = read_labeled(data.train, data, bad) if data.train else made_up(data)
            rows = with_known_labels(hold_out(parse_labels(every, kind, bad, data.label))[1], labels, kind, bad)
        check_pairs(model.config, has_pairs(rows))
        part = make_part(rows, tokenizer, kind, labels, limit_of(model, data.length), recipe)
        return evaluate_in_full(model, kind, labels, part, bad.count)


def made_up(data: DataConfig) -> list[LabeledText]:
    """What is learned from where no data are given: reviews, or chunks of files by their kind."""
    return make_file_types(CHUNKS_OF_KIND, data.length) if data.raw else make_reviews(GENERATED)


def _digest(data: DataConfig, rows: Sequence[LabeledText]) -> str:
    """Identifies what is learned from; files of an installation differ from one machine to the next."""
    if data.raw:
        return hashlib.sha256("".join(row.text for row in rows).encode()).hexdigest()
    return fingerprint(data.train) if data.train else f"reviews {GENERATED}"


def _check_settings(settings: Settings, kind: Kind) -> None:
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
    examples = read_texts([row.text for row in rows], pairs, tokenizer, limit, recipe)
    place = {name: i for i, name in enumerate(labels)}
    if kind == "single":
        truth = np.array([place[row.label] for row in rows], dtype=np.float64)
    elif kind == "multi":
        truth = np.zeros((len(rows), len(labels)))
        for i, row in enumerate(rows):
            truth[i, [place[name] for name in row.label]] = 1
    else:
        truth = np.array([row.label for row in rows], dtype=np.float64)
    return Part(list(rows), examples, truth)


def evaluate_in_full(model: Model, kind: Kind, labels: tuple[str, ...], part: Part, bad: int = 0) -> Evaluation:
    """A model on labelled texts, in full."""
    logits = predict_logits(model, part.examples, len(labels))
    facts = {"cut": part.cut, "bad_rows": bad}
    return evaluation(ClassificationResults(kind, labels, part.truth, logits), part.rows, part.examples.lengths, facts)
