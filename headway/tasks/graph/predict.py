"""Predicting with a model of graphs: logits of graphs or nodes, and labels with probabilities.

Letters: B graphs, N nodes, L labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.networks.graph import GraphConfig
from headway.data.batching.permutation import Index
from headway.data.datasets.labeled import Kind
from headway.data.graphs.batch import GraphTensors, collate, pad_sizes
from headway.data.graphs.features import GraphArrays, graph_arrays
from headway.data.graphs.graph import Graph
from headway.errors import DataError
from headway.joint.graph import GraphModel
from headway.model.model import Model, evaluating
from headway.progress import track
from headway.tasks.base import Json
from headway.tasks.classification.predict import Prediction, as_predictions
from headway.tasks.graph.task import GraphTask
from headway.tasks.losses.tokens import upcast
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.classification import Numbers
from headway.tasks.predictor import Predictor

MOST_PAIRS = 1 << 22
"""Pairs of nodes that are computed at a time."""


class NodePredictions(NamedTuple):
    """What a model says of the nodes of a graph."""

    names: tuple[str, ...]
    found: tuple[Prediction, ...]

    def to_dict(self) -> Json:
        both = zip(self.names, self.found, strict=True)
        return {"nodes": [{"node": name, **each.to_dict()} for name, each in both]}


def graph_model(model: Model) -> GraphModel:
    if not isinstance(model, GraphModel):
        raise DataError("D001", "this model does not read graphs", "headway train graph")
    return model


def needs_edges(config: GraphConfig) -> bool:
    """Whether a model reads the edges themselves, beside distances."""
    return config.layer != "attention" or bool(config.source.edge_tags or config.source.edge_columns)


def logits_of(model: GraphModel, numbers: Tensor, mask: Tensor, graphs: GraphTensors) -> Tensor:
    """(B, L) of graphs or (B, N, L) of nodes, in float32."""
    return upcast(model.label_logits(model(numbers, attention_mask=mask, graphs=graphs)))


def each_loss(kind: Kind, logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The loss of each graph (B,) or node (B, N)."""
    if kind == "regression":
        return F.mse_loss(logits[..., 0], targets, reduction="none")
    if kind == "multi":
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(-1)
    flat, truth = logits.flatten(0, -2), targets.flatten()
    found = F.cross_entropy(flat, truth, reduction="none", label_smoothing=label_smoothing)
    return found.view(targets.shape)


def graph_logits(model: GraphModel, graphs: Sequence[GraphArrays]) -> list[Numbers]:
    """(L,) of each graph, or (its nodes, L); graphs of like size share a batch."""
    device, found = next(model.parameters()).device, dict[int, Numbers]()
    with evaluating(model):
        for rows in track(list(batches_of(graphs)), "computing", unit="batches"):
            some = [graphs[i] for i in rows]
            made = collate(some, pad_sizes(some), with_edges=needs_edges(model.config))
            numbers, mask, rest = made[0].to(device), made[1].to(device), _on(made[2], device)
            logits = logits_of(model, numbers.to(model.dtype), mask, rest).double().cpu().numpy()
            for i, own in zip(rows, logits, strict=True):
                found[int(i)] = own[: len(graphs[i])] if model.config.level == "node" else own
    return [found[i] for i in range(len(graphs))]


def _on(graphs: GraphTensors, device: torch.device) -> GraphTensors:
    return GraphTensors(*(None if each is None else each.to(device) for each in graphs))  # type: ignore[arg-type]


def batches_of(graphs: Sequence[GraphArrays]) -> Iterator[Index]:
    """Rows of graphs of like size, as many as a batch may have pairs of nodes."""
    sizes = np.array([len(graph) for graph in graphs])
    order, first = np.argsort(-sizes, kind="stable"), 0
    while first < len(order):
        many = max(1, MOST_PAIRS // int(sizes[order[first]]) ** 2)
        yield order[first : first + min(many, 256)]
        first += min(many, 256)


class GraphPredictor(Predictor[Graph, Any]):
    """A model of graphs in use."""

    task = GraphTask()

    def predict(self, examples: Sequence[Graph]) -> list[Any]:
        model = graph_model(self.model)
        config = model.config
        logits = graph_logits(model, [graph_arrays(graph, config) for graph in examples])
        if config.level == "graph":
            return list(as_predictions(config.problem, config.labels, np.array(logits))) if examples else []
        return [
            NodePredictions(
                tuple(graph.node_name(i) for i in range(len(graph.nodes))),
                tuple(as_predictions(config.problem, config.labels, own)),
            )
            for graph, own in zip(examples, logits, strict=True)
        ]

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.graph.training import evaluate_source

        return evaluate_source(graph_model(self.model), self.recipe, source)
