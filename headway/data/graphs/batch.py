"""Graphs side by side as tensors, padded to the sizes that batches share.

Letters: B graphs, N nodes of the largest one, T columns of categories, K eigenvectors, E edges, P pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.data.batching.permutation import Index
from headway.data.graphs.features import GraphArrays

PADDED = 255
"""The distance of a pair that only fills up."""


class GraphTensors(NamedTuple):
    """What a model reads of graphs beside the numbers of nodes (B, N, F) and their mask (B, N).

    Nodes are numbered through the batch: node i of graph b is b·N + i.
    """

    tags: Tensor
    """(B, N, T)"""
    degrees: Tensor
    """(B, N)"""
    eigenvectors: Tensor
    """(B, N, K)"""
    distances: Tensor | None = None
    """(B, N, N) as bytes; (P,) beside `pairs`."""
    pairs: Tensor | None = None
    """(P, 2): target and source of the pairs that attend."""
    edges: Tensor | None = None
    """(E, 2): target and source; B·N for an edge that only fills up."""
    places: Tensor | None = None
    """(E,): where the pair of each edge is among all pairs."""
    edge_numbers: Tensor | None = None
    edge_tags: Tensor | None = None


def padded_size(count: int) -> int:
    """The size that `count` things are padded to: sizes are few, so that batches share them, and waste is small."""
    step = 8
    while step * 8 < count:
        step *= 2
    return -(-count // step) * step


def pad_sizes(graphs: Sequence[GraphArrays]) -> tuple[int, int, int]:
    """Nodes, edges and pairs that the graphs of a batch are padded to; a graph alone is not padded."""
    pairs = [0 if graph.pairs is None else len(graph.pairs) for graph in graphs]
    sizes = [len(graph) for graph in graphs], [len(graph.edges) for graph in graphs], pairs
    nodes, edges, most = (max(each) if len(graphs) == 1 else padded_size(max(each)) for each in sizes)
    return nodes, edges, most


def collate(
    graphs: Sequence[GraphArrays], sizes: tuple[int, int, int], flips: Index | None = None, *, with_edges: bool = True
) -> tuple[Tensor, Tensor, GraphTensors]:
    """Numbers (B, N, F), mask (B, N), and the rest. `flips` (B, K) are signs of the eigenvectors."""
    nodes, edges, pairs = sizes
    count = len(graphs)

    def stacked(arrays: Sequence[np.ndarray], shape: tuple[int, ...], fill: int = 0) -> Tensor:
        if len(arrays) == 1 and arrays[0].shape == shape:
            return torch.from_numpy(arrays[0])[None]
        found = np.full((count, *shape), fill, dtype=arrays[0].dtype)
        for row, array in zip(found, arrays, strict=True):
            row[tuple(slice(0, size) for size in array.shape)] = array
        return torch.from_numpy(found)

    first = graphs[0]
    mask = torch.from_numpy(np.arange(nodes) < np.array([len(graph) for graph in graphs])[:, None])
    numbers = stacked([graph.numbers for graph in graphs], (nodes, first.numbers.shape[1]))
    eigen = stacked([graph.eigenvectors for graph in graphs], (nodes, first.eigenvectors.shape[1]))
    rest = GraphTensors(
        tags=stacked([graph.tags for graph in graphs], (nodes, first.tags.shape[1])),
        degrees=stacked([graph.degrees for graph in graphs], (nodes,)),
        eigenvectors=eigen if flips is None else eigen * torch.from_numpy(flips)[:, None].to(eigen.dtype),
    )
    offset = (np.arange(count) * nodes)[:, None, None]
    if first.distances is not None and first.pairs is None:
        apart = stacked([graph.distances for graph in graphs if graph.distances is not None], (nodes, nodes), PADDED)
        rest = rest._replace(distances=apart)
    elif first.pairs is not None:
        apart = stacked([graph.distances for graph in graphs if graph.distances is not None], (pairs,), PADDED)
        ends = np.zeros((count, pairs, 2), dtype=np.int64)
        for row, graph, start in zip(ends, graphs, offset, strict=True):
            assert graph.pairs is not None
            row[: len(graph.pairs)] = graph.pairs + start
        rest = rest._replace(distances=apart.flatten(), pairs=torch.from_numpy(ends).flatten(0, 1))
    return numbers, mask, _with_edges(rest, graphs, nodes, edges, pairs) if with_edges else rest


def _with_edges(rest: GraphTensors, graphs: Sequence[GraphArrays], nodes: int, edges: int, pairs: int) -> GraphTensors:
    """The same with edges and what is known of them."""
    count, first = len(graphs), graphs[0]
    ends = np.full((count, edges, 2), count * nodes, dtype=np.int64)
    places = np.zeros((count, edges), dtype=np.int64)
    numbers = np.zeros((count, edges, first.edge_numbers.shape[1]), dtype=np.float32)
    tags = np.zeros((count, edges, first.edge_tags.shape[1]), dtype=np.int64)
    for i, graph in enumerate(graphs):
        many = len(graph.edges)
        ends[i, :many] = graph.edges + i * nodes
        numbers[i, :many], tags[i, :many] = graph.edge_numbers, graph.edge_tags
        target, source = graph.edges.T
        if graph.pairs is None:
            places[i, :many] = (i * nodes + target) * nodes + source
        else:
            keys = graph.pairs @ np.array([len(graph), 1])
            places[i, :many] = i * pairs + np.searchsorted(keys, target * len(graph) + source)
    flat = (torch.from_numpy(each).flatten(0, 1) for each in (ends, places, numbers, tags))
    return rest._replace(**dict(zip(("edges", "places", "edge_numbers", "edge_tags"), flat, strict=True)))
