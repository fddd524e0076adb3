"""Events of a log: read in blocks as if one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.runs import events
from headway.runs.events import COLUMNS, EventLog, last_line_end, read_events
from tests.runs.conftest import NOON, event, finished, steps

ODD: tuple[Any, ...] = (None, True, "3", 2.5, -1, 0, 7, 10**400, float("nan"), float("inf"), [1])

REST = {"grad_norm": 1, "share": 0}


def one_by_one(found: list[dict[str, Any]]) -> EventLog:
    log = EventLog()
    for each in found:
        log.add(each)
    return log


def same(a: EventLog, b: EventLog) -> bool:
    columns = all(np.array_equal(a.columns()[name], b.columns()[name], equal_nan=True) for name in COLUMNS)
    facts = (a.evals, a.samples, a.events, a.lines, a.bad_lines, a.first_time, a.last_time)
    return columns and facts == (b.evals, b.samples, b.events, b.lines, b.bad_lines, b.first_time, b.last_time)


def test_steps_in_blocks_are_steps_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BLOCK", 16)
    log = [*finished(), event("restart", step=60, time=NOON + 900), *steps(61, 99), *steps(80, 120)]
    blocks, slow = EventLog(), one_by_one(log)
    blocks.add_all(log)
    assert same(blocks, slow) and blocks.wall == pytest.approx(slow.wall)


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(ODD), st.sampled_from(ODD), st.booleans())))
def test_any_steps_in_blocks_are_steps_one_by_one(drawn: list[tuple[int, Any, Any, bool]]) -> None:
    log = [
        event("step" if plain else "spike", step=step, loss=loss, time=time, lr=0.1, tokens=1, seconds=1, **REST)
        for step, loss, time, plain in drawn
    ]  # fmt: skip
    blocks = EventLog()
    blocks.add_all(log)
    assert same(blocks, one_by_one(log))


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[1]", b'{"event": 3}', b'{"event": "eval"},{"event": "eval"}', b"\xff\xfe"]
)
def test_a_damaged_line_does_not_hide_its_neighbours(tmp_path: Path, damage: bytes) -> None:
    lines = [json.dumps(each).encode() for each in steps(1, 3)]
    (tmp_path / "log").write_bytes(b"\n".join([lines[0], damage, *lines[1:]]) + b"\n")
    found = list(read_events(tmp_path / "log"))
    assert [each.get("step") for each in found] == [1, None, 2, 3]


def test_a_part_of_a_log_is_read_by_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.dumps(each).encode() + b"\n" for each in steps(1, 5)]
    path = tmp_path / "log"
    path.write_bytes(b"".join(lines) + b'{"event": "st')
    for tail in (1, 7, 1 << 20):
        monkeypatch.setattr(events, "TAIL", tail)
        assert last_line_end(path, path.stat().st_size) == sum(map(len, lines))
        assert last_line_end(path, len(lines[0]) - 1) == 0
    start, end = len(lines[0]), sum(map(len, lines[:3]))
    assert [each["step"] for each in read_events(path, start, end)] == [2, 3]
    assert list(read_events(path, 0, 0)) == []
