"""Generated text in a terminal: printed as it comes, coloured by probability, with the alternatives of each step."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headway.progress import hidden

if TYPE_CHECKING:
    from headway.generate.trace import Choice, Growth, Node

SCALE = ((0.8, 28), (0.5, 31), (0.2, 136), (0.05, 166), (0.0, 160))
"""Lower bound of a probability → one of 256 colours: green, blue, ochre, orange, red. Each has a contrast of at least
3 with black and with white."""

STEPS_LEGEND = "trace: position, the token that was taken, then the most likely tokens; each with its probability"
TREE_LEGEND = (
    "trace: a fork is where beams part; ■ a finished text with its final score, × a dropped beam with its last"
)

Paint = Callable[[str, float], str]


def colours(stream: Any = None) -> bool:
    """Whether to print colours: FORCE_COLOR turns them on, then NO_COLOR off; by default, only on a terminal."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return not os.environ.get("NO_COLOR") and bool((stream or sys.stdout).isatty())


def paint(text: str, probability: float) -> str:
    """The text in the colour of its probability."""
    colour = next((colour for least, colour in SCALE if probability >= least), SCALE[-1][1])  # NaN is in no range
    return f"\x1b[38;5;{colour}m{text}\x1b[39m"


def legend() -> str:
    marks = [paint(f"≥ {least:.0%}", least) for least, _ in SCALE[:-1]]
    return "  ".join(["probability", *marks, paint("less", 0.0)])


def show(pieces: Iterator[str], before: str = "", steps: Sequence[Choice] = (), by: Paint | None = None) -> str:
    """Print a text as it comes, and return it.

    `steps` grows with the pieces. A piece of several tokens has the probability of its least likely token.
    """
    text, seen = "", 0
    with hidden():
        for piece in pieces:
            least = min((step.chosen.probability for step in steps[seen:]), default=1.0)
            seen = len(steps)
            print(before + (piece if by is None else by(piece, least)), end="", flush=True)
            text, before = text + piece, ""
        print(before)
    return text


def show_steps(steps: Sequence[Choice], decode: Callable[[list[int]], str]) -> None:
    """One line per token: the token that was drawn, and the most likely ones."""
    for step in steps:
        others = [f"{decode([other.token])!r} {other.probability:.1%}" for other in step.best]
        taken = f"{decode([step.chosen.token])!r} {step.chosen.probability:.1%}"
        print(f"{step.position:4}  {taken:24}  {'  '.join(others)}")


def show_tree(steps: Sequence[Growth], decode: Callable[[list[int]], str]) -> None:
    """The beams as a tree: ■ marks a finished sequence with its final score, × a dropped one with its last score."""
    from headway.generate.trace import tree

    for line in branches(tree(steps), decode):
        print(line)


def branches(nodes: Sequence[Node], decode: Callable[[list[int]], str], margin: str = "") -> Iterator[str]:
    """The lines of a tree; tokens without a fork between them share a line."""
    for place, node in enumerate(nodes):
        last, tokens = place + 1 == len(nodes), [node.token]
        while len(node.next) == 1:
            node = node.next[0]
            tokens.append(node.token)
        end = "" if node.next else f"  {'■' if node.ended else '×'} {node.score:.3f}"
        yield f"{margin}{'└─' if last else '├─'} {decode(tokens)!r}{end}"
        yield from branches(node.next, decode, margin + ("   " if last else "│  "))
