"""Graphs in tables: one of nodes, one of edges, and where there are several graphs with labels, one of graphs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.config.recipe import DataConfig
from headway.data.files.locate import FORMATS
from headway.data.files.readers import Flaw, Row, read_file
from headway.data.files.rows import BadRows
from headway.data.graphs.graph import EdgeRow, Graph, Values, missing_node, undirected
from headway.errors import DataError
from headway.jsonfile import read_json, show

IDS = ("id", "node", "node_id", "name")
GRAPHS = ("graph", "graph_id")
LABELS = ("label", "class", "target", "y")
SPLITS = ("split", "part")
PAIRS = (("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"), ("node1", "node2"))
"""Usual names of columns."""
LISTS = "indices"
"""A column whose name ends with it holds whole numbers with spaces between them: which words a text has, say."""
STEMS = ("nodes", "edges", "graphs")
SPLIT_FILE = "split.json"
"""Beside the tables: part → numbers of nodes."""
PARTS = {"train": "train", "valid": "valid", "val": "valid", "test": "test"}


def tables_in(folder: Path) -> list[Path]:
    """The tables of nodes, edges and graphs of a folder; fewer than two if it holds no graph."""
    files = {stem: path for path in sorted(folder.iterdir()) for stem in STEMS if _is_table(path, stem)}
    return [files[stem] for stem in STEMS if stem in files]


def _is_table(path: Path, stem: str) -> bool:
    name, _, rest = path.name.partition(".")
    return name == stem and f".{rest.removesuffix('.gz')}" in FORMATS


def read_tables(paths: Sequence[Path], data: DataConfig, bad: BadRows) -> Iterator[Graph]:
    """The graphs of tables of nodes, edges and maybe graphs."""
    nodes = _rows(paths[0], bad)
    if not nodes:
        raise bad.no_rows(str(paths[0]), "nodes")
    names = list(nodes[0].values)
    own = _first(names, IDS)
    graph = _first(names, GRAPHS)
    by_graph: dict[str, list[Row]] = {}
    for row in nodes:
        by_graph.setdefault(str(row.values.get(graph, "")), []).append(row)
    edges = _edges(paths[1], by_graph, own, graph, bad)
    facts = {str(row.values.get(_first(list(row.values), (*GRAPHS, "id")))): row for row in _graph_rows(paths, bad)}
    label, split = data.label or _first(names, LABELS), _first(names, SPLITS)
    drop = {own, graph, label, split}
    split_file = paths[0].parent / SPLIT_FILE
    parts = node_parts(split_file, len(nodes)) if split_file.is_file() and not graph else None
    if facts and (strange := next((key for key in facts if key not in by_graph), None)) is not None:
        bad.add(Flaw(facts[strange].file, facts[strange].line, f"graph {strange[:40]} has no nodes"))
    for number, (key, rows) in enumerate(by_graph.items()):
        ends, values, dropped = undirected(edges.get(key, []))
        labels = [row.values.get(label) for row in rows] if label else []
        fact = facts.get(key)
        whole = _graph_label(fact, data, labels, several=len(by_graph) > 1)
        yield Graph(
            nodes=[_values(row, drop) for row in rows],
            edges=ends,
            edge_values=values,
            label=whole,
            part=_part(fact.values if fact else rows[0].values),
            node_labels=[] if whole is not None else [None if value == "" else value for value in labels],
            node_parts=parts or ([_part(row.values) for row in rows] if split and whole is None else []),
            names=[str(row.values[own]) for row in rows] if own else [],
            file=rows[0].file,
            line=rows[0].line,
            lines=[row.line for row in rows],
            number=number,
            dropped=dropped,
        )


def _graph_rows(paths: Sequence[Path], bad: BadRows) -> list[Row]:
    return _rows(paths[2], bad) if len(paths) > 2 else []


def _graph_label(fact: Row | None, data: DataConfig, labels: Sequence[Any], *, several: bool) -> Any:
    """Of the table of graphs; or that of the nodes, where all nodes of each of several graphs have the same."""
    if fact is not None:
        return fact.values.get(data.label or _first(list(fact.values), LABELS))
    return labels[0] if several and labels and len({*labels}) == 1 else None


def _rows(path: Path, bad: BadRows) -> list[Row]:
    found = []
    for row in read_file(path):
        if isinstance(row, Flaw):
            bad.add(row)
        else:
            found.append(row)
    return found


def _first(names: Sequence[str], usual: Sequence[str]) -> str:
    """The column with one of the usual names; empty without one."""
    lower = {name.lower(): name for name in names}
    return next((lower[name] for name in usual if name in lower), "")


def _edges(
    path: Path, graphs: Mapping[str, Sequence[Row]], own: str, graph: str, bad: BadRows
) -> dict[str, list[EdgeRow]]:
    """The edges of each graph, with the places of their nodes in it."""
    places: dict[str, dict[str, int]] = {}
    for key, rows in graphs.items():
        places[key] = {str(row.values[own]) if own else str(i): i for i, row in enumerate(rows)}
        if len(places[key]) < len(rows):
            seen: set[str] = set()
            twice = next(row for row in rows if str(row.values[own]) in seen or seen.add(str(row.values[own])))  # type: ignore[func-returns-value]
            raise DataError("D007", f"{show(twice.file)} line {twice.line}: a second node {twice.values[own]}")
    home = {name: key for key, known in places.items() for name in known}
    apart = sum(map(len, places.values())) == len(home)
    found: dict[str, list[EdgeRow]] = {}
    for row in _rows(path, bad):
        names = list(row.values)
        ends = next((pair for pair in PAIRS if {*pair} <= {name.lower() for name in names}), ())
        first, second = (_first(names, [end]) for end in ends) if ends else names[:2]
        column = _first(names, GRAPHS)
        both = str(row.values[first]), str(row.values[second])
        key = str(row.values[column]) if column else home.get(both[0], "") if apart or not graph else ""
        known = places.get(key, {})
        if both[0] not in known or both[1] not in known:
            bad.add(missing_node(row.file, row.line, both, len(known)))
            continue
        found.setdefault(key, []).append(
            EdgeRow((known[both[0]], known[both[1]]), _values(row, {first, second, column}))
        )
    return found


def _values(row: Row, drop: set[str]) -> Values:
    return {
        name: _indices(row, name, value) if name.lower().endswith(LISTS) else value
        for name, value in row.values.items()
        if name not in drop
    }


def _indices(row: Row, name: str, value: Any) -> list[int]:
    words = value if isinstance(value, list) else str("" if value is None else value).split()
    if not all(re.fullmatch(r"\d{1,6}", str(word)) for word in words):
        where = f"{show(row.file)} line {row.line}"
        raise DataError("D007", f"{where}: {name}: expected whole numbers with spaces between them")
    return [int(word) for word in words]


def _part(values: Mapping[str, Any]) -> str:
    name = str(values.get(_first(list(values), SPLITS)) or "").lower()
    return PARTS.get(name, "")


def node_parts(path: Path, count: int) -> list[str]:
    """The part of each node, from a file with the numbers of the nodes of each part."""
    found = [""] * count
    for name, numbers in read_json(path).items():
        if (part := PARTS.get(name)) is None or not isinstance(numbers, list):
            continue
        for number in numbers:
            if type(number) is not int or not 0 <= number < count:
                raise DataError("D007", f"{show(path)}: {name} names node {number}; there are {count:,}")
            if found[number]:
                raise DataError("D007", f"{show(path)}: node {number} is in {found[number]} and in {part}")
            found[number] = part
    return found
