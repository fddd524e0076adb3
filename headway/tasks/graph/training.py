"""GraphTraining: a model learns labels or numbers of graphs or of their nodes. Letters: B graphs, N nodes, L labels."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.config.networks.graph import GraphConfig, NodesConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.shape import graph_config
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.datasets.labeled import parse_labels, with_known_labels
from headway.data.files.lines import read_as
from headway.data.files.rows import BadRows
from headway.data.graphs.batch import GraphTensors, collate, pad_sizes
from headway.data.graphs.draw import MOST_DRAWN, draw
from headway.data.graphs.features import learn_front
from headway.data.graphs.graph import Graph
from headway.data.images.png import png
from headway.errors import ConfigError
from headway.hub.download import resolve
from headway.hub.folder import open_folder
from headway.joint.graph import GraphModel
from headway.model.model import Model
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.classification.evaluate import METRICS, ClassificationResults, evaluation, said_of
from headway.tasks.graph.data import GraphData, Part, label_rows, make_part, read_data
from headway.tasks.graph.predict import each_loss, graph_logits, graph_model, logits_of, needs_edges
from headway.tasks.graph.task import Settings
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.chance import constant_logits
from headway.tasks.metrics.classification import Numbers
from headway.tasks.recipe import Recipe
from headway.tasks.training import ScoredTraining, TaskContext

SAMPLES, SHOWN = 8, 12
"""Held-out graphs or nodes that a sample shows; pictures that a report shows."""


@dataclass(frozen=True)
class GraphTraining(ScoredTraining[Part]):
    """Graphs with labels, or with labelled nodes."""

    recipe: Recipe
    data: GraphData
    front: NodesConfig
    tokenizer = None

    @classmethod
    def prepare(cls, context: TaskContext) -> GraphTraining:
        with read_as(context.recipe.data.encoding):
            return cls.read(context.recipe)

    @classmethod
    def read(cls, recipe: Recipe) -> GraphTraining:
        """Read the graphs of a recipe; the columns of nodes are those of model.from, or are learned."""
        data = read_data(recipe)
        if recipe.model.from_:
            base = open_folder(resolve(recipe.model.from_)).config
            return cls(recipe, data, _base_front(base, recipe))
        settings: Settings = recipe.settings
        plain = settings.network != "transformer"
        front = NodesConfig(eigenvectors=0 if plain else settings.positions, dropout=settings.feature_dropout)
        front = learn_front(data.split["train"][0], front)
        if plain and (front.columns or front.tags):  # as published; nodes that are all alike have their degree
            front = replace(front, degrees=0)
        return cls(recipe, data, front)

    @property
    def primary_metric(self) -> str:  # type: ignore[override]
        return METRICS[self.data.kind][0]

    higher_is_better = True

    @cached_property
    def own_config(self) -> GraphConfig:
        """Of a new model: graphs are made into arrays by it."""
        data = self.data
        return graph_config(self.recipe.model, self.recipe.settings, self.front, data.level, data.kind, data.labels)

    def config(self, base: AnyConfig | None) -> AnyConfig:
        if base is None:
            return self.own_config
        _base_front(base, self.recipe)
        assert isinstance(base, GraphConfig)
        own = self.own_config
        return replace(
            base, level=own.level, problem=own.problem, classify=own.classify, tag=own.tag, labels=own.labels
        )

    @cached_property
    def train(self) -> Part:
        """The graphs that are learned from."""
        return self.data.part("train", self.read_config)

    @cached_property
    def read_config(self) -> GraphConfig:
        """The config by which graphs are made into arrays."""
        if not self.recipe.model.from_:
            return self.own_config
        found = self.config(open_folder(resolve(self.recipe.model.from_)).config)
        assert isinstance(found, GraphConfig)
        return found

    def _part(self, name: str) -> Part:
        """A part; parts of the nodes of one graph share its arrays."""
        graphs, rows = self.data.split[name]
        if graphs is self.data.split["train"][0] and not self.data.bad.count:
            return Part(self.train.graphs, rows, self.data.kind, self.data.labels)
        return self.data.part(name, self.read_config)

    @cached_property
    def valid_part(self) -> Part:
        return self._part("valid")

    @cached_property
    def test_part(self) -> Part | None:
        """The graphs of data.test, of the fold, or those that the file calls test."""
        return self._part("test") if "test" in self.data.split else None

    def read_test(self, source: str) -> Part:
        return read_part(self.read_config, self.recipe, source, self.bad_tests)

    @property
    def facts(self) -> dict[str, Any]:
        data, train, valid = self.data, self.train, self.valid_part
        about = {"train": self.recipe.data.train, "valid": self.recipe.data.valid, "bad_rows": data.bad.count}
        digest = hashlib.sha256(repr([(row.label, row.graph, row.node) for row in train.rows]).encode()).hexdigest()
        return {
            **about,
            "fingerprint": digest,
            "samples": len(train.graphs),
            "tokens": train.nodes,
            "valid_samples": len(valid.rows),
            "valid_tokens": valid.nodes,
            "labels": len(data.labels),
            "level": data.level,
            "nodes": train.nodes,
            "edges": sum(len(graph.graph.edges) for graph in train.graphs),
            "largest": max(map(len, train.graphs)),
            **data.dropped,
        }

    @cached_property
    def chance(self) -> dict[str, float]:
        truth, count = self.valid_part.truth, len(self.data.labels)
        logits = np.tile(constant_logits(self.data.kind, truth, count), (len(truth), 1))
        return {"valid": self._mean_loss(logits, self.valid_part), **_results(logits, self.valid_part).metrics()}

    @cached_property
    def static_shapes(self) -> bool:
        """Whether one size fits all batches without much waste."""
        sizes = {pad_sizes([graph] * 2) for graph in self.train.graphs}
        return len(sizes) == 1 or len(self.train.graphs) == 1

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.train.graphs), min(batch, len(self.train.graphs)))

    def batch(self, samples: Index) -> Batch:
        train, seed = self.train, self.recipe.seed
        rows = shuffle_samples(samples, len(train.graphs), seed)
        width = self.read_config.source.eigenvectors
        flips = np.stack([1 - 2 * np.random.default_rng([seed, int(i)]).integers(0, 2, width) for i in samples])
        return make_batch(train, rows, self.read_config, flips)

    @property
    def loss(self) -> Callable[..., Tensor]:
        kind, smoothing = self.data.kind, self.recipe.settings.label_smoothing

        def loss(model: GraphModel, numbers: Tensor, mask: Tensor, *rest: Tensor) -> Tensor:
            graphs, targets, scored = GraphTensors(*rest[:-2]), rest[-2], rest[-1]
            each = each_loss(kind, logits_of(model, numbers, mask, graphs), targets, smoothing)
            return (each * scored).sum()

        return loss

    def loss_and_metrics(self, model: Model, part: Part, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        """Every process evaluates all graphs, so that all have the same metrics."""
        logits = part_logits(graph_model(model), part)
        return self._mean_loss(logits, part), _results(logits, part).metrics()

    def _mean_loss(self, logits: Numbers, part: Part) -> float:
        kind, truth = part.kind, torch.from_numpy(part.truth)
        targets = truth.long() if kind == "single" else truth.float()
        return float(each_loss(kind, torch.from_numpy(logits).float(), targets).mean())

    def evaluate_in_full(self, model: Model, part: Part) -> Evaluation:
        return evaluate_part(graph_model(model), part, self.data.bad.count)

    @property
    def tries(self) -> list[str]:
        source = self.recipe.data.valid or self.recipe.data.train
        graphs = self.data.split["valid"][0]
        alone = len(graphs) == 1 and graphs is self.data.split["train"][0]
        return [source] if alone else ["--file", source]

    def sample(self, model: Model) -> str:
        part = self.valid_part
        results = _results(part_logits(graph_model(model), part), part)
        found = [(row, results.guess(i)) for i, row in enumerate(part.rows[:SAMPLES])]
        said = [f"{row.shown}: {said_of(guess)}, in truth {said_of(row.label)}" for row, guess in found]
        return "\n".join(said)


def _base_front(base: AnyConfig, recipe: Recipe) -> NodesConfig:
    if not isinstance(base, GraphConfig):
        raise ConfigError("C004", f"task graph trains models of graphs, model.from = {recipe.model.from_} is none")
    return base.source


def make_batch(part: Part, rows: Sequence[int] | Index, config: GraphConfig, flips: Index | None = None) -> Batch:
    """Graphs with what should be said of them; nodes and graphs without a label do not count."""
    graphs = [part.graphs[i] for i in rows]
    sizes = pad_sizes(graphs)
    numbers, mask, rest = collate(graphs, sizes, flips, with_edges=needs_edges(config))
    truth = part.truth.astype(np.int64 if part.kind == "single" else np.float32)
    shape = (len(graphs), sizes[0]) if config.level == "node" else (len(graphs),)
    targets = np.zeros((*shape, *truth.shape[1:]), dtype=truth.dtype)
    scored = np.zeros(shape, dtype=np.float32)
    for place, i in enumerate(rows):
        own = part.rows_of[i]
        at = (place, part.nodes_of[i]) if config.level == "node" else (place,)
        targets[at] = truth[own] if config.level == "node" else truth[own[0]]
        scored[at] = 1
    tensors = (numbers, mask, *rest, torch.from_numpy(targets), torch.from_numpy(scored))
    return Batch(tensors, float(scored.sum()), sum(map(len, graphs)))


def part_logits(model: GraphModel, part: Part) -> Numbers:
    """(rows, L)"""
    found = graph_logits(model, part.graphs)
    if model.config.level == "graph":
        return np.stack([found[row.graph] for row in part.rows])
    return np.stack([found[row.graph][row.node] for row in part.rows])


def _results(logits: Numbers, part: Part) -> ClassificationResults:
    return ClassificationResults(part.kind, part.labels, part.truth, logits)


def evaluate_part(model: GraphModel, part: Part, bad: int = 0) -> Evaluation:
    """A model on labelled graphs or nodes, in full, with pictures of the surest mistakes."""
    found = evaluation(_results(part_logits(model, part), part), part.rows, None, {"bad_rows": bad})
    if model.config.level == "graph":
        found.details["pictures"] = [
            {"png": _picture(part.graphs[part.rows[wrong["example"]].graph].graph, model.config), "text": _wrong(wrong)}
            for wrong in found.details["worst"][:SHOWN]
            if len(part.graphs[part.rows[wrong["example"]].graph]) <= MOST_DRAWN
        ]
    return found


def _wrong(row: dict[str, Any]) -> str:
    sure = "" if row["probability"] is None else f" ({row['probability']:.2f})"
    return f"{said_of(row['predicted'])}{sure}, labelled {said_of(row['label'])}"


def _picture(graph: Graph, config: GraphConfig) -> str:
    """A graph as a data URL of a PNG file; its nodes have the colours of their first category."""
    columns = config.source.tag_columns
    place = {name: i for i, name in enumerate(config.source.tags)}
    groups = [place.get(f"{columns[0]}={node.get(columns[0])}", 0) if columns else 0 for node in graph.nodes]
    return f"data:image/png;base64,{base64.b64encode(png(draw(graph, groups))).decode()}"


def read_part(config: GraphConfig, recipe: Recipe, source: str, bad: BadRows) -> Part:
    """Other graphs, with labels that the model knows."""
    from headway.data.graphs.sources import read_graphs

    graphs = list(read_graphs(source, recipe.data, bad))
    rows = parse_labels(label_rows(graphs, config.level), config.problem, bad, recipe.data.label)
    rows = with_known_labels(rows, config.labels, config.problem, bad)
    return make_part(graphs, rows, config.problem, config.labels, config, bad)


def evaluate_source(model: GraphModel, recipe: Recipe, source: str) -> Evaluation:
    """On graphs of the user's; without a source, on what the run has not learned from."""
    bad = BadRows(recipe.data.bad_rows)
    with read_as(recipe.data.encoding):
        if source := source or recipe.data.test or recipe.data.valid:
            return evaluate_part(model, read_part(model.config, recipe, source, bad), bad.count)
        training = GraphTraining.read(recipe)
        return evaluate_part(model, training.test_part or training.valid_part, training.data.bad.count)
