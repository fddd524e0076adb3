"""A survey by blocks is the survey by rows, whatever the lines hold; and most lines are taken by blocks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headway.data.blocks import json_lines
from headway.data.blocks.json_lines import json_blocks
from headway.data.profile.survey import Survey, survey

ByRows = Callable[[str], Survey]

ODD_LINES = [
    '{"text": "a", "text": "b"}', '{"text": NaN}', '{"n": 1e999}', '{"text": "\\udc00"}', '{"text": "\\ud83d\\ude00"}',
    '{"n": 12345678901234567890}', '{"n": 1.0}', '{"n": 1}', '{"n": -0.5}', '{"n": "7"}', '{"n": true}', '{"n": null}',
    '{"text": "2020-01-01"}', '{"text": "2020-01-01T10:00:00Z", "n": 2}', '{"when": "2020-01-01"}', '{"text": 5}',
    '{"text": "x\\u0000y"}', '{"text": "  "}', '{"text": ""}', '{"text": "\\u3000"}', '{"text": null}', "{}", "", "  ",
    '{"text": "a"} {"text": "b"}', '{"text":', '"b"}', "[1]", "nope", '{"text": "a",}', ' {"text": "lead"} ',
    '{"m": [{"role": "user", "content": "hi"}]}', '{"m": [{"role": "user", "n": 1.5}], "text": "A  b"}',
    '{"m": {"a": {"a": 1, "a": 2}}}', '{"m": [NaN]}', '{"m": [[[1]]]}', '{"m": []}', '{"text": "É", "label": "x"}',
    '{"text": "tab\there"}', '{"text": "é\\n b", "label": "y"}', '{"text": "e\u0301"}', '{"label": "x", "text": "Z"}',
    '{"m": ' + "[" * 70 + "]" * 70 + "}", '{"text": "' + "long " * 40 + '"}', '{"label": "' + "l" * 41 + '"}',
]  # fmt: skip


lines = st.lists(
    st.sampled_from(ODD_LINES)
    | st.builds(lambda t, n: json.dumps({"text": t, "n": n}), st.text(max_size=9), st.integers(-3, 3))
    | st.builds(lambda t, label: json.dumps({"text": t, "label": label}), st.text("ab ", max_size=9), st.text("xy")),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(
    lines, st.sampled_from([40, 200, 1 << 22]), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\n", "\ufeff"])
)
@example(['{"n": null}', '{"when": "2020-01-01"}'], 200, "\n", "\n")  # columns stay in the order of their appearance
@example(['{"text": "a"}', '{"text":', '"b"}', '{"text": "c"} {"text": "d"}'], 200, "\n", "\n")  # as many rows as lines
def test_blocks_give_what_rows_give(
    monkeypatch: pytest.MonkeyPatch, by_rows: ByRows, tmp_path: Path, lines: list[str], size: int, end: str, extra: str
) -> None:
    path = tmp_path / "x.jsonl"
    text = (extra if extra == "\ufeff" else "") + end.join(lines) + (end if extra == "\n" else "")
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    monkeypatch.setattr(json_lines, "SIZE", size)
    assert survey(str(path)) == by_rows(str(path))


def test_undecodable_bytes_and_long_lines_are_named(
    monkeypatch: pytest.MonkeyPatch, by_rows: ByRows, tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    rows = [b'{"text": "row %d"}' % i for i in range(300)]
    rows[123], rows[200] = b'{"text": "caf\xe9"}', b'{"text": "' + b"x" * 5000 + b'"}'
    path.write_bytes(b"\n".join(rows))
    monkeypatch.setattr(json_lines, "SIZE", 512)
    monkeypatch.setattr("headway.data.files.lines.ROW_LIMIT", 4000)
    found = survey(str(path))
    assert (found.rows, found.bad) == (298, 2)
    assert [line.split(":")[1] for line in found.bad_lines] == ["124", "201"]
    assert found == by_rows(str(path))


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_ordinary_files_are_taken_by_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """Dates, a field that comes late, floats after integers: still columns."""
    rows = [{"id": i, "text": f"täxt {i}", "day": "2024-01-05"} for i in range(500)]
    rows += [{"id": i / 2, "text": f"text {i}", "more": [{"a": 1}]} for i in range(500)]  # type: ignore[dict-item]
    raw = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    monkeypatch.setattr(json_lines, "SIZE", 4096)
    found = [block for block, _ in json_blocks(tmp_path / name, len)]
    assert len(found) > 5
    assert b"".join(block.raw for block in found) == raw
    assert [block.line for block in found if block.table is None] in ([], [next(b.line for b in found if b.line > 460)])
    facts = {column.name: column.kind for column in survey(str(tmp_path / name)).columns}
    assert facts == {"id": "float", "text": "text", "day": "date", "more": "list"}
