"""Values of nodes and edges as arrays: which columns are numbers or categories is learned from the training graphs.

Letters: N nodes, E edges in both directions, F numbers, T columns of categories, K eigenvectors, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.config.networks.graph import GraphConfig, NodesConfig
from headway.data.batching.permutation import Index
from headway.data.datasets.labeled import parse_number
from headway.data.files.rows import brief
from headway.data.graphs.graph import Graph, Values
from headway.data.graphs.structure import Distances, both_directions, degrees, distances, eigenvectors, near_pairs
from headway.errors import DataError

TAG = "tag"
"""Columns whose name begins with it hold categories, even if these are numbers."""
MOST_TAGS, MOST_COLUMNS = 1_000, 100_000
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class GraphArrays:
    """A graph as a model reads it."""

    graph: Graph
    numbers: Floats
    """(N, F)"""
    tags: Index
    """(N, T): the place of each category in the front end's list, from 1; 0: none that was seen in training."""
    degrees: Index
    eigenvectors: Floats
    edges: Index
    """(E, 2): target and source."""
    edge_numbers: Floats
    edge_tags: Index
    distances: Distances | None
    """(N, N), for attention to all nodes; (P,) for attention to near ones."""
    pairs: Index | None
    """(P, 2): target and source of near nodes, sorted."""

    def __len__(self) -> int:
        return len(self.tags)


@dataclass(frozen=True)
class _Columns:
    """Columns of nodes or of edges."""

    numbers: tuple[str, ...]
    tags: tuple[str, ...]

    @classmethod
    def learned(cls, rows: Iterable[Values]) -> _Columns:
        """Which columns hold numbers, lists of numbers, or categories; and which categories there are.

        A column holds numbers if most of its values are some: the others are mistakes, which reading them will tell.
        """
        seen: dict[str, dict[Any, None]] = {}
        votes: dict[str, int] = {}
        lists: dict[str, int] = {}
        for row in rows:
            for name, value in row.items():
                if isinstance(value, list):
                    lists[name] = max([lists.get(name, -1), *value])
                elif value is not None:
                    seen.setdefault(name, {})[value if isinstance(value, str | int | float) else str(value)] = None
                    plain = not name.startswith(TAG) and parse_number(value) is not None
                    votes[name] = votes.get(name, 0) + (1 if plain else -1)
        if (size := sum(lists.values())) > MOST_COLUMNS:
            raise DataError("D007", f"lists of nodes name {size:,} numbers; the limit is {MOST_COLUMNS:,}")
        numbers = [name for name, vote in votes.items() if vote > 0]
        numbers += [f"{name}:{i}" for name, last in lists.items() for i in range(last + 1)]
        tags = [f"{name}={value}" for name, vote in votes.items() if vote <= 0 for value in _common(seen[name])]
        return cls(tuple(numbers), tuple(tags))


def _common(values: dict[Any, None]) -> list[str]:
    """Categories of a column, sorted; of very many, the first ones."""
    names = sorted({str(value) for value in values}, key=lambda name: (len(name), name))
    return names[:MOST_TAGS]


def learn_front(graphs: Sequence[Graph], front: NodesConfig) -> NodesConfig:
    """The front end with the columns, categories and scales of these graphs."""
    nodes = _Columns.learned(values for graph in graphs for values in graph.nodes)
    edges = _Columns.learned(values for graph in graphs for values in graph.edge_values)
    lists = bool(nodes.numbers) and all(":" in name for name in nodes.numbers)
    front = replace(
        front,
        columns=nodes.numbers,
        tags=nodes.tags,
        edge_columns=edges.numbers,
        edge_tags=edges.tags,
        unit_rows=lists,
    )
    if lists or not nodes.numbers:
        return front
    tables = list[Floats]()
    for graph in graphs:
        with suppress(DataError):  # `graph_arrays` tells it
            tables.append(_numbers(graph, graph.nodes, front.columns, "node"))
    if not tables:
        return front
    table = np.concatenate(tables)
    mean, std = table.mean(0), table.std(0)
    std = np.where(std > 1e-6, std, 1.0)
    return replace(front, mean=tuple(map(float, mean)), std=tuple(map(float, std)))


def graph_arrays(graph: Graph, config: GraphConfig) -> GraphArrays:
    """A graph as a model with this config reads it. A `DataError` names what cannot be used."""
    front, count = config.source, len(graph.nodes)
    if not count:
        raise DataError("D007", "the graph has no nodes")
    numbers = _numbers(graph, graph.nodes, front.columns, "node")
    if front.mean:
        numbers = ((numbers - np.array(front.mean)) / np.array(front.std)).astype(np.float32)
    if front.unit_rows:
        numbers /= numbers.sum(1, keepdims=True).clip(min=1e-6)
    place = {name: i for i, name in enumerate(front.tags, start=1)}
    edge_place = {name: i for i, name in enumerate(front.edge_tags, start=1)}
    edge_numbers = _numbers(graph, graph.edge_values, front.edge_columns, "edge")
    edge_tags = _tags(graph.edge_values, front.edge_tag_columns, edge_place)
    twice = np.concatenate([np.arange(len(graph.edges)), np.flatnonzero(graph.edges[:, 0] != graph.edges[:, 1])])
    pairs = apart = None
    if config.layer == "attention" and config.hops:
        pairs, apart = near_pairs(graph.edges, count, config.hops)
    elif config.layer == "attention":
        apart = distances(graph.edges, count, config.distance)
    return GraphArrays(
        graph=graph,
        numbers=numbers,
        tags=_tags(graph.nodes, front.tag_columns, place),
        degrees=degrees(graph.edges, count),
        eigenvectors=eigenvectors(graph.edges, count, front.eigenvectors),
        edges=both_directions(graph.edges),
        edge_numbers=edge_numbers[twice],
        edge_tags=edge_tags[twice],
        distances=apart,
        pairs=pairs,
    )


def _numbers(graph: Graph, rows: Sequence[Values], columns: Sequence[str], what: str) -> Floats:
    """(rows, F); a list of numbers says which of its columns are 1."""
    found = np.zeros((len(rows), len(columns)), dtype=np.float32)
    place = {name: i for i, name in enumerate(columns)}
    single = [name for name in columns if ":" not in name]
    lists = dict.fromkeys(name.rpartition(":")[0] for name in columns if ":" in name)
    for number, row in enumerate(rows):
        for name in single:
            if (value := parse_number(row.get(name))) is None:
                said = "missing" if row.get(name) is None else f"expected a number, found {brief(row[name])}"
                where = graph.node_name(number) if what == "node" else str(number)
                raise DataError("D007", f"{what} {where[:40]}: {name}: {said}")
            found[number, place[name]] = value
        for name in lists:
            for index in row.get(name) or ():
                if (column := place.get(f"{name}:{index}")) is not None:
                    found[number, column] = 1
    return found


def _tags(rows: Sequence[Values], columns: Sequence[str], place: dict[str, int]) -> Index:
    """(rows, T)"""
    found = [[place.get(f"{name}={row.get(name)}", 0) for name in columns] for row in rows]
    return np.array(found, dtype=np.int64).reshape(len(rows), len(columns))
