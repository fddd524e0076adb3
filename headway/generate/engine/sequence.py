"""A text in the making: what it has, what may end it, and how its next token is chosen among others.

Letters: B texts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.generate.accel.cuda.graphs import sent
from headway.generate.detokenize import TextStream
from headway.generate.engine.request import Finish, Ticket
from headway.generate.sampling.logits import only
from headway.generate.sampling.sampler import Chooser, Sampling


@dataclass(eq=False)
class Job:
    """What the engine knows of a request."""

    ticket: Ticket
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
        self.chooser = Chooser([sampling], [tuple(self.text)], [self.stop]) if penalties else None
        """Of its own, where penalties need a memory."""
        self.mask = self.ticket.request.mask

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
class Pick:
    """The token chosen for a text, None where none is possible."""

    token: int | None
    log_probability: float | None
    alternatives: tuple[tuple[int, float], ...]
    broken: bool
    """Whether the scores to choose from were no numbers."""


def pick(jobs: list[Job], scores: Tensor) -> list[Pick]:
    """The next token of each job, from the scores (B, V) of the model."""
    scores = scores.float()
    return report(jobs, scores, Choosing(jobs)(scores))()


class Choosing:
    """How the next tokens of some jobs are chosen, for as long as they stay together."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        plain = [i for i, job in enumerate(jobs) if job.chooser is None]
        self.groups = [(job.chooser, [i]) for i, job in enumerate(jobs) if job.chooser is not None]
        if plain:
            texts = [jobs[i].text for i in plain]
            stops = [jobs[i].stop for i in plain]
            self.groups.append((Chooser([jobs[i].sampling for i in plain], texts, stops), plain))
        self.masked = any(job.mask is not None for job in jobs)
        alone = self.groups[0][0] if len(self.groups) == 1 else None
        self.bare = alone is not None and alone.bare and not self.masked
        self.bare = self.bare and not any(job.ticket.request.likely for job in jobs)
        """Whether all anybody asks for is the best token."""

    def __call__(self, scores: Tensor) -> Tensor:
        """Tokens (B,), -1 where none is possible; nothing waits for the device."""
        if self.masked:
            scores = _held(self.jobs, scores)
        if len(self.groups) == 1:  # no rows to be put together again
            return self._choose(*self.groups[0], scores)
        chosen = torch.empty(len(self.jobs), dtype=torch.long, device=scores.device)
        for chooser, places in self.groups:
            chosen[places] = self._choose(chooser, places, scores[places])
        return chosen

    def _choose(self, chooser: Chooser, places: list[int], scores: Tensor) -> Tensor:
        rows, jobs = [*range(len(places))], [self.jobs[i] for i in places]
        counts = [job.count for job in jobs]
        return chooser.pick(chooser.shape(scores, rows, [job.text for job in jobs], counts), rows, counts)


def _held(jobs: list[Job], scores: Tensor) -> Tensor:
    """The scores, without tokens that a mask forbids."""
    everything = torch.ones(scores.shape[-1], dtype=torch.bool)
    found = [_allowed(job) for job in jobs]
    return only(scores, torch.stack([everything if row is None else row for row in found]).to(scores.device))


def _allowed(job: Job) -> Tensor | None:
    """Its mask. One that fails is no reason to fail the others: what is chosen for this text is not used."""
    try:
        return None if job.mask is None else job.mask.allowed(0)
    except Exception as error:
        job.fault = error
        return None


def report(jobs: list[Job], scores: Tensor, chosen: Tensor) -> Callable[[], list[Pick]]:
    """What was chosen, and how likely it was where somebody asked; the function returned waits for the device."""
    whole = scores.logsumexp(-1, keepdim=True) if any(job.ticket.request.likely for job in jobs) else None
    top = min(max(job.ticket.request.top for job in jobs), scores.shape[1])
    columns = [chosen[:, None]]
    if whole is not None:
        best = scores.topk(top)
        likely = scores.gather(1, chosen.clamp(min=0)[:, None]) - whole
        columns = [chosen[:, None].double(), likely, best.indices, best.values - whole]
    table = sent(torch.cat(columns, 1))

    def look() -> list[Pick]:
        rows = table()
        return [_pick(job, row, top, scores[place]) for place, (job, row) in enumerate(zip(jobs, rows, strict=True))]

    return look


def _pick(job: Job, row: list[Any], top: int, scores: Tensor) -> Pick:
    if row[0] < 0:
        return Pick(None, None, (), bool(scores.isnan().any()))
    wants = job.ticket.request
    if not wants.likely:
        return Pick(int(row[0]), None, (), False)
    tokens, values = [int(i) for i in row[2 : 2 + top]], row[2 + top :]
    return Pick(int(row[0]), row[1], tuple(zip(tokens, values, strict=True))[: wants.top], False)
