"""A sequence being generated, and how the next tokens of a batch of sequences are sampled.

Letters: B sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from headway.errors import DivergedError
from headway.generate.accel.transfer import copy_to_cpu
from headway.generate.detokenize import TextStream
from headway.generate.engine.request import Request
from headway.generate.grammar.grammar import Mask
from headway.generate.sampling.logits import apply_mask
from headway.generate.sampling.sampler import Sampler, Sampling
from headway.generate.trace import Choice, choices

Finish = Literal["stop", "length"]


@dataclass(eq=False, kw_only=True)
class Sequence:
    """The state of one sequence: its tokens, its settings, and what may end it."""

    tokens: list[int]
    """Prompt and new tokens."""
    sampling: Sampling
    """With a seed."""
    stop: tuple[int, ...]
    """Tokens that end the sequence."""
    left: int
    """New tokens that may still come."""
    stream: TextStream | None = None
    """None: tokens are not turned into text."""
    mask: Mask | None = None
    row: int = 0
    """The sequence's number in its batch, and its row of the mask."""
    source: list[int] | None = None
    """Tokens that the encoder reads; None without an encoder."""
    logprobs: bool = False
    """Whether to report the log-probability of each token."""
    top: int = 0
    """How many of the most probable tokens to report at each step."""
    count: int = 0
    """New tokens so far; 0 while the prompt is being prefilled."""
    begin: int = 0
    """First token that the model still sees."""
    slot: int = -1
    """Row of the KV cache; -1: none yet."""
    request: Request | None = None
    """The engine's request that the sequence answers; None in `decode`."""
    fault: Exception | None = None
    """What the mask raised. It ends this sequence alone."""

    @property
    def visible(self) -> list[int]:
        """The tokens that the model still sees."""
        return self.tokens[self.begin :]

    def slide(self, max_length: int | None) -> None:
        """Once more tokens are visible than the model can read, keep the last half of what it can read."""
        if max_length is not None and len(self.tokens) - self.begin > max_length:
            self.begin = len(self.tokens) - max(1, max_length // 2)

    def take(self, token: int | None) -> tuple[str, Finish | None]:
        """Append a token. Returns the text that is now certain, and why the sequence ends (None: it goes on)."""
        if token is None:
            return self._close(), "stop"
        self.tokens.append(token)
        self.count += 1
        self.left -= 1
        if token in self.stop:
            return self._close(), "stop"
        text = "" if self.stream is None else self.stream.push(token)
        if self.stream is not None and self.stream.stopped:
            return text, "stop"
        if not self.left:
            return text + self._close(), "length"
        if self.mask is not None:
            self.mask.accept(self.row, token)
        return text, None

    def _close(self) -> str:
        return "" if self.stream is None else self.stream.close()


@dataclass(frozen=True, slots=True)
class Sample:
    """The token sampled for a sequence; None where no token is possible."""

    token: int | None
    log_probability: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()
    broken: bool = False
    """Whether the logits were NaN."""


def diverged() -> DivergedError:
    return DivergedError("T001", "the model's logits are not numbers", "its weights are damaged, or too large")


class BatchSampler:
    """Samples the next tokens of some sequences, for as long as these sequences stay together."""

    def __init__(self, sequences: list[Sequence]) -> None:
        self.sequences = sequences
        sources = [s.source for s in sequences if s.source is not None]
        self.sampler = Sampler(
            [s.sampling for s in sequences], [s.tokens for s in sequences], [s.stop for s in sequences], sources or None
        )
        self.masked = any(s.mask is not None for s in sequences)
        self.logprobs = any(s.logprobs for s in sequences)
        self.argmax_only = self.sampler.argmax_only and not self.masked and not self.logprobs
        """Whether the most probable token is all that is asked for."""

    def __call__(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Processed logits (B, V), and tokens (B,), -1 where none is possible. Does not wait for the device."""
        counts = [s.count for s in self.sequences]
        if self.masked:
            everything = torch.ones(logits.shape[-1], dtype=torch.bool)
            found = [_allowed(s) for s in self.sequences]
            logits = apply_mask(logits, torch.stack([everything if m is None else m for m in found]).to(logits.device))
        processed = self.sampler.process(logits, counts)
        return processed, self.sampler.sample(processed, counts)


def _allowed(sequence: Sequence) -> Tensor | None:
    """The mask of a sequence. A mask that fails must not fail the others: the sequence's token is then not used."""
    try:
        return None if sequence.mask is None else sequence.mask.allowed(sequence.row)
    except Exception as error:
        sequence.fault = error
        return None


class Batch:
    """Tokens that were sampled for some sequences. Only the device knows them until `samples` copies them."""

    def __init__(self, sequences: list[Sequence], tokens: Tensor, samples: Callable[[], list[Sample]]) -> None:
        self.sequences, self.tokens, self.samples = sequences, tokens, samples

    @classmethod
    def argmax(cls, sequences: list[Sequence], tokens: Tensor) -> Batch:
        """The most probable tokens, which the step has found already; -1 where logits are NaN."""
        found = copy_to_cpu(tokens)
        return cls(sequences, tokens, lambda: [Sample(None if i < 0 else i, broken=i < 0) for i in found()])

    @classmethod
    def sampled(cls, sampler: BatchSampler, logits: Tensor, trace: list[Choice] | None) -> Batch:
        logits = logits.float()  # a copy if they are in half precision: the next step overwrites them
        processed, tokens = sampler(logits)
        samples = _report(sampler, logits, tokens)
        if trace is None:
            return cls(sampler.sequences, tokens, samples)
        return cls(sampler.sequences, tokens, lambda: _traced(sampler.sequences, logits, processed, samples(), trace))


def _traced(
    sequences: list[Sequence], logits: Tensor, processed: Tensor, samples: list[Sample], trace: list[Choice]
) -> list[Sample]:
    some = [i for i, sample in enumerate(samples) if sample.token is not None]
    chosen = torch.tensor([samples[i].token for i in some], dtype=torch.long, device=logits.device)
    rows, positions = [sequences[i].row for i in some], [sequences[i].count for i in some]
    trace += choices(logits[some], processed[some], chosen, rows, positions)
    return samples


def _report(sampler: BatchSampler, logits: Tensor, tokens: Tensor) -> Callable[[], list[Sample]]:
    """The samples, with log-probabilities if a sequence asks for them. The returned function waits for the device."""
    sequences, columns = sampler.sequences, [tokens[:, None]]
    top = min(max(s.top for s in sequences), logits.shape[1])
    if sampler.logprobs:
        best, total = logits.topk(top), logits.logsumexp(-1, keepdim=True)
        own = logits.gather(1, tokens.clamp(min=0)[:, None]) - total
        columns = [tokens[:, None].double(), own, best.indices, best.values - total]
    table = copy_to_cpu(torch.cat(columns, 1))

    def samples() -> list[Sample]:
        rows = enumerate(zip(sequences, table(), strict=True))
        return [_sample(sequence, row, top, logits, place) for place, (sequence, row) in rows]

    return samples


def _sample(sequence: Sequence, row: list[Any], top: int, logits: Tensor, place: int) -> Sample:
    if row[0] < 0:
        return Sample(None, broken=bool(logits[place].isnan().any()))
    if not sequence.logprobs:
        return Sample(int(row[0]))
    tokens, values = [int(i) for i in row[2 : 2 + top]], row[2 + top :]
    return Sample(int(row[0]), row[1], tuple(zip(tokens, values, strict=True))[: sequence.top])
