"""A graph in JSON, or in a line of words: what rows of files, requests and the command line hold.

{"nodes": [{"tag": "C"}, {"tag": "O"}], "edges": [[0, 1]], "label": "yes"}
a:C b:O c a-b b-c
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headway.data.files.rows import brief
from headway.data.graphs.features import TAG
from headway.data.graphs.graph import NOTHING, EdgeRow, Graph, Values, undirected
from headway.errors import DataError

ID, LABEL, SPLIT = "id", "label", "split"
ENDS = ("source", "target")
NODE = re.compile(r"([^\s:-]+)(?::(\S+))?")
EDGE = re.compile(r"([^\s:-]+)-([^\s:-]+)(?::(\S+))?")


def parse_graph(raw: Mapping[str, Any], label: Any = None) -> Graph:
    """A graph from the fields `nodes` and `edges`; a `DataError` says what is wrong with them."""
    nodes = raw.get("nodes")
    if isinstance(nodes, int) and not isinstance(nodes, bool) and 0 < nodes < 1 << 24:
        nodes = [NOTHING] * nodes
    if not isinstance(nodes, list) or not nodes:
        said = "there are none" if nodes in (None, [], 0) else f"found {brief(nodes)}"
        raise DataError("D007", f"nodes: {said}; a graph has a list of nodes, or their number")
    values = [_node(node, number) for number, node in enumerate(nodes)]
    own = [node if isinstance(node, Mapping) else NOTHING for node in nodes]
    names = [str(node[ID]) for node in own if ID in node]
    if names and (len(names) < len(nodes) or len({*names}) < len(names)):
        raise DataError("D007", "nodes: every node needs an id of its own, or none has one")
    places: dict[Any, int] = {name: i for i, name in enumerate(names)}
    edges = raw.get("edges", [])
    if not isinstance(edges, list):
        raise DataError("D007", f"edges: expected a list, found {brief(edges)}")
    ends, edge_values, dropped = undirected(_edge(edge, places, len(nodes), i) for i, edge in enumerate(edges))
    return Graph(
        nodes=values,
        edges=ends,
        edge_values=edge_values,
        label=raw.get(LABEL) if label is None else label,
        part=str(raw.get(SPLIT) or ""),
        node_labels=[node.get(LABEL) for node in own] if any(LABEL in node for node in own) else (),
        node_parts=[str(node.get(SPLIT) or "") for node in own] if any(SPLIT in node for node in own) else (),
        names=names,
        dropped=dropped,
    )


def _node(node: Any, number: int) -> Values:
    if isinstance(node, Mapping):
        found = {str(name): value for name, value in node.items() if name not in (ID, LABEL, SPLIT)}
        for name, value in found.items():
            _check_value(value, f"node {number}: {name}")
        return found
    if isinstance(node, str | int) and not isinstance(node, bool):
        return {TAG: node}
    raise DataError("D007", f"node {number}: expected an object or a tag, found {brief(node)}")


def _check_value(value: Any, where: str) -> None:
    numbers = isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)
    if not numbers and not isinstance(value, str | int | float | None):
        raise DataError("D007", f"{where}: expected a number, a text or a list of numbers from 0, found {brief(value)}")


def _edge(edge: Any, places: Mapping[Any, int], count: int, number: int) -> EdgeRow:
    values: Values = NOTHING
    if isinstance(edge, Mapping):
        values = {str(name): value for name, value in edge.items() if name not in ENDS}
        edge = [edge.get(end) for end in ENDS]
    elif isinstance(edge, list) and len(edge) == 3 and isinstance(edge[2], Mapping):
        values, edge = {str(name): value for name, value in edge[2].items()}, edge[:2]
    if not isinstance(edge, Sequence) or isinstance(edge, str) or len(edge) != 2:
        raise DataError("D007", f"edge {number}: expected two nodes, found {brief(edge)}")
    for name, value in values.items():
        _check_value(value, f"edge {number}: {name}")
    found = [places.get(str(end), -1) if places else end for end in edge]
    for end, place in zip(edge, found, strict=True):
        if type(place) is not int or not 0 <= place < count:
            raise DataError("D007", f"edge {number}: there is no node {brief(end)}; the graph has {count:,} nodes")
    return EdgeRow((found[0], found[1]), values)


def parse_line(text: str) -> Graph:
    """A graph in JSON, or in words: `a:C` is a node with a tag, `a-b` an edge, `a-b:2` one with a tag."""
    if text.lstrip().startswith("{"):
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError("D007", f"not valid JSON: {str(error)[:80]}") from None
        return parse_graph(raw)
    tags: dict[str, Any] = {}
    edges: list[tuple[str, str, str | None]] = []
    for word in text.split():
        if found := EDGE.fullmatch(word):
            edges.append((found[1], found[2], found[3]))
        elif found := NODE.fullmatch(word):
            tags[found[1]] = found[2] if found[2] is not None else tags.get(found[1])
        else:
            raise DataError("D007", f"{word[:40]!r} is neither a node (a, a:tag) nor an edge (a-b)")
    for edge in edges:
        tags |= {end: None for end in edge[:2] if end not in tags}
    nodes = [{ID: name} if tag is None else {ID: name, TAG: tag} for name, tag in tags.items()]
    lines = [[a, b] if tag is None else [a, b, {TAG: tag}] for a, b, tag in edges]
    return parse_graph({"nodes": nodes, "edges": lines})
