"""Distances, near pairs, degrees and eigenvectors, each against a slow twin."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from headway.data.graphs import structure
from headway.data.graphs.graph import EdgeRow, undirected
from headway.errors import DataError


def random_edges(count: int, edges: int, seed: int = 0) -> np.ndarray:
    ends = np.random.default_rng(seed).integers(0, count, (edges, 2))
    return undirected(EdgeRow((int(a), int(b))) for a, b in ends)[0]


def searched(edges: np.ndarray, count: int, start: int) -> list[int | None]:
    """Distances from a node by a plain breadth-first search."""
    near: list[set[int]] = [set() for _ in range(count)]
    for a, b in edges.tolist():
        near[a].add(b)
        near[b].add(a)
    found: list[int | None] = [None] * count
    found[start], queue = 0, deque([start])
    while queue:
        node = queue.popleft()
        for other in near[node]:
            if found[other] is None:
                found[other] = found[node] + 1  # type: ignore[operator]
                queue.append(other)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_distances_are_those_of_a_search(seed: int) -> None:
    count, cap = 30, 4
    edges = random_edges(count, 32, seed)
    table = structure.distances(edges, count, cap)
    for start in range(count):
        plain = searched(edges, count, start)
        assert table[start].tolist() == [cap + 1 if d is None else min(d, cap) for d in plain]
    assert (table == table.T).all() and (table == cap + 1).any() and (table == cap).any()


def test_a_long_path_is_capped_and_not_called_unreachable() -> None:
    edges = np.array([[i, i + 1] for i in range(9)])
    assert structure.distances(edges, 11, 3)[0].tolist() == [0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 4]


def test_near_pairs_are_the_small_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "COLUMNS", 7)  # several parts
    edges = random_edges(30, 40)
    pairs, apart = structure.near_pairs(edges, 30, 2)
    table = structure.distances(edges, 30, 9)
    assert {(*pair, d) for pair, d in zip(pairs.tolist(), apart.tolist(), strict=True)} == {
        (i, j, int(table[i, j])) for i in range(30) for j in range(30) if table[i, j] <= 2
    }
    keys = pairs @ np.array([30, 1])
    assert (np.diff(keys) > 0).all(), "sorted, so that places can be searched"


def test_a_loop_counts_once_and_no_edges_are_no_mistake() -> None:
    edges, _, dropped = undirected([EdgeRow((0, 0)), EdgeRow((1, 0)), EdgeRow((0, 1)), EdgeRow((1, 0))])
    assert edges.tolist() == [[0, 0], [0, 1]]
    assert dropped == {"repeated_edges": 1, "self_loops": 1}, "an edge in both directions is none that is repeated"
    assert structure.degrees(edges, 3).tolist() == [2, 1, 0]
    assert structure.both_directions(edges).tolist() == [[0, 0], [0, 1], [1, 0]]
    alone = structure.distances(edges[:0], 3, 5)
    assert alone.tolist() == [[0, 6, 6], [6, 0, 6], [6, 6, 0]]
    assert structure.near_pairs(edges[:0], 2, 1)[0].tolist() == [[0, 0], [1, 1]]


def test_eigenvectors_solve_the_equation_of_the_normalised_laplacian() -> None:
    edges = random_edges(20, 40, 3)
    edges = edges[edges[:, 0] != edges[:, 1]]
    found = structure.eigenvectors(edges, 20, 4).astype(float)
    table = np.zeros((20, 20))
    for a, b in edges:
        table[a, b] = table[b, a] = 1
    degree = table.sum(1).clip(min=1)
    laplacian = np.eye(20) - table / np.sqrt(degree[:, None] * degree)
    for vector in found.T:
        value = vector @ laplacian @ vector / (vector @ vector)
        assert np.allclose(laplacian @ vector, value * vector, atol=1e-4)
        assert np.isclose(vector @ vector, 20, atol=1e-3) and vector[np.abs(vector).argmax()] > 0
    small = structure.eigenvectors(np.array([[0, 1]]), 2, 4)
    assert small.shape == (2, 4) and (small[:, 1:] == 0).all() and (small[:, 0] != 0).all()


def test_a_graph_that_is_too_large_for_eigenvectors_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "MOST_SPECTRAL", 5)
    with pytest.raises(DataError, match="6 nodes") as caught:
        structure.eigenvectors(np.array([[0, 1]]), 6, 2)
    assert "graph.positions=0" in caught.value.hint
    assert structure.eigenvectors(np.array([[0, 1]]), 6, 0).shape == (6, 0)
