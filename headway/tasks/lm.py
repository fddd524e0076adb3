"""Language modelling: the next token, for every token."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.data.corpus import Ids, Windows, evaluation_windows
from headway.data.order import Index
from headway.data.tokenizer import Tokenizer
from headway.model.model import Model
from headway.tasks.loss import IGNORE, token_loss

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class LanguageModelling:
    """What the trainer needs to know of the task: batches, their loss, and how good the model is."""

    windows: Windows
    valid: Ids
    valid_bytes: int
    tokenizer: Tokenizer
    device: torch.device

    def batch(self, samples: Index) -> Batch:
        """The samples with these numbers."""
        inputs, targets = self.windows.read(samples)
        return torch.from_numpy(inputs).to(self.device), torch.from_numpy(targets).to(self.device)

    @staticmethod
    def count(batch: Batch) -> int:
        """Predictions in a batch that count."""
        return int((batch[1] != IGNORE).sum())

    @staticmethod
    def loss(model: Model, batch: Batch) -> Tensor:
        """Sum over the predictions that count."""
        total, _ = token_loss(model.lm, model(batch[0]).hidden, batch[1])
        return total

    @torch.no_grad()
    def evaluate(self, model: Model, rows: int = 32) -> dict[str, float]:
        """Mean loss over the whole validation text, and bits per byte, which compare across tokenizers."""
        was_training = model.training
        model.eval()
        total, count = 0.0, 0
        for batch in self._valid_batches(rows):
            total += float(self.loss(model, batch))
            count += self.count(batch)
        model.train(was_training)
        return {"valid": total / count, "bits_per_byte": total / math.log(2) / self.valid_bytes}

    def _valid_batches(self, rows: int) -> Iterator[Batch]:
        inputs, targets = evaluation_windows(self.valid, self.windows.length, IGNORE)
        for at in range(0, len(inputs), rows):
            part = slice(at, at + rows)
            yield torch.from_numpy(inputs[part]).to(self.device), torch.from_numpy(targets[part]).to(self.device)
