"""From a data spec to graphs: tables of nodes and edges, TU collections, or a graph in each row."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from headway.config.recipe import DataConfig
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import Flaw, Row, read_file
from headway.data.files.rows import BadRows
from headway.data.graphs.graph import Graph
from headway.data.graphs.parse import parse_graph, parse_line
from headway.data.graphs.tables import read_tables, tables_in
from headway.data.graphs.tu import PARTS, is_one_file, read_folder, read_one_file, tu_name
from headway.errors import DataError, NotFoundError

FIELDS = ("graph", "input")
"""Columns that hold a whole graph, as JSON or in words."""


def graph_files(spec: str) -> list[Path]:
    """The files of a spec: NODES,EDGES; a folder; or what other data have, too."""
    if tables := _tables(spec):
        return tables
    folder = Path(os.path.expanduser(spec))
    if folder.is_dir() and (name := tu_name(folder)):
        return [path for part in PARTS if (path := folder / f"{name}_{part}.txt").is_file()]
    return find_files(spec)


def _tables(spec: str) -> list[Path]:
    """The tables of nodes, edges and graphs that a spec names; none if it names others."""
    path = Path(os.path.expanduser(spec))
    if path.is_dir():
        found = tables_in(path)
        return found if len(found) > 1 else []
    parts = spec.split(",")
    if path.exists() or not 2 <= len(parts) <= 3:
        return []
    paths = [Path(os.path.expanduser(part.strip())) for part in parts]
    if missing := next((each for each in paths if not each.is_file()), None):
        hint = "NODES,EDGES or NODES,EDGES,GRAPHS: tables with a comma between their names"
        raise NotFoundError("F001", f"no such file: {missing}", hint)
    return paths


def are_tables(spec: str) -> bool:
    """Whether a folder holds tables of nodes and edges, or a collection."""
    folder = Path(os.path.expanduser(spec))
    return folder.is_dir() and bool(_tables(spec) or tu_name(folder))


def is_graph_spec(text: str) -> bool:
    """Whether a text names files of graphs, and is no graph itself."""
    if "\n" in text or text.lstrip().startswith("{"):
        return False
    return all(os.path.exists(os.path.expanduser(part.strip())) for part in text.split(","))


def read_graphs(spec: str, data: DataConfig, bad: BadRows) -> Iterator[Graph]:
    """All graphs of a spec; `bad` takes what cannot be used."""
    if tables := _tables(spec):
        yield from read_tables(tables, data, bad)
        return
    folder = Path(os.path.expanduser(spec))
    if folder.is_dir() and (name := tu_name(folder)):
        yield from read_folder(folder, name, bad)
        return
    number = 0
    for path in find_files(spec):
        if file_format(path)[0] == "text" and is_one_file(path):
            yield from read_one_file(path, bad)
            continue
        for row in _rows(path):
            found = row if isinstance(row, Flaw) else parse_row(row, number, data.label)
            number += 1
            if isinstance(found, Flaw):
                bad.add(found)
            else:
                yield found


def _rows(path: Path) -> Iterator[Row | Flaw]:
    """Rows of a file; the lines of a text file, each of them a graph."""
    if file_format(path)[0] != "text":
        yield from read_file(path)
        return
    for row in read_file(path):
        if isinstance(row, Flaw):
            yield row
            continue
        lines = enumerate(str(row.values["text"]).splitlines(), start=1)
        yield from (Row({"graph": line}, row.file, number) for number, line in lines if line.strip())


def parse_row(row: Row, number: int, label: str = "") -> Graph | Flaw:
    """A row with a graph; its label may be in a column of its own."""
    values = row.values
    try:
        field = next((name for name in FIELDS if name in values), "")
        own = values.get(label or "label")
        if not field:
            graph = parse_graph(values, own)
        elif isinstance(values[field], str):
            graph = parse_line(values[field])
        elif isinstance(values[field], dict):
            graph = parse_graph(values[field])
        else:
            raise DataError("D007", f"{field}: expected a graph, found {values[field]!r:.40}")
    except DataError as error:
        return Flaw(row.file, row.line, error.message, code=error.code)
    found = {"label": own} if own is not None else {}
    place = {"file": row.file, "line": row.line, "number": number}
    return Graph(**{**vars(graph), **found, **place})
