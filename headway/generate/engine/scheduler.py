"""What an engine does in a round: let requests in, read a chunk of prompts, write a token of every text.

Two ways. `Scheduler` works with any model and device. `FastScheduler` begins a step on the GPU before anybody has
looked at the tokens it reads, so that the device does not wait while texts are put together.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Places
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from headway.generate.accel.base import FastDecoder
from headway.generate.accel.cuda.graphs import copy_to_cpu, copy_to_device
from headway.generate.accel.cuda.ops import power_of_two
from headway.generate.engine.sequence import BatchSampler, Sample, Sequence, report, sample_tokens

if TYPE_CHECKING:
    from headway.generate.engine.engine import Engine

CHUNK, CUDA_CHUNK = 256, 2048
"""Tokens of prompts that are read in a round, where the caller does not say."""
GATHER, PATIENCE = 16, 16
"""With fast decoding, prompts wait until a sixteenth of the slots is free, or so many rounds with a free one."""


class Scheduler:
    """Every text is advanced by one pass through the model."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.cache = engine, engine.cache

    def run(self) -> None:
        batch = [sequence for sequence in self.engine.sequences if not sequence.count]
        while (sequence := self.engine.let_in(lambda sequence: self._room(sequence, batch))) is not None:
            batch.append(sequence)
        if batch:
            self._advance(batch, [sequence.slot for sequence in batch])
        self._write([sequence for sequence in self.engine.sequences if sequence.count])

    def _room(self, sequence: Sequence, batch: list[Sequence]) -> bool:
        """A chunk of one long prompt, or several short ones side by side, padded to the longest of them."""
        unread = [len(sequence.text), *map(self.unread, batch)]
        return not batch or len(unread) * min(self.engine.chunk, max(unread)) <= self.engine.chunk

    def unread(self, sequence: Sequence) -> int:
        return len(sequence.text) - len(self.cache.texts[sequence.slot])

    def _write(self, sequences: list[Sequence]) -> None:
        """One more token of every text."""
        if not sequences:
            return
        slots, moves = self.cache.gather(min(len(self.cache), power_of_two(len(self.engine.sequences))))
        for sequence in self.engine.sequences:
            sequence.slot = moves.get(sequence.slot, sequence.slot)
        self._advance(sequences, slots)

    def _advance(self, sequences: list[Sequence], slots: Places[int]) -> None:
        """Read on, and write where all is read; if that fails, each alone, so that only those fail who must."""
        held = [len(self.cache.texts[sequence.slot]) for sequence in sequences]
        try:
            chosen = self._pass(sequences, slots)
        except Exception as error:
            for sequence, count in zip(sequences, held, strict=True):
                self.cache.cut(sequence.slot, count)
            if len(sequences) == 1:
                self.engine.fault(error)
                self.engine.end(sequences[0], "error", error)
            for sequence in sequences if len(sequences) > 1 else ():
                self._advance([sequence], [sequence.slot])
            return
        self.engine.take(chosen)

    def _pass(self, sequences: list[Sequence], slots: Places[int]) -> list[tuple[Sequence, Sample]]:
        """Through the model, computed for `slots`; what is chosen for those jobs that have read all they have."""
        new = {
            sequence.slot: sequence.text[len(self.cache.texts[sequence.slot]) :][: self.engine.chunk]
            for sequence in sequences
        }
        step = self.cache.step(new, slots)
        logits = self.engine.model.step(step, step.ids)
        self.engine.read += sum(len(new[sequence.slot]) for sequence in sequences if not sequence.count)
        ready = [sequence for sequence in sequences if not self.unread(sequence)]
        if not ready:
            return []
        places = [slots.index(sequence.slot) for sequence in ready]
        return list(zip(ready, sample_tokens(ready, logits[places]), strict=True))


class _Chosen:
    """Tokens that the device has chosen for some jobs, and how to look at them."""

    def __init__(self, sequences: list[Sequence], tokens: Tensor, look: Callable[[], list[Sample]]) -> None:
        self.sequences, self.tokens, self.look = sequences, tokens, look

    @classmethod
    def of(cls, choosing: BatchSampler, logits: Tensor) -> _Chosen:
        logits = logits.float()  # a copy: the next step takes the place of them
        tokens = choosing(logits)
        return cls(choosing.sequences, tokens, report(choosing.sequences, logits, tokens))

    @classmethod
    def best(cls, sequences: list[Sequence], tokens: Tensor) -> _Chosen:
        """The best ones, which the step has found already; -1 where scores are no numbers."""
        found = copy_to_cpu(tokens)
        return cls(sequences, tokens, lambda: [Sample(None if i < 0 else i, None, (), i < 0) for i in found()])


class _Begun(NamedTuple):
    """A step on its way: its texts, their slots on the device, and the scores of all slots it will have.

    A CPU has nothing to begin: it takes the step when the scores are wanted.
    """

    choosing: BatchSampler
    slots: Tensor
    logits: Tensor | None


class FastScheduler(Scheduler):
    """A round ends with the next step on its way."""

    def __init__(self, engine: Engine, fast: FastDecoder) -> None:
        super().__init__(engine)
        self.fast = fast
        self.begun: _Begun | None = None
        self.prefilled = False
        """Whether this round has read prompts: the lengths of their slots are then not what the last step left."""
        self.waited = 0

    def run(self) -> None:
        chosen = [one for one in (self._written(), self._prompts()) if one is not None]
        self._begin(chosen)
        for one in chosen:
            samples = one.look()
            for sequence, found in zip(one.sequences, samples, strict=True):
                if found.token is not None and sequence.left > 1:  # it is being read by now
                    self.cache.texts[sequence.slot].append(found.token)
            self.engine.take(list(zip(one.sequences, samples, strict=True)))

    def _written(self) -> _Chosen | None:
        """What the step on its way will have for those texts that have not ended since."""
        if self.begun is None:
            return None
        choosing, slots, begun = self.begun
        now = set(self.engine.sequences)
        ready = [sequence for sequence in choosing.sequences if sequence in now]
        if len(ready) < len(choosing.sequences):
            choosing, slots = BatchSampler(ready), copy_to_device([sequence.slot for sequence in ready], slots.device)
        if not ready:
            return None
        logits = self.fast.step([sequence.slot for sequence in ready]) if begun is None else begun
        if choosing.argmax_only:
            return _Chosen.best(ready, self.fast.best[slots])
        return _Chosen.of(choosing, logits[slots])

    def _prompts(self) -> _Chosen | None:
        """Read prompts; what is chosen for those that are read to their end."""
        batch = [sequence for sequence in self.engine.sequences if not sequence.count]
        if batch or not self._gathering():
            while (sequence := self.engine.let_in(lambda sequence: self._room(sequence, batch))) is not None:
                batch.append(sequence)
        self.prefilled = bool(batch)
        if not batch:
            return None
        new = {
            sequence.slot: sequence.text[len(self.cache.texts[sequence.slot]) :][: self.engine.chunk]
            for sequence in batch
        }
        logits = self.fast.prefill({slot: (len(self.cache.texts[slot]), tokens) for slot, tokens in new.items()})
        for slot, tokens in new.items():
            self.cache.texts[slot] += tokens
            self.engine.read += len(tokens)
        places = [place for place, sequence in enumerate(batch) if not self.unread(sequence)]
        read = BatchSampler([batch[i] for i in places])
        return _Chosen.of(read, logits[copy_to_device(places, logits.device)]) if places else None

    def _room(self, sequence: Sequence, batch: list[Sequence]) -> bool:
        """Prompts are read without padding."""
        return not batch or len(sequence.text) + sum(map(self.unread, batch)) <= self.engine.chunk

    def _gathering(self) -> bool:
        """Whether to wait a little for more slots to be free: to read one prompt takes as long as to read a few."""
        free = len(self.cache) - len(self.cache.taken)
        enough = free >= len(self.cache) // GATHER or not self.engine.sequences or self.waited >= PATIENCE
        self.waited = 0 if enough else self.waited + bool(free and self.engine.waiting)
        return not enough

    def _begin(self, chosen: list[_Chosen]) -> None:
        """The next step of all texts that go on, with tokens that only the device knows as yet."""
        going = [[place for place, sequence in enumerate(one.sequences) if sequence.left > 1] for one in chosen]
        sequences = [one.sequences[place] for one, places in zip(chosen, going, strict=True) for place in places]
        if not sequences:
            self.begun = None
            return
        device = self.fast.ids.device
        same = self.begun is not None and sequences == self.begun.choosing.sequences
        if self.begun is not None and same and not self.prefilled:  # as before: all has moved on by itself
            choosing, slots, tokens = self.begun.choosing, self.begun.slots, chosen[0].tokens
        else:
            choosing, slots = BatchSampler(sequences), copy_to_device([sequence.slot for sequence in sequences], device)
            tokens = torch.cat(
                [one.tokens[copy_to_device(places, device)] for one, places in zip(chosen, going, strict=True)]
            )
            self.fast.end.copy_(copy_to_device([len(text) for text in self.cache.texts], device))
        self.fast.ids[slots] = tokens.clamp(min=0)
        self.begun = _Begun(choosing, slots, self.fast.step() if self.fast.runs_ahead else None)
