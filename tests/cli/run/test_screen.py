"""Colours that can be read on black and on white; text as it comes; trees with shared trunks."""

from __future__ import annotations

import io
import re

import pytest

from headway.cli.run.screen import SCALE, branches, colours, legend, paint, show, show_steps
from headway.generate.trace import Alternative, Choice, Node


def luminance(colour: int) -> float:
    """Of one of the 216 colours of the cube, by WCAG 2."""
    parts = [(0, 95, 135, 175, 215, 255)[(colour - 16) // place % 6] / 255 for place in (36, 6, 1)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_colours_are_readable_on_dark_and_light() -> None:
    for _, colour in SCALE:
        value = luminance(colour)
        assert (value + 0.05) / 0.05 >= 3 and 1.05 / (value + 0.05) >= 3
    assert luminance(226) > 0.3  # the usual yellow would not do


@pytest.mark.parametrize(
    ("probability", "place"),
    [(1.0, 0), (0.8, 0), (0.79, 1), (0.2, 2), (0.05, 3), (0.01, 4), (0.0, 4), (float("nan"), 4)],
)
def test_the_scale(probability: float, place: int) -> None:
    assert paint("x", probability) == f"\x1b[38;5;{SCALE[place][1]}mx\x1b[39m"
    assert len(re.findall("38;5;", legend())) == len(SCALE)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_when_colours_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert colours(Terminal()) and not colours(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours(Terminal())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert colours(io.StringIO())


def step(position: int, probability: float) -> Choice:
    one = Alternative(position, probability, 0.5)
    return Choice(0, position, one, [one, Alternative(9, 0.25, 0.5)])


def test_a_piece_is_as_likely_as_its_least_likely_token(capsys: pytest.CaptureFixture[str]) -> None:
    steps: list[Choice] = []

    def pieces():  # type: ignore[no-untyped-def]
        steps.append(step(0, 0.9))
        yield "a"
        steps.extend([step(1, 0.1), step(2, 0.9)])
        yield "bc"
        steps.append(step(3, 0.6))
        yield "d"

    assert show(pieces(), "> ", steps, lambda text, p: f"[{text} {p}]") == "abcd"
    assert capsys.readouterr().out == "> [a 0.9][bc 0.1][d 0.6]\n"
    assert show(iter(()), "before") == "" and capsys.readouterr().out == "before\n"


def test_a_line_for_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    show_steps([step(3, 0.5)], lambda ids: f"<{ids[0]}>\n")
    assert capsys.readouterr().out.split() == ["3", r"'<3>\n'", "50.0%", r"'<3>\n'", "50.0%", r"'<9>\n'", "25.0%"]


def test_a_tree_shares_its_trunks() -> None:
    end = Node(5, -1.5, True)
    forest = [
        Node(1, -1.0, False, [Node(2, -1.0, False, [end, Node(6, -2.0, False)])]),
        Node(3, -3.0, False),
    ]
    assert list(branches(forest, lambda ids: "".join(map(str, ids)))) == [
        "├─ '12'",
        "│  ├─ '5'  ■ -1.500",
        "│  └─ '6'  × -2.000",
        "└─ '3'  × -3.000",
    ]
