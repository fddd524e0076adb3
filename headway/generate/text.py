"""Tokens to text as they come: whole characters only, and nothing that may still turn out to be a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

HALF = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer shows for bytes that are not, or not yet, a character."""


class Detokenizer(Protocol):
    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass
class TextStream:
    """The text of one row. `push` returns what can be shown now; `close` the rest, once no token will follow.

    Only the last few tokens are decoded again at each step: back to where text last grew, as a tokenizer may
    drop the space before its first token.
    """

    tokenizer: Detokenizer
    stops: tuple[str, ...] = ()
    context: Sequence[int] = ()
    """Tokens before the first one, which decide whether a space comes between."""
    stopped: bool = field(default=False, init=False)
    """Whether a stop string was found; all text before it has been returned."""

    def __post_init__(self) -> None:
        self._ids = list(self.context)
        self._shown = self.tokenizer.decode(self._ids).rstrip(HALF) if self._ids else ""
        self._settled = len(self._ids)
        """Of `_ids`, those whose text is `_shown`."""
        self._held = ""
        """Text that may be the beginning of a stop string."""

    def push(self, token: int) -> str:
        """Text that is certain with this token; empty while a character or a stop string may be incomplete."""
        self._ids.append(token)
        text = self.tokenizer.decode(self._ids)
        whole = text.rstrip(HALF)
        if len(whole) <= len(self._shown):
            return ""
        self._held += whole[len(self._shown) :]
        self._shown = whole
        if whole == text:
            self._ids = self._ids[self._settled :]
            self._settled, self._shown = len(self._ids), self.tokenizer.decode(self._ids)
        return self._release()

    def close(self) -> str:
        """What was held back for a stop string that never came; half a character at the end is dropped."""
        rest, self._held = self._held, ""
        return rest

    def _release(self) -> str:
        ends = [(start + len(stop), start) for stop in self.stops if (start := self._held.find(stop)) >= 0]
        if ends:  # the one that is complete first, so that it does not matter how text is cut into tokens
            self.stopped = True
            text, self._held = self._held[: min(ends)[1]], ""
            return text
        waiting = _overlap(self._held, self.stops)
        text, self._held = self._held[: len(self._held) - waiting], self._held[len(self._held) - waiting :]
        return text


def _overlap(text: str, stops: tuple[str, ...]) -> int:
    """Length of the longest end of a text that begins a stop string."""
    longest = min(len(text), max((len(stop) for stop in stops), default=0))
    return next((n for n in range(longest, 0, -1) if any(stop.startswith(text[-n:]) for stop in stops)), 0)
