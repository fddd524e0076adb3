"""Answers: the best spans over all windows of a context, no answer among them; and the official scores.

Exact match and F1 are those of SQuAD's scripts (Rajpurkar et al. 2016, 2018): lower case, without punctuation and
articles, the best of several references; a question without an answer has the empty one.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from headway.data.batching.permutation import Index
from headway.data.datasets.squad import Question
from headway.tasks.metrics.bootstrap import Evaluation, mean_interval, mean_metric
from headway.tasks.metrics.slices import by_kind, by_size
from headway.tasks.predictor import DIGITS

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
ASKING = ("who", "what", "when", "where", "why", "how", "which")
WORST, LETTERS = 20, 300


def normalised(text: str) -> str:
    """What is left of an answer to compare."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact(guess: str, references: Sequence[str]) -> float:
    """1 if it is one of the references, else 0."""
    return float(any(normalised(guess) == normalised(text) for text in _references(references)))


def token_f1(guess: str, references: Sequence[str]) -> float:
    """Words in common with the reference that has most of them."""
    return max(_overlap(normalised(guess).split(), normalised(text).split()) for text in _references(references))


def _references(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if normalised(text)] or [""]


def _overlap(guess: list[str], reference: list[str]) -> float:
    if not guess or not reference:
        return float(guess == reference)
    same = sum((Counter(guess) & Counter(reference)).values())
    return 2 * same / (len(guess) + len(reference))


class Answer(NamedTuple):
    """What a model says; the empty text without a place is that there is no answer."""

    text: str
    start: int | None
    """Characters [start, end) of the context."""
    end: int | None
    score: float
    """Probability among the answers that were kept, no answer included where it is allowed."""

    def to_dict(self) -> dict[str, Any]:
        """An answer of None is that the context has none."""
        said = self.text if self.start is not None else None
        return {"answer": said, "start": self.start, "end": self.end, "score": round(self.score, DIGITS)}


NO_ANSWER = ""


@dataclass(frozen=True)
class Ranked:
    """The spans of a context that answer best, over all of its windows."""

    spans: list[tuple[float, int, int]]
    """Score and characters, best first; each place once."""
    null: float
    """Score of no answer, in the window that is least in favour of it."""

    @property
    def margin(self) -> float:
        """How much better no answer is than the best span."""
        return self.null - self.spans[0][0] if self.spans else math.inf


def rank(found: Sequence[tuple[float, int, int]], null: float, best: int) -> Ranked:
    """Spans of all windows as one list; where two windows have the same, the better score counts."""
    places: dict[tuple[int, int], float] = {}
    for score, start, end in found:
        places[start, end] = max(score, places.get((start, end), -math.inf))
    ordered = sorted(((score, *place) for place, score in places.items()), key=lambda s: (-s[0], s[1], s[2]))
    return Ranked(ordered[:best], null)


def decide(ranked: Ranked, context: str, none: bool, threshold: float) -> list[Answer]:
    """The answers, the one to give first: no answer where it is allowed and better by more than the threshold."""
    spans = [(score, context[start:end], start, end) for score, start, end in ranked.spans]
    if not (none or not spans):
        return _with_odds(spans)
    nothing = (ranked.null, NO_ANSWER, None, None)
    if ranked.margin > threshold:
        return _with_odds([nothing, *spans])
    after = 1 + sum(score >= ranked.null for score, *_ in spans[1:])
    return _with_odds([*spans[:after], nothing, *spans[after:]])


def _with_odds(spans: Sequence[tuple[float, str, int | None, int | None]]) -> list[Answer]:
    top = max(score for score, *_ in spans)
    powers = [math.exp(score - top) for score, *_ in spans]
    whole = sum(powers)
    return [Answer(text, start, end, p / whole) for (_, text, start, end), p in zip(spans, powers, strict=True)]


@dataclass(frozen=True)
class AnswerResults:
    """What a model answered, beside the questions."""

    questions: Sequence[Question]
    ranked: Sequence[Ranked]
    none: bool
    threshold: float = 0.0

    def answers(self) -> list[list[Answer]]:
        pairs = zip(self.questions, self.ranked, strict=True)
        return [decide(ranked, asked.context, self.none, self.threshold) for asked, ranked in pairs]

    def scores(self, guesses: Sequence[str]) -> np.ndarray[Any, Any]:
        """Exact match and F1 of each question (n, 2)."""
        references = [[text for text, _ in asked.answers] for asked in self.questions]
        pairs = list(zip(guesses, references, strict=True))
        return np.array([(exact(guess, texts), token_f1(guess, texts)) for guess, texts in pairs])

    def metrics(self) -> dict[str, float]:
        em, f1 = self.scores([answers[0].text for answers in self.answers()]).mean(0)
        return {"f1": float(f1), "em": float(em)}

    def evaluation(self, facts: dict[str, Any]) -> Evaluation:
        """With intervals, by question word, by length of the context, and what went wrong most surely."""
        answers = self.answers()
        table = self.scores([found[0].text for found in answers])

        def metrics(rows: Index) -> dict[str, float]:
            em, f1 = table[rows].mean(0)
            return {"f1": float(f1), "em": float(em)}

        with_answer = ["answer" if asked.answers else "no answer" for asked in self.questions]
        details = {
            **facts,
            "none_allowed": self.none,
            "threshold": self.threshold,
            **({"best_threshold": self._best_threshold()} if self.none else {}),
            "by_answer": by_kind(with_answer, metrics),
            "by_question": by_kind([asking(asked.question) for asked in self.questions], metrics),
            "unit": "words",
            "slices": by_size([len(asked.context.split()) for asked in self.questions], metrics),
            "worst": self._worst(answers, table[:, 1]),
        }
        each = [_shown(asked, found) for asked, found in zip(self.questions, answers, strict=True)]
        drawn = {"f1": mean_interval(table[:, 1]), "em": mean_interval(table[:, 0])}
        return Evaluation(len(self.questions), drawn, details, each, mean_metric("f1", table[:, 1]))

    def _best_threshold(self) -> dict[str, float]:
        """The threshold that these questions would have had best, and the F1 it gives: an upper bound, no score."""
        spans = [r.spans[0] if r.spans else (0.0, 0, 0) for r in self.ranked]
        texts = [asked.context[a:b] for asked, (_, a, b) in zip(self.questions, spans, strict=True)]
        given, refused = self.scores(texts)[:, 1], self.scores([NO_ANSWER] * len(texts))[:, 1]
        margins = np.array([r.margin for r in self.ranked])
        order = np.argsort(margins, kind="stable")
        sums = np.concatenate([[0.0], np.cumsum((given - refused)[order])])  # of the k that are answered
        k = int(sums.argmax())
        edge = float(margins[order[k - 1]]) if k else float(margins.min()) - 1.0
        return {"threshold": edge, "f1": float((refused.sum() + sums[k]) / len(texts))}

    def _worst(self, answers: Sequence[Sequence[Answer]], f1: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
        order = sorted((i for i in range(len(f1)) if f1[i] < 1), key=lambda i: (f1[i], -answers[i][0].score))
        return [
            {
                **_shown(self.questions[i], answers[i]),
                "text": self.questions[i].question.strip(),
                "label": _said(next((text for text, _ in self.questions[i].answers), NO_ANSWER)),
                "predicted": _said(answers[i][0].text),
                "probability": answers[i][0].score,
                "context": self.questions[i].context[:LETTERS],
            }
            for i in order[:WORST]
        ]


def _said(answer: str) -> str:
    return answer or "no answer"


def asking(question: str) -> str:
    """The word that asks: who, what, …; the first of them in the question."""
    words = re.findall(r"\w+", question.lower())
    return next((word for word in words if word in ASKING), "other")


def _shown(asked: Question, found: Sequence[Answer]) -> dict[str, Any]:
    return {
        "id": asked.id,
        "true": [text for text, _ in asked.answers],
        "found": found[0].text,
        "score": found[0].score,
        "best": [answer._asdict() for answer in found[:5]],
    }
