"""A text in the making: what it has, what may end it, and how its next token is chosen among others.

Letters: B texts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.generate.accel.cuda.graphs import copy_to_cpu
from headway.generate.detokenize import TextStream
from headway.generate.engine.request import Finish, Request
from headway.generate.sampling.logits import apply_mask
from headway.generate.sampling.sampler import Sampler, Sampling


@dataclass(eq=False)
class Sequence:
    """What the engine knows of a request."""

    request: Request
    sampling: Sampling
    """With a seed."""
    stop: tuple[int, ...]
    stream: TextStream
    text: list[int]
    """Prompt and new tokens."""
    left: int
    """Tokens that may still come."""
    count: int = 0
    """New tokens so far; none while the prompt is being read."""
    slot: int = -1
    """None yet."""
    fault: Exception | None = None
    """What its mask raised: a mistake of this text alone, which ends with it."""

    def __post_init__(self) -> None:
        sampling = self.sampling
        penalties = sampling.repetition != 1 or sampling.presence or sampling.frequency
        self.sampler = Sampler([sampling], [tuple(self.text)], [self.stop]) if penalties else None
        """Of its own, where penalties need a memory."""
        self.mask = self.request.mask

    def take(self, token: int | None) -> tuple[str, Finish | None]:
        """Text that is certain with this token, and why it is the last one, if it is."""
        if token is None:
            return self.stream.close(), "stop"
        self.text.append(token)
        self.count += 1
        self.left -= 1
        if token in self.stop:
            return self.stream.close(), "stop"
        if self.mask is not None:
            self.mask.accept(0, token)
        text = self.stream.push(token)
        if self.stream.stopped:
            return text, "stop"
        return (text, None) if self.left else (text + self.stream.close(), "length")


@dataclass(frozen=True, slots=True)
class Sample:
    """The token chosen for a text, None where none is possible."""

    token: int | None
    log_probability: float | None
    alternatives: tuple[tuple[int, float], ...]
    broken: bool
    """Whether the scores to choose from were no numbers."""


def sample_tokens(sequences: list[Sequence], logits: Tensor) -> list[Sample]:
    """The next token of each job, from the scores (B, V) of the model."""
    logits = logits.float()
    return report(sequences, logits, BatchSampler(sequences)(logits))()


class BatchSampler:
    """How the next tokens of some jobs are chosen, for as long as they stay together."""

    def __init__(self, sequences: list[Sequence]) -> None:
        self.sequences = sequences
        plain = [i for i, sequence in enumerate(sequences) if sequence.sampler is None]
        self.groups = [(sequence.sampler, [i]) for i, sequence in enumerate(sequences) if sequence.sampler is not None]
        if plain:
            texts = [sequences[i].text for i in plain]
            stops = [sequences[i].stop for i in plain]
            self.groups.append((Sampler([sequences[i].sampling for i in plain], texts, stops), plain))
        self.masked = any(sequence.mask is not None for sequence in sequences)
        alone = self.groups[0][0] if len(self.groups) == 1 else None
        self.argmax_only = alone is not None and alone.argmax_only and not self.masked
        self.argmax_only = self.argmax_only and not any(sequence.request.likely for sequence in sequences)
        """Whether all anybody asks for is the best token."""

    def __call__(self, logits: Tensor) -> Tensor:
        """Tokens (B,), -1 where none is possible; nothing waits for the device."""
        if self.masked:
            logits = _held(self.sequences, logits)
        if len(self.groups) == 1:  # no rows to be put together again
            return self._choose(*self.groups[0], logits)
        chosen = torch.empty(len(self.sequences), dtype=torch.long, device=logits.device)
        for sampler, places in self.groups:
            chosen[places] = self._choose(sampler, places, logits[places])
        return chosen

    def _choose(self, sampler: Sampler, places: list[int], logits: Tensor) -> Tensor:
        rows, sequences = [*range(len(places))], [self.sequences[i] for i in places]
        counts = [sequence.count for sequence in sequences]
        return sampler.sample(
            sampler.process(logits, rows, [sequence.text for sequence in sequences], counts), rows, counts
        )


def _held(sequences: list[Sequence], logits: Tensor) -> Tensor:
    """The scores, without tokens that a mask forbids."""
    everything = torch.ones(logits.shape[-1], dtype=torch.bool)
    found = [_allowed(sequence) for sequence in sequences]
    return apply_mask(logits, torch.stack([everything if row is None else row for row in found]).to(logits.device))


def _allowed(sequence: Sequence) -> Tensor | None:
    """Its mask. One that fails is no reason to fail the others: what is chosen for this text is not used."""
    try:
        return None if sequence.mask is None else sequence.mask.allowed(0)
    except Exception as error:
        sequence.fault = error
        return None


def report(sequences: list[Sequence], logits: Tensor, chosen: Tensor) -> Callable[[], list[Sample]]:
    """What was chosen, and how likely it was where somebody asked; the function returned waits for the device."""
    whole = logits.logsumexp(-1, keepdim=True) if any(sequence.request.likely for sequence in sequences) else None
    top = min(max(sequence.request.top for sequence in sequences), logits.shape[1])
    columns = [chosen[:, None]]
    if whole is not None:
        best = logits.topk(top)
        likely = logits.gather(1, chosen.clamp(min=0)[:, None]) - whole
        columns = [chosen[:, None].double(), likely, best.indices, best.values - whole]
    table = copy_to_cpu(torch.cat(columns, 1))

    def look() -> list[Sample]:
        rows = table()
        return [
            _sample(sequence, row, top, logits[place])
            for place, (sequence, row) in enumerate(zip(sequences, rows, strict=True))
        ]

    return look


def _sample(sequence: Sequence, row: list[Any], top: int, logits: Tensor) -> Sample:
    if row[0] < 0:
        return Sample(None, None, (), bool(logits.isnan().any()))
    wants = sequence.request
    if not wants.likely:
        return Sample(int(row[0]), None, (), False)
    tokens, values = [int(i) for i in row[2 : 2 + top]], row[2 + top :]
    return Sample(int(row[0]), row[1], tuple(zip(tokens, values, strict=True))[: wants.top], False)
