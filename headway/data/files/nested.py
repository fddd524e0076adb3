"""Rows inside a JSON object: the list under `data`, or the questions of a SQuAD file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headway.jsonfile import JSON_LIMIT, JSON_VALUES, parse_object

ROWS = "data"
"""The key of the list of rows."""


def rows_inside(raw: bytes) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    """Yield the line (if known) and the row of each entry; a string instead of a row is the reason for a flaw."""
    if len(raw) > JSON_LIMIT:
        raise ValueError(f"larger than {JSON_LIMIT:,} bytes")
    entries = parse_object(raw, JSON_VALUES).get(ROWS)
    if not isinstance(entries, list):
        raise ValueError(f'an object without a list of rows called "{ROWS}"')
    at, line = 0, 1
    for row in _rows(entries):
        if isinstance(row, dict) and (place := raw.find(f'"{row.get("id")}"'.encode(), at)) >= 0:
            at, line = place, line + raw.count(b"\n", at, place)
        yield line, row


def _rows(entries: list[Any]) -> Iterator[dict[str, Any] | str]:
    for entry in entries:
        paragraphs = entry.get("paragraphs") if isinstance(entry, dict) else None
        if isinstance(paragraphs, list):
            for paragraph in paragraphs:
                yield from _questions(paragraph)
        else:
            yield entry if isinstance(entry, dict) else f'an entry of "{ROWS}" that is no object'


def _questions(paragraph: Any) -> Iterator[dict[str, Any] | str]:
    """Yield the questions of a paragraph; a question marked impossible has no answers, whatever the file lists."""
    asked = paragraph.get("qas") if isinstance(paragraph, dict) else None
    if not isinstance(asked, list):
        yield 'a paragraph without a list of questions called "qas"'
        return
    for entry in asked:
        if not isinstance(entry, dict):
            yield 'an entry of "qas" that is no object'
            continue
        answers = [] if entry.get("is_impossible") is True else entry.get("answers", [])
        named = {"id": str(entry["id"])} if "id" in entry else {}
        yield {**named, "question": entry.get("question"), "context": paragraph.get("context"), "answers": answers}
