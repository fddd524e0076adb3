"""Predicting answers: the windows of a context, the best spans in them, and answers with probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.batching.padding import Examples, inference_batch_tokens
from headway.data.batching.permutation import Index
from headway.data.batching.strides import SpecialLayout, max_text_tokens, special_layout, token_windows
from headway.data.datasets.squad import Question
from headway.data.tokenizers.tokenizer import Encoded, Tokenizer
from headway.errors import ConfigError, DataError
from headway.model.model import Model, evaluating
from headway.tasks.backbone import limit_of, run_backbone
from headway.tasks.base import Json
from headway.tasks.losses.tokens import upcast
from headway.tasks.predictor import Predictor
from headway.tasks.qa.evaluate import Answer, Ranked, decide, rank
from headway.tasks.qa.task import QuestionAnswering, Settings
from headway.tasks.recipe import Recipe
from headway.tasks.text import TextExample


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
    settings: Settings,
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


def require_head(model: Model) -> None:
    if model.config.span is None:
        raise DataError("D001", "this model does not answer questions", "train one: headway train answer")


def span_targets(rows: Rows, chosen: Sequence[int] | Index) -> Tensor:
    """(B, 2): first and last token."""
    return torch.tensor([rows.targets[row] for row in chosen])


def span_logits(model: Model, ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
    """(B, 2, T) in float32: of being the first token, and the last; padding is neither."""
    logits: Tensor = model.span(run_backbone(model, ids, attention_mask, token_type_ids).hidden)
    return upcast(logits).transpose(1, 2).masked_fill(~attention_mask[:, None], -torch.inf)


def span_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of the two cross-entropies, summed over windows."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / 2


def best_spans(model: Model, asked: Sequence[Question], rows: Rows, settings: Settings) -> tuple[list[Ranked], float]:
    """The best spans of each context over all its windows, and the mean loss of a window."""
    found: list[list[tuple[float, int, int]]] = [[] for _ in asked]
    null, total = [np.inf] * len(asked), 0.0
    device = next(model.parameters()).device
    with evaluating(model):
        for batch in rows.examples.batches(inference_batch_tokens(device)):
            logits = span_logits(model, *(t.to(device) for t in rows.examples.read(batch)))
            total += float(span_loss(logits, span_targets(rows, batch).to(device)))
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


def _top_spans(logits: Tensor, bounds: Tensor, settings: Settings) -> tuple[list[Any], list[Any], list[Any]]:
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
    model: Model, tokenizer: Tokenizer, question: str, context: str, settings: Settings | None = None
) -> list[Answer]:
    """The best answers to a question in a context of any length, the one to give first."""
    return answer_all(model, tokenizer, [(question, context)], settings)[0]


def answer_all(
    model: Model,
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    settings: Settings | None = None,
) -> list[list[Answer]]:
    """The same for many (question, context); batches are by length. No answer is among them unless no_answer = no."""
    require_head(model)
    settings = settings or Settings()
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


@dataclass(frozen=True)
class Answers:
    """The answers to a question, the best first."""

    best: list[Answer]

    def to_dict(self) -> Json:
        rows = [each.to_dict() for each in self.best]
        return {**rows[0], "best": rows}


class QuestionAnsweringPredictor(Predictor[TextExample, Answers]):
    """A question-answering model in use."""

    task = QuestionAnswering()

    def predict(self, examples: Sequence[TextExample]) -> list[Answers]:
        asked = [(example.text, example.pair or "") for example in examples]
        found = answer_all(self.model, self.tokenizer, asked, self.recipe.settings)
        return [Answers(list(row[: self.options.top])) for row in found]

    def truncated(self, examples: Sequence[TextExample]) -> tuple[int, int]:
        """A question is cut where it fills half of what the model reads; a context is read in windows."""
        room = max_text_tokens(_frame(self.tokenizer), limit_of(self.model, None))
        if room is None:
            return 0, 0
        read = self.tokenizer.encode_batch([example.text.strip() for example in examples], special=False)
        return sum(len(text.ids) > room // 2 for text in read), room // 2
