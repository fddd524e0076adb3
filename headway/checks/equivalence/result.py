"""The result of a check, and the comparison of two tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""The largest allowed difference, relative to the largest logit or to 1, whichever is larger."""


MEANINGS = {
    "right padding = none": "padding after a text changes nothing",
    "left padding = none": "padding before a text changes nothing",
    "batch = single": "a text in a batch gives what it gives alone",
    "probabilities sum to 1": "the tables of an n-gram model give each token its share, and no more",
    "packed = separate": "texts that share a row do not see each other",
    "cached = uncached": "the KV cache changes nothing",
    "reordered = fresh": "sequences may change places in the KV cache",
    "fast decoder = step": "accelerated kernels give the model's own logits",
    "decoded = recomputed": "generated tokens are those of a full pass over the text",
    "engine = alone": "sequences that are generated together do not mix",
    "prefix cache = fresh": "a prompt with a known beginning is read as if it were new",
    "speculative = plain": "a draft model changes the time, not the text",
    "scored = recomputed": "log-probabilities are those of a full pass",
    "outgrown = last half": "a text longer than the context goes on from its last half",
    "beam readers = step": "every path of a beam search gives the model's own logits",
    "beams = reference": "beam search finds what a simple search finds",
    "int8 alone = together": "int8 logits do not depend on the batch",
    "chat held = fresh": "a conversation in the KV cache is as if read anew",
    "segments matter": "the second text of a pair is told from the first",
    "spare rows closed": "rows that round up the vocabulary are never predicted or saved",
    "sorted = one by one": "experts compute the tokens that are routed to them, and no others",
    "LoRA merged = beside": "an adapter gives the same merged and beside its matrix",
    "near pairs = dense": "attention over near nodes is attention over all of them with a mask",
    "padded = unpadded": "empty memories and words of padding change nothing",
    "sentences = words": "sentences embedded together are sums over their words, one by one",
    "hops sum to 1": "a hop spreads its attention over the sentences of the story, and over nothing else",
    "kernels = plain": "a step by kernels is the step of the definition",
    "batches = plain": "losses in batches are those of one prediction after the other",
    "exported = loaded": "vectors in a file are the same when they are read",
    "maps = eager weights": "attention maps show the weights that were used",
    "saved = loaded": "a saved model is the same when it is loaded",
    "tied = one matrix": "tied matrices stay one matrix",
    "compiled = eager": "torch.compile changes nothing",
    "accumulated = whole": "gradient accumulation changes nothing",
    "resumed = straight": "a resumed run ends in the same bits",
    "any workers = none": "data.workers changes no batch",
    "NaN noticed at once": "a step with NaN does not touch the weights",
}
"""Name of a check → what holds if it passes."""


class Outcome(NamedTuple):
    """What a check found."""

    difference: float | None
    """The largest absolute difference; None if the check does not apply, and `note` says why."""
    limit: float = 0.0
    note: str = ""


def skip(note: str) -> Outcome:
    """The outcome of a check that does not apply."""
    return Outcome(None, note=note)


@dataclass(frozen=True)
class CheckResult:
    """One line of the table that `headway check` prints: an outcome with its name."""

    name: str
    difference: float | None
    limit: float = 0.0
    note: str = ""

    @property
    def means(self) -> str:
        """What holds if the check passes."""
        return MEANINGS[self.name.rpartition(": ")[2]]  # a tower's name may stand before it

    @property
    def ok(self) -> bool:
        return self.difference is None or self.difference <= self.limit


def max_difference(a: Tensor, b: Tensor) -> float:
    """The largest absolute difference; infinite if there is a NaN."""
    difference = (a.double().cpu() - b.double().cpu()).abs()
    if difference.numel() == 0:
        return 0.0
    return float("inf") if difference.isnan().any() else float(difference.max())
