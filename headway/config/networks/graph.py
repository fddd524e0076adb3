"""The config of models that read graphs: a transformer, or the networks that are its baselines. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from headway.config.model import (
    MAX_VOCAB,
    MAX_WIDTH,
    ClassifyHeadConfig,
    InitConfig,
    SpecialTokens,
    StackConfig,
    TagHeadConfig,
)
from headway.config.networks.without import WithoutDecoder
from headway.config.ranges import conflict, in_range
from headway.errors import ConfigError

Layer = Literal["attention", "gcn", "gin"]
Level = Literal["node", "graph"]
Problem = Literal["single", "multi", "regression"]
"""One label, several, or a number."""
UNREACHABLE = 1
"""Buckets of distances after the last distance: one for pairs of nodes without a path."""


class GraphShape(Protocol):
    """What a recipe says of a new model of graphs."""

    @property
    def network(self) -> Literal["transformer", "gcn", "gin"]: ...
    @property
    def pool(self) -> Literal["mean", "virtual"]: ...
    @property
    def distance(self) -> int: ...
    @property
    def hops(self) -> int: ...
    @property
    def edge_dropout(self) -> float: ...
    @property
    def dropout(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class NodesConfig:
    """Front end for graphs: features of nodes, their degrees, and where a node is in its graph."""

    kind: Literal["graph"] = "graph"
    columns: tuple[str, ...] = ()
    """Columns of numbers that each node has; `NAME:7` says whether 7 is in the list of the column NAME."""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    """The numbers are normalised by these; empty leaves them as they are."""
    unit_rows: bool = False
    """The numbers of a node are divided by their sum (Kipf & Welling 2017): for words of a text."""
    tags: tuple[str, ...] = ()
    """`COLUMN=value` of each category of nodes that has a vector; a node has one of each column."""
    edge_columns: tuple[str, ...] = ()
    edge_tags: tuple[str, ...] = ()
    """The same for edges."""
    degrees: int = 64
    """Degrees from this one on share a vector (Ying et al. 2021); 0: degrees have none."""
    eigenvectors: int = 8
    """Eigenvectors of the graph's Laplacian that tell where a node is (Dwivedi et al. 2020)."""
    dropout: float = 0.0
    """On the numbers of nodes."""

    def __post_init__(self) -> None:
        in_range(self, degrees=(0, MAX_VOCAB), eigenvectors=(0, MAX_WIDTH), dropout=(0.0, 1.0))
        for name in ("mean", "std"):
            if (count := len(getattr(self, name))) not in (0, len(self.columns)):
                raise ConfigError("C004", f"{name} has {count} numbers, and there are {len(self.columns)} columns")

    @property
    def tag_columns(self) -> tuple[str, ...]:
        """Columns of nodes that hold categories."""
        return tuple(dict.fromkeys(name.partition("=")[0] for name in self.tags))

    @property
    def edge_tag_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.partition("=")[0] for name in self.edge_tags))


@dataclass(frozen=True, kw_only=True)
class GraphConfig(WithoutDecoder):
    """A model that gives labels or numbers to graphs, or to their nodes."""

    layer: Layer = "attention"
    """attention: a transformer whose attention knows distances (Graphormer, Ying et al. 2021); gcn: Kipf & Welling
    2017; gin: Xu et al. 2019."""
    level: Level = "graph"
    problem: Problem = "single"
    encoder: StackConfig
    """Of gcn and gin: only layers, width and dropout are meaningful."""
    source: NodesConfig
    distance: int = 8
    """Distances from this one on share a bias of attention."""
    hops: int = 0
    """A node attends to nodes at most so many edges away; 0: to all."""
    edge_dropout: float = 0.0
    """Share of edges (gcn, gin) or pairs of nodes (attention) that a training step leaves out."""
    classify: ClassifyHeadConfig | None = None
    """Of level graph; pool = "first" reads a node that is connected with all others."""
    tag: TagHeadConfig | None = None
    """Of level node."""
    labels: tuple[str, ...] = ()
    init: InitConfig = field(default_factory=InitConfig)
    special: SpecialTokens = field(default_factory=SpecialTokens)
    family: ClassVar[str] = "headway"

    def __post_init__(self) -> None:
        in_range(self, distance=(1, 250), hops=(0, self.distance), edge_dropout=(0.0, 1.0))
        if (self.classify is None) == (self.level == "graph") or (self.tag is None) == (self.level == "node"):
            raise ConfigError("C004", f'level = "{self.level}" needs the head {HEAD[self.level]}, and no other')
        if self.hops and self.virtual:
            raise conflict(f"hops = {self.hops}", 'classify.pool = "first"', "its node is connected with all others")
        if self.hops and self.layer != "attention":
            raise conflict(f"hops = {self.hops}", f"layer = {self.layer}", "such a layer reads neighbours alone")

    @property
    def virtual(self) -> bool:
        """Whether a node is added that is connected with all others, and is read for the whole graph."""
        return self.classify is not None and self.classify.pool == "first"

    @property
    def buckets(self) -> int:
        """Distances that have a bias of their own."""
        return self.distance + 1 + UNREACHABLE

    @property
    def output_stack(self) -> StackConfig:
        return self.encoder

    @property
    def output_front(self) -> NodesConfig:
        return self.source

    max_length: ClassVar[None] = None


HEAD: dict[Level, str] = {"graph": "classify", "node": "tag"}
"""The head of a model for graphs or for nodes."""
