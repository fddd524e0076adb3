"""The heavy half of the parity task."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import torch
from parity_task import Digits, Parity

from headway.config.model import ClassifyHeadConfig
from headway.config.shape import encoder_config
from headway.data.batching.padding import Examples
from headway.tasks.batch import Batch
from headway.tasks.examples import ExamplePredictor, ExampleTraining
from headway.tasks.inputs import read_examples
from headway.tasks.losses.labels import label_logits, loss_from_logits
from headway.tasks.metrics.bootstrap import Evaluation, mean_interval

LABELS = ("even", "odd")


@dataclass(frozen=True)
class Guess:
    label: str
    probability: float

    def to_dict(self):
        return {"label": self.label, "probability": round(self.probability, 6)}


def tensors(examples):
    return Examples([e.numbers for e in examples], [[0] * len(e.numbers) for e in examples]).read(range(len(examples)))


class ParityTraining(ExampleTraining[Digits]):
    primary_metric, higher_is_better = "accuracy", True

    @staticmethod
    def read(recipe, source, bad):
        if source:
            return read_examples(Parity(), source, recipe.data, bad)
        dice = random.Random(recipe.seed)
        made = [tuple(dice.randrange(10) for _ in range(3)) for _ in range(400)]
        return [Digits(numbers, LABELS[sum(numbers) % 2]) for numbers in made]

    @staticmethod
    def tokens(examples):
        return sum(len(e.numbers) for e in examples)

    def config(self, base):
        base = base or encoder_config(self.recipe.model, 10, self.recipe.data.length)
        return replace(base, classify=ClassifyHeadConfig(labels=2, pool="mean"), labels=LABELS)

    @staticmethod
    def collate(examples):
        return Batch((*tensors(examples), torch.tensor([LABELS.index(e.label) for e in examples])), len(examples))

    @property
    def loss(self):
        smoothing = self.recipe.settings.label_smoothing
        return lambda model, *t: loss_from_logits("single", label_logits(model, *t[:3]), t[3], None, smoothing)

    @staticmethod
    @torch.no_grad()
    def predict(model, examples):
        device = next(model.parameters()).device
        rows = label_logits(model, *(t.to(device) for t in tensors(examples))).softmax(1).tolist()
        return [Guess(LABELS[row[1] > row[0]], max(row)) for row in rows]

    @staticmethod
    def assess(examples, predictions):
        right = [guess.label == e.label for guess, e in zip(predictions, examples, strict=True)]
        return Evaluation(len(examples), {"accuracy": mean_interval(np.array(right, dtype=float))})


class ParityPredictor(ExamplePredictor):
    task, training = Parity(), ParityTraining
