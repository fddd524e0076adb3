"""A trace of decoding, step by step, as plain data: `dataclasses.asdict` turns it into JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

ALTERNATIVES = 5
"""Tokens shown beside the sampled one."""


@dataclass(frozen=True)
class Alternative:
    """A token that could have come next."""

    token: int
    probability: float
    """By the model's own logits."""
    share: float
    """After penalties, temperature and filters: what was sampled from."""


@dataclass(frozen=True)
class Choice:
    """One step of one sequence."""

    row: int
    position: int
    """New tokens before this one."""
    chosen: Alternative
    best: list[Alternative]
    """The most probable tokens by the model's own logits, best first."""


@dataclass(frozen=True)
class Branch:
    """A beam after a step: its parent beam, its new token, and the log-probability of all its tokens."""

    parent: int
    token: int
    score: float


@dataclass(frozen=True)
class Growth:
    """One step of one input's beam search."""

    input: int
    step: int
    beams: list[Branch]
    """Beams that go on. The next step's `parent` is an index into this list."""
    ended: list[Branch]
    """Beams that ended here, with their final scores."""


@dataclass(frozen=True)
class Node:
    """A token in the tree of a beam search."""

    token: int
    score: float
    ended: bool
    next: list[Node] = field(default_factory=list)
    """The tokens that followed; empty where a hypothesis ended or was dropped."""


def tree(steps: Sequence[Growth]) -> list[Node]:
    """The tree of one input's beams: its first tokens, each with all that followed."""
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
    """One step of several sequences, from logits (B, V) before and after processing and the sampled tokens (B,)."""
    model, drawn = logits.float().softmax(-1), processed.float().softmax(-1)
    best = model.topk(min(ALTERNATIVES, model.shape[-1])).indices
    ids = torch.cat([chosen[:, None], best], 1)  # B 1+N
    table = zip(ids.tolist(), model.gather(1, ids).tolist(), drawn.gather(1, ids).tolist(), strict=True)
    steps = []
    for row, position, columns in zip(rows, positions, table, strict=True):
        first, *others = [Alternative(*values) for values in zip(*columns, strict=True)]
        steps.append(Choice(row, position, first, others))
    return steps
