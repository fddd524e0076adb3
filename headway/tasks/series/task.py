"""Tasks that continue series of numbers: how a table, a line of numbers or a request becomes a series.

No torch here.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from headway.config.recipe import DataConfig
from headway.data.files.columns import TIME_NAMES, value_type
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows, brief, peek
from headway.errors import DataError, HeadwayError
from headway.tasks.base import Json, Suitability, Task
from headway.tasks.inputs import INPUT, STDIN, Item, parsed, pipe_rows, text_lines

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey
    from headway.data.series.table import Table

VALUES, STEPS = "values", "horizon"
"""Fields of a request."""
DRAWN = re.compile(r"drawn:(\d{1,9})")
"""A made-up series, by its seed."""
UNNAMED = "value"
"""The name of a column without one; of several: value1, value2 …"""
MOST_NUMBERS, MOST_STEPS = 1_000_000, 100_000
"""Bounds of what a request may bring, and ask for."""
SEPARATORS = re.compile(r"[\s,]+")
LEVELS = "▁▂▃▄▅▆▇█"
SHOWN = 40
"""Characters of a drawn curve."""


@dataclass(frozen=True)
class SeriesExample:
    """A series to continue."""

    table: Table
    name: str = ""
    steps: int | None = None
    """How many time steps; None: as the model was trained."""


class SeriesTask(Task):
    """A task whose inputs are numbers over time."""

    takes, learns = "table", "time step"
    options = frozenset({STEPS, "plot"})
    one_row: ClassVar[bool] = False
    """Whether a line of numbers is one time step, and not one column."""

    @abstractmethod
    def drawn(self, seed: int) -> Table:
        """A made-up series like those of the task's starter."""

    def parse(self, raw: Mapping[str, Any]) -> SeriesExample:
        """Numbers, or the name of a table of this machine."""
        given = raw.get(INPUT)
        if isinstance(given, str) and Path(given).suffix and Path(given).is_file():
            from headway.data.series.table import read_table

            return SeriesExample(read_table(Path(given), DataConfig(), BadRows()), given, _steps(raw))
        return self.parse_request(raw)

    def parse_request(self, raw: Mapping[str, Any]) -> SeriesExample:
        """{"values": numbers, "columns": names, "time": times, "horizon": steps}; only the numbers are needed."""
        given = raw.get(VALUES, raw.get(INPUT))
        if isinstance(given, Mapping) and VALUES not in raw:  # {"input": {"values": …}} of a request
            return self.parse_request(given)
        if isinstance(given, str) and (made := DRAWN.fullmatch(given.strip())):
            return SeriesExample(self.drawn(int(made[1])), given.strip(), _steps(raw))
        columns, rows = self._numbers(given, raw.get("columns"))
        name = given if isinstance(given, str) else ""
        return SeriesExample(_table(columns, rows, raw.get("time")), name, _steps(raw))

    def _numbers(self, given: Any, columns: Any) -> tuple[tuple[str, ...], list[list[float]]]:
        """Names of columns, and rows of numbers."""
        if isinstance(given, str):
            lines = [line for line in re.split(r"[;\n]", given.strip().strip("[]")) if line.strip()]
            rows = [[_number(cell) for cell in SEPARATORS.split(line.strip().strip(","))] for line in lines]
            if len(rows) == 1 and not self.one_row:
                rows = [[number] for number in rows[0]]
        elif isinstance(given, Mapping):
            columns = columns or list(given)
            each = [[_number(cell) for cell in column] for column in map(_listed, given.values())]
            if len({len(column) for column in each}) > 1:
                raise DataError("D001", "the columns of values should be equally long")
            rows = [list(row) for row in zip(*each, strict=True)]
        else:
            cells = _listed(given)
            rows = [[_number(x) for x in cell] if isinstance(cell, list) else [_number(cell)] for cell in cells]
            if self.one_row and cells and not isinstance(cells[0], list):
                rows = [[row[0] for row in rows]]
        if not rows or not rows[0]:
            raise DataError("D001", "no numbers", "a series is numbers with spaces between them, or a table (--file)")
        if len({len(row) for row in rows}) > 1:
            raise DataError("D001", f"rows of {min(map(len, rows))} and of {max(map(len, rows))} numbers")
        if len(rows) * len(rows[0]) > MOST_NUMBERS:
            raise DataError("D001", f"{len(rows) * len(rows[0]):,} numbers; the limit is {MOST_NUMBERS:,}")
        wide = len(rows[0])
        names = columns or ([UNNAMED] if wide == 1 else [f"{UNNAMED}{i + 1}" for i in range(wide)])
        if not isinstance(names, list) or len({*map(str, names)}) != wide:
            raise DataError("D001", f"columns = {brief(names)}: there are {wide}, each needs a name of its own")
        return tuple(map(str, names)), rows

    def echo(self, example: SeriesExample) -> Json:
        return {"series": example.name} if example.name and len(example.name) <= 200 else {}

    def inputs(
        self, source: str | BinaryIO, data: DataConfig, bad: BadRows, *, firm: bool = False, context: str | None = None
    ) -> Iterator[Item]:
        """A table is one series; a line of a text file is one, and so is a row with a list in its column `values`."""
        from headway.data.series.table import table_of

        if not isinstance(source, str):
            yield from self._piped(source, data, bad)
            return
        for path in find_files(source):
            if file_format(path)[0] == "text":
                yield from parsed(text_lines(path), self.parse_request, bad)
                continue
            items, first = peek(path)
            if any(_is_list(row.values.get(VALUES)) for row in first):
                yield from parsed(items, self.parse_request, bad)
                continue
            table = table_of(items, [row.values for row in first], str(path), data.time, bad)
            yield Item(SeriesExample(table, str(path)), str(path))

    def _piped(self, source: BinaryIO, data: DataConfig, bad: BadRows) -> Iterator[Item]:
        from headway.data.series.table import table_of

        rows = list(pipe_rows(source, (*TIME_NAMES, data.time)))
        first = next((row.values for row in rows if isinstance(row, Row)), {})
        if INPUT in first or _is_list(first.get(VALUES)):
            yield from parsed(iter(rows), self.parse_request, bad)
        elif first:
            values = [row.values for row in rows if isinstance(row, Row)]
            yield Item(SeriesExample(table_of(rows, values[:100], STDIN, data.time, bad)), STDIN)
        else:
            yield from parsed((row for row in rows if isinstance(row, Flaw)), self.parse_request, bad)

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        return Suitability(0.0)

    def count(self, data: DataConfig) -> int | None:
        from headway.data.series.table import read_tables

        try:
            return sum(map(len, read_tables(data.train, data, BadRows("skip"))))
        except HeadwayError:  # training will say why
            return None

    def bad_rows(self, source: str, data: DataConfig, bad: BadRows) -> None:
        from headway.data.series.table import read_tables

        read_tables(source, data, bad)

    def tabled(self, row: Json) -> Iterable[Json]:
        """A row for each time step of a forecast."""
        where = {key: row[key] for key in ("file", "line") if row.get(key)}
        return [{**where, **values} for values in tabled(row)]

    def render(self, found: Sequence[tuple[SeriesExample, Json]], *, colours: bool) -> Iterator[str]:
        """Each column as a curve: what was read, and after the bar what is predicted."""
        for example, result in found:
            if len(found) > 1:
                yield example.name[:SHOWN]
            times = result.get("time")
            if times:
                yield f"{times[0]} … {times[-1]}"
            wide = max(map(len, result["forecast"]))
            for place, (name, numbers) in enumerate(result["forecast"].items()):
                before = example.table.values[:, place].tolist() if place < len(example.table.columns) else []
                curve = _curve(before[-len(numbers) :], numbers)
                yield f"{name:{wide}}  {curve}  {_brief(numbers[0])} … {_brief(numbers[-1])}"


def tabled(forecast: Mapping[str, Any]) -> list[Json]:
    """A dict for each time step: its time, and a number for each column, each quantile and each true value."""
    columns = dict(forecast["forecast"])
    for share, values in forecast.get("quantiles", {}).items():
        columns |= {f"{name}_{share}": numbers for name, numbers in values.items()}
    columns |= {f"{name}_true": numbers for name, numbers in forecast.get("true", {}).items()}
    times = forecast.get("time") or range(1, 1 + len(next(iter(columns.values()))))
    clock = forecast.get("clock") or ("time" if forecast.get("time") else "step")
    return [{clock: when, **{name: numbers[at] for name, numbers in columns.items()}} for at, when in enumerate(times)]


def named(table: Table, columns: Sequence[str]) -> Table:
    """A table without names of its own gets the columns of the model, where their number is the same."""
    own = all(re.fullmatch(rf"{UNNAMED}\d*|column\d+", name) for name in table.columns)
    return replace(table, columns=tuple(columns)) if own and len(columns) == len(table.columns) else table


def _table(columns: tuple[str, ...], rows: list[list[float]], times: Any) -> Table:
    import numpy as np

    from headway.data.series.table import Table, table_of

    if times is None:
        return Table(columns, np.array(rows), np.arange(float(len(rows))))
    if not isinstance(times, list) or len(times) != len(rows):
        raise DataError("D001", f"time should be a list of {len(rows)} times, one for each row")
    made = [
        Row({**dict(zip(columns, row, strict=True)), "time": when}, "", number)
        for number, (row, when) in enumerate(zip(rows, times, strict=True), start=1)
    ]
    return table_of(made, [row.values for row in made[:100]], "values", "time", BadRows(), columns)


def _listed(given: Any) -> list[Any]:
    if isinstance(given, tuple):
        return list(given)
    if not isinstance(given, list):
        raise DataError("D001", f"expected numbers, found {brief(given)}")
    return given


def _is_list(value: Any) -> bool:
    """Whether a cell holds a whole series."""
    return isinstance(value, list) or (isinstance(value, str) and value_type(value) == "text" and " " in value.strip())


def _number(cell: Any) -> float:
    """A number, or NaN where one is missing."""
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in ("nan", "null", "none")):
        return math.nan
    try:
        number = float(cell)
    except (TypeError, ValueError):
        number = math.inf
    if isinstance(cell, bool) or math.isinf(number):
        raise DataError("D001", f"expected a number, found {brief(cell)}")
    return number


def _steps(raw: Mapping[str, Any]) -> int | None:
    steps = raw.get(STEPS)
    if steps is None:
        return None
    if type(steps) is not int or not 1 <= steps <= MOST_STEPS:
        raise DataError("D001", f"{STEPS} = {brief(steps)} should be an integer from 1 to {MOST_STEPS:,}")
    return steps


def _curve(before: Sequence[float], after: Sequence[float]) -> str:
    """Two stretches of one curve in block characters, with a bar between them."""
    known = [value for value in (*before, *after) if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)

    def drawn(values: Sequence[float]) -> str:
        if len(values) > SHOWN:
            values = [values[at * len(values) // SHOWN] for at in range(SHOWN)]
        scale = (len(LEVELS) - 1) / ((high - low) or 1)
        return "".join(LEVELS[round((value - low) * scale)] if math.isfinite(value) else " " for value in values)

    return f"{drawn(before)}│{drawn(after)}" if before else drawn(after)


def _brief(value: float) -> str:
    return f"{value:.4g}"
