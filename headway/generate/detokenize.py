"""Streaming detokenizer: whole characters only, and no text that may still become a stop string."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import byte_ids

TAIL = 64
"""Tokens at the end of a prompt that may hold the beginning of a character."""
HALF = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer returns for bytes that are not, or not yet, a character."""


class Detokenizer(Protocol):
    def decode(self, ids: Sequence[int]) -> str: ...


class Spelling:
    """The bytes of each token of a byte-level tokenizer: spelled when first used, since few of a vocabulary are."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._values, self._size, self._piece = byte_ids(), tokenizer.vocab_size, tokenizer.backend.id_to_token
        added = tokenizer.backend.get_added_tokens_decoder()
        self._known = {i: b"" for i, token in added.items() if token.special}

    def __getitem__(self, token: int) -> bytes:
        """The bytes of a token; nothing for a special token and for an id that is no token."""
        if token not in self._known:
            piece, values = (self._piece(token) if 0 <= token < self._size else None) or "", self._values
            plain = all(c in values for c in piece)
            self._known[token] = bytes(values[c] for c in piece) if plain else piece.encode()
        return self._known[token]


_SPELLED: WeakKeyDictionary[Tokenizer, Spelling | None] = WeakKeyDictionary()


def spelling(tokenizer: Detokenizer) -> Spelling | None:
    """The bytes of each token, if text is the concatenation of them; None for other tokenizers."""
    if not isinstance(tokenizer, Tokenizer):
        return None
    if tokenizer not in _SPELLED:
        decoder = tokenizer.backend.decoder
        plain = decoder is not None and json.loads(decoder.__getstate__())["type"] == "ByteLevel"
        _SPELLED[tokenizer] = Spelling(tokenizer) if plain else None
    return _SPELLED[tokenizer]


@dataclass
class TextStream:
    """The text of one sequence. `push` returns the text that is certain now, `close` the rest.

    If tokens are bytes, they are concatenated. Otherwise the last few tokens are decoded again at each step, back to
    where the text last grew, since a tokenizer may drop the space before its first token.
    """

    tokenizer: Detokenizer
    stops: tuple[str, ...] = ()
    context: Sequence[int] = ()
    """Tokens before the first one; they decide whether a space comes between."""
    shown: Mapping[int, str] = field(default_factory=dict)
    """Special tokens that are a part of the text, unlike others, and how they are spelled."""
    stopped: bool = field(default=False, init=False)
    """Whether a stop string was found. All text before it has been returned."""

    def __post_init__(self) -> None:
        self._held = ""
        """Text that may be the beginning of a stop string."""
        self._bytes = spelling(self.tokenizer)
        if self._bytes is not None:
            self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
            self._broken = ""
            """Replacement characters that are returned only if more bytes follow."""
            for token in self.context[-TAIL:]:
                self._put_together(token)
            return
        self._ids = list(self.context)
        self._shown = self.tokenizer.decode(self._ids).rstrip(HALF) if self._ids else ""
        self._settled = len(self._ids)
        """How many of `_ids` give the text `_shown`."""

    def push(self, token: int) -> str:
        """Text that is certain with this token; empty while a character or a stop string may be incomplete."""
        more = self._decode_again(token) if self._bytes is None else self._put_together(token)
        more += self.shown.get(token, "")
        if not more:
            return ""
        self._held += more
        return self._release() if self.stops else self.close()

    def _put_together(self, token: int) -> str:
        assert self._bytes is not None
        text = self._broken + self._utf8.decode(self._bytes[token])
        whole = text.rstrip(HALF)
        self._broken = text[len(whole) :]
        return whole

    def _decode_again(self, token: int) -> str:
        self._ids.append(token)
        text = self.tokenizer.decode(self._ids)
        whole = text.rstrip(HALF)
        if len(whole) <= len(self._shown):
            return ""
        more, self._shown = whole[len(self._shown) :], whole
        if whole == text:
            self._ids = self._ids[self._settled :]
            self._settled, self._shown = len(self._ids), self.tokenizer.decode(self._ids)
        return more

    def close(self) -> str:
        """Text that was held back for a stop string that never came. An incomplete character at the end is dropped."""
        rest, self._held = self._held, ""
        return rest

    def _release(self) -> str:
        ends = [(start + len(stop), start) for stop in self.stops if (start := self._held.find(stop)) >= 0]
        if ends:  # the stop string that is complete first, however text is cut into tokens
            self.stopped = True
            text, self._held = self._held[: min(ends)[1]], ""
            return text
        waiting = overlap(self._held, self.stops)
        text, self._held = self._held[: len(self._held) - waiting], self._held[len(self._held) - waiting :]
        return text


def overlap(text: str, stops: tuple[str, ...]) -> int:
    """Length of the longest suffix of a text that begins a stop string."""
    longest = min(len(text), max((len(stop) for stop in stops), default=0))
    return next((n for n in range(longest, 0, -1) if any(stop.startswith(text[-n:]) for stop in stops)), 0)
