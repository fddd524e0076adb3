"""Small pictures of graphs: nodes that push each other away, held together by their edges, in colours by category."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.data.graphs.graph import Graph
from headway.data.graphs.structure import both_directions
from headway.data.images.decode import Pixels

SIDE, RADIUS = 128, 4
"""Pixels of a picture's side, and of a node."""
MOST_DRAWN = 200
"""Nodes of the largest graph that is worth a picture."""
ROUNDS = 80
COLOURS = ((76, 114, 176), (221, 132, 82), (85, 168, 104), (196, 78, 82), (129, 114, 179), (147, 120, 96))
LINE = (150, 150, 150)


def layout(graph: Graph) -> NDArray[np.float64]:
    """(N, 2) from 0 to 1: where springs along the edges and repulsion leave nodes (Fruchterman & Reingold 1991)."""
    count = len(graph.nodes)
    turn = 2 * np.pi * np.arange(count) / max(1, count)
    place = np.stack([np.cos(turn), np.sin(turn)], 1)
    ends, wish = both_directions(graph.edges), 1.5 / np.sqrt(max(1, count))
    for step in range(ROUNDS):
        gap = place[:, None] - place[None]
        square = (gap**2).sum(-1).clip(min=1e-4)
        force = (gap * (wish**2 / square)[..., None]).sum(1)
        pull = place[ends[:, 1]] - place[ends[:, 0]]
        np.add.at(force, ends[:, 0], pull * np.sqrt((pull**2).sum(1, keepdims=True)) / wish)
        force -= 0.3 * place  # parts without an edge between them do not drift away
        length = np.sqrt((force**2).sum(1, keepdims=True)).clip(min=1e-9)
        place = place + force / length * np.minimum(length, 0.2 * (1 - step / ROUNDS))
    low, high = place.min(0), place.max(0)
    return np.asarray((place - low) / (high - low).clip(min=1e-9))


def draw(graph: Graph, groups: Sequence[int]) -> Pixels:
    """A picture (SIDE, SIDE, 3); `groups` are numbers of each node's colour."""
    picture = np.full((SIDE, SIDE, 3), 255, dtype=np.uint8)
    margin = 2 * RADIUS
    places = margin + layout(graph) * (SIDE - 2 * margin - 1)
    share = np.linspace(0, 1, 2 * SIDE)[:, None]
    for first, second in graph.edges:
        x, y = (places[first] + share * (places[second] - places[first])).round().astype(int).T
        picture[y, x] = LINE
    rows, columns = np.mgrid[:SIDE, :SIDE]
    for (x, y), group in zip(places, groups, strict=True):
        picture[(columns - x) ** 2 + (rows - y) ** 2 <= RADIUS**2] = COLOURS[group % len(COLOURS)]
    return picture
