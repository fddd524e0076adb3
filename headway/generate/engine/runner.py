"""Runners: how a batch of sequences goes through a model, eagerly or by kernels.

Letters: B sequences, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

import torch
from torch import Tensor

from headway.generate.accel.base import FastDecoder
from headway.generate.accel.cuda.ops import power_of_two
from headway.generate.accel.dispatch import acquire, release
from headway.generate.accel.transfer import copy_to_device
from headway.generate.engine.sequence import Sequence
from headway.generate.engine.slot_cache import SlotCache, common_prefix
from headway.generate.protocol import Decoder, S, Source, device_of, prefill
from headway.model.model import Model, Transformer

Prefilled = tuple[list[Sequence], Tensor]


class Runner(ABC):
    """Computes logits. A sequence is prefilled once, then stepped token by token."""

    feeds = False
    """Whether `feed` hands over the tokens of the next step before the CPU has seen them."""
    padded = True
    """Whether prompts that are prefilled together are padded to the longest of them."""

    @abstractmethod
    def prefill(self, sequences: list[Sequence]) -> Prefilled:
        """Run prompts through the model: the sequences whose prompt is complete now, and their logits (B, V)."""

    @abstractmethod
    def step(self, sequences: list[Sequence]) -> Tensor:
        """Logits (B, V) after the last token of each sequence."""

    def step_argmax(self, sequences: list[Sequence]) -> Tensor | None:
        """A step of which only the most probable tokens (B,) are wanted, -1 for NaN; None: use `step`."""
        return None

    def feed(self, sequences: list[Sequence], tokens: Tensor) -> None:
        """Give the next step its tokens (B,), which may be known to the device alone."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027
        """Release what the runner holds; most hold nothing."""


def fit_window(sequences: list[Sequence], max_length: int | None) -> tuple[int, int]:
    """Tokens of the longest sequence, and the size of the KV cache: the visible tokens plus what may be generated.

    Sequences longer than the model's context are prefilled again from their second half.
    """
    for sequence in sequences:
        sequence.slide(max_length)
    longest = max(len(sequence.visible) for sequence in sequences)
    capacity = longest + max(sequence.left for sequence in sequences)
    return longest, capacity if max_length is None else min(capacity, max_length)


class EagerRunner(Runner, Generic[S]):
    """Any decoder, with one state for the batch. Starts over when a sequence outgrows the model's context."""

    def __init__(self, model: Decoder[S], source: Source | None = None) -> None:
        self.model, self.source, self.device = model, source, device_of(model)
        self.rows: list[Sequence] = []
        """The sequences in the state; some may have ended."""
        self.state: S | None = None
        self.used = self.capacity = 0

    def prefill(self, sequences: list[Sequence]) -> Prefilled:
        self.rows = list(sequences)
        self.used, self.capacity = fit_window(sequences, self.model.config.max_length)
        source = None if self.source is None else self.source.take([s.row for s in sequences])
        state, logits = prefill(self.model, [s.visible for s in sequences], source, self.capacity)
        self.state = state
        return sequences, logits

    def step(self, sequences: list[Sequence]) -> Tensor:
        if self.state is None or self.used == self.capacity:
            return self.prefill(sequences)[1]
        if 2 * len(sequences) <= len(self.rows):  # copying costs too: not for each sequence that ends
            self.state = self.model.reorder(self.state, torch.tensor(self._places(sequences), device=self.device))
            self.rows = list(sequences)
        ids = torch.tensor([[s.tokens[-1]] for s in self.rows], device=self.device)
        self.used += 1
        logits = self.model.step(self.state, ids)
        if len(sequences) == len(self.rows):
            return logits
        return logits[copy_to_device(self._places(sequences), self.device)]

    def _places(self, sequences: list[Sequence]) -> list[int]:
        return [self.rows.index(sequence) for sequence in sequences]


class SlotRunner(Runner):
    """A transformer over a slot cache, for the engine."""

    def __init__(self, model: Model, cache: SlotCache, running: list[Sequence], chunk: int) -> None:
        """`running` has every sequence with a slot: a step may move them. A prompt is prefilled `chunk` by chunk."""
        self.model, self.cache, self.running, self.chunk = model, cache, running, chunk

    def prefill(self, sequences: list[Sequence]) -> Prefilled:
        return self._forward(sequences, [s.slot for s in sequences])

    def step(self, sequences: list[Sequence]) -> Tensor:
        slots, moves = self.cache.gather(min(len(self.cache), power_of_two(len(self.running))))
        for sequence in self.running:
            sequence.slot = moves.get(sequence.slot, sequence.slot)
        return self._forward(sequences, slots)[1]

    def _forward(self, sequences: list[Sequence], slots: list[int] | range) -> Prefilled:
        held = self.cache.tokens
        step = self.cache.step({s.slot: s.tokens[len(held[s.slot]) :][: self.chunk] for s in sequences}, slots)
        logits = self.model.step(step, step.ids)
        ready = [s for s in sequences if len(held[s.slot]) == len(s.tokens)]
        return ready, logits[[slots.index(s.slot) for s in ready]]


class AcceleratedRunner(Runner):
    """Kernels over slots. A GPU begins the next step before the CPU has seen its tokens; a CPU when asked for it."""

    feeds = True
    padded = False

    def __init__(self, fast: FastDecoder, held: list[list[int]], chunk: int | None = None) -> None:
        """`held` are the tokens whose keys and values are in each slot."""
        self.fast, self.held, self.chunk = fast, held, chunk
        self._fed: list[Sequence] = []
        self._lengths_known = False
        """Whether the decoder's `end` is right for the fed sequences; it moves on by itself while they are the same."""
        self._logits: Tensor | None = None
        """Logits of the step that has begun."""
        self._index: tuple[list[int], Tensor | slice] = ([], slice(0))
        """The slots of the last step, and the index of their rows on the device."""

    def prefill(self, sequences: list[Sequence]) -> Prefilled:
        held = self.held
        new = {s.slot: s.visible[len(held[s.slot]) :][: self.chunk] for s in sequences}
        logits = self.fast.prefill({slot: (len(held[slot]), tokens) for slot, tokens in new.items()})
        for slot, tokens in new.items():
            held[slot] += tokens
        self._lengths_known = False
        ready = [i for i, s in enumerate(sequences) if len(held[s.slot]) == len(s.tokens) - s.begin]
        if len(ready) < len(sequences):
            logits = logits[copy_to_device(ready, logits.device)]
        return [sequences[i] for i in ready], logits

    def step(self, sequences: list[Sequence]) -> Tensor:
        logits = self._step(sequences)
        return logits[self._rows(sequences)]

    def step_argmax(self, sequences: list[Sequence]) -> Tensor | None:
        """Without a copy of the logits, which are large."""
        self._step(sequences)
        return self.fast.argmax[self._rows(sequences)]

    def _step(self, sequences: list[Sequence]) -> Tensor:
        """Logits of all slots."""
        logits = self.fast.step([s.slot for s in sequences]) if self._logits is None else self._logits
        for sequence in sequences:
            self.held[sequence.slot].append(sequence.tokens[-1])
        return logits

    def feed(self, sequences: list[Sequence], tokens: Tensor) -> None:
        rows = self._rows(sequences)
        if not self._lengths_known or sequences != self._fed:
            self.fast.end.copy_(copy_to_device([len(tokens) for tokens in self.held], self.fast.ids.device))
            self._fed, self._lengths_known = sequences, True
        self.fast.ids[rows] = tokens.clamp(min=0)
        self._logits = self.fast.step() if self.fast.runs_ahead else None

    def _rows(self, sequences: list[Sequence]) -> Tensor | slice:
        """The rows of some sequences on the device; copied there only when they are others than before."""
        slots = [s.slot for s in sequences]
        if slots != self._index[0]:
            whole = slots == [*range(len(self.held))]
            self._index = slots, slice(None) if whole else copy_to_device(slots, self.fast.ids.device)
        return self._index[1]


class BatchRunner(AcceleratedRunner):
    """Kernels for one batch of `decode`, with a decoder that is kept from one batch to the next."""

    def __init__(self, model: Transformer, *, reuse: bool) -> None:
        """`reuse`: what the decoder still holds of a prompt's beginning is not prefilled again."""
        self.model, self.reuse = model, reuse
        self.decoder: FastDecoder | None = None
        self.used = self.capacity = 0

    def prefill(self, sequences: list[Sequence]) -> Prefilled:
        self.close()
        self.used, self.capacity = fit_window(sequences, self.model.config.max_length)
        self.decoder = acquire(self.model, len(sequences), self.capacity)
        super().__init__(self.decoder, self.decoder.held)
        for slot, (sequence, held) in enumerate(zip(sequences, self.held, strict=True)):
            visible = sequence.visible
            sequence.slot = slot
            del held[min(common_prefix(held, visible), len(visible) - 1) if self.reuse else 0 :]
        return super().prefill(sequences)

    def step(self, sequences: list[Sequence]) -> Tensor:
        return self.prefill(sequences)[1] if self._outgrown else super().step(sequences)

    def step_argmax(self, sequences: list[Sequence]) -> Tensor | None:
        return None if self._outgrown else super().step_argmax(sequences)

    @property
    def _outgrown(self) -> bool:
        """Whether the KV cache was full: sequences are prefilled again."""
        return self._logits is None and not self._lengths_known

    def feed(self, sequences: list[Sequence], tokens: Tensor) -> None:
        if self.used == self.capacity:
            self._logits, self._lengths_known = None, False
            return
        self.used += 1
        super().feed(sequences, tokens)

    def close(self) -> None:
        if self.decoder is not None:
            release(self.decoder)
            self.decoder = None
