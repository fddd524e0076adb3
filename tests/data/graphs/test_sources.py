"""Graphs from files: tables, TU collections, rows; and what is wrong with them, by file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from headway.config.recipe import DataConfig
from headway.data.files.rows import BadRows
from headway.data.graphs.graph import Graph
from headway.data.graphs.parse import parse_graph, parse_line
from headway.data.graphs.sources import graph_files, is_graph_spec, read_graphs
from headway.data.graphs.tu import read_folds
from headway.errors import DataError, NotFoundError


def read(spec: object, bad: BadRows | None = None, **data: str) -> list[Graph]:
    return list(read_graphs(str(spec), DataConfig(**data), bad or BadRows()))


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


NODES = "id,size,kind,label,split\na,1.5,x,red,train\nb,2,y,blue,valid\nc,3,x,,\n"
EDGES = "source,target,weight\na,b,0.5\nb,c,2\n"


def test_tables_of_nodes_and_edges(tmp_path: Path) -> None:
    write(tmp_path, nodes__csv=NODES, edges__csv=EDGES)
    (graph,) = read(f"{tmp_path}/nodes.csv,{tmp_path}/edges.csv")
    assert [dict(node) for node in graph.nodes] == [
        {"size": "1.5", "kind": "x"}, {"size": "2", "kind": "y"}, {"size": "3", "kind": "x"},
    ]  # fmt: skip
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert [dict(edge) for edge in graph.edge_values] == [{"weight": "0.5"}, {"weight": "2"}]
    assert graph.node_labels == ["red", "blue", None] and graph.node_parts == ["train", "valid", ""]
    assert graph.names == ["a", "b", "c"] and graph.label is None
    assert [graph.line_of(node) for node in range(3)] == [2, 3, 4]
    (folder,) = read(tmp_path)
    assert folder.edges.tolist() == graph.edges.tolist() and folder.nodes == graph.nodes
    assert [path.name for path in graph_files(str(tmp_path))] == ["nodes.csv", "edges.csv"]
    both = graph_files(f"{tmp_path}/nodes.csv,{tmp_path}/edges.csv")
    assert [path.name for path in both] == ["nodes.csv", "edges.csv"]


def test_several_graphs_in_tables(tmp_path: Path) -> None:
    nodes = "graph,id,tag\ng1,0,A\ng1,1,B\ng2,0,A\n"
    facts = "id,label\ng1,yes\ng2,no\n"
    write(tmp_path, nodes__csv=nodes, edges__csv="graph,source,target\ng1,0,1\n", graphs__csv=facts)
    first, second = read(tmp_path)
    assert (first.label, second.label) == ("yes", "no") and [g.number for g in (first, second)] == [0, 1]
    assert first.edges.tolist() == [[0, 1]] and second.edges.tolist() == [] and len(second.nodes) == 1


def test_a_label_that_all_nodes_of_a_graph_share_is_the_graphs(tmp_path: Path) -> None:
    write(tmp_path, nodes__csv="graph,id,label\n1,a,yes\n1,b,yes\n2,c,no\n", edges__csv="source,target\na,b\n")
    first, second = read(tmp_path)
    assert (first.label, second.label, first.node_labels) == ("yes", "no", [])


def test_words_by_number_and_a_file_of_parts(tmp_path: Path) -> None:
    nodes = "node\tlabel\tword_indices\n0\t3\t1 4\n1\t4\t\n2\t3\t0\n"
    write(tmp_path, edges__tsv="src\tdst\n0\t2\n", split__json='{"train": [0], "valid": [2]}')
    (tmp_path / "nodes.tsv.gz").write_bytes(gzip.compress(nodes.encode()))
    (graph,) = read(tmp_path)
    assert [node["word_indices"] for node in graph.nodes] == [[1, 4], [], [0]]
    assert graph.node_parts == ["train", "", "valid"] and list(map(str, graph.node_labels)) == ["3", "4", "3"]


@pytest.mark.parametrize(
    ("edges", "where"),
    [
        ("source,target\na,b\na,zz\n", r"edges.csv line 3: edge a – zz: there is no such node; the graph has 3 nodes"),
        ("source,target\nb,\n", r"edges.csv line 2: edge b – "),
        ('source,target\na,"b\n', r"edges.csv line 2: a quote opens here"),
    ],
)
def test_bad_edges_are_named(tmp_path: Path, edges: str, where: str) -> None:
    write(tmp_path, nodes__csv=NODES, edges__csv=edges)
    with pytest.raises(DataError, match=where):
        read(tmp_path)
    bad = BadRows("skip")
    assert len(read(tmp_path, bad)[0].edges) == edges.count("a,b\n") and bad.count == 1


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("nodes.csv", "id,label\na,x\na,y\n", "nodes.csv line 3: a second node a"),
        ("nodes.csv", "id,label\n", "nodes.csv"),
        ("nodes.csv", "", "nodes.csv.* empty"),
        ("nodes.csv", "id,word_indices\na,1 x\nb,\nc,\n", "nodes.csv line 2: word_indices: expected whole numbers"),
        ("split.json", '{"train": [7]}', "split.json: train names node 7; there are 3"),
        ("split.json", '{"train": [1], "test": [1]}', "split.json: node 1 is in train and in test"),
    ],
)
def test_bad_tables_are_named(tmp_path: Path, name: str, text: str, match: str) -> None:
    write(tmp_path, nodes__csv=NODES, edges__csv=EDGES)
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=match):
        read(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    write(tmp_path, nodes__csv=NODES)
    with pytest.raises(NotFoundError, match=r"no such file: .*edges\.csv"):
        read(f"{tmp_path}/nodes.csv,{tmp_path}/edges.csv")
    write(tmp_path, T_A__txt="1, 2\n")
    with pytest.raises(NotFoundError, match=r"T_graph_indicator\.txt"):
        read(tmp_path)


ONE_FILE = "2\n3 1\n2 2 1 2\n0 1 0\n1 1 0 0.5\n1 -1\n0 0\n"


def test_a_collection_in_one_file(tmp_path: Path) -> None:
    text = ONE_FILE.replace("1 1 0 0.5", "1 1 0")
    (tmp_path / "T.txt.gz").write_bytes(gzip.compress(text.encode()))
    first, second = read(tmp_path / "T.txt.gz")
    assert (first.label, second.label) == ("1", "-1") and first.edges.tolist() == [[0, 1], [0, 2]]
    assert [node["tag"] for node in first.nodes] == ["2", "0", "1"] and len(second.nodes) == 1
    assert first.dropped == {"repeated_edges": 0, "self_loops": 0} and (first.line, second.line) == (3, 7)
    (tmp_path / "T.txt").write_text(ONE_FILE)
    assert read(tmp_path / "T.txt")[0].nodes[2] == {"tag": "1", "number0": 0.5}


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("0 1 0\n", "0 1 9\n", r"T.txt line 4: edge 1 – 9: there is no such node; the graph has 3 nodes"),
        ("0 1 0\n", "0 2 0\n", r"T.txt line 4: expected 2 whole numbers, found '0'"),
        ("0 1 0\n", "\n", r"T.txt line 4: expected 2 whole numbers, found ''"),
        ("1 1 0 0.5", "1 1 0 half", r"T.txt line 5: after 1 neighbours there should be numbers"),
        ("1 -1\n0 0\n", "0 -1\n", r"T.txt line 6: a graph without nodes"),
        ("1 -1\n0 0\n", "", r"T.txt line 6: graph 1: expected 2 whole numbers"),
    ],
)
def test_a_bad_line_of_a_collection_is_named(tmp_path: Path, old: str, new: str, match: str) -> None:
    (tmp_path / "T.txt").write_text(ONE_FILE.replace(old, new))
    with pytest.raises(DataError, match=match):
        read(tmp_path / "T.txt")
    if new:  # the other graph is still there
        bad = BadRows("skip")
        assert len(read(tmp_path / "T.txt", bad)) == 1 and bad.count == 1


def test_a_collection_in_a_folder_is_that_of_one_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        T_A__txt="1, 2\n2, 1\n1, 3\n3, 1\n",
        T_graph_indicator__txt="1\n1\n1\n2\n",
        T_graph_labels__txt="1\n-1\n",
        T_node_labels__txt="2\n0\n1\n0\n",
        T_edge_labels__txt="5\n5\n6\n6\n",
    )
    first, second = read(tmp_path)
    assert first.edges.tolist() == [[0, 1], [0, 2]] and second.edges.tolist() == []
    assert (first.label, second.label) == ("1", "-1") and [n["tag"] for n in first.nodes] == ["2", "0", "1"]
    assert [edge["tag"] for edge in first.edge_values] == ["5", "6"]
    assert len(graph_files(str(tmp_path))) == 5
    write(tmp_path, T_A__txt="1, 2\n1, 4\n1, 3\n3, 1\n")
    with pytest.raises(DataError, match=r"T_A.txt line 2: edge 1, 4: no two nodes of one graph"):
        read(tmp_path)
    write(tmp_path, T_node_labels__txt="2\n")
    with pytest.raises(DataError, match=r"T_node_labels.txt has 1 lines for 4 nodes"):
        read(tmp_path)


def test_a_collection_in_a_folder_may_have_no_edges_but_says_of_each_node_whose_it_is(tmp_path: Path) -> None:
    write(tmp_path, X_A__txt="", X_graph_indicator__txt="1\n1\n2\n", X_graph_labels__txt="0\n1\n")
    assert [(len(graph.nodes), len(graph.edges)) for graph in read(tmp_path)] == [(2, 0), (1, 0)]
    write(tmp_path, X_graph_indicator__txt="1\nfoo\n2\n")
    with pytest.raises(DataError, match=r"X_graph_indicator.txt line 2: expected 1 whole numbers, found 'foo'"):
        read(tmp_path)
    (tmp_path / "X_graph_indicator.txt").unlink()
    with pytest.raises(NotFoundError, match="X_graph_indicator"):
        read(tmp_path)


def test_folds_beside_a_collection(tmp_path: Path) -> None:
    path = tmp_path / "T.txt"
    assert read_folds(path, 2, 4) is None
    folds = {"1": {"train": [0, 1], "test": [2, 3]}, "2": {"train": [2, 3], "test": [0, 1]}}
    (tmp_path / "T.2fold.json.gz").write_bytes(gzip.compress(json.dumps(folds).encode()))
    assert read_folds(path, 2, 4) == [({0, 1}, {2, 3}), ({2, 3}, {0, 1})]
    assert read_folds(path, 10, 4) is None
    with pytest.raises(DataError, match="does not split 3 graphs"):
        read_folds(path, 2, 3)


def test_rows_and_lines_hold_graphs(tmp_path: Path) -> None:
    rows = [{"nodes": ["C", "O"], "edges": [[0, 1]], "label": "yes"}, {"graph": "a:C b:O a-b:2", "label": "no"}]
    (tmp_path / "g.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = read(tmp_path / "g.jsonl")
    assert first.nodes == [{"tag": "C"}, {"tag": "O"}] and (first.label, second.label) == ("yes", "no")
    assert second.edge_values == [{"tag": "2"}] and second.names == ["a", "b"] and second.line == 2
    (tmp_path / "g.txt").write_text('a-b b-c\n\n{"nodes": 3, "edges": [[0, 2]]}\n')
    first, second = read(tmp_path / "g.txt")
    assert first.edges.tolist() == [[0, 1], [1, 2]] and second.edges.tolist() == [[0, 2]] and second.line == 3


def test_objects_name_nodes_by_their_ids() -> None:
    graph = parse_graph({
        "nodes": [{"id": 7, "x": 1, "label": "r"}, {"id": "k", "x": 2}],
        "edges": [{"source": "k", "target": 7, "w": 3}],
    })  # fmt: skip
    assert graph.edges.tolist() == [[0, 1]] and graph.edge_values == [{"w": 3}] and graph.node_labels == ["r", None]


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        ({"edges": [[0, 1]]}, "nodes: there are none"),
        ({"nodes": []}, "nodes: there are none"),
        ({"nodes": "ab"}, "nodes: found 'ab'"),
        ({"nodes": 2, "edges": [[0, 2]]}, "edge 0: there is no node 2; the graph has 2 nodes"),
        ({"nodes": 2, "edges": [[0, -1]]}, "edge 0: there is no node -1"),
        ({"nodes": 2, "edges": [[0, True]]}, "edge 0: there is no node True"),
        ({"nodes": 2, "edges": [[0]]}, "edge 0: expected two nodes"),
        ({"nodes": 2, "edges": {"0": 1}}, "edges: expected a list"),
        ({"nodes": [{"id": "a"}, {}]}, "every node needs an id of its own"),
        ({"nodes": [{"id": "a"}, {"id": "a"}]}, "every node needs an id of its own"),
        ({"nodes": [{"x": {"y": 1}}]}, "node 0: x: expected a number"),
        ({"nodes": [None]}, "node 0: expected an object or a tag"),
    ],
)
def test_wrong_graphs_are_refused(raw: dict, match: str) -> None:
    with pytest.raises(DataError, match=match):
        parse_graph(raw)


def test_wrong_lines_are_refused() -> None:
    for text, match in (("a-b -", "'-' is neither"), ("{", "not valid JSON"), ("", "there are none")):
        with pytest.raises(DataError, match=match):
            parse_line(text)


def test_a_graph_is_no_name_of_a_file(tmp_path: Path) -> None:
    write(tmp_path, nodes__csv=NODES, edges__csv=EDGES)
    assert is_graph_spec(f"{tmp_path}/nodes.csv,{tmp_path}/edges.csv") and is_graph_spec(str(tmp_path))
    assert not is_graph_spec("a-b b-c") and not is_graph_spec('{"nodes": 1}')


def test_no_edges_is_a_graph(tmp_path: Path) -> None:
    write(tmp_path, nodes__csv=NODES, edges__csv="source,target\n")
    (graph,) = read(tmp_path)
    assert graph.edges.shape == (0, 2) and graph.edges.dtype == np.int64
