"""Labels for graphs and for nodes: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from headway.config.networks.graph import GraphConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import Range, at_least, conflict, shares, within
from headway.config.recipe import DataConfig
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows
from headway.errors import DataError, HeadwayError, counted
from headway.tasks.base import FineTuning, Json, Suitability, Task, Tries
from headway.tasks.inputs import INPUT, Item, raw_rows, reject

if TYPE_CHECKING:
    from headway.data.graphs.graph import Graph
    from headway.data.profile.survey import Survey

SHOWN_NODES = 20
"""Nodes of a graph that a terminal shows."""
MOST_NODES, MOST_EDGES = 2_000, 50_000
"""Of a graph in a request: attention between all nodes needs memory for every pair."""
NODES, EDGES = "nodes", "edges"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `graph` of a recipe."""

    network: Literal["transformer", "gcn", "gin"] = "transformer"
    """transformer: attention that knows distances (Ying et al. 2021); gcn: Kipf & Welling 2017; gin: Xu et al. 2019.
    The last two need torch_geometric."""
    level: Literal["auto", "node", "graph"] = "auto"
    """What gets a label: each node, or a graph as a whole; auto: what has labels in the data."""
    kind: Literal["auto", "single", "multi", "regression"] = "auto"
    """One label, several labels (a|b), or a number; auto: by the values."""
    positions: int = 8
    """Eigenvectors of the graph's Laplacian that tell a node where it is (Dwivedi et al. 2020); their signs are random
    in training."""
    distance: int = 8
    """Attention has a bias for each distance between nodes; from this one on they share one."""
    hops: int = 0
    """A node attends to nodes at most so many edges away, which large graphs need; 0: to all."""
    pool: Literal["mean", "virtual"] = "mean"
    """What represents a graph: the mean of its nodes, or a virtual node that is connected with all."""
    feature_dropout: float = 0.0
    """Dropout on the numbers of nodes."""
    edge_dropout: float = 0.0
    """Share of edges (gcn, gin) or of pairs of nodes (transformer) that a training step leaves out."""
    dropout: float = 0.0
    """Dropout before the classifier."""
    label_smoothing: float = 0.0
    """Share of each label that is spread over all labels (Szegedy et al. 2016)."""
    folds: int = 0
    """Cross-validation: the graphs are split into so many parts, of which one is tested on. 0: no folds."""
    fold: int = 1
    """The part that is tested on, from 1."""

    def __post_init__(self) -> None:
        at_least("graph", self, positions=0, hops=0, fold=1)
        within("graph", self, Range(1, 250), "distance")
        shares("graph", self, "feature_dropout", "edge_dropout", "dropout", "label_smoothing")
        at_least("graph", self, folds=0)
        if self.folds == 1 or self.fold > max(1, self.folds):
            raise conflict(f"graph.fold = {self.fold}", f"graph.folds = {self.folds}", "there are at least two folds")
        if self.hops > self.distance:
            raise conflict(f"graph.hops = {self.hops}", f"graph.distance = {self.distance}", "hops are distances")
        if self.hops and self.network != "transformer":
            raise conflict(f"graph.hops = {self.hops}", f"graph.network = {self.network}", "it reads neighbours alone")


class GraphTask(Task):
    """Labels or numbers for graphs, or for their nodes."""

    name, title, noun, pipeline_tag = "graph", "graph learning", "graph model", "graph-ml"
    takes = "graph"
    Settings = Settings
    tries = Tries(
        '"a:marked b c d:marked a-b b-c c-d"',
        own="nodes.csv,edges.csv",
        request={"input": {NODES: ["marked", "", "marked"], EDGES: [[0, 1], [1, 2]]}},
    )
    made_up = "random graphs with two marked nodes"
    fine_tuning = FineTuning(lr=2e-4)
    training = "headway.tasks.graph.training:GraphTraining"
    predictor = "headway.tasks.graph.predict:GraphPredictor"

    def parse(self, raw: Mapping[str, Any]) -> Graph:
        """An `input` is a graph in words or JSON, or names files that hold one."""
        from headway.data.graphs.sources import is_graph_spec, read_graphs

        given = raw.get(INPUT)
        if not isinstance(given, str) or not is_graph_spec(given):
            return _parse(raw)
        found = list(read_graphs(given, DataConfig(), BadRows()))
        if len(found) != 1:
            raise DataError("D001", f"{given} holds {counted(len(found), 'graphs')}, not one", "--file reads them all")
        return found[0]

    def parse_request(self, raw: Mapping[str, Any]) -> Graph:
        """A graph, not the name of a file: a client must not read files of the server."""
        graph = _parse(raw)
        if len(graph.nodes) > MOST_NODES or len(graph.edges) > MOST_EDGES:
            raise DataError("D001", f"{graph.name}; the limits are {MOST_NODES:,} and {MOST_EDGES:,}")
        return graph

    def echo(self, example: Graph) -> Json:
        return {NODES: len(example.nodes), EDGES: len(example.edges)}

    def inputs(
        self, source: str | BinaryIO, data: DataConfig, bad: BadRows, *, firm: bool = False, context: str | None = None
    ) -> Iterator[Item]:
        """Graphs of files, or of the lines of a pipe."""
        from headway.data.graphs.sources import parse_row, read_graphs

        if isinstance(source, str):
            for graph in read_graphs(source, data, bad):
                yield Item(graph, graph.file, graph.line, {} if graph.label is None else {"label": graph.label})
            return
        for row in raw_rows(source):
            found = parse_row(row, 0, data.label) if isinstance(row, Row) else row
            if isinstance(found, Flaw):
                reject(found, bad)
            else:
                yield Item(found, row.file, row.line, {} if found.label is None else {"label": found.label})

    def files(self, spec: str) -> list[Path]:
        from headway.data.graphs.sources import graph_files

        return graph_files(spec)

    def left_out(self, spec: str) -> str:
        return ""

    def count(self, data: DataConfig) -> int | None:
        from headway.data.graphs.sources import read_graphs

        try:
            return sum(1 for _ in read_graphs(data.train, data, BadRows("skip")))
        except HeadwayError:  # training will say why
            return None

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        from headway.data.graphs.sources import are_tables

        if are_tables(survey.spec):
            return Suitability(1.0)
        graphs = rows and all(isinstance(row.values.get(EDGES), list) and NODES in row.values for row in rows)
        return Suitability(0.95 if graphs else 0.0)

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return isinstance(config, GraphConfig)

    def render(self, found: Sequence[tuple[Graph, Json]], *, colours: bool) -> Iterator[str]:
        for graph, result in found:
            if NODES not in result:
                yield f"{_said(result)}  {graph.name}"
                continue
            if len(found) > 1:
                yield graph.name
            wide = max(len(each["node"]) for each in result[NODES][:SHOWN_NODES])
            yield from (f"{each['node']:>{wide}}  {_said(each)}" for each in result[NODES][:SHOWN_NODES])
            if (more := len(result[NODES]) - SHOWN_NODES) > 0:
                yield f"… and {more:,} more nodes"


def _parse(raw: Mapping[str, Any]) -> Graph:
    from headway.data.graphs.sources import parse_row

    found = parse_row(Row(raw, "", 0), 0)
    if isinstance(found, Flaw):
        raise DataError("D001", found.reason)
    return found


def _said(result: Json) -> str:
    """A label with its probability, several labels, or a number."""
    label = result["label"]
    text = (
        (", ".join(label) or "none")
        if isinstance(label, list)
        else f"{label:.4g}"
        if isinstance(label, float)
        else label
    )
    return f"{text}  {result['probability']:.1%}" if result.get("probability") is not None else text
