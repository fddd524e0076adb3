"""Continuous batching: requests come at any time and are answered together, each as if it were alone.

A round reads a chunk of waiting prompts, and then writes one token of every text: a long prompt holds up the others by
no more than a chunk. No HTTP here: `submit` a request and listen to its ticket.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from headway.errors import ConfigError, DataError, DivergedError, MemoryOrDiskError
from headway.generate.accel.dispatch import accelerates, make_decoder
from headway.generate.accel.snapshot import Snapshot
from headway.generate.detokenize import Detokenizer, TextStream
from headway.generate.engine.request import Event, Finish, Request
from headway.generate.engine.scheduler import CHUNK, CUDA_CHUNK, FastScheduler, Scheduler
from headway.generate.engine.sequence import Sample, Sequence
from headway.generate.engine.slot_cache import SlotCache
from headway.generate.protocol import device_of
from headway.model.model import Model

__all__ = ["Closed", "Engine", "Event", "QueueFull", "Request", "Stats"]

CAPACITY = 2048
"""Tokens of a text, prompt included, where neither the caller nor the model has a limit."""
RECENT = 10.0
"""Seconds over which the speed is taken."""
COMPARED = 1.0
"""Seconds between two looks, while texts are written, whether the model's weights have changed."""
FAILURES = 3
"""Passes that fail one after another before the engine counts as broken; and faults of fast decoding in all before the
engine does without it for good."""


class QueueFull(Exception):
    """Too many requests wait already: try again later."""


class Closed(Exception):
    """The engine takes no more requests."""


@dataclass(frozen=True)
class Stats:
    """What an engine is doing, and what it has done so far."""

    running: int
    """Texts being read or written."""
    waiting: int
    slots: int
    used: int
    """Slots taken: one for each running text."""
    tokens_per_second: float
    """Written lately."""
    read: int
    """Tokens of prompts."""
    written: int
    prefix_hits: int
    """Prompts that began like a text which was still in a slot."""
    prefix_tokens: int
    """Tokens of prompts that were not read for that reason."""
    finished: dict[str, int]
    """Why texts ended → how many."""


class Engine:
    """Only one thread calls `step`: that of `start`, or without it the caller's. The rest is for any thread."""

    def __init__(
        self,
        model: Model,
        tokenizer: Detokenizer,
        *,
        slots: int = 8,
        capacity: int | None = None,
        chunk: int | None = None,
        queue: int = 64,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """For `slots` texts at a time of up to `capacity` tokens, with up to `queue` requests waiting."""
        room = model.config.max_length
        self.capacity = capacity if capacity is not None else room or CAPACITY
        quick = accelerates(model, slots)
        if chunk is None:
            chunk = CUDA_CHUNK if quick and device_of(model).type == "cuda" else CHUNK
        for name, value in (("slots", slots), ("capacity", self.capacity), ("chunk", chunk), ("queue", queue)):
            if value < 1:
                raise ConfigError("C003", f"{name} = {value} should be at least 1")
        if room is not None and self.capacity > room:
            raise ConfigError("C003", f"capacity = {self.capacity}, but the model reads at most {room} tokens")
        self.model, self.tokenizer, self.chunk, self.queue, self.clock = model, tokenizer, chunk, queue, clock
        self.cache = _allocate(model, slots, self.capacity)
        self.waiting: deque[Sequence] = deque()
        self.sequences: list[Sequence] = []
        """Those that have a slot, in the order they came."""
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._open, self._stop = True, False
        self.failures = 0
        """Passes that failed, one after another, whatever the error."""
        self.faults = 0
        """All of them, since the beginning."""
        self._last_error = ""
        """The type of the last one: a message might hold what is nobody's business."""
        self._since: float | None = None
        """When the round began that the thread is in."""
        self.read = self._written = self._hits = self._reused = 0
        self._finished: Counter[str] = Counter()
        self._recent: deque[tuple[float, int]] = deque()
        """When rounds began, and how many tokens had been written by then."""
        self.fast = make_decoder(model, self.cache.keys, self.cache.values) if quick else None
        """None where there are no kernels, or where they failed too often."""
        self._fast_faults = 0
        self.scheduler = Scheduler(self) if self.fast is None else FastScheduler(self, self.fast)
        self._weights, self._compared = Snapshot(model), -math.inf

    def submit(self, request: Request, on_event: Callable[[Event], None] | None = None) -> Request:
        """Queue a request. DataError where it can never be answered, QueueFull or Closed where it cannot be now."""
        sequence = self._sequence(request, on_event)
        with self._wake:
            if not self._open:
                raise Closed("the engine takes no more requests")
            if len(self.waiting) >= self.queue:
                raise QueueFull(f"{len(self.waiting)} requests are waiting, which is the limit")
            self.waiting.append(sequence)
            self._wake.notify()
        return sequence.request

    @torch.no_grad()
    def step(self) -> bool:
        """One round: let requests in, read a chunk of prompts, write a token of each text. False if there is none."""
        try:
            return self._round()
        except Exception as error:  # our own mistake; but nobody shall wait for ever because of it
            self.fault(error)
            for sequence in self._everyone():
                self.end(sequence, "error", error)
            return True

    def start(self) -> None:
        """Work in a thread of its own from now on."""
        with self._wake:
            if not self._open:
                raise Closed("the engine takes no more requests")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headway-engine", daemon=True)
                self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread is there, and not everything it does fails."""
        return not self.trouble

    @property
    def trouble(self) -> str:
        """Why it is not alive; empty where it is."""
        if self._thread is None or not self._thread.is_alive():
            return "the engine does not run"
        if self.failures >= FAILURES:
            return f"{self.failures} passes failed one after another, the last with {self._last_error}"
        return ""

    def step_seconds(self) -> float:
        """How long the round takes that the thread is in: who watches can tell when it hangs."""
        since = self._since
        return 0.0 if since is None else self.clock() - since

    def fault(self, error: BaseException) -> None:
        """A pass failed. What a request itself has wrong does not count."""
        if not isinstance(error, ConfigError | DataError):
            self.failures += 1
            self.faults += 1
            self._last_error = type(error).__name__

    def drain(self, deadline: float) -> bool:
        """Take no more requests, finish those there are, and close. Whether all were finished in so many seconds."""
        end = self.clock() + deadline
        with self._wake:
            self._open = False
        if self._thread is None:
            while self.clock() < end and self.step():
                pass
        else:
            for sequence in self._everyone():
                sequence.request.wait(max(0.0, end - self.clock()))
        finished = not self._everyone()
        self.close()
        return finished

    def close(self) -> None:
        """End the thread after its round, and cancel what is not finished."""
        with self._wake:
            self._open, self._stop = False, True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        for sequence in self._everyone():
            self.end(sequence, "cancelled")

    def stats(self) -> Stats:
        now = self.clock()
        with self._wake:
            at, before = next(((t, n) for t, n in self._recent if now - t <= RECENT), (now, self._written))
        return Stats(
            running=len(self.sequences),
            waiting=len(self.waiting),
            slots=len(self.cache),
            used=len(self.cache.taken),
            tokens_per_second=(self._written - before) / (now - at) if now > at else 0.0,
            read=self.read,
            written=self._written,
            prefix_hits=self._hits,
            prefix_tokens=self._reused,
            finished=dict(self._finished),
        )

    def _sequence(self, request: Request, on_event: Callable[[Event], None] | None) -> Sequence:
        prompt, sampling, vocab = request.prompt, request.sampling, self.model.lm.vocab
        if not prompt:
            raise DataError("D001", "the prompt is empty: there is no token to go on from")
        if len(prompt) > self.capacity:
            raise DataError("D001", f"the prompt has {len(prompt)} tokens, there is room for {self.capacity}")
        used = {*prompt, *sampling.tokens}
        if not 0 <= min(used) <= max(used) < vocab:  # on a GPU, an index out of range ends the whole process's work
            raise DataError("D001", f"token ids {min(used)} … {max(used)}, the vocabulary has {vocab}")
        if sampling.seed is None:
            sampling = replace(sampling, seed=int(torch.randint(2**62, ())))
        own = self.model.config.special.eos_ids
        return Sequence(
            request=replace(request, on_event=on_event),
            sampling=sampling,
            stop=own if sampling.stop is None else sampling.stop,
            stream=TextStream(self.tokenizer, sampling.stop_strings, prompt),
            text=list(prompt),
            left=min(sampling.limit(len(prompt), sampling.max_tokens), self.capacity - len(prompt) + 1),  # last: unread
        )

    def _run(self) -> None:
        while not self._stop:
            self._since = self.clock()
            try:
                busy = self.step()
            except BaseException as error:  # a library's own panic, or a device on which not even a slot can be wiped
                self.fault(error)
                self._abandon(error)
                busy = True
            self._since = None
            if not busy:
                with self._wake:
                    self._wake.wait_for(lambda: self._stop or self.waiting)

    def _abandon(self, why: BaseException) -> None:
        """End everything, whatever state it is in."""
        error = RuntimeError("the engine lost all texts")
        error.__cause__ = why
        with self._wake:
            sequences = [*self.waiting, *self.sequences]
            self.waiting.clear()
            self.sequences.clear()
            self._finished["error"] += len(sequences)
        self.scheduler = Scheduler(self)
        for slot in [*self.cache.taken]:
            self.cache.cut(slot, 0)
            self.cache.free(slot)
        for sequence in sequences:
            sequence.request.end(Event(None, finish="error"), error)

    def _everyone(self) -> list[Sequence]:
        with self._wake:
            return [*self.waiting, *self.sequences]

    def _round(self) -> bool:
        for sequence in self._everyone():
            if sequence.request.cancelled or not sequence.left:
                self.end(sequence, "cancelled" if sequence.left else "length")
        if not self._everyone():
            return False
        now = self.clock()
        with self._wake:
            self._recent.append((now, self._written))
            while now - self._recent[0][0] > RECENT:
                self._recent.popleft()
        if self.waiting and len(self.cache.taken) < len(self.cache):
            self._renew()
        if self.fast is not None and type(self.scheduler) is Scheduler and not self.sequences:
            self.scheduler = FastScheduler(self, self.fast)
        try:
            self.scheduler.run()
        except Exception as error:
            if type(self.scheduler) is Scheduler:
                raise
            self.fault(error)
            self._without_kernels(error)
        return True

    def _without_kernels(self, why: Exception) -> None:
        """What fails with kernels may still do without: each text is read again from where it is certain.

        There it turns out whether one of the requests is at fault. Kernels are tried again with the next texts.
        """
        warnings.warn(f"fast decoding failed, so the engine goes on without it: {why}", RuntimeWarning, stacklevel=2)
        self._fast_faults += 1
        if self._fast_faults >= FAILURES:
            self.fast = None
        self._go_plainly()

    def _go_plainly(self) -> None:
        self.scheduler = Scheduler(self)
        for sequence in self.sequences:
            self.cache.cut(sequence.slot, min(len(self.cache.texts[sequence.slot]), len(sequence.text) - 1))

    def let_in(self, fits: Callable[[Sequence], bool]) -> Sequence | None:
        """The next request, if there is a slot and its prompt fits into this round.

        Not earlier: by then, another may have read how it begins.
        """
        if not self.waiting or not fits(self.waiting[0]):
            return None
        sequence = self.waiting[0]
        found = self.cache.take(sequence.text)
        if found is None:
            return None
        sequence.slot, sequence.request.reused = found
        self._hits += sequence.request.reused > 0
        self._reused += sequence.request.reused
        with self._wake:
            self.sequences.append(self.waiting.popleft())
        return sequence

    def _renew(self) -> None:
        """Forget what was read with weights that the model has no more; texts that are being written go on from it."""
        now = self.clock()
        if self.sequences and now - self._compared < COMPARED:
            return
        self._compared = now
        if self._weights.counted(self.model) if self.sequences else self._weights.same(self.model):
            return
        self._weights = Snapshot(self.model)
        for slot in set(range(len(self.cache))) - self.cache.taken:
            self.cache.cut(slot, 0)
        if self.fast is None:
            return
        if accelerates(self.model, len(self.cache)):
            self.fast.renew(self.model)
        else:
            self.fast = None
            self._go_plainly()

    def take(self, chosen: list[tuple[Sequence, Sample]]) -> None:
        """Texts grow by what was chosen for them. A pass after which none has grown counts as failed."""
        errors = [self._take(sequence, found) for sequence, found in chosen]
        faults = [error for error in errors if error is not None]
        if len(faults) < len(errors):
            self.failures = 0
        elif faults:
            self.fault(faults[-1])

    def _take(self, sequence: Sequence, chosen: Sample) -> Exception | None:
        """What went wrong with this text, which has ended then."""
        error = sequence.fault
        if chosen.broken:
            error = DivergedError("T001", "the model's scores are not numbers", "its weights are damaged, or too large")
        if error is None:
            try:
                text, finish = sequence.take(chosen.token)
                event = Event(chosen.token, text, chosen.log_probability, chosen.alternatives, finish)
                if finish is None:
                    sequence.request.put(event)
            except Exception as raised:  # of the tokenizer, of the mask, or of whoever listens
                error = raised
        if error is not None:
            self.end(sequence, "error", error)
            return error
        self._written += chosen.token is not None
        if finish is not None:
            self.end(sequence, event)
        return None

    def end(self, sequence: Sequence, last: Event | Finish, error: Exception | None = None) -> None:
        """Give back the slot first: who hears of the end may count on it."""
        event = last if isinstance(last, Event) else Event(None, finish=last)
        if sequence.slot >= 0:
            if error is not None:
                with suppress(RuntimeError):  # of a device that does nothing any more
                    self.cache.clear(sequence.slot)
            self.cache.free(sequence.slot)
        with self._wake:
            (self.sequences if sequence.slot >= 0 else self.waiting).remove(sequence)
            self._finished[str(event.finish)] += 1
        sequence.request.end(event, error)


def _allocate(model: Model, slots: int, capacity: int) -> SlotCache:
    try:
        return SlotCache(model.start(batch=slots, capacity=capacity + 1))
    except RuntimeError as error:
        raise MemoryOrDiskError(
            "M001", f"there is no memory for {slots} slots of {capacity} tokens", "take fewer slots or a lower capacity"
        ) from error
