"""Training on graphs: levels, kinds, splits, folds, batches, evaluation; the networks beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.data.synthetic.graphs import LABELS, make_graphs
from headway.errors import ConfigError, DataError
from headway.joint.graph import GraphModel
from headway.tasks.graph.data import fold_of
from headway.tasks.graph.predict import graph_logits
from headway.tasks.graph.training import GraphTraining, make_batch
from headway.tasks.recipe import Recipe, load_recipe
from headway.train.run import start, train

SMALL = ("model.depth=1", "model.width=16", "model.heads=2", "train.steps=4", "train.batch=4", "train.warmup=1")


def recipe(*words: str) -> Recipe:
    return load_recipe("graph", [*SMALL, *words])[1]


def training(*words: str) -> GraphTraining:
    return GraphTraining.read(recipe(*words))


def rows_file(folder: Path, rows: list[dict[str, Any]], name: str = "graphs.jsonl") -> str:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / name)


def ring(size: int, **more: Any) -> dict[str, Any]:
    return {"nodes": ["x"] * size, "edges": [[i, (i + 1) % size] for i in range(size)], **more}


def node_tables(folder: Path, labels: str = "ab", split: bool = True) -> str:
    """Twelve nodes in a ring; the label follows the tag."""
    part = ["train"] * 6 + ["valid"] * 3 + ["test"] * 3
    rows = [f"{i},{labels[i % 2]},{labels[i % 2]}" + (f",{part[i]}" if split else "") for i in range(12)]
    (folder / "nodes.csv").write_text("\n".join(["id,tag,label" + ",split" * split, *rows]) + "\n")
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"{i},{(i + 1) % 12}\n" for i in range(12)))
    return f"data.train={folder}"


def test_made_up_graphs_hold_their_rule() -> None:
    graphs = make_graphs(50, seed=3)
    assert {graph.label for graph in graphs} == {*LABELS}
    for graph in graphs:
        first, last = (i for i, node in enumerate(graph.nodes) if node)
        near = {first}
        steps = 0
        while last not in near and steps < 20:
            ends = graph.edges.tolist()
            near |= {b for a, b in ends if a in near} | {a for a, b in ends if b in near}
            steps += 1
        said = "no path" if last not in near else LABELS[min(steps, 4) - 1]
        assert graph.label == said
    assert [g.label for g in make_graphs(5)] == [g.label for g in make_graphs(5)]


def test_the_starter_learns_its_rule(tmp_path: Path) -> None:
    words = ("model.depth=2", "model.width=32", "train.steps=250", "train.batch=64", "train.lr=5e-3", f"out={tmp_path}")
    log: list[dict[str, Any]] = []
    run = train(start("run", recipe(*words)), lambda kind, **facts: log.append({"event": kind, **facts}))
    accuracy = [event["accuracy"] for event in log if event["event"] == "eval"][-1]
    assert accuracy > 0.4, "chance is 0.2"
    model = headway.load(run.folder)
    graph = {"nodes": [{"tag": "marked"}, {"tag": "marked"}], "edges": [[0, 1]]}
    one, several = model.classify(graph), model.classify([graph, "a:marked b:marked"])
    assert one.label == several[0].label == "1 step" and several[1].label == "no path"
    with pytest.raises(DataError, match="number 1 of graphs is of type int"):
        model.classify([3])


def test_nodes_of_one_graph_are_split_as_the_file_says(tmp_path: Path) -> None:
    found = training(node_tables(tmp_path))
    assert found.data.level == "node" and found.data.labels == ("a", "b")
    parts = [[row.node for row in part.rows] for part in (found.train, found.valid_part, found.test_part)]  # type: ignore[union-attr]
    assert parts == [[*range(6)], [6, 7, 8], [9, 10, 11]]
    assert found.train.graphs is found.valid_part.graphs and found.static_shapes
    batch = found.batch(np.array([0]))
    targets, scored = batch.tensors[-2:]
    assert batch.count == 6 and scored.sum() == 6 and scored[0, :6].all()  # type: ignore[union-attr,index]
    assert targets[0, :6].tolist() == [0, 1] * 3 and found.plan(64).samples(3).tolist() == [3]  # type: ignore[index]


def test_without_a_split_nodes_are_held_out(tmp_path: Path) -> None:
    found = training(node_tables(tmp_path, split=False))
    train_nodes, valid = ({row.node for row in part.rows} for part in (found.train, found.valid_part))
    assert not train_nodes & valid and train_nodes | valid == {*range(12)} and found.test_part is None


def test_the_loss_of_a_batch_is_that_of_its_labelled_nodes(tmp_path: Path) -> None:
    """Labels that are not scored change nothing, and the loss is the mean of torch over the others."""
    found = training(node_tables(tmp_path), "graph.label_smoothing=0.1")
    torch.manual_seed(0)
    from headway.baselines.build import make_model

    model = make_model(found.config(None)).eval()
    assert isinstance(model, GraphModel)
    batch = found.batch(np.array([0]))
    total = found.loss(model, *batch.tensors) / batch.count
    logits = torch.from_numpy(graph_logits(model, found.train.graphs)[0][:6]).float()
    truth = torch.tensor([0, 1] * 3)
    # positions are flipped in a batch, so compare without them
    plain = make_batch(found.train, [0], found.read_config)
    total = found.loss(model, *plain.tensors) / plain.count
    torch.testing.assert_close(total, torch.nn.functional.cross_entropy(logits, truth, label_smoothing=0.1))


@pytest.mark.parametrize(
    ("labels", "kind", "metric"),
    [(["x", "y"], "single", "accuracy"), ([0.5, 1.75], "regression", "spearman"), (["x|y", "y"], "multi", "micro_f1")],
)
def test_kinds_of_labels(tmp_path: Path, labels: list[Any], kind: str, metric: str) -> None:
    spec = rows_file(tmp_path, [ring(3 + i % 4, label=labels[i % 2]) for i in range(20)])
    log: list[dict[str, Any]] = []
    run = train(
        start("run", recipe(f"data.train={spec}", f"out={tmp_path}/runs", "graph.pool=virtual")),
        lambda event, **facts: log.append({"event": event, **facts}),
    )
    assert metric in [event for event in log if event["event"] == "eval"][-1]
    model = headway.load(run.folder)
    assert model.config.problem == kind and model.config.virtual  # type: ignore[union-attr]
    label = model.classify({"nodes": ["x"] * 3, "edges": [[0, 1]]}).label
    assert isinstance(label, {"single": str, "regression": float, "multi": list}[kind])


def test_folds_cover_all_graphs_once(tmp_path: Path) -> None:
    spec = rows_file(tmp_path, [ring(3 + i % 5, label="xy"[i % 2]) for i in range(23)])
    tested: list[int] = []
    for fold in range(1, 4):
        found = training(f"data.train={spec}", "graph.folds=3", f"graph.fold={fold}")
        parts = [found.train, found.valid_part, found.test_part]
        numbers = [[graph.graph.number for graph in part.graphs] for part in parts]  # type: ignore[union-attr]
        assert sorted(each for part in numbers for each in part) == [*range(23)]
        tested += numbers[2]
    assert sorted(tested) == [*range(23)]
    with pytest.raises(DataError, match="23 graphs cannot be split into 30 folds"):
        fold_of(make_graphs(23), "", 30, 1)
    with pytest.raises(ConfigError, match=r"graph.fold = 4 conflicts with graph.folds = 3"):
        recipe("graph.folds=3", "graph.fold=4")


def test_parts_in_the_file_and_other_files(tmp_path: Path) -> None:
    rows = [ring(4, label="xy"[i % 2], split=["train", "train", "valid", "test"][i % 4]) for i in range(16)]
    found = training(f"data.train={rows_file(tmp_path, rows)}")
    assert [len(part.rows) for part in (found.train, found.valid_part, found.test_part)] == [8, 4, 4]  # type: ignore[union-attr]
    other = rows_file(tmp_path, [ring(5, label="x")], "more.jsonl")
    found = training(f"data.train={rows_file(tmp_path, rows)}", f"data.valid={other}", f"data.test={other}")
    assert [len(part.rows) for part in (found.train, found.valid_part, found.test_part)] == [16, 1, 1]  # type: ignore[union-attr]
    strange = rows_file(tmp_path, [ring(5, label="z")], "strange.jsonl")
    with pytest.raises(DataError, match=r"strange.jsonl line 1: label 'z' is unknown"):
        training(f"data.train={rows_file(tmp_path, rows)}", f"data.test={strange}")


def test_what_cannot_be_learned_is_said(tmp_path: Path) -> None:
    for rows, match in (
        ([ring(3), ring(4)], "no graph has a label"),
        ([ring(3, label="x"), ring(4, label="x")], "nothing to tell apart"),
        ([ring(3, label="x"), ring(4)] * 4, r"graphs.jsonl line 2: the label: empty"),
        (
            [{"nodes": [{"size": size}], "label": "xy"[i % 2]} for i, size in enumerate([1, 2, "3", 4, "big", 5])],
            r"graphs.jsonl line 5: node 0: size: expected a number, found 'big'",
        ),
    ):
        with pytest.raises(DataError, match=match):
            assert training(f"data.train={rows_file(tmp_path, rows)}").facts


def test_bad_graphs_are_skipped_and_counted(tmp_path: Path) -> None:
    rows = [ring(3 + i % 3, label="xy"[i % 2]) for i in range(20)]
    rows[3] = {"nodes": 2, "edges": [[0, 5]], "label": "x"}
    rows[7] = {"nodes": [], "label": "x"}
    spec = rows_file(tmp_path, rows)
    with pytest.raises(DataError, match=r"graphs.jsonl line 4: edge 0: there is no node 5; the graph has 2 nodes"):
        training(f"data.train={spec}")
    facts = training(f"data.train={spec}", "data.bad_rows=skip").facts
    assert facts["bad_rows"] == 2 and facts["samples"] + facts["valid_samples"] == 18


def test_self_loops_and_repeated_edges_are_counted(tmp_path: Path) -> None:
    rows = [ring(4, label="xy"[i % 2]) for i in range(10)]
    rows[0]["edges"] += [[2, 2], [0, 1], [1, 0]]
    facts = training(f"data.train={rows_file(tmp_path, rows)}").facts
    assert facts["self_loops"] == 1 and facts["repeated_edges"] == 1


@pytest.mark.parametrize("network", ["transformer", "gcn", "gin"])
def test_all_networks_train_on_nodes_and_graphs(tmp_path: Path, network: str) -> None:
    if network != "transformer":
        pytest.importorskip("torch_geometric")
    (tmp_path / "nodes").mkdir()
    nodes = node_tables(tmp_path / "nodes")
    graphs = f"data.train={rows_file(tmp_path, [ring(3 + i % 5, label='xy'[i % 2]) for i in range(20)])}"
    for number, data in enumerate((nodes, graphs)):
        words = (data, f"graph.network={network}", f"out={tmp_path}/{number}", "train.steps=80", "train.lr=1e-2")
        run = train(start("run", recipe(*words)), lambda kind, **facts: None)
        predictor = run.task.evaluate_in_full(run.model, run.task.valid_part)
        assert number == 1 or predictor.metrics["accuracy"][0] == 1.0, "each node's tag is its label"
        assert headway.load(run.folder).config.layer == {"transformer": "attention"}.get(network, network)  # type: ignore[union-attr]


def test_near_attention_trains_and_predicts_nodes_by_name(tmp_path: Path) -> None:
    words = (node_tables(tmp_path), "graph.hops=1", f"out={tmp_path}/runs", "train.steps=80", "train.lr=1e-2")
    run = train(start("run", recipe(*words)), lambda kind, **facts: None)
    found = headway.load(run.folder).classify(f"{tmp_path}/nodes.csv,{tmp_path}/edges.csv").to_dict()["nodes"]  # type: ignore[union-attr]
    assert [row["node"] for row in found] == [str(i) for i in range(12)]
    assert [row["label"] for row in found] == ["a", "b"] * 6


def test_a_request_names_no_files_and_has_limits(tmp_path: Path) -> None:
    from headway.tasks.registry import get_task

    task = get_task("graph")
    node_tables(tmp_path)
    assert len(task.parse({"input": str(tmp_path)}).nodes) == 12
    with pytest.raises(DataError):
        task.parse_request({"input": str(tmp_path)})
    with pytest.raises(DataError, match="the limits are"):
        task.parse_request({"nodes": 5000, "edges": []})


def test_fine_tuning_keeps_columns_and_weights(tmp_path: Path) -> None:
    first = train(start("run", recipe(node_tables(tmp_path), f"out={tmp_path}/runs")), lambda kind, **facts: None)
    words = [node_tables(tmp_path, labels="ba"), f"model.from={first.folder}", f"out={tmp_path}/more", "train.steps=1"]
    base = load_recipe("graph", ["train.lr=0", *words])[1]
    second = train(start("run", base), lambda kind, **facts: None)
    assert second.model.config.source == first.model.config.source
    for name in ("encoder.blocks.0.attention.qkv.weight", "source.tags.weight"):
        assert torch.equal(second.model.state_dict()[name], first.model.state_dict()[name])
