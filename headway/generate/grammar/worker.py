"""The program that checks grammars in a process of its own; started by `client`.

`compiled` and `limit_met` are used on both sides.

A grammar is a stranger's program. The library limits what a mask costs, but not what compiling a grammar costs: the
intersection of twenty patterns takes minutes and gigabytes. The operating system limits both.

The first line of stdin is the vocabulary `{"tokens", "ends", "special"}`, each further line a request `{"grammar",
"seconds", "room"}`. Each line of stdout is an answer `{"error", "hard"}`: no error if sequences can follow the grammar;
`hard` if it is a valid grammar that costs too much.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

LEXER_STATES = 50_000
"""Lexer states of one grammar, about 250 bytes each; the library's own limit is five times as high."""
STACK = 4 << 20
"""Bytes of stack: half of a thread's stack in the other process, so nothing overflows there that did not here."""
STEPS = 8
"""Tokens that are tried. Costs often rise a few tokens into the text, among the names of an object."""
MISFITS = ("doesn't satisfy the grammar", "parser stopped", "out of range")
"""The library's messages for a wrong token. All other messages are about its limits."""


def make_tokenizer(
    tokens: Sequence[bytes], ends: list[int], special: Sequence[int], encode: Callable[[str], list[int]]
) -> LLTokenizer:
    class Readable:
        eos_token_id, bos_token_id, special_token_ids = ends[0], None, special

        def __init__(self) -> None:
            self.tokens = tokens

        def __call__(self, text: str) -> list[int]:
            return encode(text)

    return LLTokenizer(TokenizerWrapper(Readable()), eos_token=ends, slices=[])


def compiled(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """A fresh matcher; its `is_error` says whether compiling failed."""
    limits = LLParserLimits(max_lexer_states=LEXER_STATES, verbose_errors=False)
    return LLMatcher(tokenizer, grammar, log_level=0, limits=limits)


def limit_met(matcher: LLMatcher) -> str:
    """Which limit of the library a matcher has met; empty for none, or for another error."""
    why = matcher.get_error().removesuffix("<non-verbose/>").strip()[:200]
    return "" if why.startswith("NoExtension") or any(misfit in why for misfit in MISFITS) else why


class Walk:
    """Walks a few tokens into a grammar, and prefers tokens that do not end the text."""

    def __init__(self, tokens: Sequence[bytes], special: Sequence[int]) -> None:
        left_out = set(special)
        self.written = _bits([token != b"" and i not in left_out for i, token in enumerate(tokens)])
        self.bytes = {token: i for i, token in enumerate(tokens) if len(token) == 1 and i not in left_out}
        self.onward = self.written & _bits([not set(token) & set(b"]}") for token in tokens])

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, byte by byte, which the library asks for; empty if the vocabulary lacks a byte."""
        found = [self.bytes.get(bytes([byte])) for byte in text.encode("utf-8", "surrogatepass")]
        return [token for token in found if token is not None] if None not in found else []

    def __call__(self, matcher: LLMatcher) -> str:
        """The limit that the walk has met; empty for none."""
        for _ in range(STEPS):
            allowed = int.from_bytes(matcher.compute_bitmask(), "little") & self.written
            allowed = allowed & self.onward or allowed
            if matcher.is_error() or not allowed or not matcher.consume_token((allowed & -allowed).bit_length() - 1):
                break
        return limit_met(matcher)


def _bits(flags: Sequence[bool]) -> int:
    """The first flag is the lowest bit, as in the library's masks."""
    return int("".join("01"[flag] for flag in reversed(flags)), 2)


def answer(tokenizer: LLTokenizer, walk: Walk, request: dict[str, Any]) -> dict[str, Any]:
    bound_memory(request["room"])
    bound_time(request["seconds"])  # of CPU time; the signal ends the process
    matcher = compiled(tokenizer, request["grammar"])
    error = matcher.get_error()
    hard = "" if error else walk(matcher)
    bound_time(0.0)
    return {"error": error or hard, "hard": bool(hard)}


def bound_time(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def bound_memory(room: int) -> None:
    """Limit memory to `room` bytes more than now. Only Linux tells the present size; elsewhere only time is limited."""
    try:
        import resource

        with open("/proc/self/statm", "rb") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return
    resource.setrlimit(resource.RLIMIT_AS, (size + room, resource.getrlimit(resource.RLIMIT_AS)[1]))


def bound_rest() -> None:
    """Forbid deep recursion and writing to files."""
    try:
        import resource
    except ImportError:
        return
    for kind, bound in ((resource.RLIMIT_STACK, STACK), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (bound, resource.getrlimit(kind)[1]))


def main() -> None:
    bound_rest()
    first = json.loads(sys.stdin.buffer.readline())
    tokens = [bytes.fromhex(token) for token in first["tokens"]]
    walk = Walk(tokens, first["special"])
    tokenizer = make_tokenizer(tokens, first["ends"], first["special"], walk.encode)
    write = sys.stdout.buffer
    write.write(b"ready\n")
    write.flush()
    for line in sys.stdin.buffer:
        write.write(json.dumps(answer(tokenizer, walk, json.loads(line))).encode() + b"\n")
        write.flush()


if __name__ == "__main__":
    main()
