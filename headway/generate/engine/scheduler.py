"""What an engine does in a round: let requests in, read a chunk of prompts, write a token of every text.

Two ways. `Rounds` works with any model and device. `FastRounds` begins a step on the GPU before anybody has looked at
the tokens it reads, so that the device does not wait while texts are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from headway.generate.accel.base import FastDecoder
from headway.generate.accel.cuda.graphs import put, sent
from headway.generate.accel.cuda.ops import power_of_two
from headway.generate.engine.sequence import Choosing, Job, Pick, pick, report

if TYPE_CHECKING:
    from headway.generate.engine.engine import Engine

CHUNK, GPU_CHUNK = 256, 2048
"""Tokens of prompts that are read in a round, where the caller does not say."""
GATHER, PATIENCE = 16, 16
"""With fast decoding, prompts wait until a sixteenth of the slots is free, or so many rounds with a free one."""


class Rounds:
    """Every text is advanced by one pass through the model."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.cache = engine, engine.cache

    def run(self) -> None:
        batch = [job for job in self.engine.jobs if not job.count]
        while (job := self.engine.let_in(lambda job: self._room(job, batch))) is not None:
            batch.append(job)
        if batch:
            self._advance(batch, [job.slot for job in batch])
        self._write([job for job in self.engine.jobs if job.count])

    def _room(self, job: Job, batch: list[Job]) -> bool:
        """A chunk of one long prompt, or several short ones side by side, padded to the longest of them."""
        unread = [len(job.text), *map(self.unread, batch)]
        return not batch or len(unread) * min(self.engine.chunk, max(unread)) <= self.engine.chunk

    def unread(self, job: Job) -> int:
        return len(job.text) - len(self.cache.texts[job.slot])

    def _write(self, jobs: list[Job]) -> None:
        """One more token of every text."""
        if not jobs:
            return
        slots, moves = self.cache.gather(min(len(self.cache), power_of_two(len(self.engine.jobs))))
        for job in self.engine.jobs:
            job.slot = moves.get(job.slot, job.slot)
        self._advance(jobs, slots)

    def _advance(self, jobs: list[Job], slots: Sequence[int]) -> None:
        """Read on, and write where all is read; if that fails, each alone, so that only those fail who must."""
        held = [len(self.cache.texts[job.slot]) for job in jobs]
        try:
            chosen = self._pass(jobs, slots)
        except Exception as error:
            for job, count in zip(jobs, held, strict=True):
                self.cache.cut(job.slot, count)
            if len(jobs) == 1:
                self.engine.fault(error)
                self.engine.end(jobs[0], "error", error)
            for job in jobs if len(jobs) > 1 else ():
                self._advance([job], [job.slot])
            return
        self.engine.take(chosen)

    def _pass(self, jobs: list[Job], slots: Sequence[int]) -> list[tuple[Job, Pick]]:
        """Through the model, computed for `slots`; what is chosen for those jobs that have read all they have."""
        new = {job.slot: job.text[len(self.cache.texts[job.slot]) :][: self.engine.chunk] for job in jobs}
        step = self.cache.step(new, slots)
        scores = self.engine.model.step(step, step.ids)
        self.engine.read += sum(len(new[job.slot]) for job in jobs if not job.count)
        ready = [job for job in jobs if not self.unread(job)]
        if not ready:
            return []
        places = [slots.index(job.slot) for job in ready]
        return list(zip(ready, pick(ready, scores[places]), strict=True))


class _Chosen:
    """Tokens that the device has chosen for some jobs, and how to look at them."""

    def __init__(self, jobs: list[Job], tokens: Tensor, look: Callable[[], list[Pick]]) -> None:
        self.jobs, self.tokens, self.look = jobs, tokens, look

    @classmethod
    def of(cls, choosing: Choosing, scores: Tensor) -> _Chosen:
        scores = scores.float()  # a copy: the next step takes the place of them
        tokens = choosing(scores)
        return cls(choosing.jobs, tokens, report(choosing.jobs, scores, tokens))

    @classmethod
    def best(cls, jobs: list[Job], tokens: Tensor) -> _Chosen:
        """The best ones, which the step has found already; -1 where scores are no numbers."""
        found = sent(tokens)
        return cls(jobs, tokens, lambda: [Pick(None if i < 0 else i, None, (), i < 0) for i in found()])


class _Begun(NamedTuple):
    """A step on its way: its texts, their slots on the device, and the scores of all slots it will have.

    A CPU has nothing to begin: it takes the step when the scores are wanted.
    """

    choosing: Choosing
    slots: Tensor
    scores: Tensor | None


class FastRounds(Rounds):
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
            picks = one.look()
            for job, found in zip(one.jobs, picks, strict=True):
                if found.token is not None and job.left > 1:  # it is being read by now
                    self.cache.texts[job.slot].append(found.token)
            self.engine.take(list(zip(one.jobs, picks, strict=True)))

    def _written(self) -> _Chosen | None:
        """What the step on its way will have for those texts that have not ended since."""
        if self.begun is None:
            return None
        choosing, slots, begun = self.begun
        now = set(self.engine.jobs)
        ready = [job for job in choosing.jobs if job in now]
        if len(ready) < len(choosing.jobs):
            choosing, slots = Choosing(ready), put([job.slot for job in ready], slots.device)
        if not ready:
            return None
        scores = self.fast.step([job.slot for job in ready]) if begun is None else begun
        if choosing.bare:
            return _Chosen.best(ready, self.fast.best[slots])
        return _Chosen.of(choosing, scores[slots])

    def _prompts(self) -> _Chosen | None:
        """Read prompts; what is chosen for those that are read to their end."""
        batch = [job for job in self.engine.jobs if not job.count]
        if batch or not self._gathering():
            while (job := self.engine.let_in(lambda job: self._room(job, batch))) is not None:
                batch.append(job)
        self.prefilled = bool(batch)
        if not batch:
            return None
        new = {job.slot: job.text[len(self.cache.texts[job.slot]) :][: self.engine.chunk] for job in batch}
        scores = self.fast.read({slot: (len(self.cache.texts[slot]), tokens) for slot, tokens in new.items()})
        for slot, tokens in new.items():
            self.cache.texts[slot] += tokens
            self.engine.read += len(tokens)
        places = [place for place, job in enumerate(batch) if not self.unread(job)]
        read = Choosing([batch[i] for i in places])
        return _Chosen.of(read, scores[put(places, scores.device)]) if places else None

    def _room(self, job: Job, batch: list[Job]) -> bool:
        """Prompts are read without padding."""
        return not batch or len(job.text) + sum(map(self.unread, batch)) <= self.engine.chunk

    def _gathering(self) -> bool:
        """Whether to wait a little for more slots to be free: to read one prompt takes as long as to read a few."""
        free = len(self.cache) - len(self.cache.taken)
        enough = free >= len(self.cache) // GATHER or not self.engine.jobs or self.waited >= PATIENCE
        self.waited = 0 if enough else self.waited + bool(free and self.engine.waiting)
        return not enough

    def _begin(self, chosen: list[_Chosen]) -> None:
        """The next step of all texts that go on, with tokens that only the device knows as yet."""
        going = [[place for place, job in enumerate(one.jobs) if job.left > 1] for one in chosen]
        jobs = [one.jobs[place] for one, places in zip(chosen, going, strict=True) for place in places]
        if not jobs:
            self.begun = None
            return
        device = self.fast.ids.device
        same = self.begun is not None and jobs == self.begun.choosing.jobs
        if self.begun is not None and same and not self.prefilled:  # as before: all has moved on by itself
            choosing, slots, tokens = self.begun.choosing, self.begun.slots, chosen[0].tokens
        else:
            choosing, slots = Choosing(jobs), put([job.slot for job in jobs], device)
            tokens = torch.cat([one.tokens[put(places, device)] for one, places in zip(chosen, going, strict=True)])
            self.fast.end.copy_(put([len(text) for text in self.cache.texts], device))
        self.fast.ids[slots] = tokens.clamp(min=0)
        self.begun = _Begun(choosing, slots, self.fast.step() if self.fast.early else None)
