"""Lists of results: as plain dicts, as a pandas DataFrame, as a table in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from headway.errors import NotFoundError

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")
SHOWN, LETTERS = 20, 120
"""Rows of a table in a notebook, and letters of a cell."""


class Results(list[T]):
    """A list of results. `found.to_frame()` is a table of pandas, `found.to_dicts()` is for JSON."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain values of each result, of each part of a list: `model.classify(texts).to_dicts()`."""
        return [row for number, each in enumerate(self) for row in _rows(each, number)]

    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame with a row for each result: `model.classify(texts).to_frame()`."""
        return frame(self.to_dicts())

    def _repr_html_(self) -> str:
        rows = self.to_dicts()
        names = list(dict.fromkeys(name for row in rows for name in row))
        return html_table(names, [[row.get(name) for name in names] for row in rows])


def one_or_all(given: object, found: list[T]) -> T | Results[T]:
    """One result for one text, a list for several."""
    return found[0] if isinstance(given, str) else Results(found)


def _rows(result: Any, number: int) -> Iterator[dict[str, Any]]:
    """The rows of one result; results in a list have the number of their input."""
    if isinstance(result, list):
        yield from ({"input": number, **row} for each in result for row in _rows(each, number))
    else:
        yield dict(result) if isinstance(result, Mapping) else result.to_dict()


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows as a DataFrame; pandas is imported only here."""
    try:
        import pandas
    except ImportError:
        raise NotFoundError("F003", "DataFrames need pandas", "install it: pip install pandas") from None
    return pandas.DataFrame(list(rows))


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width; all but the first are aligned to the right."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(f"{c:<{n}}" if i == 0 else f"{c:>{n}}" for i, (c, n) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    )


def html_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table for a notebook; long cells are cut, and rows beyond the first are counted."""
    lines = ["".join(f"<th>{html.escape(name)}</th>" for name in head)]
    lines += ["".join(f"<td>{html.escape(_cell(cell))}</td>" for cell in row) for row in rows[:SHOWN]]
    more = f"<p>… {len(rows) - SHOWN:,} more</p>" if len(rows) > SHOWN else ""
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + f"</table>{more}"


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
