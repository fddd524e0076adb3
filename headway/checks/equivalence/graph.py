"""Checks of a model of graphs: padding, batches, near pairs, maps; on random graphs with its own features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from headway.checks.equivalence.result import TOLERANCE, Outcome, max_difference, skip
from headway.config.networks.graph import GraphConfig
from headway.data.graphs.batch import GraphTensors, collate, pad_sizes
from headway.data.graphs.features import GraphArrays, graph_arrays
from headway.data.graphs.graph import EdgeRow, Graph, Values, undirected
from headway.joint.graph import GraphModel
from headway.model.attention import Backend, Hook

BOTH: tuple[Backend, Backend] = ("fused", "eager")
SIZES = (5, 23, 12)
"""Nodes of the graphs: different, so that a batch has padding."""


@dataclass
class GraphChecks:
    """A few random graphs; every way to compute them must give what each gives alone."""

    model: GraphModel
    seed: int

    def table(self, compiled: bool) -> Iterator[tuple[str, Callable[[], Outcome]]]:
        """Name and check, in the order of the output."""
        yield "batch = single", self.batching
        yield "near pairs = dense", self.near
        yield "maps = eager weights", self.maps

    @cached_property
    def graphs(self) -> list[GraphArrays]:
        generator = np.random.default_rng(self.seed)
        return [graph_arrays(_random_graph(self.model.config, size, generator), self.model.config) for size in SIZES]

    def inputs(self, graphs: Sequence[GraphArrays]) -> tuple[Tensor, Tensor, GraphTensors]:
        like = next(self.model.parameters())
        numbers, mask, rest = collate(graphs, pad_sizes(graphs))
        moved = (None if each is None else each.to(like.device) for each in rest)
        return numbers.to(like), mask.to(like.device), GraphTensors(*moved)  # type: ignore[arg-type]

    def logits(self, graphs: Sequence[GraphArrays], backend: Backend = "fused", hook: Hook | None = None) -> Tensor:
        """Logits of graphs, or of all nodes of all graphs."""
        numbers, mask, rest = self.inputs(graphs)
        output = self.model(numbers, attention_mask=mask, graphs=rest, backend=backend, hook=hook)
        logits = self.model.label_logits(output)
        return logits[mask] if self.model.config.level == "node" else logits

    @cached_property
    def alone(self) -> list[Tensor]:
        return [self.logits([graph]) for graph in self.graphs]

    def outcome(self, worst: float) -> Outcome:
        largest = max(1.0, *(float(each.abs().max()) for each in self.alone))
        return Outcome(worst, TOLERANCE[self.alone[0].dtype] * largest)

    def batching(self) -> Outcome:
        return self.outcome(max_difference(self.logits(self.graphs), torch.cat(self.alone)))

    def near(self) -> Outcome:
        """Attention over near pairs against that over all pairs with a mask."""
        if not self.model.config.hops:
            return skip("the model attends to all nodes")
        return self.outcome(max_difference(self.logits(self.graphs), self.logits(self.graphs, "eager")))

    def maps(self) -> Outcome:
        """Attention maps that are recomputed beside the fused kernel, and its output, against the eager backend."""
        seen: dict[str, list[Tensor]] = {}

        def hook(name: str, make: Callable[[], Tensor]) -> None:
            if name.endswith("weights"):
                seen.setdefault(name, []).append(make())

        found = [self.logits(self.graphs[1:2], backend, hook) for backend in BOTH]
        if not seen:
            return skip("the model has no attention")
        rows = max(float((m.sum(-1) - 1).abs().max()) for pair in seen.values() for m in pair)
        return self.outcome(max([max_difference(*found), rows, *(max_difference(*pair) for pair in seen.values())]))


def _random_graph(config: GraphConfig, size: int, generator: np.random.Generator) -> Graph:
    """A graph with the columns and categories of the model."""
    front = config.source

    def values(columns: Sequence[str], tags: Sequence[str]) -> Values:
        numbers = {name: float(generator.normal()) for name in columns if ":" not in name}
        lists = {name.rpartition(":")[0]: [int(name.rpartition(":")[2])] for name in columns if ":" in name}
        chosen = dict(tag.split("=", 1) for tag in generator.permutation(list(tags)).tolist())
        return {**numbers, **lists, **chosen}

    ends = generator.integers(0, size, (size + 3, 2))
    rows = (EdgeRow((int(a), int(b)), values(front.edge_columns, front.edge_tags)) for a, b in ends)
    edges, edge_values, _ = undirected(rows)
    return Graph([values(front.columns, front.tags) for _ in range(size)], edges, edge_values)
