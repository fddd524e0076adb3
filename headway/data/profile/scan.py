"""Scan of a dataset: its texts in batches, with counts of rows and of the values of columns on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headway.data.datasets.conll import is_conll, sentences_of
from headway.data.files.blocks import Block, json_blocks
from headway.data.files.columns import (
    CONTEXT,
    QUESTION,
    TEXT,
    by_text,
    candidates,
    find_columns,
    has_choices,
    named,
)
from headway.data.files.locate import file_format
from headway.data.files.readers import Flaw, Row, empty_file
from headway.data.files.rows import BadRows, Document, find_files, peek, text_flaw
from headway.data.profile.tally import ColumnTally
from headway.data.profile.texts import Counts, Measured, measure, text_array
from headway.errors import DataError

BATCH_TEXTS, BATCH_CHARACTERS = 1000, 1_000_000
"""The most texts, and characters, of a batch."""
COLUMNS = 1000
"""The most columns that are counted."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some texts of a file, without flaws."""

    file: str
    lines: Counts
    texts: Any
    """A pyarrow array."""
    measured: Measured


class Scan:
    """Reads the texts of a dataset in batches, and counts rows and values of columns meanwhile."""

    def __init__(self, spec: str, column: str, bad: BadRows) -> None:
        self.files, self.asked, self.bad = find_files(spec), column, bad
        self.rows = self.table_rows = 0
        self.column, self.sure, self.choices = "", True, False
        self.units: set[str] = set()
        self.columns: dict[str, ColumnTally] = {}

    def batches(self) -> Iterator[Batch]:
        for path in self.files:
            if file_format(path)[0] == "jsonl":
                yield from self._json_batches(path)
            else:
                yield from _batched(self._texts(path))

    def _json_batches(self, path: Path) -> Iterator[Batch]:
        """The batches of a JSON lines file, by blocks where possible."""
        first = peek(path)[1]
        name, before = self._column(path, first), (self.rows, self.bad.count)
        for block in json_blocks(path):
            if (batch := self._block(block, name)) is None:
                yield from _batched(self._rows(block.rows(), name))
            elif len(batch.lines):
                yield batch
        if before == (self.rows, self.bad.count):
            self.bad.add(empty_file(path))

    def _block(self, block: Block, name: str) -> Batch | None:
        """Count a block by its columns; None where it has to be read row by row."""
        from pyarrow import types

        table = block.table
        if table is None or not table.num_columns or len(self.columns.keys() | set(table.column_names)) > COLUMNS:
            return None
        if name and (name not in table.column_names or not types.is_string(table[name].type)):
            return None
        self._add_rows(table.num_rows)
        for column in table.column_names:
            tally = self.columns.setdefault(column, ColumnTally())
            tally.add_column(table[column].chunk(0), partial(_value, block, column))
        lines = block.line + np.arange(table.num_rows)
        return self._good(block, table[name].chunk(0), name, lines) if name else _batch(block.file, lines[:0], [])

    def _good(self, block: Block, texts: Any, name: str, lines: Counts) -> Batch:
        """The texts of a block that can be used; the others are bad rows."""
        batch = _batch(block.file, lines, texts.fill_null(""))
        good = batch.measured.words > 0
        if b"\\u0000" in block.raw:
            good &= np.array(["\0" not in text for text in batch.texts.to_pylist()])
        if good.all():
            return batch
        for i in np.flatnonzero(~good).tolist():
            flaw = text_flaw(block.row(i), name)
            assert flaw, "a row without a text has a flaw"
            self.bad.add(flaw)
        return _batch(block.file, lines[good], batch.texts.take(np.flatnonzero(good)))

    def _texts(self, path: Path) -> Iterator[Document]:
        if is_conll(path):
            yield from self._sentences(path)
            return
        items, first = peek(path)
        if file_format(path)[0] != "text":
            yield from self._rows(items, self._column(path, first))
            return
        for item in items:
            if isinstance(item, Flaw):
                self.bad.add(item)
            else:
                self.rows += 1
                yield from self._parts(item)

    def _rows(self, items: Iterable[Row | Flaw], name: str) -> Iterator[Document]:
        for item in items:
            flaw = text_flaw(item, name) if name or isinstance(item, Flaw) else None
            if flaw:
                self.bad.add(flaw)
            if isinstance(item, Flaw):
                continue
            self._add_rows(1)
            self._add_values(item)
            if name and not flaw:
                yield Document(item.values[name], item.file, item.line)

    def _sentences(self, path: Path) -> Iterator[Document]:
        """Yield the sentences of a CoNLL file."""
        words, tags = (self.columns.setdefault(name, ColumnTally()) for name in ("words", "tags"))
        self.column = "words"
        self.units.add("sentences")
        for item in sentences_of(path):
            if isinstance(item, Flaw):
                self.bad.add(item)
                continue
            self.rows, self.table_rows = self.rows + 1, self.table_rows + 1
            document = Document(" ".join(item.words), item.file, item.line)
            words.add(document.text)
            for tag in item.tags:
                tags.add(tag)
            yield document

    def _parts(self, row: Row) -> Iterator[Document]:
        unit, parts = split_text(row.values["text"])
        self.units.add(unit)
        yield from (Document(text, row.file, line) for text, line in parts)

    def _column(self, path: Path, rows: Sequence[Row]) -> str:
        """The column that training finds too; where it would ask, the one with most text; "" if there is none."""
        values = [row.values for row in rows]
        self.choices = self.choices or has_choices(values)
        found = by_text(values, candidates(values, TEXT))
        try:
            certain = find_columns(path, values, [TEXT])[0]
        except DataError:  # none, or several that may be it
            certain = ""
        if {question := named(values, QUESTION), named(values, CONTEXT)} <= set(found):
            found = [question, *found]  # contexts repeat with every question
        if self.asked:
            found = find_columns(path, values, [TEXT], {TEXT.setting: self.asked})
        self.sure = self.sure and (found or [""])[0] == certain
        self.column = found[0] if found else self.column
        return found[0] if found else ""

    def _add_rows(self, number: int) -> None:
        self.rows, self.table_rows = self.rows + number, self.table_rows + number
        self.units.add("rows")

    def _add_values(self, row: Row) -> None:
        for name, value in row.values.items():
            if name not in self.columns:
                if len(self.columns) >= COLUMNS:
                    continue
                self.columns[name] = ColumnTally()
            self.columns[name].add(value)


def _value(block: Block, column: str, index: int) -> Any:
    row = block.row(index)
    assert isinstance(row, Row), "a block with columns has no flaws"
    return row.values[column]


def _batched(texts: Iterator[Document]) -> Iterator[Batch]:
    """Batches of the texts of one file."""
    batch: list[Document] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text.text)
        if len(batch) >= BATCH_TEXTS or size >= BATCH_CHARACTERS:
            yield _joined(batch)
            batch, size = [], 0
    if batch:
        yield _joined(batch)


def _joined(batch: Sequence[Document]) -> Batch:
    lines = np.array([text.line for text in batch], dtype=np.int64)
    return _batch(batch[0].file, lines, [text.text for text in batch])


def _batch(file: str, lines: Counts, texts: Any) -> Batch:
    texts = text_array(texts) if isinstance(texts, list) else texts
    return Batch(file, lines, texts, measure(texts))


def split_text(text: str) -> tuple[str, list[tuple[str, int]]]:
    """Split a text into paragraphs, or into lines if it has few blank lines; each with its first line number."""
    lines = [line.strip() for line in text.rstrip().split("\n")]
    filled = sum(map(bool, lines))
    if (len(lines) - filled) * 50 < filled:
        return "lines", [(line, number) for number, line in enumerate(lines, start=1) if line]
    found: list[tuple[list[str], int]] = []
    for number, line in enumerate(lines, start=1):
        if line and number > 1 and lines[number - 2]:
            found[-1][0].append(line)
        elif line:
            found.append(([line], number))
    return "paragraphs", [("\n".join(part), number) for part, number in found]
