"""A graph as it was read: nodes and edges with their values, labels and where they stand in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headway.data.batching.permutation import Index
from headway.data.files.readers import Flaw

Values = Mapping[str, Any]
"""Column → value of a node or an edge."""
NOTHING: Values = {}


@dataclass(frozen=True)
class Graph:
    """An undirected graph."""

    nodes: Sequence[Values]
    edges: Index
    """(E, 2): each edge once, its lower node first; an edge from a node to itself is one of them."""
    edge_values: Sequence[Values]
    label: Any = None
    """Of the graph."""
    part: str = ""
    """train, valid or test, where the file says it of graphs."""
    node_labels: Sequence[Any] = ()
    """Of each node; None for a node without one."""
    node_parts: Sequence[str] = ()
    """train, valid, test or nothing, where the file says it of nodes."""
    names: Sequence[str] = ()
    """Of nodes; without them, their numbers."""
    file: str = ""
    line: int = 0
    lines: Sequence[int] = ()
    """Of nodes in their file, where each has one."""
    number: int = 0
    """Its place among the graphs of the file, from 0."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """How many edges were repeated, and how many start and end at one node."""

    @property
    def name(self) -> str:
        """What a person knows the graph by."""
        edges = len(self.edges)
        count = len(self.nodes)
        return f"{count} node{'s' * (count != 1)}, {edges} edge{'s' * (edges != 1)}"

    def line_of(self, node: int) -> int:
        """The line of a node, or else of the graph."""
        return self.lines[node] if self.lines else self.line

    def node_name(self, number: int) -> str:
        return self.names[number] if self.names else str(number)


@dataclass(frozen=True)
class EdgeRow:
    """An edge of a file."""

    ends: tuple[int, int]
    values: Values = field(default_factory=dict)


def undirected(rows: Iterable[EdgeRow]) -> tuple[Index, list[Values], dict[str, int]]:
    """Each edge once, with its first values; and how many were repeated or are loops.

    An edge that is given in both directions is not a repeated one.
    """
    found: dict[tuple[int, int], Values] = {}
    seen = Counter[tuple[int, int]]()
    for row in rows:
        low, high = sorted(row.ends)
        found.setdefault((low, high), row.values)
        seen[row.ends] += 1
    both = Counter({(low, high): max(seen[low, high], seen[high, low]) for low, high in found})
    counts = {
        "repeated_edges": sum(both.values()) - len(both),
        "self_loops": sum(low == high for low, high in found),
    }
    ends = sorted(found)
    return np.array(ends, dtype=np.int64).reshape(-1, 2), [found[each] for each in ends], counts


def missing_node(file: str, line: int, ends: Sequence[Any], count: int) -> Flaw:
    """The flaw of an edge to a node that does not exist."""
    said = " – ".join(str(end)[:40] for end in ends)
    return Flaw(file, line, f"edge {said}: there is no such node; the graph has {count:,} nodes")
