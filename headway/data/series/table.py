"""Tables of series: a time column, columns of numbers, and rows on a regular grid of times.

A cell without a number is missing (NaN), and so is every cell of a time that has no row. Bad rows are named: times that
cannot be read, do not rise or are off the grid; texts where there should be numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headway.config.recipe import DataConfig
from headway.data.files.columns import TIME, column_names, find_columns, quoted, value_type
from headway.data.files.locate import find_files
from headway.data.files.readers import NUMBER, Flaw, Row
from headway.data.files.rows import BadRows, brief, peek
from headway.data.series.times import TOLERANCE, Clock, Kind, Numbers, find_clock, parse_time
from headway.errors import DataError, counted, nearest
from headway.jsonfile import show

NO_NUMBER = frozenset({"", "na", "n/a", "nan", "null", "none", "-"})
"""What a cell without a number may hold."""
LARGEST = 1e100
"""The largest number of a table: variances need the squares of all of them."""
SPARSE = 10
"""A table with more steps than this for each of its rows has another step than it seems."""


@dataclass(frozen=True)
class Table:
    """Numbers over time."""

    columns: tuple[str, ...]
    values: Numbers
    """(T, C); NaN is missing."""
    times: Numbers
    """(T,), on the grid."""
    clock: Clock = field(default_factory=Clock)
    time: str = ""
    """Name of the time column; empty: rows are counted."""
    file: str = ""
    notes: tuple[str, ...] = ()
    """What is unusual and no mistake: gaps, constant columns, columns that are left out."""

    def __len__(self) -> int:
        return len(self.values)

    def chosen(self, columns: Sequence[str]) -> Table:
        """The table with these columns alone, in this order."""
        if missing := [name for name in columns if name not in self.columns]:
            where = f"{show(self.file)}: " if self.file else ""
            message = f"{where}no column {missing[0]!r}{nearest(missing[0], self.columns)}"
            raise DataError("D004", message, f"there are {quoted(self.columns)}")
        places = [self.columns.index(name) for name in columns]
        return Table(tuple(columns), self.values[:, places], self.times, self.clock, self.time, self.file, self.notes)


def read_tables(spec: str, data: DataConfig, bad: BadRows, columns: Sequence[str] = ()) -> list[Table]:
    """The tables of a spec: one for each file. `columns`: those to read; empty: all columns of numbers."""
    return [read_table(path, data, bad, columns) for path in find_files(spec)]


def read_table(path: Path, data: DataConfig, bad: BadRows, columns: Sequence[str] = ()) -> Table:
    """The table of a file."""
    items, first = peek(path)
    return table_of(items, [row.values for row in first], str(path), data.time, bad, columns)


def table_of(
    items: Iterable[Row | Flaw],
    first: Sequence[Mapping[str, Any]],
    where: str,
    time: str,
    bad: BadRows,
    columns: Sequence[str] = (),
) -> Table:
    """The table of some rows; `first` are the first of them, by which columns are found."""
    if not first:  # every row is bad, or there is none
        for item in items:
            if isinstance(item, Flaw):
                bad.add(item)
        raise bad.no_rows(where, "rows of numbers")
    time = find_columns(where, first, [TIME], {"data.time": time})[0] or _dates(first)
    names, left_out = _value_columns(where, first, time, columns)
    kind: Kind = "rows"
    times, values, lines = list[float](), list[list[float]](), list[int]()
    for item in items:
        if isinstance(item, Flaw):
            bad.add(item)
            continue
        found = _row(item, time, names, kind, times[-1] if times else None)
        if isinstance(found, Flaw):
            bad.add(found)
            continue
        kind, when, numbers = found
        times.append(len(times) if when is None else when)
        values.append(numbers)
        lines.append(item.line)
    if not values:
        raise bad.no_rows(where, "rows of numbers")
    return _on_grid(where, time, names, kind, (np.array(times), np.array(values), lines), bad, left_out)


def _dates(first: Sequence[Mapping[str, Any]]) -> str:
    """The first column of dates; empty if there is none."""
    for name in column_names(first):
        values = [row.get(name) for row in first]
        dates = [found for value in values if (found := parse_time(value)) and found[0] == "date"]
        if dates and len(dates) > len(values) / 2:
            return name
    return ""


def _value_columns(
    where: str, first: Sequence[Mapping[str, Any]], time: str, wanted: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The columns of numbers, and the columns that are left out since they hold none."""
    names = [name for name in column_names(first) if name != time]
    if missing := [name for name in wanted if name not in names]:
        message = f"{show(where)}: no column {missing[0]!r}{nearest(missing[0], names)}"
        raise DataError("D004", message, f"there are {quoted(names)}")
    if wanted:
        return list(wanted), []
    kinds = {name: {value_type(row.get(name)) for row in first} for name in names}
    numbers = [name for name in names if kinds[name] & {"int", "float"} or kinds[name] == {"missing"}]
    if not numbers:
        raise DataError("D004", f"{show(where)}: no column of numbers", f"there are {quoted(column_names(first))}")
    return numbers, [name for name in names if name not in numbers]


def _row(
    row: Row, time: str, names: Sequence[str], kind: Kind, before: float | None
) -> tuple[Kind, float | None, list[float]] | Flaw:
    """The time and the numbers of a row. `kind` and `before` are those of the rows before it."""
    when: float | None = None
    if time:
        given = row.values.get(time)
        parsed = parse_time(given)
        if parsed is None or (before is not None and parsed[0] != kind):
            hint = "" if parsed is None else f", and the rows before it have {kind}s"
            return Flaw(row.file, row.line, f"{brief(given)} is no time{hint}: write 2016-07-31 18:00", time)
        kind, when = parsed
        if before is not None and when <= before:
            said, other = Clock(kind).shown(np.array([when, before]))
            how = "comes twice" if when == before else f"is before {other} of the row above"
            return Flaw(row.file, row.line, f"{said} {how}: times have to rise", time)
    numbers = []
    for name in names:
        number = _number(row.values.get(name))
        if number is None:
            return Flaw(row.file, row.line, f"expected a number, found {brief(row.values[name])}", name)
        if abs(number) > LARGEST:  # false for NaN
            return Flaw(row.file, row.line, f"{number:g} is too large: numbers are at most {LARGEST:g}", name)
        numbers.append(number)
    return kind, when, numbers


def _number(value: Any) -> float | None:
    """A cell as a number, NaN if it is empty; None if it is something else."""
    if value is None:
        return float("nan")
    if isinstance(value, str):
        if value.strip().lower() in NO_NUMBER:
            return float("nan")
        if not NUMBER.fullmatch(value):
            return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if np.isinf(number) else number


def _on_grid(
    where: str,
    time: str,
    names: Sequence[str],
    kind: Kind,
    rows: tuple[Numbers, Numbers, list[int]],
    bad: BadRows,
    left_out: Sequence[str],
) -> Table:
    """The rows on a regular grid of times; steps without a row are missing."""
    times, values, lines = rows
    clock = find_clock(kind, times)
    places = clock.positions(times)
    near = places.round()
    off = abs(places - near) > TOLERANCE
    for at in np.flatnonzero(off):
        said = clock.shown(times[[at]])[0]
        bad.add(Flaw(where, lines[at], f"{said} is not a whole number of steps ({clock}) after the first time", time))
    keep = ~off
    near, times, values, lines = near[keep].astype(np.int64), times[keep], values[keep], np.array(lines)[keep].tolist()
    total = int(near[-1]) + 1
    if total > SPARSE * len(near):
        message = f"{show(where)}: {counted(len(near), 'rows')} for {total:,} steps of {clock}"
        raise DataError("D007", message, "rows should be at regular times: resample the table")
    grid = np.full((total, len(names)), np.nan)
    grid[near] = values
    whole = clock.after(times[0], total - 1) if total > 1 else times[:0]
    notes = _notes(where, clock, near, times, lines, dict(zip(names, grid.T, strict=True)), left_out)
    return Table(tuple(names), grid, np.concatenate([times[:1], whole]), clock, time, where, tuple(notes))


def _notes(
    where: str,
    clock: Clock,
    places: np.ndarray[Any, Any],
    times: Numbers,
    lines: Sequence[int],
    columns: Mapping[str, Numbers],
    left_out: Sequence[str],
) -> list[str]:
    """What a user should know of a table."""
    found, jumps = [], np.flatnonzero(np.diff(places) > 1)
    if len(jumps):
        steps, first = int((np.diff(places) - 1).sum()), int(jumps[0])
        place = f"the first after line {lines[first]} ({clock.shown(times[[first]])[0]})"
        found.append(f"{show(where)}: {counted(len(jumps), 'gaps')}, {counted(steps, 'steps')} without a row, {place}")
    empty = {name: int(np.isnan(values[places]).sum()) for name, values in columns.items()}
    if some := [f"{name} {count:,}" for name, count in empty.items() if count]:
        found.append(f"{show(where)}: missing numbers: {', '.join(some[:6])}")
    known = {name: values[~np.isnan(values)] for name, values in columns.items()}
    if constant := [name for name, values in known.items() if len(values) < 2 or values.min() == values.max()]:
        found.append(f"{show(where)}: constant columns: {', '.join(constant[:6])}")
    if left_out:
        found.append(f"{show(where)}: no numbers, left out: {', '.join(left_out[:6])}")
    return found
