"""What attention and positions need of a graph: degrees, distances, near pairs, eigenvectors of the Laplacian.

Letters: N nodes, E edges, P pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.data.batching.permutation import Index
from headway.errors import DataError

MOST_SPECTRAL = 6_000
"""Nodes up to which eigenvectors are computed: time grows with the third power."""
COLUMNS = 1024
"""Nodes whose distances to all others are searched at a time."""
Distances = NDArray[np.uint8]


def degrees(edges: Index, count: int) -> Index:
    """(N,): edges at each node; an edge from a node to itself counts once."""
    found = np.bincount(edges.ravel(), minlength=count)
    return found - np.bincount(edges[edges[:, 0] == edges[:, 1], 0], minlength=count)


def both_directions(edges: Index) -> Index:
    """(2E, 2): every edge from each of its ends; one from a node to itself once."""
    back = edges[edges[:, 0] != edges[:, 1], ::-1]
    return np.concatenate([edges, back])


def distances(edges: Index, count: int, cap: int, targets: Index | None = None, hops: int = 0) -> Distances:
    """(N, N), or (N, targets): edges on the shortest path, at most `cap`; cap + 1 where there is no path.

    With `hops`, the search ends there: what is farther counts as without a path.
    """
    targets = np.arange(count) if targets is None else targets
    found = np.full((count, len(targets)), cap + 1, dtype=np.uint8)
    found[targets, np.arange(len(targets))] = 0
    ends = both_directions(edges)
    ends = ends[np.argsort(ends[:, 0], kind="stable")]
    if not len(ends):
        return found
    rows, starts = np.unique(ends[:, 0], return_index=True)
    reached, step = found == 0, 0
    while step != hops or not hops:
        step += 1
        near = reached.copy()
        near[rows] |= np.logical_or.reduceat(reached[ends[:, 1]], starts, axis=0)
        new = near & ~reached
        if not new.any():
            break
        found[new] = min(step, cap)
        reached = near
    return found


def near_pairs(edges: Index, count: int, hops: int) -> tuple[Index, Distances]:
    """(P, 2): pairs of nodes at most `hops` edges apart, each node with itself among them; and their distances (P,)."""
    pairs: list[Index] = []
    apart: list[Distances] = []
    for first in range(0, count, COLUMNS):
        targets = np.arange(first, min(first + COLUMNS, count))
        table = distances(edges, count, hops, targets, hops).T
        rows, columns = np.nonzero(table <= hops)
        pairs.append(np.stack([rows + first, columns], 1))
        apart.append(table[rows, columns])
    return np.concatenate(pairs), np.concatenate(apart)


def eigenvectors(edges: Index, count: int, wanted: int) -> NDArray[np.float32]:
    """(N, wanted): eigenvectors of the normalised Laplacian with the smallest eigenvalues, without the first one.

    Small graphs have fewer: the rest is zeros. Their length is the root of N, so that numbers do not depend on the
    size of a graph. Either sign is right: the largest number is positive here.
    """
    found = np.zeros((count, wanted), dtype=np.float32)
    if not wanted:
        return found
    if count > MOST_SPECTRAL:
        message = f"a graph has {count:,} nodes; eigenvectors are computed up to {MOST_SPECTRAL:,}"
        raise DataError("D001", message, "graph.positions=0 does without them")
    ends = both_directions(edges)
    table = np.zeros((count, count))
    table[ends[:, 0], ends[:, 1]] = 1
    np.fill_diagonal(table, 0)
    scale = 1 / np.sqrt(table.sum(1).clip(min=1))
    laplacian = np.eye(count) - scale[:, None] * table * scale
    vectors = np.linalg.eigh(laplacian)[1][:, 1 : 1 + wanted]
    largest = np.abs(vectors).argmax(0)
    signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
    found[:, : vectors.shape[1]] = vectors * signs * np.sqrt(count)
    return found
