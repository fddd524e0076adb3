"""Sheets of Excel and OpenDocument workbooks, as the rows of cells that a csv export of them would have."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from headway.data.files.lines import GZIP_FREE, GZIP_RATIO, damaged
from headway.data.files.locate import on_disk, split_sheet
from headway.errors import DataError, NotFoundError, nearest
from headway.jsonfile import show


def sheet_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each row of a sheet: the first sheet, or the one in `book.xlsx#Sheet2`."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError:
        message = f"{show(path)}: workbooks need the package python-calamine"
        raise NotFoundError("F003", message, "pip install 'headway[excel]', or save the sheet as .csv") from None
    book_path, asked = on_disk(path), split_sheet(path)[1]
    _check_size(book_path)
    try:
        with CalamineWorkbook.from_path(book_path) as book:
            names = book.sheet_names
            if asked and asked not in names:
                message = f"{show(book_path)}: no sheet {asked!r}{nearest(asked, names)}"
                raise DataError("D004", message, f"there are {', '.join(show(name)[:40] for name in names[:12])}")
            sheet = book.get_sheet_by_name(asked or names[0])
            first = (sheet.start or (0, 0))[0]
            for number, cells in enumerate(sheet.to_python(skip_empty_area=True), start=first + 1):
                row = [_cell(value) for value in cells]
                yield number, row if any(row) else []
    except CalamineError as error:
        raise damaged(book_path, f"no workbook: {str(error).splitlines()[0]}") from None


def _check_size(path: Path) -> None:
    """Refuse an archive that unpacks to far more than it holds."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(each.file_size for each in archive.infolist())
    except zipfile.BadZipFile as error:
        raise damaged(path, f"no workbook: {error}") from None
    packed = path.stat().st_size
    if size > max(GZIP_FREE, GZIP_RATIO * packed):
        raise DataError("D006", f"{show(path)}: {packed:,} bytes unpack to {size:,}", "save the sheet as .csv")


def _cell(value: Any) -> str:
    """A cell as text: 3 for 3.0, dates as 2024-01-31, an empty cell as nothing; a formula is its last value."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, date | time | timedelta):
        return str(value)
    return str(value)
