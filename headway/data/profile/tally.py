"""Tally of a column: the type of its values, how many are missing, an example, and how often each label occurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headway.data.files.columns import LABEL_LETTERS, LABELS, NO_LABELS, column_type, value_type
from headway.data.files.rows import brief

PLAIN_NUMBERS = {"int": "^[+-]?[0-9]+$", "float": "^[+-]?[0-9]+[.][0-9]+$"}
"""Type → texts that surely have it: they need not be looked at one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    kind: str
    missing: int
    example: str
    labels: dict[str, int]
    """Value → number of rows, the most frequent first; empty if the column cannot be a label."""


@dataclass(slots=True)
class ColumnTally:
    kinds: set[str] = field(default_factory=set)
    present: int = 0
    example: str = ""
    labels: Counter[str] | None = field(default_factory=Counter)

    def add(self, value: Any) -> None:
        sort = value_type(value)
        if sort == "missing":
            return
        self.kinds.add(sort)
        self.present += 1
        self.example = self.example or one_line(value)
        if sort in NO_LABELS or (isinstance(value, str) and len(value) > LABEL_LETTERS):
            self.labels = None
        self._count([(value, 1)])

    def add_column(self, values: Any, value_at: Callable[[int], Any]) -> None:
        """Add a pyarrow array; `value_at` gives the value of one row. The same as `add` for each."""
        from pyarrow import compute

        if not (kind := _kind(values.type)):
            for value in values.to_pylist():
                self.add(value)
            return
        text = kind == "text"
        there = compute.not_equal(values, "") if text else compute.is_valid(values)
        rows = np.flatnonzero(there.fill_null(False).to_numpy(zero_copy_only=False))
        if not len(rows):
            return
        self.present += len(rows)
        for row in rows.tolist() if not self.example else ():
            if example := one_line(value_at(row)):
                self.example = example
                break
        if not text:
            self.kinds.add(kind)
        if self.kinds & set(NO_LABELS) or (text and compute.max(compute.utf8_length(values)).as_py() > LABEL_LETTERS):
            self.labels = None
        if self.labels is not None:
            counts = compute.value_counts(values.take(rows) if len(rows) < len(values) else values)
            distinct = counts.field(0)
            if text and len(distinct) > LABELS:
                self.labels = None
            else:
                self._count(zip(distinct.to_pylist(), counts.field(1).to_pylist(), strict=True))
            values = distinct
        if text and "text" not in self.kinds:  # no other type of texts changes a column of texts
            self._add_kinds(values)

    def _add_kinds(self, texts: Any) -> None:
        from pyarrow import compute

        for kind, pattern in PLAIN_NUMBERS.items():
            plain = compute.match_substring_regex(texts, pattern).fill_null(False)
            if compute.any(plain).as_py():
                self.kinds.add(kind)
                texts = texts.filter(compute.invert(plain))
        for value in texts:
            self.kinds.add(value_type(value.as_py()))
            if "text" in self.kinds:
                break
        self.kinds.discard("missing")

    def _count(self, values: Iterable[tuple[Any, int]]) -> None:
        for value, number in values if self.labels is not None else ():
            assert self.labels is not None
            self.labels[one_line(value)] += number
            if len(self.labels) > LABELS:
                self.labels = None
                return

    def fact(self, name: str, rows: int, text: str) -> Column:
        kind = column_type(self.kinds)
        named = self.labels if name != text and kind != "date" else None
        likely = named if named and 2 <= len(named) <= self.present / 2 else None
        return Column(
            name=name,
            kind=kind,
            missing=max(0, rows - self.present),  # a sentence has several tags
            example=self.example,
            labels=dict(likely.most_common()) if likely else {},
        )


def _kind(kind: Any) -> str:
    """The type of all values of a pyarrow type, as `value_type` calls it; "" where the values have to tell."""
    from pyarrow import types

    tests = {
        **{"text": types.is_string, "bool": types.is_boolean, "int": types.is_integer, "float": types.is_floating},
        **{"list": types.is_list, "object": types.is_struct},
    }
    return next((name for name, test in tests.items() if test(kind)), "")


def one_line(value: Any, width: int = 60) -> str:
    """A value for a table on a terminal: no line breaks, no control characters."""
    text = brief(value) if isinstance(value, list | dict | bytes) else str(value)[: 4 * width]
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else "�" for c in text)
    return text if len(text) <= width else text[: width - 1] + "…"
