"""A request to write on from a prompt, what comes back piece by piece, and the ticket that stands for it meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Literal

from headway.errors import ConfigError
from headway.generate.grammar.grammar import Mask
from headway.generate.sampling.sampler import Sampling

Finish = Literal["stop", "length", "cancelled", "error"]


@dataclass(eq=False)
class Request:
    """One text to be written."""

    prompt: tuple[int, ...]
    sampling: Sampling
    top: int = 0
    """How many of the likeliest tokens to report at each step."""
    mask: Mask | None = None
    """What may come next in this text, which is the mask's row 0; no other request's."""
    likely: bool = True
    """Whether to report how likely the chosen token was; without this and `top`, a step is a little faster."""
    on_event: Callable[[Event], None] | None = field(default=None, repr=False)
    """Called with each event in the engine's thread instead of keeping events; it must not block."""
    cancelled: bool = field(default=False, init=False)
    """Whether somebody called it off; it is over a step later."""
    reused: int = field(default=0, init=False)
    """Tokens of the prompt that had been read before, for another text."""
    error: Exception | None = field(default=None, init=False)
    """What happened, once an event has finish = "error"."""

    def __post_init__(self) -> None:
        if self.top < 0:
            raise ConfigError("C003", f"top = {self.top} is below zero")
        if self.top and not self.likely:
            raise ConfigError("C004", f"top = {self.top} are reported with how likely they are: likely = False")
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._over = threading.Event()

    def __iter__(self) -> Iterator[Event]:
        while (event := self._events.get()) is not None:
            yield event
        self._events.put(None)  # for whoever else iterates, or does so again

    def cancel(self) -> None:
        self.cancelled = True

    def wait(self, timeout: float | None = None) -> bool:
        """Until the text has ended, at most so many seconds; whether it has."""
        return self._over.wait(timeout)

    def put(self, event: Event) -> None:
        """For the engine: an event that is not the last."""
        if self.on_event is None:
            self._events.put(event)
        else:
            self.on_event(event)

    def end(self, event: Event, error: Exception | None = None) -> None:
        """For the engine: the last event."""
        self.error = error
        with suppress(Exception):  # whoever fails to listen now misses nothing more
            self.put(event)
        self._events.put(None)
        self._over.set()


@dataclass(frozen=True, slots=True)
class Event:
    """A token, the text that is now certain, and in the last event of a text why it ends."""

    token: int | None
    """None where a text ends without one."""
    text: str = ""
    log_probability: float | None = None
    """Of the token as the model has it, before penalties and temperature."""
    alternatives: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens with their log-probabilities, best first."""
    finish: Finish | None = None
    """stop: a stop token or string, or nothing may follow; length: max_tokens, or no room for more."""
