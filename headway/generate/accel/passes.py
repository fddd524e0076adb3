"""Prompts split into forward passes of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

SIZES = (32, 64, 128, 256, 384, 512, 640, 768, 1024, 1536, 2048)
"""Tokens of a pass. Unused tokens are computed too, so there are many sizes."""
SEQUENCES = 16
"""Most sequences of a pass."""

Piece = tuple[int, int, Sequence[int], bool]
"""Row, number of tokens it holds, new tokens, and whether they complete the prompt."""


def split_passes(prompts: Mapping[int, tuple[int, Sequence[int]]]) -> Iterator[list[Piece]]:
    """Split new tokens of some rows into passes of at most SIZES[-1] tokens and SEQUENCES sequences."""
    part: list[Piece] = []
    left = SIZES[-1]
    for row, (held, new) in prompts.items():
        at = 0
        while at < len(new):
            if not left or len(part) == SEQUENCES:
                yield part
                part, left = [], SIZES[-1]
            count = min(left, len(new) - at)
            part.append((row, held + at, new[at : at + count], at + count == len(new)))
            at, left = at + count, left - count
    if part:
        yield part
