"""A text in the making: what it has, what may end it, and how its next token is chosen among others.

Letters: B texts, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.generate.sampling import Chooser, Sampling
from headway.generate.text import TextStream
from headway.generate.ticket import Finish, Ticket


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

    def __post_init__(self) -> None:
        sampling = self.sampling
        penalties = sampling.repetition != 1 or sampling.presence or sampling.frequency
        self.chooser = Chooser([sampling], [tuple(self.text)]) if penalties else None
        """Of its own, where penalties need a memory."""

    def take(self, token: int | None) -> tuple[str, Finish | None]:
        """Text that is certain with this token, and why it is the last one, if it is."""
        if token is None:
            return self.stream.close(), "stop"
        self.text.append(token)
        self.count += 1
        self.left -= 1
        if token in self.stop:
            return self.stream.close(), "stop"
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
    plain = [i for i, job in enumerate(jobs) if job.chooser is None]
    groups = [(job.chooser, [i]) for i, job in enumerate(jobs) if job.chooser is not None]
    if plain:
        texts = [jobs[i].text for i in plain]
        groups.append((Chooser([jobs[i].sampling for i in plain], texts), plain))
    shaped = [
        chooser.shape(scores[places], [*range(len(places))], [jobs[i].text for i in places])
        for chooser, places in groups
    ]
    chosen = torch.empty(len(jobs), dtype=torch.long, device=scores.device)
    for (chooser, places), ready in zip(groups, shaped, strict=True):  # only now: choosers remember what they pick
        chosen[places] = chooser.pick(ready, [*range(len(places))], [jobs[i].count for i in places])
    return _report(jobs, scores, chosen)


def _report(jobs: list[Job], scores: Tensor, chosen: Tensor) -> list[Pick]:
    whole = scores.logsumexp(-1, keepdim=True)
    likely = scores.gather(1, chosen.clamp(min=0)[:, None]) - whole
    top = min(max(job.ticket.request.top for job in jobs), scores.shape[1])
    best = scores.topk(top)
    columns = [chosen[:, None], likely, whole.isnan(), best.indices, best.values - whole]
    table = torch.cat([column.double() for column in columns], 1).tolist()  # one wait for the device
    picks = []
    for job, (token, value, broken, *rest) in zip(jobs, table, strict=True):
        tokens, values = [int(i) for i in rest[:top]], rest[top:]
        alternatives = tuple(zip(tokens, values, strict=True))[: job.ticket.request.top]
        if token < 0:
            picks.append(Pick(None, None, (), bool(broken)))
        else:
            picks.append(Pick(int(token), value, alternatives, False))
    return picks
