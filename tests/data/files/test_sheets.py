"""Workbooks, written by hand as archives of XML, are read as their csv export is."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from headway.data.files.digest import fingerprint
from headway.data.files.readers import Flaw, Row, read_file
from headway.data.files.rows import rows
from headway.data.profile.survey import survey
from headway.errors import DataError, NotFoundError

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
STYLES = f"""<styleSheet xmlns="{MAIN}"><cellXfs count="3"><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="22"/>
</cellXfs></styleSheet>"""


def text(place: str, value: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'


SHEET = "".join(
    f'<row r="{number}">{cells}</row>'
    for number, cells in {
        1: text("A1", "id") + text("B1", "text") + text("C1", "label") + text("D1", "day") + text("E1", "at"),
        2: '<c r="A2"><v>7</v></c>' + text("B2", "a cup of tea") + '<c r="C2" t="b"><v>1</v></c>'
        '<c r="D2" s="1"><v>45322</v></c><c r="E2" s="2"><v>45322.5</v></c>',
        3: '<c r="A3"><v>8.5</v></c>' + text("B3", "Tee &amp; Küchen") + '<c r="D3"><f>1+1</f><v>2</v></c>',
        5: '<c r="A5"><v>10</v></c>' + text("B5", "after an empty row") + text("C5", "x"),
    }.items()
)


def workbook(path: Path, **sheets: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        first = f'<Relationship Id="r" Type="{LINKS}/officeDocument" Target="xl/workbook.xml"/>'
        file.writestr("_rels/.rels", f'<Relationships xmlns="{PACKAGE}">{first}</Relationships>')
        parts = [f'<Override PartName="/xl/s{i}.xml" ContentType="x"/>' for i in range(len(sheets))]
        file.writestr("[Content_Types].xml", f'<Types xmlns="{TYPES}">{"".join(parts)}</Types>')
        names = "".join(f'<sheet name="{name}" sheetId="{i + 1}" r:id="r{i}"/>' for i, name in enumerate(sheets))
        file.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{MAIN}" xmlns:r="{LINKS}"><sheets>{names}</sheets></workbook>'
        )
        links = "".join(
            f'<Relationship Id="r{i}" Type="{LINKS}/worksheet" Target="s{i}.xml"/>' for i in range(len(sheets))
        )
        links += f'<Relationship Id="st" Type="{LINKS}/styles" Target="styles.xml"/>'
        file.writestr("xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{PACKAGE}">{links}</Relationships>')
        file.writestr("xl/styles.xml", STYLES)
        for i, data in enumerate(sheets.values()):
            file.writestr(f"xl/s{i}.xml", f'<worksheet xmlns="{MAIN}"><sheetData>{data}</sheetData></worksheet>')
    return path


@pytest.fixture
def book(tmp_path: Path) -> Path:
    pytest.importorskip("python_calamine")
    other = "".join(f'<row r="{i}">{text(f"A{i}", value)}</row>' for i, value in enumerate(("word", "one"), start=1))
    return workbook(tmp_path / "book.xlsx", Reviews=SHEET, Sheet2=other)


def test_rows_are_those_of_a_csv(book: Path, tmp_path: Path) -> None:
    """Numbers, dates, a formula's value, a boolean, empty cells and an empty row; lines are rows of the sheet."""
    exported = tmp_path / "book.csv"
    exported.write_text(
        "id,text,label,day,at\n7,a cup of tea,TRUE,2024-01-31,2024-01-31 12:00:00\n8.5,Tee & Küchen,,2,\n\n"
        "10,after an empty row,x,,\n"
    )
    found, plain = list(read_file(book)), list(read_file(exported))
    assert [(row.values, row.line) for row in found if isinstance(row, Row)] == [
        (row.values, row.line) for row in plain if isinstance(row, Row)
    ]
    assert not any(isinstance(row, Flaw) for row in (*found, *plain))
    facts = survey(str(book))
    assert (facts.rows, facts.column, facts.formats, facts.bytes) == (3, "text", ("sheet",), book.stat().st_size)


def test_a_sheet_by_name(book: Path) -> None:
    assert [row.values for row in rows(f"{book}#Sheet2")] == [{"word": "one"}]
    assert survey(f"{book}#Sheet2").texts == 1
    assert fingerprint(f"{book}#Sheet2")
    with pytest.raises(DataError, match=r"D004.*no sheet 'Sheet3'.*Sheet2"):
        list(rows(f"{book}#Sheet3"))


def test_an_opendocument_sheet(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    office, tables, words = ("urn:oasis:names:tc:opendocument:xmlns:" + name for name in ("office", "table", "text"))
    spaces = f'xmlns:office="{office}:1.0" xmlns:table="{tables}:1.0" xmlns:text="{words}:1.0"'
    cell = '<table:table-cell office:value-type="{}"{}><text:p>{}</text:p></table:table-cell>'
    first = cell.format("string", "", "n") + cell.format("string", "", "text")
    second = cell.format("float", ' office:value="3"', "3") + cell.format("string", "", "some words")
    table = "".join(f"<table:table-row>{row}</table:table-row>" for row in (first, second))
    body = f'<table:table table:name="One">{table}</table:table>'
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as file:
        file.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        file.writestr("META-INF/manifest.xml", "<manifest/>")
        content = f"<office:body><office:spreadsheet>{body}</office:spreadsheet></office:body>"
        file.writestr("content.xml", f"<office:document-content {spaces}>{content}</office:document-content>")
    assert [row.values for row in rows(str(tmp_path / "a.ods"))] == [{"n": "3", "text": "some words"}]


def test_damaged_books_and_bombs(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    (tmp_path / "x.xlsx").write_bytes(b"no archive")
    workbook(tmp_path / "bomb.xlsx", One=" " * 70_000_000)
    with zipfile.ZipFile(tmp_path / "other.xlsx", "w") as file:
        file.writestr("a.txt", "x")
    for name in ("x", "bomb", "other"):
        with pytest.raises(DataError, match=rf"D006.*{name}\.xlsx"):
            list(rows(str(tmp_path / f"{name}.xlsx")))


def test_without_the_package_the_error_names_the_pip_line(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(NotFoundError) as caught:
        list(rows(str(book)))
    assert caught.value.code == "F003"
    assert "pip install 'headway[excel]'" in caught.value.hint
