"""Tagged sentences: read, checked, put into the scheme that a model learns, and what a tagger's answers are worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headway.config.recipe import DataConfig
from headway.data.batching.permutation import Index
from headway.data.datasets.conll import Sentence, sentences
from headway.data.datasets.tags import OUTSIDE, Scheme, Span, has_prefix, scheme_of, spans, split_tag, to_tags
from headway.data.files.locate import file_format
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.errors import ConfigError, DataError, counted, nearest
from headway.tasks.metrics.bootstrap import Evaluation, Metric, interval
from headway.tasks.metrics.slices import by_size
from headway.tasks.tagging import entities
from headway.tasks.tagging.entities import MOVED, NOTHING, LogProbs, Reading

WORST, EDGE = 20, 0.1
"""Sentences shown of those that went wrong; share held out where there is no file for it."""


@dataclass(frozen=True)
class Tagged:
    """Sentences whose tags are in the scheme of a model, and what the file said them in."""

    sentences: list[Sentence]
    scheme: Scheme
    reading: Reading


def read_tagged(spec: str, data: DataConfig, scheme: str, bad: BadRows) -> Tagged:
    """Sentences of files; `scheme` auto is BIO, or plain where no tag says where an entity begins."""
    return in_scheme(list(sentences(spec, data.text, data.label, bad)), scheme, bad)


def in_scheme(rows: Sequence[Sentence], scheme: str, bad: BadRows) -> Tagged:
    """Whatever scheme the tags are in, in the one asked for; a tag that is of none is a flaw."""
    marked = any(has_prefix(tag) for row in rows for tag in row.tags)
    chosen: Scheme = ("bio" if marked else "plain") if scheme == "auto" else scheme  # type: ignore[assignment]
    if chosen == "plain":
        return Tagged(list(rows), "plain", Reading.of([]))
    good = list(_without(rows, lambda tag: tag == OUTSIDE or has_prefix(tag), _no_mark, bad))
    reading = Reading.of(row.tags for row in good)
    found = [replace(row, tags=tuple(to_tags(spans(row.tags), len(row.words), chosen))) for row in good]
    return Tagged(_some(found, bad), chosen, reading)


def known_only(rows: Iterable[Sentence], labels: Sequence[str], bad: BadRows) -> list[Sentence]:
    """Those whose labels the model has; the others are flaws."""
    known = set(labels)

    def reason(tag: str) -> str:
        kinds = sorted({split_tag(label)[1] or label for label in labels})
        kind = split_tag(tag)[1] or tag
        return f'the label "{tag}" is none that was learned{nearest(kind, kinds)} ({", ".join(kinds)[:120]})'

    return _some(list(_without(rows, known.__contains__, reason, bad)), bad)


def _no_mark(tag: str) -> str:
    return f'the tag "{tag[:40]}" is neither O nor a type with B-, I-, E- or S- before it (tag.scheme=plain takes any)'


def _without(rows: Iterable[Sentence], good: Any, reason: Any, bad: BadRows) -> Iterator[Sentence]:
    for row in rows:
        wrong = next((i for i, tag in enumerate(row.tags) if not good(tag)), None)
        if wrong is None:
            yield row
        else:  # a column file has a word a line
            line = row.line + wrong * (file_format(row.file)[0] in ("text", "tsv"))
            bad.add(Flaw(row.file, line, reason(row.tags[wrong])))


def _some(rows: list[Sentence], bad: BadRows) -> list[Sentence]:
    if not rows:
        raise DataError(
            "D002", f"no sentence can be used ({counted(bad.count, 'bad rows')}, the first: {bad.first[0]})"[:280]
        )
    return rows


def hold_out(rows: list[Sentence]) -> tuple[list[Sentence], list[Sentence]]:
    """The last tenth apart."""
    if len(rows) < 2:
        raise ConfigError("C004", "one sentence cannot be both learned and held out: data.valid names others")
    cut = min(len(rows) - 1, max(1, round(len(rows) * (1 - EDGE))))
    return rows[:cut], rows[cut:]


def _matrix(table: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """A confusion table with a row and a column for every type, and for what is none."""
    kinds = {kind for true, row in table.items() for kind in (true, *row)}
    names = [*sorted(kinds - {NOTHING, MOVED}), *(name for name in (NOTHING, MOVED) if name in kinds)]
    return {"labels": names, "counts": [[table.get(true, {}).get(kind, 0) for kind in names] for true in names]}


@dataclass(frozen=True)
class TaggingResults:
    """What a tagger said of sentences, beside the truth."""

    sentences: Sequence[Sentence]
    tags: Sequence[Sequence[str]]
    log_probs: Sequence[LogProbs]
    """Log-probabilities (words, labels) of each sentence."""
    labels: Sequence[str]

    @property
    def scheme(self) -> Scheme:
        return scheme_of(self.labels)

    @property
    def true(self) -> list[list[Span]]:
        return [spans(row.tags, self.scheme) for row in self.sentences]

    @property
    def found(self) -> list[list[Span]]:
        return [spans(row, self.scheme) for row in self.tags]

    def right(self) -> Index:
        """Words with the right label, in each sentence."""
        pairs = zip(self.sentences, self.tags, strict=True)
        return np.array([sum(a == b for a, b in zip(row.tags, tags, strict=True)) for row, tags in pairs])

    def loss(self) -> tuple[float, int]:
        """Sum and number of words that a model can read at all."""
        place = {label: i for i, label in enumerate(self.labels)}
        total, count = 0.0, 0
        for row, log_probs in zip(self.sentences, self.log_probs, strict=True):
            here = -log_probs[np.arange(len(row.tags)), [place[tag] for tag in row.tags]]
            read = np.isfinite(log_probs).all(1)
            total, count = total + float(here[read].sum()), count + int(read.sum())
        return total, count

    def metrics(self) -> dict[str, float]:
        """Entity by entity, and word by word."""
        precision, recall, f1 = entities.f1(entities.counts(self.true, self.found).sum(0))
        accuracy = float(self.right().sum()) / sum(len(row.words) for row in self.sentences)
        return {"f1": f1, "precision": precision, "recall": recall, "accuracy": accuracy}

    def evaluation(self, facts: dict[str, Any]) -> Evaluation:
        """With intervals, by type, by length, and the sentences that went wrong."""
        true, found, size = self.true, self.found, len(self.sentences)
        table = entities.counts(true, found)
        lengths, right = np.array([len(row.words) for row in self.sentences]), self.right()

        def metrics(rows: Index) -> dict[str, float]:
            precision, recall, f1 = entities.f1(table[rows].sum(0))
            accuracy = float(right[rows].sum() / lengths[rows].sum())
            return {"f1": f1, "precision": precision, "recall": recall, "accuracy": accuracy}

        drawn = {
            name: interval(lambda rows, name=name: metrics(rows)[name], size)  # type: ignore[misc]
            for name in ("f1", "precision", "recall", "accuracy")
        }
        details = {
            **facts,
            "words": int(lengths.sum()),
            "entities": int(table[:, 2].sum()),
            "labels": [
                {
                    "label": kind,
                    "examples": row["entities"],
                    **{name: row[name] for name in ("precision", "recall", "f1")},
                }
                for kind, row in entities.by_type(true, found).items()
            ],
            "confusion": _matrix(entities.confusion(true, found)),
            "unit": "words",
            "slices": by_size(lengths.tolist(), metrics),
            "worst": self._worst(true, found),
        }
        measure = Metric("f1", table.astype(np.float64), lambda total: entities.f1(total.astype(np.int64))[2])
        return Evaluation(size, drawn, details, self._each(true, found), measure)

    def _worst(self, true: list[list[Span]], found: list[list[Span]]) -> list[dict[str, Any]]:
        """Most wrong entities first; of equals, those the model was surest of."""
        wrong = [len(set(a) ^ set(b)) for a, b in zip(true, found, strict=True)]
        sure = [float(row.max(1).mean()) for row in self.log_probs]
        order = sorted((i for i in range(len(wrong)) if wrong[i]), key=lambda i: (-wrong[i], -sure[i]))
        each = self._each(true, found)
        return [
            {
                **each[i],
                "text": " ".join(self.sentences[i].words),
                "label": [f"{span['text']} = {span['label']}" for span in each[i]["true"]],
                "predicted": [f"{span['text']} = {span['label']}" for span in each[i]["found"]],
            }
            for i in order[:WORST]
        ]

    def _each(self, true: list[list[Span]], found: list[list[Span]]) -> list[dict[str, Any]]:
        return [
            {
                "file": row.file,
                "line": row.line,
                "true": [entities.as_dict(span, row.words) for span in a],
                "found": [entities.as_dict(span, row.words) for span in b],
            }
            for row, a, b in zip(self.sentences, true, found, strict=True)
        ]
