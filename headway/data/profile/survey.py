"""Survey of a dataset: columns, lengths, labels, duplicates, bad lines, overlap with another dataset.

One pass over each dataset keeps counts and hashes, so memory depends on the number of texts, not on their size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headway.data.datasets.conll import is_conll, sentences_of
from headway.data.files.columns import (
    CONTEXT,
    DOCUMENT,
    QUESTION,
    candidates,
    column_type,
    find_columns,
    named,
    value_type,
)
from headway.data.files.locate import file_format
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import (
    BadRows,
    Document,
    brief,
    find_files,
    peek,
    text_flaw,
)
from headway.data.profile.duplicates import NGRAM, DuplicateIndex, NgramIndex
from headway.data.profile.lengths import LengthCounter, Lengths
from headway.data.tokenizers.tokenizer import load_tokenizer
from headway.errors import counted
from headway.jsonfile import show
from headway.progress import track

BATCH_TEXTS, BATCH_CHARACTERS = 1000, 1_000_000
"""The most texts, and characters, of a batch."""
LABELS = 50
"""The most different values of a column that may be a label."""
COLUMNS = 1000
"""The most columns that are counted."""
SHOWN_COLUMNS, SHOWN_LABELS, SHOWN_VALUES, SHOWN_REPEATS, SHOWN_BAD = 6, 2, 6, 2, 4
"""How many of each fit on a screen; `as_dict` has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    kind: str
    missing: int
    example: str
    labels: dict[str, int]
    """Value → number of rows, the most frequent first; empty if the column cannot be a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How much of a validation set is in the training set."""

    valid: str
    texts: int
    equal: int
    """Texts that are also in the training set."""
    sharing: int
    """Texts that share an n-gram with it."""
    long_enough: int
    """Texts with at least one n-gram."""
    bad: int

    def lines(self, unit: str) -> Iterator[str]:
        bad = f"; {self.bad:,} bad lines in there" if self.bad else ""
        yield f"{'overlap':11} {_share(self.equal, self.texts, unit)} of {show(self.valid)} are in this set{bad}"
        short = f"; {self.texts - self.long_enough:,} have fewer words" if self.long_enough < self.texts else ""
        yield f"{'':11} {_share(self.sharing, self.texts, unit)} share {NGRAM} words in a row with it{short}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    spec: str
    files: int
    bytes: int
    formats: tuple[str, ...]
    rows: int
    """Rows without bad ones; a text file is one row."""
    unit: str
    """The unit of lengths and duplicates: rows, or the paragraphs or lines of text files."""
    texts: int
    column: str
    """The column of the texts; empty if no column has texts."""
    asked: bool
    """Whether the user named the column."""
    sure: bool
    """Whether `documents` would find the same column without a setting."""
    columns: tuple[Column, ...]
    lengths: dict[str, Lengths]
    duplicates: int
    """Texts that repeat an earlier one."""
    repeats: tuple[tuple[str, str], ...]
    """Places of the first duplicates, each with the place of its original."""
    bad: int
    bad_lines: tuple[str, ...]
    overlap: Overlap | None
    task: str = ""
    """The task whose rules define bad lines; empty for the rules of all readers."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """The survey as lines for one screen."""
        formats = ", ".join(self.formats)
        yield f"{show(self.spec)}: {counted(self.files, 'files')}, {self.bytes / 1e6:,.2f} MB, {formats}"
        yield self._summary()
        if self.columns:
            yield ""
            yield from self._column_lines()
        if self.lengths:
            yield ""
            yield from self._length_lines()
        yield ""
        for column in [column for column in self.columns if column.labels][:SHOWN_LABELS]:
            yield f"{'labels':11} {_balance(column)}"
        if self.texts:
            yield f"{'duplicates':11} {_share(self.duplicates, self.texts, self.unit)}"
            apart = [places for places in self.repeats if places[0] != places[1]]  # a file may be one line
            yield from (f"{'':11} {_repeat(*places)}" for places in apart[:SHOWN_REPEATS])
        whose = f" for {self.task}" if self.task else ""
        yield f"{'bad lines':11} {self.bad:,}{whose}" + (" (--bad lists them all)" if self.bad > SHOWN_BAD else "")
        yield from (f"{'':11} {line}" for line in self.bad_lines[:SHOWN_BAD])
        if self.overlap:
            yield from self.overlap.lines(self.unit)

    def _summary(self) -> str:
        if not self.columns:
            return f"{self.texts:,} {self.unit}"
        chosen = f"the text is {one_line(self.column)}" if self.column else "no column holds text"
        contexts = [column.name for column in self.columns if column.name.lower() in CONTEXT.names]
        if self.column.lower() in QUESTION.names and contexts:
            chosen += f", and {contexts[0]} has the contexts"
        elif self.column and not self.sure and not self.asked:
            chosen += ", the longest of several columns; --column names another"
        names = [column.name for column in self.columns]
        numbered = names == [f"column{i}" for i in range(1, len(names) + 1)]
        unnamed = "; the first line is data, not a header" if numbered else ""
        unit = "sentences" if self.unit == "sentences" else "rows"
        return f"{self.rows:,} {unit}, {counted(len(names), 'columns')}: {chosen}{unnamed}"

    def _column_lines(self) -> Iterator[str]:
        shown = self.columns[:SHOWN_COLUMNS]
        cells = [(one_line(c.name, 24), c.kind, f"{c.missing:,}", c.example) for c in shown]
        yield from _aligned([("column", "kind", "missing", "example"), *cells], "<<><")
        if more := len(self.columns) - len(shown):
            yield f"… and {more:,} more"

    def _length_lines(self) -> Iterator[str]:
        head = (f"length of {self.unit}", "total", "min", "median", "mean", "p95", "max", "from min to max")
        cells = [
            (unit, *(f"{n:,}" for n in (of.total, of.min, of.median)), f"{of.mean:,.1f}", f"{of.p95:,}", f"{of.max:,}")
            for unit, of in self.lengths.items()
        ]
        bars = [of.bars() for of in self.lengths.values()]
        yield from _aligned([head, *((*row, bar) for row, bar in zip(cells, bars, strict=True))], "<>>>>>><")


def _aligned(rows: Sequence[Sequence[str]], sides: str) -> Iterator[str]:
    """Align columns, two spaces apart; `sides` has < or > for each."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _share(part: int, whole: int, nouns: str) -> str:
    return f"{part:,} ({part / max(whole, 1):.1%}) of {whole:,} {nouns}"


def _repeat(again: str, first: str) -> str:
    file, _, line = first.rpartition(":")
    return f"{show(again)} repeats " + (f"line {line}" if again.startswith(f"{file}:") else show(first))


def _balance(column: Column) -> str:
    total = sum(column.labels.values())
    shown = [f"{value} {number / total:.1%}" for value, number in column.labels.items()][:SHOWN_VALUES]
    rest = len(column.labels) - len(shown)
    return f"{one_line(column.name, 24)}: {', '.join(shown)}" + (f", … {rest} more" if rest else "")


def survey(
    spec: str,
    *,
    column: str = "",
    valid: str | None = None,
    tokenizer: str | Path | None = None,
    keep: int = 20,
) -> Survey:
    """Survey a dataset; with `valid` also its overlap with that dataset. `keep` bad lines are kept."""
    encode = load_tokenizer(Path(tokenizer)).ids if tokenizer else None
    held_out, bad = (_HeldOut(valid, column) if valid else None), BadRows("skip", keep)
    view, tally, seen = _Reader(spec, column, bad), LengthCounter(encode), DuplicateIndex()
    for batch in track(view.batches(), "looking at the data", unit="batches"):
        tally.add([text.text for text in batch])
        for text in batch:
            seen.add(text.text, text.file, text.line)
        if held_out:
            held_out.ngrams.compare([text.text for text in batch])
    duplicates, repeats = seen.repeats()
    return Survey(
        spec=spec,
        files=len(view.files),
        bytes=sum(path.stat().st_size for path in view.files),
        formats=tuple(sorted({file_format(path)[0] for path in view.files})),
        rows=view.rows,
        unit=" and ".join(sorted(view.units)) or "rows",
        texts=len(seen),
        column=view.column,
        asked=bool(column),
        sure=view.sure,
        columns=tuple(view.columns[name].fact(name, view.table_rows, view.column) for name in view.columns),
        lengths=tally.lengths(),
        duplicates=duplicates,
        repeats=tuple(repeats),
        bad=bad.count,
        bad_lines=tuple(bad.first),
        overlap=held_out.overlap(seen) if held_out else None,
    )


class _Reader:
    """Reads the texts of a dataset in batches, and counts rows and values of columns meanwhile."""

    def __init__(self, spec: str, column: str, bad: BadRows) -> None:
        self.files, self.asked, self.bad = find_files(spec), column, bad
        self.rows = self.table_rows = 0
        self.column, self.sure = "", True
        self.units: set[str] = set()
        self.columns: dict[str, _ColumnTally] = {}

    def batches(self) -> Iterator[list[Document]]:
        batch: list[Document] = []
        size = 0
        for path in self.files:
            for text in self._texts(path):
                batch.append(text)
                size += len(text.text)
                if len(batch) >= BATCH_TEXTS or size >= BATCH_CHARACTERS:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def _texts(self, path: Path) -> Iterator[Document]:
        if is_conll(path):
            yield from self._sentences(path)
            return
        items, first = peek(path)
        plain = file_format(path)[0] == "text"
        name = "text" if plain else self._column(path, first)
        for item in items:
            flaw = text_flaw(item, name) if name or isinstance(item, Flaw) else None
            if flaw:
                self.bad.add(flaw)
            if isinstance(item, Flaw):
                continue
            self.rows += 1
            if plain:
                yield from self._parts(item)
                continue
            self._add_row(item)
            if name and not flaw:
                yield Document(item.values[name], item.file, item.line)

    def _sentences(self, path: Path) -> Iterator[Document]:
        """Yield the sentences of a CoNLL file."""
        words, tags = (self.columns.setdefault(name, _ColumnTally()) for name in ("words", "tags"))
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
        """Find the column as `documents` does, but take the longest of several, and "" if there is none."""
        values = [row.values for row in rows]
        found = candidates(values, DOCUMENT)
        if self.asked:
            self.column = find_columns(path, values, [DOCUMENT], {DOCUMENT.setting: self.asked})[0]
            self.sure = self.sure and found == [self.column]
            return self.column
        self.sure = self.sure and len(found) == 1
        found.sort(key=lambda name: -sum(len(str(row.get(name, ""))) for row in values))
        if {question := named(values, QUESTION), named(values, CONTEXT)} <= set(found):
            found = [question, *found]  # contexts repeat with every question
        self.column = found[0] if found else self.column
        return found[0] if found else ""

    def _add_row(self, row: Row) -> None:
        self.table_rows += 1
        self.units.add("rows")
        for name, value in row.values.items():
            if name not in self.columns:
                if len(self.columns) >= COLUMNS:
                    continue
                self.columns[name] = _ColumnTally()
            self.columns[name].add(value)


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


@dataclass(slots=True)
class _ColumnTally:
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
        if not self.example:
            self.example = one_line(value)
        if self.labels is not None:
            if sort in ("float", "list", "object", "bytes") or (isinstance(value, str) and len(value) > 40):
                self.labels = None
                return
            self.labels[one_line(value)] += 1
            if len(self.labels) > LABELS:
                self.labels = None

    def fact(self, name: str, rows: int, text: str) -> Column:
        likely = self.labels if name != text and self.labels and 2 <= len(self.labels) <= self.present / 2 else None
        return Column(
            name=name,
            kind=column_type(self.kinds),
            missing=max(0, rows - self.present),  # a sentence has several tags
            example=self.example,
            labels=dict(likely.most_common()) if likely else {},
        )


def one_line(value: Any, width: int = 60) -> str:
    """A value for a table on a terminal: no line breaks, no control characters."""
    text = brief(value) if isinstance(value, list | dict | bytes) else str(value)[: 4 * width]
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else "�" for c in text)
    return text if len(text) <= width else text[: width - 1] + "…"


class _HeldOut:
    """The hashes of a validation set."""

    def __init__(self, spec: str, column: str) -> None:
        self.spec, self.seen, self.bad = spec, DuplicateIndex(), BadRows("skip")
        self.ngrams = NgramIndex(self._read(_Reader(spec, column, self.bad)))

    def _read(self, view: _Reader) -> Iterator[list[str]]:
        for batch in track(view.batches(), "looking at the validation data", unit="batches"):
            for text in batch:
                self.seen.add(text.text, text.file, text.line)
            yield [text.text for text in batch]

    def overlap(self, train: DuplicateIndex) -> Overlap:
        return Overlap(
            valid=self.spec,
            texts=len(self.seen),
            equal=self.seen.count_in(train),
            sharing=self.ngrams.sharing(),
            long_enough=self.ngrams.long_enough,
            bad=self.bad.count,
        )
