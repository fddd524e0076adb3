"""What decoding did, step by step, as plain data: `dataclasses.asdict` makes JSON of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

ALTERNATIVES = 5
"""Tokens shown beside the chosen one."""


@dataclass(frozen=True)
class Alternative:
    """A token that could have come next."""

    token: int
    probability: float
    """As the model has it."""
    share: float
    """After penalties, temperature and filters: what the draw was made from."""


@dataclass(frozen=True)
class Choice:
    """One step of one row."""

    row: int
    position: int
    """New tokens before this one."""
    chosen: Alternative
    best: list[Alternative]
    """The likeliest tokens by the model, best first."""


@dataclass(frozen=True)
class Branch:
    """A beam after a step: the beam it grew from, the token it took, the log-probability of all its tokens."""

    parent: int
    token: int
    score: float


@dataclass(frozen=True)
class Growth:
    """One step of one input's beam search."""

    input: int
    step: int
    beams: list[Branch]
    """Those that go on; their places are what the next step's parents mean."""
    ended: list[Branch]
    """Those that ended here, with their final scores."""


@dataclass(frozen=True)
class Node:
    """A token in the tree that a beam search grew."""

    token: int
    score: float
    ended: bool
    next: list[Node] = field(default_factory=list)
    """What it was followed by; nothing where a text ended, and where it was given up."""


def tree(steps: Sequence[Growth]) -> list[Node]:
    """The first tokens of one input's beams, and through them all that followed."""
    first: list[Node] = []
    before: list[Node] = []
    for step in steps:
        ended = [Node(branch.token, branch.score, True) for branch in step.ended]
        going = [Node(branch.token, branch.score, False) for branch in step.beams]
        for branch, node in zip([*step.ended, *step.beams], [*ended, *going], strict=True):
            (before[branch.parent].next if before else first).append(node)
        before = going
    return first


def choices(logits: Tensor, processed: Tensor, chosen: Tensor, rows: list[int], positions: list[int]) -> list[Choice]:
    """The steps of several rows: scores (B, V) of the model, what they were shaped to, the tokens taken (B,)."""
    model, drawn = logits.float().softmax(-1), processed.float().softmax(-1)
    best = model.topk(min(ALTERNATIVES, model.shape[-1])).indices
    ids = torch.cat([chosen[:, None], best], 1)  # B 1+N
    table = zip(ids.tolist(), model.gather(1, ids).tolist(), drawn.gather(1, ids).tolist(), strict=True)
    steps = []
    for row, position, columns in zip(rows, positions, table, strict=True):
        first, *others = [Alternative(*values) for values in zip(*columns, strict=True)]
        steps.append(Choice(row, position, first, others))
    return steps
