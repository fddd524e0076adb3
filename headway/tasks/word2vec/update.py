"""A step of word vectors: by kernels on a CPU, in batches of torch elsewhere, or plainly, one prediction after another.

All three learn the same predictions (`draws`). One thread of kernels equals the plain way to the rounding of sums;
batches learn many predictions at once from the weights before them. Letters: P predictions, C inputs, K negatives, D
width.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.joint.words import WordVectors
from headway.tasks.word2vec.draws import NONE, Predictions, Sampling, predictions
from headway.tasks.word2vec.ngrams import Rows

PART = {"cpu": 1 << 11, "cuda": 1 << 16}
"""Predictions that are learned at once, by the kind of device."""
CPU = torch.device("cpu")
PIECES = 4
"""Pieces of a step for each thread: one that waits for a core does not hold up the others for long."""
MOST_RATE = 1.0
"""A row that occurs often in a part moves as if by this learning rate at most: its gradients are all from before."""


@dataclass(frozen=True)
class Stepper:
    """What every step of a run shares."""

    sampling: Sampling
    rows: Rows
    """The rows of each word's n-grams."""
    threads: int = 1
    device: torch.device = CPU

    @cached_property
    def _sampling(self) -> Sampling:
        """The tables on the device."""
        return self.sampling.to(self.device)

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor]:
        starts, rows = self.rows
        return torch.from_numpy(starts).to(self.device), torch.from_numpy(rows).long().to(self.device)

    def learn(self, model: WordVectors, spans: Tensor, places: Tensor, lr: float) -> tuple[float, int]:
        """Learn from spans of text; the summed loss before, and the number of predictions."""
        if model.inputs.device.type == "cpu" and model.inputs.dtype == torch.float32 and has_kernels():
            return self.by_kernels(model, spans, places, lr)
        return self.in_batches(model, spans, places, lr)

    def by_kernels(self, model: WordVectors, spans: Tensor, places: Tensor, lr: float) -> tuple[float, int]:
        """Several threads change the same weights without waiting for each other (Recht et al. 2011)."""
        from headway.kernels.word_vectors import step

        assert model.outputs is not None
        weights = model.inputs.detach().numpy(), model.outputs.detach().numpy()
        one, tables = self.sampling, (self.sampling.shares.numpy(), self.sampling.others.numpy())

        parts = 1 if self.threads == 1 else self.threads * PIECES

        def part(number: int) -> tuple[float, int]:
            some = [np.ascontiguousarray(each.numpy()[number::parts]) for each in (spans, places)]
            settings = (one.window, one.negatives, one.bag, np.float32(lr))
            operands = (*some, np.uint64(one.key), one.keep.numpy(), tables, *weights, self.rows, *settings)
            found: tuple[float, int] = step(*operands)
            return found

        if self.threads == 1:
            return part(0)
        with ThreadPoolExecutor(self.threads) as pool:
            found = list(pool.map(part, range(parts)))
        return sum(loss for loss, _ in found), sum(pairs for _, pairs in found)

    @torch.no_grad()
    def in_batches(self, model: WordVectors, spans: Tensor, places: Tensor, lr: float) -> tuple[float, int]:
        """Many predictions at once."""
        device = spans.device
        drawn = predictions(spans, places, self._sampling)
        size, losses = PART.get(device.type, PART["cpu"]), [torch.zeros((), device=device)]
        for begin in range(0, len(drawn.centre), size):
            part = Predictions(*(each[begin : begin + size] for each in drawn))
            losses.append(self._part(model, part, lr).sum())
        return float(torch.stack(losses).double().sum()), len(drawn.centre)

    def _part(self, model: WordVectors, part: Predictions, lr: float) -> Tensor:
        """The losses (P,) of some predictions, which are learned if there is a learning rate."""
        assert model.outputs is not None
        rows, owner = self._input_rows(part.inputs)
        count = torch.bincount(owner, minlength=len(part.inputs)).clamp(min=1)[:, None]
        hidden = torch.zeros(len(part.inputs), model.config.width, device=rows.device, dtype=model.inputs.dtype)
        hidden.index_add_(0, owner, model.inputs[rows]).div_(count)
        real, targets = part.targets != NONE, part.targets.clamp(min=0)
        there = model.outputs[targets]  # P 1+K D
        logits = (there @ hidden[:, :, None])[:, :, 0]
        towards = torch.cat([logits[:, :1], -logits[:, 1:]], 1)
        losses = (F.softplus(-towards) * real).sum(1)
        if lr:
            rate = lr * torch.sigmoid(-towards) * real
            rate[:, 1:].neg_()
            _move(model.inputs, rows, (rate[:, None] @ there)[:, 0][owner], lr)
            some = real.flatten()
            change = (rate[:, :, None] * hidden[:, None]).flatten(0, 1)[some]
            _move(model.outputs, targets.flatten()[some], change, lr)
        return losses

    def _input_rows(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """The input rows of predictions, and which prediction each is for."""
        owner, column = (words != NONE).nonzero(as_tuple=True)
        found = words[owner, column]
        if not len(self.rows[0]):
            return found, owner
        starts, ngrams = self._rows
        sizes = starts[found + 1] - starts[found]
        which = torch.repeat_interleave(torch.arange(len(found), device=words.device), sizes)
        inside = torch.arange(len(which), device=words.device) - (sizes.cumsum(0) - sizes)[which]
        return torch.cat([found, ngrams[starts[found][which] + inside]]), torch.cat([owner, owner[which]])

    def losses(self, model: WordVectors, spans: Tensor, places: Tensor) -> tuple[float, int]:
        """The summed loss of the predictions of spans, and their number; nothing is learned."""
        return self.in_batches(model, spans, places, 0.0)


@cache
def has_kernels() -> bool:
    """Whether Numba is installed."""
    return find_spec("numba") is not None


def _move(weights: Tensor, rows: Tensor, change: Tensor, lr: float) -> None:
    """Add changes to rows; those of a row that occurs very often are made smaller together."""
    times = torch.bincount(rows, minlength=len(weights))
    smaller = (MOST_RATE / (times * lr).clamp(min=MOST_RATE)).to(weights.dtype)
    weights.index_add_(0, rows, change * smaller[rows][:, None])


def plainly(inputs: Tensor, outputs: Tensor, drawn: Predictions, rows: Rows, lr: float) -> float:
    """One prediction after another, as the definition says; the slow twin of the kernels. The summed loss.

    A word of skip-gram learns in a copy of its vector, and its rows follow at the end of its window.
    """
    total, bag = 0.0, drawn.inputs.shape[1] > 1
    centres = torch.unique_consecutive(drawn.centre, return_counts=True)[1].tolist()
    place = 0
    for count in centres:
        words = [word for word in drawn.inputs[place].tolist() if word != NONE]
        own = torch.tensor([row for word in words for row in _own_rows(word, rows)])
        start = inputs[own].mean(0)
        hidden = start.clone()
        for targets in drawn.targets[place : place + count].tolist():
            change = torch.zeros_like(hidden)
            for number, target in enumerate(targets):
                if target == NONE:
                    continue
                towards = (outputs[target] @ hidden) * (1 if number == 0 else -1)
                total += float(F.softplus(-towards))
                rate = lr * torch.sigmoid(-towards) * (1 if number == 0 else -1)
                change += rate * outputs[target]
                outputs[target] += rate * hidden
            hidden = hidden + change
        for row in own.tolist():  # a row may occur twice
            inputs[row] += change if bag else hidden - start
        place += count
    return total


def _own_rows(word: int, rows: Rows) -> list[int]:
    starts, ngrams = rows
    return [word, *(ngrams[starts[word] : starts[word + 1]].tolist() if len(starts) else [])]
