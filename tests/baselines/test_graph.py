"""GCN and GIN: batches of graphs against PyTorch Geometric's own way, and without the package."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest
import torch

from headway.baselines.build import make_model
from headway.baselines.graph import GraphNetwork
from headway.config.model import ClassifyHeadConfig, StackConfig, TagHeadConfig
from headway.config.networks.graph import GraphConfig, NodesConfig
from headway.data.graphs.batch import collate, pad_sizes
from headway.data.graphs.features import graph_arrays
from headway.data.graphs.graph import EdgeRow, Graph, undirected
from headway.errors import NotFoundError

pytest.importorskip("torch_geometric")
STACK = StackConfig(d_model=8, n_layers=2, n_heads=1, d_ff=8)
FRONT = NodesConfig(tags=("tag=0", "tag=1"), degrees=0, eigenvectors=0)


def config(layer: Any, level: Any) -> GraphConfig:
    return GraphConfig(
        layer=layer,
        level=level,
        encoder=STACK,
        source=FRONT,
        classify=ClassifyHeadConfig(labels=3, pool="mean") if level == "graph" else None,
        tag=TagHeadConfig(labels=3) if level == "node" else None,
    )


def graphs() -> list[Graph]:
    rng = np.random.default_rng(0)
    found = []
    for count in (4, 11, 7):
        rows = [EdgeRow((int(a), int(b))) for a, b in rng.integers(0, count, (count, 2))]
        edges, values, _ = undirected(rows)
        found.append(Graph([{"tag": int(rng.integers(2))} for _ in range(count)], edges, values))
    return found


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("layer", ["gcn", "gin"])
def test_a_batch_is_its_graphs(layer: str, level: str) -> None:
    given = config(layer, level)
    model = make_model(given).eval()
    assert isinstance(model, GraphNetwork)
    arrays = [graph_arrays(graph, given) for graph in graphs()]

    def read(some: list[Any]) -> torch.Tensor:
        numbers, mask, rest = collate(some, pad_sizes(some))
        out = model.label_logits(model(numbers, attention_mask=mask, graphs=rest))
        return out[mask] if level == "node" else out

    torch.testing.assert_close(read(arrays), torch.cat([read([each]) for each in arrays]), atol=1e-5, rtol=1e-4)


def test_a_gcn_of_nodes_is_the_published_one() -> None:
    """Two layers: Â · relu(Â · X · W₁) · W₂ with Â = D^-½ (A + 1) D^-½ (Kipf & Welling 2017)."""
    given = config("gcn", "node")
    model, graph = make_model(given).eval(), graphs()[1]
    arrays = graph_arrays(graph, given)
    numbers, mask, rest = collate([arrays], pad_sizes([arrays]))
    found = model.label_logits(model(numbers, attention_mask=mask, graphs=rest))[0]  # type: ignore[operator]
    table = torch.eye(len(arrays))
    for a, b in arrays.edges:
        table[a, b] = 1
    assert (arrays.edges[:, 0] == arrays.edges[:, 1]).any(), "an edge from a node to itself is there once"
    scale = table.sum(1) ** -0.5
    table = scale[:, None] * table * scale
    x = model.source.tags.weight[arrays.tags[:, 0]]  # type: ignore[union-attr,index]
    hidden = (table @ x + model.layers[0].bias).relu()  # type: ignore[union-attr,operator,index]
    expected = model.tag(table @ hidden + model.layers[1].bias)  # type: ignore[union-attr,operator,index]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_gin_adds_up_so_that_twice_the_graph_is_another_one() -> None:
    given = config("gin", "graph")
    model, one = make_model(given).eval(), graphs()[0]
    count = len(one.nodes)
    twice = Graph([*one.nodes, *one.nodes], np.concatenate([one.edges, one.edges + count]), [{}] * 2 * len(one.edges))
    hidden = []
    for graph in (one, twice):
        arrays = graph_arrays(graph, given)
        numbers, mask, rest = collate([arrays], pad_sizes([arrays]))
        hidden.append(model(numbers, attention_mask=mask, graphs=rest).hidden.mean(1))
    torch.testing.assert_close(hidden[1], 2 * hidden[0], atol=1e-5, rtol=1e-4)


def test_without_the_package_an_error_prints_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("torch_geometric"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(NotFoundError, match="torch_geometric") as caught:
        make_model(config("gin", "graph"))
    assert caught.value.code == "F003" and "headway[graph]" in caught.value.hint


def test_the_norm_of_a_graph_is_that_of_the_package() -> None:
    from torch_geometric.nn import GraphNorm as Theirs

    from headway.baselines.graph import GraphNorm

    ours, theirs = GraphNorm(6), Theirs(6)
    with torch.no_grad():
        for mine, other in ((ours.share, theirs.mean_scale), (ours.weight, theirs.weight), (ours.bias, theirs.bias)):
            mine.copy_(torch.randn(6))
            other.copy_(mine)
    x, mask = torch.randn(2, 5, 6), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    expected = theirs(x[mask], torch.tensor([0] * 5 + [1] * 3))
    torch.testing.assert_close(ours(x, mask)[mask], expected)
