"""Answering questions: the span of a context that says it, found in windows that overlap.

Letters: B windows of a batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from headway.config.model import SpanHeadConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import DataConfig
from headway.data.batching.batch_sampler import BatchSampler
from headway.data.batching.permutation import Index
from headway.data.datasets.squad import Question, questions
from headway.data.datasets.text import corpus_of_lines
from headway.data.files.rows import BadRows, fingerprint
from headway.data.synthetic.texts.stories import make_stories
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, counted
from headway.model.model import Model
from headway.tasks.backbone import before_output, encoder_backbone, limit_of
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.qa.evaluate import AnswerResults
from headway.tasks.qa.predict import (
    Rows,
    answer_all,
    best_spans,
    lay_out,
    require_head,
    span_logits,
    span_loss,
    span_targets,
)
from headway.tasks.qa.task import Settings
from headway.tasks.recipe import Recipe
from headway.tasks.training import ScoredTraining, TaskContext

GENERATED = 6000
"""Questions that are made up where no file is given."""
SAMPLES = 4
HELD_OUT = 0.1


class Part(NamedTuple):
    """Questions, and their windows."""

    asked: Sequence[Question]
    rows: Rows


@dataclass(frozen=True)
class QuestionAnsweringTraining(ScoredTraining[Part]):
    """Questions on contexts."""

    primary_metric = "f1"
    higher_is_better = True

    recipe: Recipe
    tokenizer: Tokenizer
    train: list[Question]
    valid: list[Question]
    about: dict[str, Any] = field(default_factory=dict)
    """Where the questions came from."""

    @classmethod
    def prepare(cls, context: TaskContext) -> QuestionAnsweringTraining:
        recipe, data, bad = context.recipe, context.recipe.data, BadRows(context.recipe.data.bad_rows)
        asked = read_questions(data.train, data, bad) if data.train else make_stories(GENERATED, recipe.seed)
        train, valid = (asked, read_questions(data.valid, data, bad)) if data.valid else hold_out(asked)
        texts = [text for row in train for text in (row.question, row.context)]
        tokenizer = context.tokenizer(corpus_of_lines(texts))
        digest = fingerprint(data.train) if data.train else f"stories {GENERATED} {recipe.seed}"
        return cls(recipe, tokenizer, train, valid, context.about(digest, bad))

    @property
    def facts(self) -> dict[str, Any]:
        examples = self.rows.examples
        return {
            **self.about,
            "documents": len(self.train),
            "samples": len(examples),
            "tokens": int(examples.lengths.sum()),
            "unanswerable": sum(not row.answers for row in self.train),
            "valid_samples": len(self.valid),
            "valid_tokens": int(self.valid_part.rows.examples.lengths.sum()),
            "vocab": self.tokenizer.vocab_size,
        }

    @cached_property
    def chance(self) -> dict[str, float]:
        """No answer to any question, where that is allowed; a span at random is hardly ever right."""
        none = none_allowed(self.valid, self.recipe.settings)
        share = sum(not row.answers for row in self.valid) / len(self.valid) if none else 0.0
        return {"f1": share, "em": share}

    def config(self, base: AnyConfig | None) -> AnyConfig:
        head = (base.span if base else None) or SpanHeadConfig(**before_output(base, "span"))
        return replace(encoder_backbone(self.recipe, self.tokenizer, base), span=head)

    @cached_property
    def rows(self) -> Rows:
        return lay_out(self.train, self.tokenizer, self.recipe.data.length, self.recipe.settings, self.recipe)

    @cached_property
    def valid_part(self) -> Part:
        return self._part(self.valid)

    def read_test(self, spec: str) -> Part:
        return self._part(read_questions(spec, self.recipe.data, self.bad_tests))

    def _part(self, asked: Sequence[Question]) -> Part:
        return Part(asked, lay_out(asked, self.tokenizer, self.recipe.data.length, self.recipe.settings, None))

    def plan(self, batch: int) -> BatchSampler:
        return self.rows.examples.plan(batch, self.recipe.train.batch_tokens)

    def batch(self, samples: Index) -> Batch:
        rows = self.rows.examples.rows(samples)
        tensors = (*self.rows.examples.read(rows), span_targets(self.rows, rows))
        return Batch(tensors, len(rows), int(tensors[1].sum()))

    @staticmethod
    def loss(model: Model, ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor, targets: Tensor) -> Tensor:
        return span_loss(span_logits(model, ids, attention_mask, token_type_ids), targets)

    def loss_and_metrics(self, model: Model, part: Part, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        """Every process reads all questions: the windows of one are compared with each other."""
        result, loss = results(model, part, self.recipe.settings)
        return loss, result.metrics()

    def evaluate_in_full(self, model: Model, part: Part) -> Evaluation:
        return results(model, part, self.recipe.settings)[0].evaluation({})

    @property
    def tries(self) -> list[str]:
        """The file: contexts are too long to type."""
        return ["--file", self.recipe.data.valid or self.recipe.data.train]

    def sample(self, model: Model) -> str:
        """The first held-out questions and what the model answers."""
        lines = []
        settings = replace(self.recipe.settings, no_answer="yes")
        asked = self.valid[:SAMPLES]
        said = answer_all(model, self.tokenizer, [(row.question, row.context) for row in asked], settings)
        for row, found in zip(asked, said, strict=True):
            truth = row.answers[0][0] if row.answers else "no answer"
            lines.append(f"{row.question.strip()}\n  → {found[0].text or 'no answer'} ({found[0].score:.2f})")
            if found[0].text not in [text for text, _ in row.answers] and (found[0].text or row.answers):
                lines.append(f"  in truth {truth}")
        return "\n".join(lines)

    @classmethod
    def evaluate_file(cls, model: Model, tokenizer: Tokenizer, recipe: Recipe, spec: str) -> Evaluation:
        """On data of the user's; without a spec, on what the run has not learned from."""
        data, settings, bad = recipe.data, recipe.settings, BadRows(recipe.data.bad_rows)
        require_head(model)
        spec = spec or data.test or data.valid
        asked = read_questions(spec or data.train, data, bad) if spec or data.train else []
        if not spec:
            asked = hold_out(asked or make_stories(GENERATED, recipe.seed))[1]
        part = Part(asked, lay_out(asked, tokenizer, limit_of(model, data.length), settings, None))
        facts = {"windows": len(part.rows.question), "bad_rows": bad.count}
        return results(model, part, settings)[0].evaluation(facts)


def read_questions(spec: str, data: DataConfig, bad: BadRows) -> list[Question]:
    """data.text, data.pair and data.label name the columns of context, question and answers."""
    return list(questions(spec, data, bad))


def hold_out(asked: list[Question]) -> tuple[list[Question], list[Question]]:
    """The last tenth apart, and no context on both sides: where that is within one, the whole of it."""
    begins = [i for i in range(1, len(asked)) if asked[i].context != asked[i - 1].context]
    if not begins:
        message = f"{counted(len(asked), 'questions')} on one context: none of them can be held out"
        raise ConfigError("C004", message, "data.valid=FILE names others")
    wanted = round(len(asked) * (1 - HELD_OUT))
    cut = next((begin for begin in begins if begin >= wanted), begins[-1])
    return asked[:cut], asked[cut:]


def none_allowed(asked: Sequence[Question], settings: Settings) -> bool:
    """Whether no answer may be given, as the recipe says or the questions themselves."""
    return settings.no_answer == "yes" or (settings.no_answer == "auto" and any(not row.answers for row in asked))


def results(model: Model, part: Part, settings: Settings) -> tuple[AnswerResults, float]:
    """What a model answers, and the mean loss of a window."""
    ranked, loss = best_spans(model, part.asked, part.rows, settings)
    return AnswerResults(part.asked, ranked, none_allowed(part.asked, settings), settings.threshold), loss
