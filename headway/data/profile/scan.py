"""Scan of a dataset: its texts in batches, with counts of rows and of the values of columns on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headway.data.blocks.block import Block
from headway.data.blocks.json_lines import json_blocks
from headway.data.blocks.parquet import parquet_blocks
from headway.data.blocks.tables import table_blocks
from headway.data.datasets.conll import is_conll, sentences_of
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
from headway.data.profile.folding import Counts
from headway.data.profile.tally import ColumnTally
from headway.data.profile.texts import Measured, measure, text_array
from headway.errors import DataError

BATCH_TEXTS, BATCH_CHARACTERS = 1000, 1_000_000
"""The most texts, and characters, of a batch."""
COLUMNS = 1000
"""The most columns that are counted."""

BLOCKS: dict[str, Callable[..., Iterator[tuple[Block, Any]]]] = {
    "jsonl": json_blocks,
    "csv": table_blocks,
    "tsv": table_blocks,
    "parquet": parquet_blocks,
}
"""Format → the blocks of a file. Other files are read row by row."""


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
            if blocks := BLOCKS.get(file_format(path)[0]):
                yield from self._block_batches(path, blocks)
            else:
                yield from _batched(self._texts(path))

    def _block_batches(self, path: Path, blocks: Callable[..., Iterator[tuple[Block, Any]]]) -> Iterator[Batch]:
        """The batches of a file, by blocks where possible."""
        first = peek(path)[1]
        name, before = self._column(path, first), (self.rows, self.bad.count)
        for block, measured in blocks(path, partial(_measured, name)):
            if not self._can_count(block, name):
                yield from _batched(self._rows(block.rows(), name))
                continue
            self._count(block)
            if measured and len((batch := self._good(block, name, measured)).lines):
                yield batch
        if before == (self.rows, self.bad.count) and blocks is json_blocks:
            self.bad.add(empty_file(path))

    def _can_count(self, block: Block, name: str) -> bool:
        """Whether a block can be counted by its columns; otherwise it has to be read row by row."""
        if block.table is None or not block.table.num_columns:
            return False
        names = block.table.column_names
        return len(self.columns.keys() | set(names)) <= COLUMNS and (not name or _has_texts(block.table, name))

    def _count(self, block: Block) -> None:
        self._add_rows(block.table.num_rows)
        for column in block.table.column_names:
            tally = self.columns.setdefault(column, ColumnTally())
            tally.add_column(block.table[column].chunk(0), partial(_value, block, column))

    def _good(self, block: Block, name: str, measured: Measured) -> Batch:
        """The texts of a block that can be used; the others are bad rows."""
        texts, good = block.table[name].chunk(0), measured.words > 0
        if measured.nul:
            good &= np.array([text is not None and "\0" not in text for text in texts.to_pylist()])
        if good.all():
            return Batch(block.file, block.lines, texts, measured)
        for i in np.flatnonzero(~good).tolist():
            flaw = text_flaw(block.row(i), name)
            assert flaw, "a row without a text has a flaw"
            self.bad.add(flaw)
        some = np.flatnonzero(good)
        return Batch(block.file, block.lines[some], texts.take(some), measured.take(some))

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


def _has_texts(table: Any, name: str) -> bool:
    from pyarrow import types

    return name in table.column_names and types.is_string(table[name].type)


def _measured(name: str, table: Any) -> Measured | None:
    """The texts of a table measured, if it has any."""
    return measure(table[name].chunk(0).fill_null("")) if table is not None and _has_texts(table, name) else None


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
