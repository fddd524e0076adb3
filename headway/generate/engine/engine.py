"""Continuous batching: requests come at any time and share forward passes, each as if it were alone.

A step prefills a chunk of waiting prompts and generates one token of every running sequence, so a long prompt delays
the others by one chunk at most. No HTTP here: `submit` a request and iterate over its events.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import torch

from headway.errors import ConfigError, DataError
from headway.generate.accel.base import FastDecoder
from headway.generate.accel.dispatch import accelerates, make_decoder
from headway.generate.accel.snapshot import Snapshot
from headway.generate.detokenize import Detokenizer, TextStream
from headway.generate.engine.admission import Admission
from headway.generate.engine.request import Event, Finish, Request
from headway.generate.engine.runner import AcceleratedRunner, SlotRunner
from headway.generate.engine.scheduler import Scheduler
from headway.generate.engine.sequence import Sample, Sequence, diverged
from headway.generate.engine.slot_cache import allocate
from headway.generate.engine.stats import Counters, Stats
from headway.generate.protocol import device_of
from headway.generate.sampling.sampler import with_seed
from headway.model.model import Model, Transformer

__all__ = ["Closed", "Engine", "Event", "QueueFull", "Request", "Stats"]

CAPACITY = 2048
"""Tokens of a sequence, prompt included, if neither the caller nor the model sets a limit."""
CHUNK, CUDA_CHUNK = 256, 2048
"""Prompt tokens that one step prefills, by default."""
COMPARED = 1.0
"""Seconds between two checks, while sequences run, whether the model's weights have changed."""
FAILURES = 3
"""Steps that fail in a row before the engine counts as broken; faults of kernels before it stops using them."""


class QueueFull(Exception):
    """Too many requests wait already: try again later."""


class Closed(Exception):
    """The engine takes no more requests."""


class Engine:
    """Only one thread calls `step`: the one that `start` starts, or the caller's. Other methods are for any thread."""

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
        """Run up to `slots` sequences of up to `capacity` tokens at a time, with up to `queue` requests waiting."""
        max_length = model.config.max_length
        self.capacity = capacity if capacity is not None else max_length or CAPACITY
        kernels = accelerates(model, slots)
        if chunk is None:
            chunk = CUDA_CHUNK if kernels and device_of(model).type == "cuda" else CHUNK
        for name, value in (("slots", slots), ("capacity", self.capacity), ("chunk", chunk), ("queue", queue)):
            if value < 1:
                raise ConfigError("C003", f"{name} = {value} should be at least 1")
        if max_length is not None and self.capacity > max_length:
            raise ConfigError("C003", f"capacity = {self.capacity}, but the model reads at most {max_length} tokens")
        self.model, self.tokenizer, self.chunk, self.queue, self.clock = model, tokenizer, chunk, queue, clock
        self.cache = allocate(model, slots, self.capacity)
        self.waiting: deque[Sequence] = deque()
        self.sequences: list[Sequence] = []
        """Sequences that have a slot, in the order of their requests."""
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._open, self._stop = True, False
        self.failures = 0
        """Steps that failed in a row, whatever the error."""
        self.faults = 0
        """All failures since the start."""
        self._last_error = ""
        """Type of the last one. Its message might hold user data."""
        self._since: float | None = None
        """When the thread's present step began."""
        self.counters = Counters()
        self._admission = Admission(self.cache, chunk)
        self.fast: FastDecoder | None = None
        """None if there are no kernels for the model, or if they failed too often."""
        if isinstance(model, Transformer) and kernels:
            self.fast = make_decoder(model, self.cache.keys, self.cache.values)
        self._fast_faults = 0
        self.scheduler = self._schedule(accelerated=True)
        self._weights, self._compared = Snapshot(model), -math.inf

    def submit(self, request: Request, on_event: Callable[[Event], None] | None = None) -> Request:
        """Queue a copy of a request and return the copy.

        DataError if the request can never be answered, QueueFull or Closed if it cannot be queued now.
        """
        live = replace(request, on_event=on_event)
        sequence = self._sequence(live)
        with self._wake:
            if not self._open:
                raise Closed("the engine takes no more requests")
            if len(self.waiting) >= self.queue:
                raise QueueFull(f"{len(self.waiting)} requests are waiting, which is the limit")
            self.waiting.append(sequence)
            self._wake.notify()
        return live

    @torch.no_grad()
    def step(self) -> bool:
        """Admit requests, prefill a chunk of prompts, generate a token of each sequence. False if there is no work."""
        try:
            return self._step()
        except Exception as error:  # our own mistake; but no client may wait for ever because of it
            self.fault(error)
            for sequence in self._everyone():
                self.end(sequence, "error", error)
            return True

    def start(self) -> None:
        """Run in a thread from now on."""
        with self._wake:
            if not self._open:
                raise Closed("the engine takes no more requests")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headway-engine", daemon=True)
                self._thread.start()

    @property
    def trouble(self) -> str:
        """Why the engine does not work: its thread has ended, or all of its steps fail. Empty if it works."""
        if self._thread is None or not self._thread.is_alive():
            return "the engine does not run"
        if self.failures >= FAILURES:
            return f"{self.failures} passes failed one after another, the last with {self._last_error}"
        return ""

    def step_seconds(self) -> float:
        """How long the thread's present step has taken: a watchdog can tell when it hangs."""
        since = self._since
        return 0.0 if since is None else self.clock() - since

    def fault(self, error: BaseException) -> None:
        """Count a failure. What a request itself has wrong does not count."""
        if not isinstance(error, ConfigError | DataError):
            self.failures += 1
            self.faults += 1
            self._last_error = type(error).__name__

    def drain(self, deadline: float) -> bool:
        """Take no more requests, finish those there are within `deadline` seconds, and close. Whether all finished."""
        end = self.clock() + deadline
        with self._wake:
            self._open = False
        if self._thread is None:
            while self.clock() < end and self.step():
                pass
        else:
            for sequence in self._everyone():
                _request(sequence).wait(max(0.0, end - self.clock()))
        finished = not self._everyone()
        self.close()
        return finished

    def close(self) -> None:
        """End the thread after its step, and cancel unfinished requests."""
        with self._wake:
            self._open, self._stop = False, True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        for sequence in self._everyone():
            self.end(sequence, "cancelled")

    def stats(self) -> Stats:
        sizes = {"running": len(self.sequences), "waiting": len(self.waiting)}
        return self.counters.stats(self.clock(), **sizes, slots=len(self.cache), used=len(self.cache.taken))

    def _sequence(self, request: Request) -> Sequence:
        prompt, sampling, vocab = request.prompt, with_seed(request.sampling), self.model.lm.vocab
        if not prompt:
            raise DataError("D001", "the prompt is empty: there is no token to go on from")
        if len(prompt) > self.capacity:
            raise DataError("D001", f"the prompt has {len(prompt)} tokens, there is room for {self.capacity}")
        used = {*prompt, *sampling.tokens}
        if not 0 <= min(used) <= max(used) < vocab:  # on a GPU, an index out of range ends the whole process's work
            raise DataError("D001", f"token ids {min(used)} … {max(used)}, the vocabulary has {vocab}")
        return Sequence(
            tokens=list(prompt),
            sampling=sampling,
            stop=self.model.config.special.eos_ids if sampling.stop is None else sampling.stop,
            left=min(sampling.limit(len(prompt), sampling.max_tokens), self.capacity - len(prompt) + 1),
            stream=TextStream(self.tokenizer, sampling.stop_strings, prompt, request.shown),
            mask=request.mask,
            logprobs=request.likely,
            top=request.top,
            request=request,
        )

    def _run(self) -> None:
        while not self._stop:
            self._since = self.clock()
            try:
                busy = self.step()
            except BaseException as error:  # a library's panic, or a device on which not even a slot can be wiped
                self.fault(error)
                self._abandon(error)
                busy = True
            self._since = None
            if not busy:
                with self._wake:
                    self._wake.wait_for(lambda: self._stop or self.waiting)

    def _abandon(self, why: BaseException) -> None:
        """End all sequences, whatever state they are in."""
        error = RuntimeError("the engine lost all texts")
        error.__cause__ = why
        with self._wake:
            everyone = [*self.waiting, *self.sequences]
            self.waiting.clear()
            self.sequences.clear()
            self.counters.finished["error"] += len(everyone)
        self.scheduler = self._schedule(accelerated=False)
        for slot in [*self.cache.taken]:
            self.cache.cut(slot, 0)
            self.cache.free(slot)
        for sequence in everyone:
            _request(sequence).end(Event(None, finish="error"), error)

    def _everyone(self) -> list[Sequence]:
        with self._wake:
            return [*self.waiting, *self.sequences]

    def _schedule(self, accelerated: bool) -> Scheduler:
        """A scheduler that has begun nothing yet, with kernels if there are any."""
        if accelerated and self.fast is not None:
            return Scheduler(AcceleratedRunner(self.fast, self.cache.tokens, self.chunk))
        return Scheduler(SlotRunner(self.model, self.cache, self.sequences, self.chunk))

    def _step(self) -> bool:
        for sequence in self._everyone():
            self._end_early(sequence)
        if not self._everyone():
            return False
        self.counters.step(self.clock())
        if self.waiting and len(self.cache.taken) < len(self.cache):
            self._check_weights()
        if self.fast is not None and not self.scheduler.runner.feeds and not self.sequences:
            self.scheduler = self._schedule(accelerated=True)
        self._admit()
        try:
            self._advance(self.scheduler, self.sequences)
        except Exception as error:
            if self.scheduler.runner.feeds:
                self.fault(error)
                self._stop_kernels(error)
            else:
                self._advance_alone()
        return True

    def _end_early(self, sequence: Sequence) -> bool:
        """End a sequence that is cancelled, or asks for no tokens at all. Whether it has ended."""
        if ends := _request(sequence).cancelled or not sequence.left:
            self.end(sequence, "cancelled" if sequence.left else "length")
        return ends

    def _advance(self, scheduler: Scheduler, sequences: list[Sequence]) -> None:
        """Generate one token of each sequence. If that fails, the slots hold again what they held before."""
        held, new = self.cache.tokens, [s for s in sequences if not s.count]
        before = [len(held[s.slot]) for s in sequences]
        prompts = sum(len(held[s.slot]) for s in new)
        try:
            found = scheduler.step(sequences)
        except Exception:
            for sequence, count in zip(sequences, before, strict=True):
                self.cache.cut(sequence.slot, count)
            raise
        self.counters.prompt_tokens += sum(len(held[s.slot]) for s in new) - prompts
        self._take(found)

    def _advance_alone(self) -> None:
        """Each sequence alone after they failed together, so that only the faulty ones end."""
        for sequence in [*self.sequences]:
            try:
                self._advance(Scheduler(self.scheduler.runner), [sequence])
            except Exception as error:
                self.fault(error)
                self.end(sequence, "error", error)

    def _stop_kernels(self, why: Exception) -> None:
        """Go on without kernels, from the last token that is certain; without them a faulty request shows itself.

        Kernels are tried again with the next sequences.
        """
        warnings.warn(f"fast decoding failed, so the engine goes on without it: {why}", RuntimeWarning, stacklevel=2)
        self._fast_faults += 1
        if self._fast_faults >= FAILURES:
            self.fast = None
        self._go_eager()

    def _go_eager(self) -> None:
        self.scheduler = self._schedule(accelerated=False)
        for sequence in self.sequences:
            self.cache.cut(sequence.slot, min(len(self.cache.tokens[sequence.slot]), len(sequence.tokens) - 1))

    def _admit(self) -> None:
        """Give slots to waiting requests whose prompts fit into this step's chunk.

        Not earlier: by then, another sequence may have prefilled the same beginning.
        """
        batch, padded = [s for s in self.sequences if not s.count], self.scheduler.runner.padded
        if not padded and not batch and self._admission.waits(len(self.sequences), len(self.waiting)):
            return
        while self.waiting and self._admission.fits(self.waiting[0], batch, padded):
            if self._end_early(self.waiting[0]):  # submitted after this step began
                continue
            found = self.cache.take(self.waiting[0].tokens)
            if found is None:
                return
            sequence = self.waiting[0]
            sequence.slot, _request(sequence).reused = found
            self.counters.prefix_hits += found[1] > 0
            self.counters.prefix_tokens += found[1]
            with self._wake:
                self.sequences.append(self.waiting.popleft())
            batch.append(sequence)

    def _check_weights(self) -> None:
        """If the model's weights have changed, forget cached prefixes. Sequences that run go on from their keys."""
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
            self._go_eager()

    def _take(self, found: list[tuple[Sequence, Sample]]) -> None:
        """Append the sampled tokens. A step after which no sequence has grown counts as failed."""
        errors = [self._append(sequence, sample) for sequence, sample in found]
        faults = [error for error in errors if error is not None]
        if len(faults) < len(errors):
            self.failures = 0
        elif faults:
            self.fault(faults[-1])

    def _append(self, sequence: Sequence, sample: Sample) -> Exception | None:
        """Append a token and deliver its event. An error ends the sequence and is returned."""
        error, finish = diverged() if sample.broken else sequence.fault, None
        if error is None:
            try:
                text, finish = sequence.take(sample.token)
                event = Event(sample.token, text, sample.log_probability, sample.alternatives, finish)
                if finish is None:
                    _request(sequence).put(event)
            except Exception as raised:  # by the tokenizer, the mask, or the callback
                error = raised
        if error is not None:
            self.end(sequence, "error", error)
            return error
        self.counters.generated_tokens += sample.token is not None
        if finish is not None:
            self.end(sequence, event)
        return None

    def end(self, sequence: Sequence, last: Event | Finish, error: Exception | None = None) -> None:
        """Free the slot, then deliver the last event: a client that hears of the end may count on a free slot."""
        event = last if isinstance(last, Event) else Event(None, finish=last)
        if sequence.slot >= 0:
            if error is not None:
                with suppress(RuntimeError):  # of a device that does nothing any more
                    self.cache.clear(sequence.slot)
            self.cache.free(sequence.slot)
        with self._wake:
            (self.sequences if sequence.slot >= 0 else self.waiting).remove(sequence)
            self.counters.finished[str(event.finish)] += 1
        _request(sequence).end(event, error)


def _request(sequence: Sequence) -> Request:
    assert sequence.request is not None
    return sequence.request
