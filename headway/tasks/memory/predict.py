"""Predicting with a model of stories: answers with probabilities, and where each hop looked. Letters: B questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from headway.data.batching.permutation import Index
from headway.data.datasets.stories import Story
from headway.errors import DataError
from headway.joint.memory import MemoryModel, StoryTensors
from headway.model.attention import Hook
from headway.model.model import Model, evaluating
from headway.progress import track
from headway.tasks.base import Json
from headway.tasks.classification.evaluate import probabilities
from headway.tasks.losses.tokens import upcast
from headway.tasks.memory.data import Part, collate, make_part
from headway.tasks.memory.task import Memory
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.classification import Numbers
from headway.tasks.predictor import DIGITS, Predictor

BATCH = 256
"""Questions that are computed at a time."""


class Answered(NamedTuple):
    """What a model says of a question, and where it looked."""

    answer: str
    probability: float
    best: tuple[tuple[str, float], ...]
    """The likeliest answers with their probabilities."""
    sentences: tuple[tuple[str, tuple[float, ...]], ...]
    """The sentences that were read, each with its weight in every hop; a transformer has no hops."""

    def __repr__(self) -> str:
        return f"Answered(answer={self.answer!r}, probability={self.probability:.4f})"

    def to_dict(self) -> Json:
        return {
            "answer": self.answer,
            "probability": round(self.probability, DIGITS),
            "best": [{"answer": answer, "probability": round(p, DIGITS)} for answer, p in self.best],
            "sentences": [
                {"text": text, "hops": [round(weight, DIGITS) for weight in weights]}
                for text, weights in self.sentences
            ],
        }


@dataclass(frozen=True)
class Read:
    """What a model makes of questions."""

    logits: Numbers
    """(B, answers)"""
    hops: list[Numbers]
    """Of each question, (hops, sentences that are read): weights, the first sentence first."""


def memory_model(model: Model) -> MemoryModel:
    if not isinstance(model, MemoryModel):
        raise DataError("D001", "this model does not answer questions about stories", "headway train memory")
    return model


def logits_of(model: MemoryModel, inputs: Tensor, stories: StoryTensors, hook: Hook | None = None) -> Tensor:
    """(B, answers), in float32."""
    return upcast(model.label_logits(model(inputs, stories=stories, hook=hook)))


def read_part(model: MemoryModel, part: Part, rows: Index | None = None, *, hops: bool = True) -> Read:
    """The logits of questions; `hops`: and the weights of the hops."""
    device, transformer = next(model.parameters()).device, model.config.encoder is not None
    rows = np.arange(len(part)) if rows is None else rows
    logits, weights = list[Numbers](), list[Numbers]()
    with evaluating(model):
        for start in track(range(0, len(rows), BATCH), "computing", unit="batches"):
            inputs, stories = collate(part, rows[start : start + BATCH], transformer=transformer)
            seen: list[Tensor] = []

            def hook(name: str, make: Callable[[], Tensor], seen: list[Tensor] = seen) -> None:
                if name.startswith("hops."):
                    seen.append(make())

            moved = StoryTensors(*(None if each is None else each.to(device) for each in stories))  # type: ignore[arg-type]
            found = logits_of(model, inputs.to(device), moved, None if transformer or not hops else hook)
            logits.append(found.double().cpu().numpy())
            if hops:
                weights += _by_question(seen, (stories.memories > 0).sum(1).tolist())
    return Read(np.concatenate(logits), weights)


def _by_question(seen: Sequence[Tensor], counts: Sequence[int]) -> list[Numbers]:
    """The weights of each question's own memories, the first sentence first."""
    if not seen:
        return [np.zeros((0, count)) for count in counts]
    every = np.stack([each.double().cpu().numpy() for each in seen], 1)  # (B, hops, N)
    return [own[:, :count][:, ::-1] for own, count in zip(every, counts, strict=True)]


class MemoryPredictor(Predictor[Story, Answered]):
    """A model of stories in use."""

    task = Memory()

    def predict(self, examples: Sequence[Story]) -> list[Answered]:
        if not examples:
            return []
        model = memory_model(self.model)
        part = make_part(examples, model.config)
        read = read_part(model, part)
        labels, chances = model.config.labels, probabilities("single", read.logits)
        return [
            answered(story, labels, own, hops, self.options.top)
            for story, own, hops in zip(part.stories, chances, read.hops, strict=True)
        ]

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.memory.training import evaluate_source

        return evaluate_source(memory_model(self.model), self.recipe, source)


def answered(story: Story, labels: Sequence[str], chances: Numbers, hops: Numbers, top: int) -> Answered:
    """The likeliest answers to a question, beside where the hops looked."""
    order = np.argsort(-chances, kind="stable")[:top]
    best = tuple((labels[i], float(chances[i])) for i in order)
    told = story.told[len(story.told) - hops.shape[1] :]
    weights = [tuple(float(weight) for weight in column) for column in hops.T]
    return Answered(*best[0], best, tuple(zip(told, weights, strict=True)))
