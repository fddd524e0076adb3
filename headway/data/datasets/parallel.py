"""Parallel texts, source and target: two files line by line, or two columns of a table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from headway.data.files.columns import SOURCE, TARGET, find_columns
from headway.data.files.digest import fingerprint
from headway.data.files.lines import BadLine, Lines, open_text
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows, brief, peek
from headway.errors import DataError
from headway.jsonfile import show

NESTED = "translation"
"""A column whose values are objects with one text per language."""

SHORTER, SHARED = 2, 0.3
"""How many times shorter than its source a summary is at least, and the share of its trigrams that the source has."""


class Pair(NamedTuple):
    """A source and its targets; training uses the first target, evaluation all of them."""

    source: str
    targets: tuple[str, ...]
    file: str
    line: int


def split_pair_spec(spec: str) -> tuple[str, str] | None:
    """Split a spec of two files, `train.en,train.de`; None for any other spec."""
    parts = spec.split(",")
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) and not os.path.exists(spec) else None


def are_summaries(pairs: Iterable[tuple[str, str]]) -> bool:
    """Whether targets are much shorter than their sources, and in the same language."""
    lengths, shared, trigrams = [0, 0], 0, 0
    for source, target in pairs:
        source, target = source.lower(), target.lower()
        parts = [target[i : i + 3] for i in range(len(target) - 2)]  # letters, since not all languages have spaces
        lengths = [lengths[0] + len(source), lengths[1] + len(target)]
        shared, trigrams = shared + sum(part in source for part in parts), trigrams + len(parts)
    return lengths[0] >= SHORTER * lengths[1] and shared > SHARED * trigrams


def fingerprint_pairs(spec: str) -> str:
    return "+".join(fingerprint(part) for part in split_pair_spec(spec) or (spec,))


def read_parallel(spec: str, text: str, pair: str, bad: BadRows) -> list[Pair]:
    """Read all pairs of a spec; `text` and `pair` are the columns of a table, found if empty."""
    sides = split_pair_spec(spec)
    found = (
        read_two_files(*sides) if sides else [row for path in find_files(spec) for row in _read_table(path, text, pair)]
    )
    return list(bad.filter(found, spec, "pairs of texts"))


def read_two_files(source: str, target: str) -> Iterator[Pair | Flaw]:
    """Read two files line by line; an unequal number of lines is an error."""
    ours, theirs = find_files(source), find_files(target)
    if len(ours) != len(theirs):
        raise DataError("D007", f"{show(source)} has {len(ours)} files, {show(target)} has {len(theirs)}: no pairs")
    for first, second in zip(ours, theirs, strict=True):
        number = 0
        for number, (a, b) in enumerate(zip_longest(all_lines(first), all_lines(second)), start=1):
            if a is None or b is None:
                short, long = (first, second) if a is None else (second, first)
                message = f"{show(short)} ends after {number - 1:,} lines, {show(long)} has more: they are not parallel"
                raise DataError("D007", message, f"compare them up to line {number:,} of {show(long)}")
            flaws = [side for side in (a, b) if isinstance(side, Flaw)]
            empty = [name for name, side in ((first, a), (second, b)) if isinstance(side, str) and not side.strip()]
            if flaws:
                yield flaws[0]
            elif empty:
                yield Flaw(str(empty[0]), number, "empty, but the line of the other file is not")
            else:
                yield Pair(str(a).strip(), (str(b).strip(),), str(first), number)


def all_lines(path: Path) -> Iterator[str | Flaw]:
    """Yield every line, also empty ones, because line numbers pair the files."""
    with open_text(path) as file:
        lines = Lines(file)
        while True:
            try:
                yield next(lines)
            except StopIteration:
                return
            except BadLine as wrong:
                yield Flaw(str(path), lines.number, wrong.reason, code=wrong.code)


def _read_table(path: Path, text: str, pair: str) -> Iterator[Pair | Flaw]:
    if file_format(path)[0] == "text":
        message = f"{show(path)} is plain text: it has no targets"
        raise DataError("D004", message, "give two files, SOURCE,TARGET, or a table with two columns")
    rows, first = peek(path)
    given = {SOURCE.setting: text, TARGET.setting: pair}
    names = find_columns(path, [_unnest(row.values) for row in first], (SOURCE, TARGET), given)
    for row in rows:
        yield row if isinstance(row, Flaw) else parse_row(row, *names)


def _unnest(values: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = values.get(NESTED)
    return {**values, **inner} if isinstance(inner, Mapping) else values


def parse_row(row: Row, text: str, pair: str) -> Pair | Flaw:
    """The pair in a row with these two columns."""
    values = _unnest(row.values)
    for name in (text, pair):
        if not _texts(values.get(name)):
            said = "missing" if values.get(name) is None else f"expected text, found {brief(values[name])}"
            return Flaw(row.file, row.line, said, name)
    return Pair(" ".join(_texts(values[text])), tuple(_texts(values[pair])), row.file, row.line)


def _texts(value: Any) -> list[str]:
    """The texts in a value, which is a text or a list of texts; empty ones are dropped."""
    parts = [value] if isinstance(value, str) else value
    several = isinstance(parts, Sequence) and all(isinstance(part, str) for part in parts)
    return [part.strip() for part in parts if part.strip()] if several else []
