"""Graphs of the TU collection (Morris et al. 2020): a folder of NAME_A.txt and its fellows, or one file for all.

The one file has the number of graphs, and for each graph `nodes label` and a line for each node:
`tag degree neighbours… numbers…`.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headway.data.datasets.labeled import parse_number
from headway.data.files.lines import Lines, open_text
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.data.graphs.features import TAG
from headway.data.graphs.graph import EdgeRow, Graph, Values, missing_node, undirected
from headway.errors import DataError, NotFoundError
from headway.jsonfile import parse_json, show

MOST_NODES = 1 << 20
FOLDS = re.compile(r"\.(\d+)fold\.json(\.gz)?")


def tu_name(folder: Path) -> str:
    """The name of the collection whose files a folder holds; empty if it holds none."""
    return next((path.name.removesuffix("_A.txt") for path in sorted(folder.glob("*_A.txt"))), "")


def is_one_file(path: Path) -> bool:
    """Whether a text file begins as a collection in one file does: a number alone, then two numbers."""
    with open_text(path) as file:
        head = file.peek(200)[:200].split(b"\n")
    return len(head) > 2 and bool(re.fullmatch(rb"\d+\s*", head[0]) and re.fullmatch(rb"\d+ -?\d+\s*", head[1]))


class _Broken(Exception):
    """A line that is not as the format says."""


def read_one_file(path: Path, bad: BadRows) -> Iterator[Graph]:
    """The graphs of one file; a graph with a wrong line is left out as a whole, or stops."""
    with open_text(path) as file:
        lines = Lines(file)
        (wanted,) = _whole(next(lines), 1)
        for number in range(wanted):
            start = lines.number + 1
            try:
                size, label = _whole(next(lines, ""), 2)
            except _Broken as error:
                raise _stop(path, start, f"graph {number}: {error}") from None
            if not 0 <= size <= MOST_NODES:
                raise _stop(path, start, f"graph {number} has {size:,} nodes; the limit is {MOST_NODES:,}")
            rows = [(lines.number + 1, next(lines, "")) for _ in range(size)]
            found = (
                _one_graph(path, rows, number, str(label)) if size else Flaw(str(path), start, "a graph without nodes")
            )
            if isinstance(found, Flaw):
                bad.add(found)
            else:
                yield found


def _stop(path: Path, line: int, what: str) -> DataError:
    return DataError(
        "D006", f"{show(path)} line {line}: {what}", "the number of graphs or nodes before it may be wrong"
    )


def _whole(line: str, count: int) -> list[int]:
    """The first whole numbers of a line."""
    words = line.split()
    if len(words) < count or not all(re.fullmatch(r"-?\d{1,9}", word) for word in words[:count]):
        raise _Broken(f"expected {count} whole numbers, found {line.strip()[:40]!r}")
    return [int(word) for word in words[:count]]


def _one_graph(path: Path, rows: Sequence[tuple[int, str]], number: int, label: str) -> Graph | Flaw:
    nodes: list[Values] = []
    edges: list[EdgeRow] = []
    for node, (line, text) in enumerate(rows):
        words = text.split()
        try:
            tag, degree = _whole(text, 2)
            ends = _whole(" ".join(words[2:]), degree) if degree > 0 else []
        except _Broken as error:
            return Flaw(str(path), line, f"{error}")
        if wrong := next((end for end in ends if not 0 <= end < len(rows)), None):
            return missing_node(str(path), line, (node, wrong), len(rows))
        numbers = [parse_number(word) for word in words[2 + max(0, degree) :]]
        if None in numbers:
            return Flaw(str(path), line, f"after {degree} neighbours there should be numbers: {text.strip()[:60]!r}")
        nodes.append({TAG: str(tag), **{f"number{i}": value for i, value in enumerate(numbers)}})
        edges += [EdgeRow((node, end)) for end in ends]
    ends_, values, dropped = undirected(edges)
    return Graph(nodes, ends_, values, label=label, file=str(path), line=rows[0][0], number=number, dropped=dropped)


def read_folds(path: Path, count: int, graphs: int) -> list[tuple[set[int], set[int]]] | None:
    """The folds in NAME.10fold.json beside NAME.txt, each with its train and test graphs; None without such a file."""
    stem = path.name.partition(".")[0]
    found = next((p for p in path.parent.glob(f"{stem}.*") if (m := FOLDS.search(p.name)) and m[1] == str(count)), None)
    if found is None:
        return None
    raw = gzip.decompress(found.read_bytes()) if found.suffix == ".gz" else found.read_bytes()
    folds = []
    for name, fold in parse_json(found, raw).items():
        both = [set(fold.get(part, ())) for part in ("train", "test")]
        if both[0] & both[1] or any(type(i) is not int or not 0 <= i < graphs for i in both[0] | both[1]):
            raise DataError("D007", f"{show(found)}: fold {name} does not split {graphs:,} graphs in two")
        folds.append((both[0], both[1]))
    return folds


def read_folder(folder: Path, name: str, bad: BadRows) -> Iterator[Graph]:
    """The graphs of a folder with NAME_A.txt, NAME_graph_indicator.txt and what else there is."""
    table = {part: _cells(folder / f"{name}_{part}.txt") for part in PARTS}
    indicator = folder / f"{name}_graph_indicator.txt"
    if not indicator.is_file():
        raise NotFoundError("F001", f"{show(folder)}: no file {indicator.name}")
    owner = [_graph_of(row, indicator, line) for line, row in enumerate(table["graph_indicator"], start=1)]
    for part in ("node_labels", "node_attributes"):
        if table[part] and len(table[part]) != len(owner):
            file = f"{show(folder)}/{name}_{part}.txt"
            raise DataError("D006", f"{file} has {len(table[part]):,} lines for {len(owner):,} nodes")
    for part in ("edge_labels", "edge_attributes"):
        if table[part] and len(table[part]) != len(table["A"]):
            file = f"{show(folder)}/{name}_{part}.txt"
            raise DataError("D006", f"{file} has {len(table[part]):,} lines for {len(table['A']):,} edges")
    first: dict[int, int] = {}
    nodes: dict[int, list[Values]] = {}
    for i, graph in enumerate(owner):
        first.setdefault(graph, i)
        nodes.setdefault(graph, []).append(_cell_values(table, "node", i))
    edges: dict[int, list[EdgeRow]] = {}
    file = str(folder / f"{name}_A.txt")
    for line, row in enumerate(table["A"], start=1):
        ends = [int(parse_number(cell) or 0) - 1 for cell in row[:2]]
        if len(ends) < 2 or not all(0 <= end < len(owner) and owner[end] == owner[ends[0]] for end in ends):
            bad.add(Flaw(file, line, f"edge {', '.join(row)[:40]}: no two nodes of one graph"))
            continue
        graph = owner[ends[0]]
        own = ends[0] - first[graph], ends[1] - first[graph]
        edges.setdefault(graph, []).append(EdgeRow(own, _cell_values(table, "edge", line - 1)))
    targets = table["graph_labels"] or table["graph_attributes"]
    for number, graph in enumerate(sorted(nodes)):
        ends_, values, dropped = undirected(edges.get(graph, []))
        label = targets[graph - 1][0] if 0 < graph <= len(targets) else None
        source = folder / f"{name}_graph_labels.txt"
        yield Graph(
            nodes[graph], ends_, values, label=label, file=str(source), line=graph, number=number, dropped=dropped
        )


def _graph_of(row: Sequence[str], path: Path, line: int) -> int:
    """The graph of a node: all lines after a wrong one would count for other nodes, so it cannot be left out."""
    try:
        return _whole(row[0], 1)[0]
    except _Broken as error:
        raise DataError("D006", f"{show(path)} line {line}: {error}") from None


PARTS = (
    "A", "graph_indicator", "graph_labels", "graph_attributes", "node_labels", "node_attributes", "edge_labels",
    "edge_attributes",
)  # fmt: skip
"""The files of a collection: NAME_PART.txt."""


def _cells(path: Path) -> list[list[str]]:
    """The cells of each line; none without the file."""
    if not path.is_file():
        return []
    with open_text(path) as file:
        return [[cell.strip() for cell in line.split(",")] for line in Lines(file) if line.strip()]


def _cell_values(table: dict[str, list[list[str]]], what: str, place: int) -> Values:
    values: dict[str, Any] = {}
    for kind, name in (("labels", TAG), ("attributes", "number")):
        if rows := table[f"{what}_{kind}"]:
            values |= {f"{name}{i or ''}": cell for i, cell in enumerate(rows[place])}
    return values
