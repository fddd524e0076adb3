"""The graph transformer: its attention against the dense definition, batches against single graphs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from headway.baselines.build import make_model
from headway.config.model import ClassifyHeadConfig, StackConfig, TagHeadConfig
from headway.config.networks.graph import GraphConfig, NodesConfig
from headway.data.graphs.batch import GraphTensors, collate, pad_sizes, padded_size
from headway.data.graphs.features import GraphArrays, graph_arrays, learn_front
from headway.data.graphs.graph import EdgeRow, Graph, undirected
from headway.errors import ConfigError, DataError
from headway.joint.graph import GraphModel, GraphTransformer, neighbour_attention

STACK = StackConfig(d_model=16, n_layers=2, n_heads=2, d_ff=32)
SIZES = (5, 9, 21)


def random_graph(count: int, seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, count, (count + 1, 2)).tolist()
    rows = (EdgeRow((a, b), {"w": float(a - b), "tag": str((a + b) % 3)}) for a, b in ends)
    edges, values, _ = undirected(rows)
    nodes = [{"x": float(rng.normal()), "tag": int(rng.integers(3))} for _ in range(count)]
    return Graph(nodes, edges, values, names=[f"n{i}" for i in range(count)])


GRAPHS = [random_graph(count, seed) for seed, count in enumerate(SIZES)]


def config(level: str = "graph", pool: str = "mean", **changes: object) -> GraphConfig:
    front = learn_front(GRAPHS, NodesConfig(eigenvectors=3))
    whole = level == "graph"
    return GraphConfig(
        encoder=STACK,
        source=front,
        level=level,  # type: ignore[arg-type]
        classify=ClassifyHeadConfig(labels=3, pool=pool) if whole else None,  # type: ignore[arg-type]
        tag=None if whole else TagHeadConfig(labels=3),
        labels=("a", "b", "c"),
        **changes,  # type: ignore[arg-type]
    )


def model_of(given: GraphConfig) -> GraphModel:
    """Weights are large enough for a wrong bias to show."""
    torch.manual_seed(0)
    model = make_model(given)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    assert isinstance(model, GraphModel)
    return model.eval()


def logits(model: GraphModel, arrays: list[GraphArrays], **how: object) -> torch.Tensor:
    numbers, mask, rest = collate(arrays, pad_sizes(arrays))
    found = model.label_logits(model(numbers, attention_mask=mask, graphs=rest, **how))
    return found[mask] if model.config.level == "node" else found


def arrays_of(given: GraphConfig) -> list[GraphArrays]:
    return [graph_arrays(graph, given) for graph in GRAPHS]


CONFIGS = {
    "graph": config(),
    "virtual": config(pool="first"),
    "node": config("node"),
    "near": config(hops=2),
    "near nodes": config("node", hops=1),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_batch_is_its_graphs(name: str) -> None:
    given = CONFIGS[name]
    model, arrays = model_of(given), arrays_of(given)
    alone = torch.cat([logits(model, [each]) for each in arrays])
    torch.testing.assert_close(logits(model, arrays), alone, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(logits(model, arrays, backend="eager"), alone, atol=2e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_attention_to_near_nodes_is_dense_attention_with_a_mask(hops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pair by pair, as a block mask of FlexAttention, and dense: outputs, and for the first and last gradients."""
    given = config(hops=hops)
    model, arrays = model_of(given), arrays_of(given)
    dense_model = model_of(replace(given, hops=0))
    dense_model.pairs.limit = hops  # the same weights; all pairs are there, and far ones are masked
    dense = logits(dense_model, arrays_of(dense_model.config))
    with torch.no_grad():  # FlexAttention has no backward pass on a CPU
        for backend in ("fused", "eager"):
            torch.testing.assert_close(logits(model, arrays, backend=backend), dense, atol=2e-5, rtol=1e-4)
        with monkeypatch.context() as patch:
            patch.setattr(GraphTransformer, "_skips_blocks", lambda *_: True)
            patch.setattr("headway.joint.graph.neighbour_attention", None)
            torch.testing.assert_close(logits(model, arrays), dense, atol=2e-5, rtol=1e-4)
    assert not torch.allclose(logits(model_of(replace(given, hops=0)), arrays_of(config())), dense, atol=1e-3)
    for found in (logits(model, arrays), dense):
        found.square().sum().backward()
    for (name, ours), theirs in zip(model.named_parameters(), dense_model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=2e-3, rtol=1e-3, msg=name)


def test_the_kernel_of_pairs_is_the_formula() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8).unbind()  # B H N D
    pairs = torch.tensor([[i, j] for i in range(12) for j in range(12) if i // 6 == j // 6 and (i == j or i + j > 9)])
    bias = torch.randn(len(pairs), 4)
    scores = q @ k.transpose(-1, -2) * 0.3
    mask = torch.full_like(scores, -math.inf)
    for (i, j), own in zip(pairs.tolist(), bias, strict=True):
        mask[i // 6, :, i % 6, j % 6] = own
    expected = (scores + mask).softmax(-1) @ v
    torch.testing.assert_close(neighbour_attention(pairs, bias, q, k, v, 0.3, 0.0), expected)


def test_the_bias_of_a_pair_is_that_of_its_distance_and_its_edge() -> None:
    given = config()
    model, arrays = model_of(given), arrays_of(given)[:1]
    assert isinstance(model, GraphTransformer)
    _, _, rest = collate(arrays, (5, len(arrays[0].edges), 0))
    bias = model.pairs(rest, 5).view(5, 5, 2)
    expected = model.pairs.distance.weight[torch.from_numpy(arrays[0].distances.astype(np.int64))].clone()  # type: ignore[union-attr]
    for (i, j), tags, numbers in zip(arrays[0].edges, arrays[0].edge_tags, arrays[0].edge_numbers, strict=True):
        expected[i, j] += model.pairs.edge_tags.weight[tags].sum(0)  # type: ignore[union-attr]
        expected[i, j] += model.pairs.edge_numbers(torch.from_numpy(numbers))  # type: ignore[misc]
    torch.testing.assert_close(bias, expected)
    assert len({*map(int, arrays[0].distances.ravel())}) > 2  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["graph", "virtual", "near"])
def test_the_order_of_nodes_does_not_matter(name: str) -> None:
    given = replace(CONFIGS[name], source=replace(CONFIGS[name].source, eigenvectors=0))
    model, graph, order = model_of(given), GRAPHS[2], np.random.default_rng(0).permutation(SIZES[2])
    place = np.argsort(order)
    rows = [
        EdgeRow((int(place[a]), int(place[b])), value)
        for (a, b), value in zip(graph.edges, graph.edge_values, strict=True)
    ]
    edges, values, _ = undirected(rows)
    other = Graph([graph.nodes[i] for i in order], edges, values)
    both = [logits(model, [graph_arrays(each, given)]) for each in (graph, other)]
    torch.testing.assert_close(*both, atol=2e-5, rtol=1e-4)


def test_unreachable_has_a_bias_of_its_own_and_large_degrees_share_a_vector() -> None:
    given = replace(config(), distance=2)
    assert given.buckets == 4  # 0, 1, 2 and more, unreachable
    chain = Graph([{"x": 0, "tag": 0}] * 5, np.array([[0, 1], [1, 2], [2, 3]]), [{"w": 0, "tag": "0"}] * 3)
    assert graph_arrays(chain, given).distances.tolist()[0] == [0, 1, 2, 2, 3]  # type: ignore[union-attr]
    star = Graph([{"x": 0, "tag": 0}] * 100, np.array([[0, i] for i in range(1, 100)]), [{"w": 0, "tag": "0"}] * 99)
    small = replace(given, source=replace(given.source, degrees=4))
    assert torch.isfinite(logits(model_of(small), [graph_arrays(star, small)])).all()


def test_dropped_pairs_leave_each_node_itself() -> None:
    given = replace(config(), edge_dropout=0.9)
    model = model_of(given).train()
    numbers, _, rest = collate(arrays_of(given)[:1], (5, len(arrays_of(given)[0].edges), 0))
    bias = model.pairs(rest, 5).view(5, 5, 2)  # type: ignore[operator]
    assert torch.isfinite(bias.diagonal()).all() and torch.isinf(bias).float().mean() > 0.4
    assert torch.isfinite(model.eval().pairs(rest, 5)).all() and len(numbers) == 1  # type: ignore[operator]


def test_signs_of_eigenvectors_flip_and_sizes_are_few() -> None:
    given = config()
    arrays = arrays_of(given)[:2]
    flips = np.array([[1, -1, 1], [-1, 1, 1]])
    plain, flipped = (collate(arrays, pad_sizes(arrays), each)[2].eigenvectors for each in (None, flips))
    torch.testing.assert_close(flipped, plain * torch.from_numpy(flips)[:, None])
    assert not torch.equal(flipped, plain)
    sizes = [padded_size(n) for n in range(1, 600)]
    assert all(size >= n for n, size in enumerate(sizes, start=1)) and len({*sizes}) < 40


def test_a_graph_alone_shares_the_memory_of_its_numbers() -> None:
    given = config()
    arrays = arrays_of(given)[:1]
    numbers, mask, _ = collate(arrays, pad_sizes(arrays))
    assert numbers.data_ptr() == arrays[0].numbers.ctypes.data and mask.all()


def test_configs_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="hops = 2"):
        config(pool="first", hops=2)
    with pytest.raises(ConfigError, match="hops = 9"):
        config(hops=9)
    with pytest.raises(ConfigError, match='level = "node" needs the head tag'):
        replace(config(), level="node")
    with pytest.raises(DataError, match="generates nothing"):
        model_of(config()).start(capacity=1)


@pytest.mark.gpu
@pytest.mark.parametrize("least", [0, 4096])
def test_near_nodes_on_a_gpu_as_on_a_cpu(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a block mask and as a mask."""
    monkeypatch.setattr("headway.joint.graph.FLEX_NODES", least)
    given = config("node", hops=2)
    model, arrays = model_of(given), arrays_of(given)
    expected = logits(model, arrays)
    numbers, mask, rest = collate(arrays, pad_sizes(arrays))
    moved = GraphTensors(*(None if each is None else each.cuda() for each in rest))  # type: ignore[arg-type]
    model = model.cuda()
    found = torch.compile(model)(numbers.cuda(), attention_mask=mask.cuda(), graphs=moved)
    torch.testing.assert_close(model.label_logits(found)[mask.cuda()].cpu(), expected, atol=1e-3, rtol=1e-3)
