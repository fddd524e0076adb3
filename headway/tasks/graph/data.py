"""The graphs of a run in parts: what is trained on, validated and tested, with labels of graphs or of nodes.

Letters: N graphs or nodes with a label, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.config.networks.graph import GraphConfig, Level
from headway.data.batching.permutation import Index, permute
from headway.data.datasets.labeled import (
    SPLIT_KEY,
    Kind,
    hold_out,
    label_kind,
    label_set,
    parse_labels,
    with_known_labels,
)
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.data.graphs.features import GraphArrays, graph_arrays
from headway.data.graphs.graph import Graph
from headway.data.graphs.sources import read_graphs
from headway.data.graphs.tu import read_folds
from headway.data.synthetic.graphs import make_graphs
from headway.errors import DataError, counted
from headway.progress import track
from headway.tasks.recipe import Recipe

MADE_UP = 3000
"""Graphs that headway makes where no data are given."""
PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class LabelRow:
    """A graph or a node that has a label."""

    label: Any
    graph: int
    """Its place among the graphs of its part."""
    node: int
    """-1: the whole graph."""
    shown: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Part:
    """Graphs as a model reads them, and what of them has a label to learn or to check."""

    graphs: list[GraphArrays]
    rows: list[LabelRow]
    kind: Kind
    labels: tuple[str, ...]

    @property
    def nodes(self) -> int:
        """Nodes of all graphs."""
        return sum(map(len, self.graphs))

    @cached_property
    def truth(self) -> NDArray[np.float64]:
        """(N,) the place of each label, or a number; (N, L) marks of several labels."""
        if self.kind == "regression":
            return np.array([row.label for row in self.rows], dtype=np.float64)
        place = {name: i for i, name in enumerate(self.labels)}
        if self.kind == "single":
            return np.array([place[row.label] for row in self.rows], dtype=np.float64)
        found = np.zeros((len(self.rows), len(self.labels)))
        for marks, row in zip(found, self.rows, strict=True):
            marks[[place[name] for name in row.label]] = 1
        return found

    @cached_property
    def rows_of(self) -> list[Index]:
        """The rows of each graph, in the order of its nodes."""
        found: list[list[int]] = [[] for _ in self.graphs]
        for number, row in enumerate(self.rows):
            found[row.graph].append(number)
        return [np.array(each, dtype=np.int64) for each in found]

    @cached_property
    def nodes_of(self) -> list[Index]:
        """The labelled nodes of each graph."""
        return [np.array([self.rows[i].node for i in rows], dtype=np.int64) for rows in self.rows_of]


Split = dict[str, tuple[list[Graph], list[LabelRow]]]
"""Part → graphs and rows."""


@dataclass(frozen=True)
class GraphData:
    """Graphs read and split; no arrays yet."""

    level: Level
    kind: Kind
    labels: tuple[str, ...]
    split: Split
    bad: BadRows
    dropped: dict[str, int]

    def part(self, name: str, config: GraphConfig) -> Part:
        """A part as a model with this config reads it; the parts of nodes share their graphs."""
        graphs, rows = self.split[name]
        return make_part(graphs, rows, self.kind, self.labels, config, self.bad)


def make_part(
    graphs: Sequence[Graph],
    rows: Sequence[LabelRow],
    kind: Kind,
    labels: tuple[str, ...],
    config: GraphConfig,
    bad: BadRows,
) -> Part:
    """Graphs as arrays; those that cannot be made into arrays are bad rows, and their labels are left out."""
    found, place = list[GraphArrays](), dict[int, int]()
    for number, graph in enumerate(track(graphs, "reading graphs", unit="graphs")):
        try:
            arrays = graph_arrays(graph, config)
        except DataError as error:
            bad.add(Flaw(graph.file, graph.line, error.message, code=error.code))
            continue
        place[number] = len(found)
        found.append(arrays)
    kept = [LabelRow(**{**vars(row), "graph": place[row.graph]}) for row in rows if row.graph in place]
    if not kept:
        raise DataError("D002", f"no graph can be used ({counted(bad.count, 'bad rows')})")
    return Part(found, kept, kind, labels)


def read_data(recipe: Recipe) -> GraphData:
    """The graphs of a recipe, or made-up ones, split into train, valid and maybe test."""
    data, settings, bad = recipe.data, recipe.settings, BadRows(recipe.data.bad_rows)
    graphs = _read(data.train, recipe, bad) if data.train else make_graphs(MADE_UP)
    level = settings.level if settings.level != "auto" else guess_level(graphs)
    rows = label_rows(graphs, level)
    if not rows:
        where = data.train or "the data"
        hint = "a field or column `label` (data.label=NAME) of graphs or nodes; graph.level says which"
        raise DataError("D004", f"{where}: no {level} has a label", hint)
    kind = label_kind(rows, settings.kind)
    rows = parse_labels(rows, kind, bad, data.label)
    labels = label_set(rows, kind)
    if kind == "single" and len(labels) < 2:
        raise DataError("D002", f"nothing to tell apart: the only label is {labels[0]!r}")
    if data.valid:
        split = {"train": (graphs, rows)}
    else:
        split = _node_split(graphs, rows) if level == "node" else _graph_split(graphs, rows, recipe)
    for name in ("valid", "test"):
        if spec := getattr(data, name):
            others = _read(spec, recipe, bad)
            known = with_known_labels(parse_labels(label_rows(others, level), kind, bad), labels, kind, bad)
            split[name] = others, known
    dropped = {name: sum(graph.dropped.get(name, 0) for graph in graphs) for name in ("repeated_edges", "self_loops")}
    return GraphData(level, kind, labels, split, bad, dropped)


def _read(spec: str, recipe: Recipe, bad: BadRows) -> list[Graph]:
    found = list(read_graphs(spec, recipe.data, bad))
    if not found:
        raise bad.no_rows(spec, "graphs")
    return found


def guess_level(graphs: Sequence[Graph]) -> Level:
    """node, if nodes have labels and graphs have none."""
    of_nodes = any(label is not None for graph in graphs for label in graph.node_labels)
    return "node" if of_nodes and all(graph.label is None for graph in graphs) else "graph"


def label_rows(graphs: Sequence[Graph], level: Level) -> list[LabelRow]:
    """What has a label: graphs or nodes. A graph without one has to be a mistake; a node without one is usual."""
    found = []
    for number, graph in enumerate(graphs):
        if level == "graph":
            label = "" if graph.label is None else graph.label
            found.append(LabelRow(label, number, -1, graph.name, graph.file, graph.line))
            continue
        found += [
            LabelRow(label, number, node, f"node {graph.node_name(node)}", graph.file, graph.line_of(node))
            for node, label in enumerate(graph.node_labels)
            if label is not None
        ]
    return found if level == "node" or any(row.label != "" for row in found) else []


def _node_split(graphs: list[Graph], rows: list[LabelRow]) -> Split:
    """By what the file says of nodes or of graphs; without that, some nodes are held out of graphs that all know."""

    def part_of(row: LabelRow) -> str:
        graph = graphs[row.graph]
        return graph.node_parts[row.node] if graph.node_parts else graph.part

    parts = {name: [row for row in rows if part_of(row) == name] for name in PARTS}
    if not parts["train"]:
        train, valid = hold_out(rows)
        order = {id(row): i for i, row in enumerate(rows)}
        parts = {"train": sorted(train, key=lambda row: order[id(row)]), "valid": valid, "test": []}
    if not parts["valid"]:
        parts["train"], parts["valid"] = hold_out(parts["train"])
    return {name: (graphs, found) for name, found in parts.items() if found}


def _graph_split(graphs: list[Graph], rows: list[LabelRow], recipe: Recipe) -> Split:
    """By folds, or by what the file says; without either, some graphs are held out."""
    settings, by_number = recipe.settings, {row.graph: row for row in rows}
    if settings.folds:
        train, test = fold_of(graphs, recipe.data.train, settings.folds, settings.fold)
        numbers = {"test": [i for i in by_number if graphs[i].number in test]}
        first, second = hold_out([by_number[i] for i in by_number if graphs[i].number in train])
        chosen = {"train": first, "valid": second, "test": [by_number[i] for i in numbers["test"]]}
    else:
        chosen = {name: [row for row in rows if graphs[row.graph].part == name] for name in PARTS}
        if not chosen["train"]:
            chosen["train"] = [row for row in rows if not graphs[row.graph].part]
        if not chosen["valid"]:
            chosen["train"], chosen["valid"] = hold_out(chosen["train"])
    return {name: _only(graphs, found) for name, found in chosen.items() if found}


def _only(graphs: Sequence[Graph], rows: Sequence[LabelRow]) -> tuple[list[Graph], list[LabelRow]]:
    """The graphs of some rows, and the rows with the places of their graphs among these."""
    return [graphs[row.graph] for row in rows], [
        LabelRow(**{**vars(row), "graph": place}) for place, row in enumerate(rows)
    ]


def fold_of(graphs: Sequence[Graph], spec: str, folds: int, fold: int) -> tuple[set[int], set[int]]:
    """The numbers of the graphs that a fold trains and tests on: by the file of folds beside the data, or by chance."""
    count = 1 + max(graph.number for graph in graphs)
    path = Path(spec).expanduser()
    known = read_folds(path, folds, count) if spec and path.is_file() else None
    if known is not None:
        return known[fold - 1]
    if count < folds:
        raise DataError("D002", f"{counted(count, 'graphs')} cannot be split into {folds} folds")
    order = permute(np.arange(count), count, SPLIT_KEY)
    test = {i for i in range(count) if order[i] % folds == fold - 1}
    return set(range(count)) - test, test
