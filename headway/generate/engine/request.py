"""A request to the engine: what to generate, and the events that come back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Literal

from headway.errors import ConfigError
from headway.generate.grammar.grammar import Mask
from headway.generate.sampling.sampler import Sampling

Finish = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class Event:
    """A new token, the text that is certain now, and in the last event why the sequence ends."""

    token: int | None
    """None if the sequence ends without a token."""
    text: str = ""
    log_probability: float | None = None
    """Of the token by the model's own logits, before penalties and temperature."""
    alternatives: tuple[tuple[int, float], ...] = ()
    """The most probable tokens with their log-probabilities, best first."""
    finish: Finish | None = None
    """stop: a stop token, a stop string, or a complete text by the mask; length: max_tokens or a full KV cache."""


@dataclass(eq=False)
class Request:
    """One sequence to generate. `Engine.submit` returns a copy of it that is live.

    Iterate over a live request for its events; the last one has a `finish`. Any thread may iterate, wait and cancel.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    top: int = 0
    """How many of the most probable tokens to report at each step."""
    mask: Mask | None = None
    """Which tokens may come next; the sequence is row 0 of the mask, and no other request may use the mask."""
    likely: bool = True
    """Whether to report log-probabilities. Without them a step is slightly faster."""
    shown: Mapping[int, str] = field(default_factory=dict)
    """Special tokens that are a part of the text, and how they are spelled."""
    on_event: Callable[[Event], None] | None = field(default=None, repr=False)
    """Called with each event in the engine's thread, instead of keeping the events; it must not block."""
    cancelled: bool = field(default=False, init=False)
    """Whether `cancel` was called. The engine ends the sequence at its next step."""
    reused: int = field(default=0, init=False)
    """Tokens of the prompt that the KV cache held already."""
    error: Exception | None = field(default=None, init=False)
    """Why the request failed, once an event has finish = "error"."""

    def __post_init__(self) -> None:
        if self.top < 0:
            raise ConfigError("C003", f"top = {self.top} is below zero")
        if self.top and not self.likely:
            raise ConfigError("C004", f"top = {self.top} needs log-probabilities, but likely = False")
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._over = threading.Event()

    def __iter__(self) -> Iterator[Event]:
        while (event := self._events.get()) is not None:
            yield event
        self._events.put(None)  # for other iterators, now and later

    def cancel(self) -> None:
        self.cancelled = True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the sequence has ended, for `timeout` seconds at most. Returns whether it has ended."""
        return self._over.wait(timeout)

    def put(self, event: Event) -> None:
        """For the engine: deliver an event that is not the last."""
        if self.on_event is None:
            self._events.put(event)
        else:
            self.on_event(event)

    def end(self, event: Event, error: Exception | None = None) -> None:
        """For the engine: deliver the last event."""
        self.error = error
        with suppress(Exception):  # a callback that fails now misses nothing more
            self.put(event)
        self._events.put(None)
        self._over.set()
