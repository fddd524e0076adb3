"""Survey of a dataset: columns, lengths, labels, duplicates, bad lines, overlap with another dataset.

One pass over each dataset keeps counts and hashes, so memory depends on the number of texts, not on their size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headway.config.recipe import UTF_8
from headway.data.files.columns import CONTEXT, QUESTION
from headway.data.files.lines import read_as
from headway.data.files.locate import file_format, on_disk, skipped_files, skipped_note
from headway.data.files.rows import BadRows
from headway.data.profile.duplicates import NGRAM, DuplicateIndex, NgramIndex
from headway.data.profile.lengths import LengthCounter, Lengths
from headway.data.profile.scan import Scan
from headway.data.profile.tally import Column, one_line
from headway.data.tokenizers.tokenizer import load_tokenizer
from headway.errors import counted
from headway.jsonfile import show
from headway.progress import track

SHOWN_COLUMNS, SHOWN_LABELS, SHOWN_VALUES, SHOWN_REPEATS, SHOWN_BAD = 6, 2, 6, 2, 4
"""How many of each fit on a screen; `as_dict` has all of them."""


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
        yield f"{'overlap':11} {share_of(self.equal, self.texts, unit)} of {show(self.valid)} are in this set{bad}"
        short = f"; {self.texts - self.long_enough:,} have fewer words" if self.long_enough < self.texts else ""
        yield f"{'':11} {share_of(self.sharing, self.texts, unit)} share {NGRAM} words in a row with it{short}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    spec: str
    files: int
    bytes: int
    formats: tuple[str, ...]
    skipped: tuple[str, ...]
    """Files of the folder that are no data."""
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
    choices: bool
    """Whether the rows are multiple-choice questions."""
    lengths: dict[str, Lengths]
    duplicates: int
    """Texts that repeat an earlier one; an estimate where not all texts were compared."""
    compared: int
    """Texts that were compared with each other, a random sample of very many."""
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
        if self.skipped:
            yield skipped_note(self.skipped)
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
            sample = f" (estimated from {self.compared:,})" if self.compared < self.texts else ""
            yield f"{'duplicates':11} {share_of(self.duplicates, self.texts, self.unit)}{sample}"
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
        return length_table(f"length of {self.unit}", self.lengths)


def length_table(title: str, lengths: Mapping[str, Lengths]) -> Iterator[str]:
    """Statistics of lengths, a line for each unit."""
    head = (title, "total", "min", "median", "mean", "p95", "max", "from min to max")
    cells = [
        (unit, *(f"{n:,}" for n in (of.total, of.min, of.median)), f"{of.mean:,.1f}", f"{of.p95:,}", f"{of.max:,}")
        for unit, of in lengths.items()
    ]
    bars = [of.bars() for of in lengths.values()]
    yield from _aligned([head, *((*row, bar) for row, bar in zip(cells, bars, strict=True))], "<>>>>>><")


def _aligned(rows: Sequence[Sequence[str]], sides: str) -> Iterator[str]:
    """Align columns, two spaces apart; `sides` has < or > for each."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        yield "  ".join(cells).rstrip()


def share_of(part: int, whole: int, nouns: str) -> str:
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
    encoding: str = UTF_8,
) -> Survey:
    """Survey a dataset; with `valid` also its overlap with that dataset. `keep` bad lines are kept."""
    with read_as(encoding):
        return _survey(spec, column, valid, tokenizer, keep)


def _survey(spec: str, column: str, valid: str | None, tokenizer: str | Path | None, keep: int) -> Survey:
    encode = load_tokenizer(Path(tokenizer)).ids if tokenizer else None
    held_out, bad = (_HeldOut(valid, column) if valid else None), BadRows("skip", keep)
    view, tally, seen = Scan(spec, column, bad), LengthCounter(), DuplicateIndex()
    for batch in track(view.batches(), "looking at the data", unit="batches"):
        found = batch.measured
        tally.add(characters=found.characters, bytes=found.bytes, words=found.words)
        seen.add(found.hashes, batch.file, batch.lines)
        if encode:
            tally.add(tokens=[len(ids) for ids in encode(batch.texts.to_pylist())])
        if held_out:
            held_out.ngrams.compare(batch.texts.to_pylist())
    duplicates, repeats = seen.repeats()
    return Survey(
        spec=spec,
        files=len(view.files),
        bytes=sum(on_disk(path).stat().st_size for path in view.files),
        formats=tuple(sorted({file_format(path)[0] for path in view.files})),
        skipped=tuple(skipped_files(spec)),
        rows=view.rows,
        unit=" and ".join(sorted(view.units)) or "rows",
        texts=len(seen),
        column=view.column,
        asked=bool(column),
        sure=view.sure,
        columns=tuple(view.columns[name].fact(name, view.table_rows, view.column) for name in view.columns),
        choices=view.choices,
        lengths=tally.lengths(),
        duplicates=duplicates,
        compared=seen.compared,
        repeats=tuple(repeats),
        bad=bad.count,
        bad_lines=tuple(bad.first),
        overlap=held_out.overlap(seen) if held_out else None,
    )


class _HeldOut:
    """The hashes of a validation set."""

    def __init__(self, spec: str, column: str) -> None:
        self.spec, self.seen, self.bad = spec, DuplicateIndex(), BadRows("skip")
        self.ngrams = NgramIndex(self._read(Scan(spec, column, self.bad)))

    def _read(self, view: Scan) -> Iterator[list[str]]:
        for batch in track(view.batches(), "looking at the validation data", unit="batches"):
            self.seen.add(batch.measured.hashes, batch.file, batch.lines)
            yield batch.texts.to_pylist()

    def overlap(self, train: DuplicateIndex) -> Overlap:
        return Overlap(
            valid=self.spec,
            texts=len(self.seen),
            equal=self.seen.count_in(train),
            sharing=self.ngrams.sharing(),
            long_enough=self.ngrams.long_enough,
            bad=self.bad.count,
        )
