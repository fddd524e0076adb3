"""Ranges of settings: checked, told in words, and recorded where they are checked."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from headway.config.ranges import Range, above_zero, at_least, in_range, recorded_ranges, shares, within
from headway.errors import ConfigError


@dataclass
class Config:
    a: float | None = 1.0
    b: float = 0.5

    def __post_init__(self) -> None:
        at_least("x", self, a=1)
        shares("x", self, "b")


@pytest.mark.parametrize(
    ("values", "inside", "outside", "words"),
    [
        (Range(1), (1, 1e9, math.inf), (0.999, math.nan), "at least 1"),
        (Range(0, above=True), (1e-9,), (0, -1, math.nan), "above 0"),
        (Range(0, 1, below=True), (0, 0.999), (1, -1e-9), "at least 0 and less than 1"),
        (Range(0, 1, above=True), (1, 0.1), (0, 1.1), "above 0 and at most 1"),
        (Range(-1e6, 1e6), (-1e6, 1e6), (1e6 + 1, math.nan), "at least -1e+06 and at most 1e+06"),
    ],
)
def test_a_range(values: Range, inside: tuple[float, ...], outside: tuple[float, ...], words: str) -> None:
    assert all(value in values for value in inside) and not any(value in values for value in outside)
    assert str(values) == words


def test_checks_name_setting_value_and_range() -> None:
    for make, words in (
        (lambda: Config(a=0.5), "x.a = 0.5 should be at least 1"),
        (lambda: Config(b=1.0), "x.b = 1.0 should be at least 0 and less than 1"),
        (lambda: above_zero("x", Config(b=0.0), "b"), "x.b = 0.0 should be above 0"),
        (lambda: in_range(Config(), b=(2.0, 3.0)), "b = 0.5 is outside 2.0 … 3.0"),
        (lambda: in_range(Config(), b=(2, math.inf)), "b = 0.5 should be at least 2"),
        (lambda: within("x", Config(), Range(0, 0.1), "b"), "x.b = 0.5 should be at least 0 and at most 0.1"),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert (caught.value.code, caught.value.message) == ("C003", words)
    Config(a=None)  # None is unset


def test_ranges_are_recorded_only_inside() -> None:
    with recorded_ranges() as found:
        Config()
    assert found == {(Config, "a"): Range(1), (Config, "b"): Range(0, 1, below=True)}
    with recorded_ranges() as outer:
        with recorded_ranges() as inner:
            Config()
        assert inner and not outer
    Config()
    assert len(found) == 2
