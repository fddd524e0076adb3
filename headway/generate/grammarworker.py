"""The program that tries grammars out, in a process of its own: started by `trial`. Only `compiled` serves both sides.

A grammar is a program by a stranger, too. The library bounds what a mask costs, but not what it costs to compile a
grammar: the intersection of twenty patterns takes minutes and gigabytes. The operating system bounds both.

The first line of stdin is the vocabulary `{"tokens", "ends", "special"}`, each further line a request `{"grammar",
"seconds", "room"}`; each line of stdout is the answer `{"error"}`, empty where a sequence can be held to the grammar.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

LEXER_STATES = 50_000
"""Of one grammar, about a quarter of a kilobyte each; the library's own limit is five times as high."""
STACK = 4 << 20
"""Bytes of stack: half of what a thread has on the other side, so that nothing overflows there that did not here."""


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
    """A matcher at its beginning; `is_error` where there is none."""
    limits = LLParserLimits(max_lexer_states=LEXER_STATES, verbose_errors=False)
    return LLMatcher(tokenizer, grammar, log_level=0, limits=limits)


def answer(tokenizer: LLTokenizer, request: dict[str, Any]) -> dict[str, str]:
    bound_memory(request["room"])
    bound_time(request["seconds"])  # of the processor's time; the signal ends the process
    matcher = compiled(tokenizer, request["grammar"])
    error = matcher.get_error()
    if not error:
        matcher.compute_bitmask()  # for what it costs: forced tokens are not known here, so it may well be wrong
    bound_time(0.0)
    return {"error": error}


def bound_time(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def bound_memory(room: int) -> None:
    """So many bytes more than now. Only Linux says how many that are; elsewhere the time is the only bound."""
    try:
        import resource

        with open("/proc/self/statm", "rb") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return
    resource.setrlimit(resource.RLIMIT_AS, (size + room, resource.getrlimit(resource.RLIMIT_AS)[1]))


def bound_rest() -> None:
    """No deep recursion, no byte into any file."""
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
    tokenizer = make_tokenizer(tokens, first["ends"], first["special"], lambda text: [])
    write = sys.stdout.buffer
    write.write(b"ready\n")
    write.flush()
    for line in sys.stdin.buffer:
        write.write(json.dumps(answer(tokenizer, json.loads(line))).encode() + b"\n")
        write.flush()


if __name__ == "__main__":
    main()
