"""TaggingTraining: a label for every word, and the entities that the labels spell.

Letters: B windows of a batch, T tokens, L labels, W words of a sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from headway.config.model import TagHeadConfig
from headway.config.networks.kinds import AnyConfig
from headway.data.batching.batch_sampler import BatchSampler
from headway.data.batching.permutation import Index
from headway.data.datasets.conll import Sentence
from headway.data.datasets.tags import OUTSIDE, Scheme, labels_for, scheme_of, split_tag
from headway.data.datasets.text import corpus_of_lines
from headway.data.files.rows import BadRows, fingerprint
from headway.data.synthetic.texts.stories import make_sentences
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.model.model import Model
from headway.tasks.backbone import before_output, encoder_backbone
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.recipe import Recipe
from headway.tasks.tagging.evaluate import TaggingResults, hold_out, in_scheme, known_only, read_tagged
from headway.tasks.tagging.predict import labels_of, results, token_logits
from headway.tasks.tagging.rows import Part, Rows, lay_out, read_part
from headway.tasks.training import ScoredTraining, TaskContext, short_text

GENERATED = 3000
"""Sentences that are made up where no file is given."""
SAMPLES = 4


@dataclass(frozen=True)
class TaggingTraining(ScoredTraining[Part]):
    """Sentences and their tags."""

    primary_metric = "f1"
    higher_is_better = True

    recipe: Recipe
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    train: list[Sentence]
    valid: list[Sentence]
    about: dict[str, Any] = field(default_factory=dict)
    """Where the sentences came from."""

    @classmethod
    def prepare(cls, context: TaskContext) -> TaggingTraining:
        recipe, data, bad = context.recipe, context.recipe.data, BadRows(context.recipe.data.bad_rows)
        if data.train:
            read = read_tagged(data.train, data, recipe.settings.scheme, bad)
        else:
            read = in_scheme(make_sentences(GENERATED, recipe.seed), recipe.settings.scheme, bad)
        labels = _labels(read.sentences, read.scheme)
        train, valid = (read.sentences, []) if data.valid else hold_out(read.sentences)
        if data.valid:
            valid = known_only(read_tagged(data.valid, data, read.scheme, bad).sentences, labels, bad)
        texts = [" ".join(row.words) for row in train]
        tokenizer = context.tokenizer(corpus_of_lines(texts))
        digest = fingerprint(data.train) if data.train else f"sentences {GENERATED} {recipe.seed}"
        tags = read.reading.scheme if read.scheme != "plain" else "plain"
        about = {**context.about(digest, bad), "tags": tags, "repaired": read.reading.repaired}
        return cls(recipe, tokenizer, labels, train, valid, about)

    @property
    def facts(self) -> dict[str, Any]:
        examples = self.rows.examples
        return {
            **self.about,
            "documents": len(self.train),
            "samples": len(examples),
            "tokens": int(examples.lengths.sum()),
            "words": sum(len(row.words) for row in self.train),
            "valid_samples": len(self.valid),
            "valid_tokens": sum(len(text.ids) for text in self.valid_part.pieces),
            "vocab": self.tokenizer.vocab_size,
            "labels": len(self.labels),
        }

    @cached_property
    def chance(self) -> dict[str, float]:
        """The most common tag for every word."""
        ((most, _),) = Counter(tag for row in self.valid for tag in row.tags).most_common(1)
        return TaggingResults(self.valid, [[most] * len(row.words) for row in self.valid], [], self.labels).metrics()

    def config(self, base: AnyConfig | None) -> AnyConfig:
        own = before_output(base, "tag")
        head = TagHeadConfig(labels=len(self.labels), dropout=self.recipe.settings.dropout, **own)
        return replace(encoder_backbone(self.recipe, self.tokenizer, base), tag=head, labels=self.labels)

    @cached_property
    def rows(self) -> Rows:
        part = self._part(self.train)
        return lay_out(part.pieces, self.tokenizer, self.recipe.data.length, self.recipe, part.context)

    @cached_property
    def _targets(self) -> list[list[int]]:
        place = {label: i for i, label in enumerate(self.labels)}
        return [[place[tag] for tag in row.tags] for row in self.train]

    def plan(self, batch: int) -> BatchSampler:
        return self.rows.examples.plan(batch, self.recipe.train.batch_tokens)

    def batch(self, samples: Index) -> Batch:
        rows = self.rows.examples.rows(samples)
        ids, attention_mask, _ = self.rows.examples.read(rows)
        targets = self.rows.targets(rows, ids.shape[1], self._targets)
        return Batch((ids, attention_mask, targets), int((targets != IGNORE).sum()), int(attention_mask.sum()))

    def wanted(self, batch: Batch) -> Tensor | None:
        return batch.tensors[2]

    @property
    def loss(self) -> Callable[..., Tensor]:
        return tag_loss(self.recipe.settings.label_smoothing)

    @cached_property
    def valid_part(self) -> Part:
        return self._part(self.valid)

    def read_test(self, spec: str) -> Part:
        bad = self.bad_tests
        read = read_tagged(spec, self.recipe.data, scheme_of(self.labels), bad)
        return self._part(known_only(read.sentences, self.labels, bad))

    def _part(self, rows: Sequence[Sentence]) -> Part:
        return read_part(rows, self.tokenizer, self.recipe.settings.context)

    def loss_and_metrics(self, model: Model, part: Part, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        """Every process reads all sentences: a window of one may not stay alone."""
        result = results(model, self.tokenizer, part, self.recipe.settings.decode)
        total, count = result.loss()
        return total / max(1, count), result.metrics()

    def evaluate_in_full(self, model: Model, part: Part) -> Evaluation:
        return results(model, self.tokenizer, part, self.recipe.settings.decode).evaluation({})

    @property
    def tries(self) -> list[str]:
        return [short_text(" ".join(row.words) for row in self.valid)]

    def sample(self, model: Model) -> str:
        """The first held-out sentences that have entities, and what the model found in them."""
        every = range(len(self.valid))
        some = [i for i in every if any(tag != OUTSIDE for tag in self.valid[i].tags)] or list(every)
        result = results(model, self.tokenizer, self.valid_part.some(some[:SAMPLES]), self.recipe.settings.decode)
        lines = []
        for row, true, found in zip(result.sentences, result.true, result.found, strict=True):
            said, wanted = (", ".join(f"{' '.join(row.words[b:e])} = {k}" for k, b, e in s) for s in (found, true))
            lines.append(f"{' '.join(row.words)[:200]}\n  → {said or 'nothing'}")
            if set(true) != set(found):
                lines.append(f"  in truth {wanted or 'nothing'}")
        return "\n".join(lines)

    @classmethod
    def evaluate_file(cls, model: Model, tokenizer: Tokenizer, recipe: Recipe, spec: str) -> Evaluation:
        """On data of the user's; without a spec, on what the run has not learned from."""
        labels, data, bad = labels_of(model.config), recipe.data, BadRows(recipe.data.bad_rows)
        scheme, spec = scheme_of(labels), spec or data.test or data.valid
        if spec or data.train:
            read = read_tagged(spec or data.train, data, scheme, bad)
        else:
            read = in_scheme(make_sentences(GENERATED, recipe.seed), scheme, bad)
        rows = known_only(read.sentences if spec else hold_out(read.sentences)[1], labels, bad)
        facts = {"tags": read.reading.scheme, "repaired": read.reading.repaired, "bad_rows": bad.count}
        part = read_part(rows, tokenizer, recipe.settings.context)
        return results(model, tokenizer, part, recipe.settings.decode).evaluation(facts)


def _labels(rows: Sequence[Sentence], scheme: Scheme) -> tuple[str, ...]:
    tags = {tag for row in rows for tag in row.tags}
    labels = labels_for(tags if scheme == "plain" else {split_tag(tag)[1] for tag in tags} - {""}, scheme)
    if len(labels) < 2:
        raise DataError("D002", f"all words have the tag {labels[0]}: there is nothing to learn")
    return labels


def tag_loss(label_smoothing: float = 0.0) -> Callable[..., Tensor]:
    """Of a model and a batch's tensors: the sum over its words."""

    def loss(model: Model, ids: Tensor, attention_mask: Tensor, targets: Tensor) -> Tensor:
        logits = token_logits(model, ids, attention_mask).flatten(0, 1)
        return F.cross_entropy(
            logits, targets.flatten(), ignore_index=IGNORE, reduction="sum", label_smoothing=label_smoothing
        )

    return loss
