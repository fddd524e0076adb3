"""Made-up graphs: how many steps apart are two marked nodes? Some of the graphs fall into parts without a path."""

from __future__ import annotations

import random

import numpy as np

from headway.data.graphs.graph import NOTHING, EdgeRow, Graph, undirected
from headway.data.graphs.structure import distances

LABELS = ("1 step", "2 steps", "3 steps", "4 or more", "no path")
SIZES = (3, 16)
"""The fewest and the most nodes."""
FARTHEST = 4
PER_NODE = 1.1
"""Edges for each node: so few that parts of some graphs hang on nothing."""


def make_graphs(count: int, seed: int = 0) -> list[Graph]:
    """Return `count` graphs, as many of each label; equal seeds give equal graphs."""
    rng = random.Random(seed)
    return [_graph(rng, number) for number in range(count)]


def _graph(rng: random.Random, number: int) -> Graph:
    wanted = number % len(LABELS)
    while True:
        size = rng.randint(*SIZES)
        rows = [EdgeRow(tuple(rng.sample(range(size), 2))) for _ in range(round(PER_NODE * size))]  # type: ignore[arg-type]
        edges, values, _ = undirected(rows)
        apart = distances(edges, size, FARTHEST)
        pairs = np.argwhere(apart == (FARTHEST + 1 if wanted == FARTHEST else wanted + 1))
        if len(pairs):
            marked = set(pairs[rng.randrange(len(pairs))].tolist())
            nodes = [{"tag": "marked"} if node in marked else NOTHING for node in range(size)]
            return Graph(nodes, edges, values, label=LABELS[wanted], number=number)
