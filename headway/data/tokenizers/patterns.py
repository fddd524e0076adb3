"""Checks of untrusted regular expressions, before a library compiles them.

A backtracking engine can take exponential time, for example with `(a+)+$`. The cause is a repeat of something that can
itself match in several ways, so such repeats are refused. Other syntax of Oniguruma (the engine of `tokenizers`) is
parsed only far enough to find groups, sets and repeats; what goes beyond regular languages is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_PATTERN_CHARACTERS = 1 << 16
MAX_DEPTH, MAX_REPEATS, MAX_SIZE = 32, 1000, 20_000
"""The most nested groups, times of one repeat, and parts of a pattern after its bounded repeats are expanded."""
ENDLESS, CHOICES, FEW = 3, 8, 16
"""The most unbounded repeats, and repeats or alternatives, in sequence: an engine may try all their combinations. A
repeat of at most FEW times counts as bounded."""
OPEN = re.compile(r"\((?:\?(?:(?P<flags>[imaudw-]*)(?P<only>[:)])|(?P<look><?[=!])|(?P<atomic>>)|<[A-Za-z_]\w*>))?")
TIMES = re.compile(r"\{(\d{1,9})?(,)?(\d{1,9})?\}")
ESCAPE = re.compile(
    r"\\(?:[pP]\{[^{}]{1,64}\}|x\{[0-9A-Fa-f ]{1,8}\}|x[0-9A-Fa-f]{0,2}|u[0-9A-Fa-f]{4}|[^1-9kgKXpPuxcCM])"
)
NO_WIDTH = frozenset("AzZbBG")
"""Escapes that match a position, not a character."""


@dataclass(frozen=True)
class Shape:
    """The properties of a part of a pattern that bound its cost."""

    least: int = 0
    """The least characters that it matches."""
    endless: int = 0
    """Unbounded repeats in sequence."""
    choices: int = 0
    """Repeats and alternatives in sequence, which multiply the ways to match a text."""
    size: int = 1

    def then(self, other: Shape) -> Shape:
        size, choices = self.size + other.size, self.choices + other.choices
        return Shape(self.least + other.least, self.endless + other.endless, choices, size)


def pattern_shape(pattern: str) -> Shape:
    """Return the shape of a pattern; a ValueError gives the reason to refuse it."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise ValueError(f"a pattern of {len(pattern):,} characters; the limit is {MAX_PATTERN_CHARACTERS:,}")
    reader = _Reader(pattern)
    shape = reader.alternatives(0)
    if reader.at < len(pattern):
        raise reader.refused("a closing bracket without an opening one")
    return shape


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0

    def refused(self, why: str) -> ValueError:
        return ValueError(f"the pattern {self.pattern[:60]!r} has {why}")

    def alternatives(self, depth: int) -> Shape:
        if depth > MAX_DEPTH:
            raise self.refused(f"more than {MAX_DEPTH} groups in each other")
        branches = [self.branch(depth)]
        while self.pattern.startswith("|", self.at):
            self.at += 1
            branches.append(self.branch(depth))
        if len(branches) == 1:
            return branches[0]
        size = sum(branch.size for branch in branches)
        least, choices = min(b.least for b in branches), 1 + max(b.choices for b in branches)
        return Shape(least, max(b.endless for b in branches), choices, size)

    def branch(self, depth: int) -> Shape:
        shape = Shape()
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            shape = shape.then(self.repeated(self.atom(depth)))
            if shape.size > MAX_SIZE:
                raise self.refused(f"more than {MAX_SIZE:,} parts, its repeats written out")
            if shape.endless > ENDLESS:
                raise self.refused(f"more than {ENDLESS} repeats without end, one after another")
            if shape.choices > CHOICES:
                raise self.refused(f"more than {CHOICES} repeats and alternatives, one after another")
        return shape

    def atom(self, depth: int) -> Shape:
        char = self.pattern[self.at]
        if char == "(":
            return self.group(depth)
        if char == "[":
            return self.set()
        if char == "\\":
            return self.escape()
        if char in "*+?":
            raise self.refused("a repeat of nothing")
        self.at += 1
        return Shape(0 if char in "^$" else 1)

    def group(self, depth: int) -> Shape:
        found = OPEN.match(self.pattern, self.at)
        assert found is not None  # "(" alone matches
        self.at = found.end()
        if found["only"] == ")":  # flags for the rest of the group
            return Shape()
        if self.pattern.startswith(("?", "*"), self.at):
            raise self.refused(f"a group that headway does not know, at character {found.start() + 1}")
        inner = self.alternatives(depth + 1)
        if not self.pattern.startswith(")", self.at):
            raise self.refused("a group without an end")
        self.at += 1
        if found["look"] or found["atomic"]:  # the engine does not backtrack into it
            return Shape(0 if found["look"] else inner.least, inner.endless, 0, inner.size)
        return inner

    def set(self) -> Shape:
        """Parse a bracket expression; it may contain others."""
        depth = 0
        while self.at < len(self.pattern):
            char = self.pattern[self.at]
            if char == "\\":
                self.escape()
                continue
            self.at += 1
            if char == "[":
                depth += 1
                self.at += self.pattern.startswith("^", self.at)
                self.at += self.pattern.startswith("]", self.at)  # first in a set, ] is a character
            elif char == "]":
                depth -= 1
                if not depth:
                    return Shape(1)
        raise self.refused("a set without an end")

    def escape(self) -> Shape:
        found = ESCAPE.match(self.pattern, self.at)
        if found is None:
            raise self.refused(f"\\{self.pattern[self.at + 1 : self.at + 2]}, which headway does not know")
        self.at = found.end()
        return Shape(0 if found[0][1:] in NO_WIDTH else 1)

    def repeated(self, shape: Shape) -> Shape:
        """Parse the quantifiers after a part."""
        while (times := self.times()) is not None:
            low, high, kept = times
            if shape.choices and (high is None or high > 1):
                raise self.refused("a repeat of a part that matches in several ways, which may take exponential time")
            if max(low, high or 0) > MAX_REPEATS:
                raise self.refused(f"a repeat of {max(low, high or 0):,} times; the limit is {MAX_REPEATS:,}")
            size = shape.size * max(low, high or 1, 1)
            endless = shape.endless + (low != high and (high is None or high > FEW))
            choices = 0 if kept else shape.choices + (low != high)
            shape = Shape(shape.least * low, endless, choices, size)
        return shape

    def times(self) -> tuple[int, int | None, bool] | None:
        """Return the least and the most repeats, and whether the quantifier is possessive (`*+`)."""
        sign = self.pattern[self.at : self.at + 1]
        if sign and sign in "*+?":
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
            after = self.pattern[self.at + 1 : self.at + 2]
            self.at += 1 + (after in ("?", "+"))
            return low, high, after == "+"
        found = TIMES.match(self.pattern, self.at)
        if found is None or not (found[1] or found[3]):  # the bracket is an ordinary character
            return None
        self.at = found.end() + self.pattern.startswith("?", found.end())
        low = int(found[1] or 0)
        return low, int(found[3]) if found[3] else (None if found[2] else low), False
