"""Answering questions: the span of a context that says it, found in windows that overlap.

Letters: B windows of a batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.baselines import AnyConfig
from headway.config.model import SpanHeadConfig
from headway.config.recipe import DataConfig, Recipe
from headway.config.tasks import QuestionAnsweringConfig
from headway.data.batching.batch_sampler import BatchSampler
from headway.data.batching.padding import Examples, inference_batch_tokens
from headway.data.batching.permutation import Index
from headway.data.batching.strides import SpecialLayout, max_text_tokens, special_layout, token_windows
from headway.data.datasets.squad import Columns, Question, questions
from headway.data.datasets.text import corpus_of_lines, train_or_load_tokenizer
from headway.data.files.rows import BadRows, fingerprint
from headway.data.synthetic.stories import make_stories
from headway.data.tokenizers.tokenizer import Encoded, Tokenizer
from headway.errors import ConfigError, DataError
from headway.model.model import Model, evaluating
from headway.tasks.backbone import encoder_backbone, limit_of, run_backbone
from headway.tasks.base import ScoredTask, TaskContext
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.losses.tokens import upcast
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.qa.evaluate import Answer, AnswerResults, Ranked, decide, rank

GENERATED = 6000
"""Questions that are made up where no file is given."""
SAMPLES = 4
HELD_OUT = 0.1


@dataclass(frozen=True)
class Rows:
    """Questions as a model reads them: each with one window of its context after another."""

    examples: Examples
    question: list[int]
    """Whose window it is."""
    place: list[int]
    """Where the context begins in the row."""
    offsets: list[list[tuple[int, int]]]
    """Characters of the context that the tokens of it in the row stand for."""
    targets: list[tuple[int, int]]
    """First and last token of the answer; 0, the token before all text, where the window has none."""


def lay_out(
    asked: Sequence[Question],
    tokenizer: Tokenizer,
    limit: int | None,
    settings: QuestionAnsweringConfig,
    recipe: Recipe | None,
) -> Rows:
    """Windows of at most `limit` tokens. A question that fills half of them is cut; a context never is."""
    around = _frame(tokenizer)
    room = max_text_tokens(around, limit)
    contexts = list(dict.fromkeys(row.context for row in asked))
    known = dict(zip(contexts, tokenizer.encode_batch(contexts, special=False), strict=True))
    heads = tokenizer.encode_batch([row.question.strip() for row in asked], special=False)
    seed, by_length = (recipe.seed, bool(recipe.train.batch_tokens)) if recipe else (0, False)
    ids: list[list[int]] = []
    token_type_ids: list[list[int]] = []
    rows = Rows(Examples([[0]], [[0]]), [], [], [], [])
    for number, (row, head) in enumerate(zip(asked, heads, strict=True)):
        text = known[row.context]
        first = head.ids if room is None else head.ids[: room // 2]
        place = len(around.before[0]) + len(first) + len(around.between[0])
        span = _tokens_of(text, row.answers[0]) if row.answers else None
        left = None if room is None else room - len(first)
        for begin, end in token_windows(len(text.ids), left, settings.stride):
            row_ids, row_segments = around.wrap(first, text.ids[begin:end])
            ids.append(row_ids)
            token_type_ids.append(row_segments)
            rows.question.append(number)
            rows.place.append(place)
            rows.offsets.append(text.offsets[begin:end])
            inside = span is not None and begin <= span[0] and span[1] < end
            rows.targets.append((place + span[0] - begin, place + span[1] - begin) if inside and span else (0, 0))
    return replace(rows, examples=Examples(ids, token_type_ids, seed, by_length))


def _frame(tokenizer: Tokenizer) -> SpecialLayout:
    around = special_layout(tokenizer, pair=True)
    if not around.before[0] or not around.between[0]:
        message = "answering needs a tokenizer that puts a token before a pair of texts and one between them"
        raise ConfigError("C004", message, "data.tokenizer=wordpiece does, and those of BERT and RoBERTa")
    return around


def _tokens_of(text: Encoded, answer: tuple[str, int]) -> tuple[int, int] | None:
    """First and last token of an answer; None where the tokenizer drops all of it."""
    start, end = answer[1], answer[1] + len(answer[0])
    first = int(np.searchsorted([e for _, e in text.offsets], start, side="right"))
    last = int(np.searchsorted([s for s, _ in text.offsets], end, side="left")) - 1
    return (first, last) if first <= last else None


class Part(NamedTuple):
    """Questions, and their windows."""

    asked: Sequence[Question]
    rows: Rows


@dataclass(frozen=True)
class QuestionAnswering(ScoredTask[Part]):
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
    def prepare(cls, context: TaskContext) -> QuestionAnswering:
        recipe, data, bad = context.recipe, context.recipe.data, BadRows(context.recipe.data.bad_rows)
        asked = read_questions(data.train, data, bad) if data.train else make_stories(GENERATED, recipe.seed)
        train, valid = (asked, read_questions(data.valid, data, bad)) if data.valid else hold_out(asked)
        texts = [text for row in train for text in (row.question, row.context)]
        tokenizer = context.base or context.rank_zero_first(
            lambda: train_or_load_tokenizer(context.folder, data, corpus_of_lines(texts))
        )
        about = {
            "train": data.train or "generated stories",
            "valid": data.valid,
            "fingerprint": fingerprint(data.train) if data.train else f"stories {GENERATED} {recipe.seed}",
            "bad_rows": bad.count,
        }
        return cls(recipe, tokenizer, train, valid, about)

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

    def config(self, base: AnyConfig | None) -> AnyConfig:
        head = (base.span if base else None) or SpanHeadConfig()
        return replace(encoder_backbone(self.recipe, self.tokenizer, base), span=head)

    @cached_property
    def rows(self) -> Rows:
        return lay_out(self.train, self.tokenizer, self.recipe.data.length, self.recipe.answer, self.recipe)

    @cached_property
    def valid_part(self) -> Part:
        return self._part(self.valid)

    def read_test(self, spec: str) -> Part:
        return self._part(read_questions(spec, self.recipe.data, self.bad_tests))

    def _part(self, asked: Sequence[Question]) -> Part:
        return Part(asked, lay_out(asked, self.tokenizer, self.recipe.data.length, self.recipe.answer, None))

    def plan(self, batch: int) -> BatchSampler:
        return self.rows.examples.plan(batch, self.recipe.train.batch_tokens)

    def batch(self, samples: Index) -> Batch:
        rows = self.rows.examples.rows(samples)
        tensors = (*self.rows.examples.read(rows), _targets(self.rows, rows))
        return Batch(tensors, len(rows), int(tensors[1].sum()))

    @staticmethod
    def loss(model: Model, ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor, targets: Tensor) -> Tensor:
        return _span_loss(_span_logits(model, ids, attention_mask, token_type_ids), targets)

    def loss_and_metrics(self, model: Model, part: Part, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        """Every process reads all questions: the windows of one are compared with each other."""
        result, loss = results(model, part, self.recipe.answer)
        return loss, result.metrics()

    def evaluate_in_full(self, model: Model, part: Part) -> Evaluation:
        return results(model, part, self.recipe.answer)[0].evaluation({})

    def sample(self, model: Model) -> str:
        """The first held-out questions and what the model answers."""
        lines = []
        settings = replace(self.recipe.answer, no_answer="yes")
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
        data, settings, bad = recipe.data, recipe.answer, BadRows(recipe.data.bad_rows)
        _require_head(model)
        spec = spec or data.test or data.valid
        asked = read_questions(spec or data.train, data, bad) if spec or data.train else []
        if not spec:
            asked = hold_out(asked or make_stories(GENERATED, recipe.seed))[1]
        part = Part(asked, lay_out(asked, tokenizer, limit_of(model, data.length), settings, None))
        facts = {"windows": len(part.rows.question), "bad_rows": bad.count}
        return results(model, part, settings)[0].evaluation(facts)


def read_questions(spec: str, data: DataConfig, bad: BadRows) -> list[Question]:
    """data.text, data.pair and data.label name the columns of context, question and answers."""
    return list(questions(spec, Columns(data.text, data.pair, data.label), bad))


def hold_out(asked: list[Question]) -> tuple[list[Question], list[Question]]:
    """The last tenth apart, and no context on both sides: where that is within one, the whole of it."""
    begins = [i for i in range(1, len(asked)) if asked[i].context != asked[i - 1].context]
    if not begins:
        message = f"{len(asked):,} questions on one context: none of them can be held out"
        raise ConfigError("C004", message, "data.valid=FILE names others")
    wanted = round(len(asked) * (1 - HELD_OUT))
    cut = next((begin for begin in begins if begin >= wanted), begins[-1])
    return asked[:cut], asked[cut:]


def none_allowed(asked: Sequence[Question], settings: QuestionAnsweringConfig) -> bool:
    """Whether no answer may be given, as the recipe says or the questions themselves."""
    return settings.no_answer == "yes" or (settings.no_answer == "auto" and any(not row.answers for row in asked))


def results(model: Model, part: Part, settings: QuestionAnsweringConfig) -> tuple[AnswerResults, float]:
    """What a model answers, and the mean loss of a window."""
    ranked, loss = best_spans(model, part.asked, part.rows, settings)
    return AnswerResults(part.asked, ranked, none_allowed(part.asked, settings), settings.threshold), loss


def _require_head(model: Model) -> None:
    if model.config.span is None:
        raise DataError("D001", "this model does not answer questions", "train one: headway train answer")


def _targets(rows: Rows, chosen: Sequence[int] | Index) -> Tensor:
    """(B, 2): first and last token."""
    return torch.tensor([rows.targets[row] for row in chosen])


def _span_logits(model: Model, ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
    """(B, 2, T) in float32: of being the first token, and the last; padding is neither."""
    logits: Tensor = model.span(run_backbone(model, ids, attention_mask, token_type_ids).hidden)
    return upcast(logits).transpose(1, 2).masked_fill(~attention_mask[:, None], -torch.inf)


def _span_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of the two cross-entropies, summed over windows."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / 2


def best_spans(
    model: Model, asked: Sequence[Question], rows: Rows, settings: QuestionAnsweringConfig
) -> tuple[list[Ranked], float]:
    """The best spans of each context over all its windows, and the mean loss of a window."""
    found: list[list[tuple[float, int, int]]] = [[] for _ in asked]
    null, total = [np.inf] * len(asked), 0.0
    device = next(model.parameters()).device
    with evaluating(model):
        for batch in rows.examples.batches(inference_batch_tokens(device)):
            logits = _span_logits(model, *(t.to(device) for t in rows.examples.read(batch)))
            total += float(_span_loss(logits, _targets(rows, batch).to(device)))
            nothing = logits[:, :, 0].sum(1).tolist()
            bounds = torch.tensor([(rows.place[r], rows.place[r] + len(rows.offsets[r])) for r in batch], device=device)
            values, first, last = _top_spans(logits, bounds, settings)
            for i, row in enumerate(batch):
                number, offsets, place = rows.question[row], rows.offsets[row], rows.place[row]
                null[number] = min(null[number], nothing[i])
                for value, a, b in zip(values[i], first[i], last[i], strict=True):
                    if value > -np.inf:
                        characters = _trimmed(asked[number].context, offsets[a - place][0], offsets[b - place][1])
                        found[number].append((value, *characters))
    ranked = [rank(spans, nothing, settings.n_best) for spans, nothing in zip(found, null, strict=True)]
    return ranked, total / len(rows.question)


def _top_spans(
    logits: Tensor, bounds: Tensor, settings: QuestionAnsweringConfig
) -> tuple[list[Any], list[Any], list[Any]]:
    """Of each window, its best spans that lie in the context: scores, first and last tokens; exact, not a shortlist."""
    width, max_length = logits.shape[2], settings.max_answer_length
    at = torch.arange(width, device=logits.device)
    inside = (at >= bounds[:, :1]) & (at < bounds[:, 1:])  # (B, T)
    start, end = logits.masked_fill(~inside[:, None], -torch.inf).unbind(1)
    ends = F.pad(end, (0, max_length - 1), value=-torch.inf).unfold(1, max_length, 1)  # (B, T, longest)
    sums = (start[:, :, None] + ends).flatten(1)
    values, places = sums.topk(min(settings.n_best, sums.shape[1]), dim=1)
    first = places // max_length
    return values.tolist(), first.tolist(), (first + places % max_length).tolist()


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Without the white space that a byte-level token begins with."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def answer(
    model: Model, tokenizer: Tokenizer, question: str, context: str, settings: QuestionAnsweringConfig | None = None
) -> list[Answer]:
    """The best answers to a question in a context of any length, the one to give first."""
    return answer_all(model, tokenizer, [(question, context)], settings)[0]


def answer_all(
    model: Model,
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    settings: QuestionAnsweringConfig | None = None,
) -> list[list[Answer]]:
    """The same for many (question, context); batches are by length. No answer is among them unless no_answer = no."""
    _require_head(model)
    settings = settings or QuestionAnsweringConfig()
    for number, (question, context) in enumerate(pairs, start=1):
        if not question.strip() or not context.strip():
            raise DataError("D001", f"pair {number}: a question and a context are needed, and one of them is empty")
    if not pairs:
        return []
    asked = [Question(str(i), question, context, ()) for i, (question, context) in enumerate(pairs)]
    limit = model.config.max_length
    ranked, _ = best_spans(model, asked, lay_out(asked, tokenizer, limit, settings, None), settings)
    none = settings.no_answer != "no"
    return [decide(r, row.context, none, settings.threshold) for r, row in zip(ranked, asked, strict=True)]
