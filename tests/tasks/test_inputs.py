"""Texts in windows: all of them, in order, whatever comes between; and rows that spoil only themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.files.rows import BadRows
from headway.errors import DataError
from headway.tasks.inputs import Item, live_windows, located, windows
from headway.tasks.predictor import predict_good
from headway.tasks.registry import get_task
from headway.tasks.text import TextExample

Windows = Callable[[Iterator[Item], int], Iterator[list[Item]]]


def items(count: int, broken: bool = False) -> Iterator[Item]:
    for i in range(count):
        yield Item(TextExample(str(i)), "f", i + 1)
    if broken:
        raise DataError("D007", "enough")


@pytest.mark.parametrize("cut", [windows, live_windows])
@given(count=st.integers(0, 20), size=st.integers(1, 8), broken=st.booleans())
def test_nothing_is_lost(cut: Windows, count: int, size: int, broken: bool) -> None:
    found: list[list[Item]] = []
    try:
        found.extend(cut(items(count, broken), size))
    except DataError as error:
        assert broken and error.message == "enough"
    else:
        assert not broken
    assert [item.example.text for part in found for item in part] == [str(i) for i in range(count)]
    assert all(0 < len(part) <= size for part in found)
    if cut is windows:
        assert all(len(part) == size for part in found[:-1])


def test_rows_are_read_no_further_than_their_window() -> None:
    read: list[int] = []

    def counted() -> Iterator[Item]:
        for i, item in enumerate(items(100)):
            read.append(i)
            yield item

    assert len(next(windows(counted(), 4))) == 4 and len(read) == 4


def test_a_pipe_does_not_wait_for_a_full_window() -> None:
    def slow() -> Iterator[Item]:
        yield from items(2)
        time.sleep(0.3)
        yield from items(1)

    assert [len(part) for part in live_windows(slow(), 9)] == [2, 1]


@given(st.lists(st.booleans(), max_size=12))
def test_only_the_bad_ones_are_left_out(good: list[bool]) -> None:
    class Predictor:
        def predict(self, some: Sequence[TextExample]) -> list[Any]:
            if wrong := next((example for example in some if not good[int(example.text)]), None):
                raise DataError("D001", f"{wrong.text} is wrong")
            return [SimpleNamespace(to_dict=lambda text=example.text: {"is": text}) for example in some]

    bad, given_ = BadRows("skip"), list(items(len(good)))
    parts = list(predict_good(Predictor(), given_, bad))
    kept, found = ([each for part in side for each in part] for side in zip(*parts, strict=True)) if parts else ([], [])
    expected = [str(i) for i, fine in enumerate(good) if fine]
    assert [item.example.text for item in kept] == expected == [row["is"] for row in found]
    assert bad.count == good.count(False)
    assert bad.first == [f"f:{i + 1}: {i} is wrong" for i, fine in enumerate(good) if not fine]
    for row, item in zip(located(get_task("lm"), kept, found, files=True), kept, strict=True):
        assert row == {"file": "f", "line": item.line, "text": item.example.text, "is": item.example.text}


@pytest.mark.parametrize("said", ["f: too short", "too short", "f is too short"])
def test_a_file_is_named_once(said: str) -> None:
    class Predictor:
        def predict(self, some: Sequence[TextExample]) -> list[Any]:
            raise DataError("D001", said)

    bad = BadRows("skip")
    assert not list(predict_good(Predictor(), list(items(1)), bad))
    assert bad.first == [f"f:1: {said.removeprefix('f').removeprefix(':').strip()}"]
