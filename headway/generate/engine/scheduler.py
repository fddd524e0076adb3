"""The one decoding loop: prefill new sequences, generate one token of every running sequence."""

from __future__ import annotations

import torch

from headway.generate.accel.transfer import copy_to_device
from headway.generate.engine.runner import Runner
from headway.generate.engine.sequence import Batch, BatchSampler, Sample, Sequence
from headway.generate.trace import Choice


class Scheduler:
    """Drives a runner. `decode` calls `step` in the caller's thread, the engine in its own.

    Where a runner takes tokens that only the device knows, the next forward pass begins before the CPU looks at the
    tokens of this one: the device does not wait while tokens become text.
    """

    def __init__(self, runner: Runner, trace: list[Choice] | None = None) -> None:
        """`trace` is given every step's alternatives."""
        self.runner, self.trace = runner, trace
        self.sampler: BatchSampler | None = None

    def step(self, running: list[Sequence]) -> list[tuple[Sequence, Sample]]:
        """Samples for all sequences whose prompt is prefilled. The caller appends them with `Sequence.take`."""
        batches = []
        if started := [s for s in running if s.count]:
            batches.append(self._next(started))
        if new := [s for s in running if not s.count]:
            ready, logits = self.runner.prefill(new)
            if ready:
                batches.append(Batch.sampled(BatchSampler(ready), logits, self.trace))
        if self.runner.feeds:
            self._feed(batches)
        return [pair for batch in batches for pair in zip(batch.sequences, batch.samples(), strict=True)]

    def _next(self, sequences: list[Sequence]) -> Batch:
        """One token of sequences that have begun. Their sampler is kept for as long as they are the same."""
        if self.sampler is None or self.sampler.sequences != sequences:
            self.sampler = BatchSampler(sequences)
        only = self.sampler.argmax_only and self.trace is None
        if only and (tokens := self.runner.step_argmax(sequences)) is not None:
            return Batch.argmax(sequences, tokens)
        return Batch.sampled(self.sampler, self.runner.step(sequences), self.trace)

    def _feed(self, batches: list[Batch]) -> None:
        """Give the runner the tokens of all sequences that may go on."""
        going = [[i for i, s in enumerate(batch.sequences) if s.left > 1] for batch in batches]
        sequences = [batch.sequences[i] for batch, places in zip(batches, going, strict=True) for i in places]
        if not sequences:
            return
        if len(batches) == 1 and len(sequences) == len(batches[0].sequences):
            tokens = batches[0].tokens
        else:
            parts = zip(batches, going, strict=True)
            tokens = torch.cat([b.tokens[copy_to_device(places, b.tokens.device)] for b, places in parts])
        self.runner.feed(sequences, tokens)
