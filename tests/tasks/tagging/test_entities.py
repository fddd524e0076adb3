"""Entities from labels of every scheme, the legal labellings, and scores that agree with the scorer everyone uses."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.datasets.tags import Scheme, Span, labels_for, scheme_of, spans, to_tags
from headway.tasks.tagging import entities
from headway.tasks.tagging.entities import MOVED, NOTHING, Reading, decode

KINDS = ("PER", "LOC")


@st.composite
def entity_lists(draw: st.DrawFn) -> tuple[list[Span], int]:
    """Entities that do not overlap, and how many words there are."""
    found, at = [], 0
    for _ in range(draw(st.integers(0, 4))):
        begin = at + draw(st.integers(0, 2))
        at = begin + draw(st.integers(1, 3))
        found.append((draw(st.sampled_from(KINDS)), begin, at))
    return found, at + draw(st.integers(0, 2))


def iob1(found: list[Span], words: int) -> list[str]:
    """B only where one entity follows another of its type at once."""
    tags = ["O"] * words
    for i, (kind, begin, end) in enumerate(found):
        tags[begin:end] = [f"I-{kind}"] * (end - begin)
        if i and found[i - 1][0] == kind and found[i - 1][2] == begin:
            tags[begin] = f"B-{kind}"
    return tags


def bilou(found: list[Span], words: int) -> list[str]:
    swap = {"E": "L", "S": "U"}
    return [swap.get(tag[0], tag[0]) + tag[1:] for tag in to_tags(found, words, "iobes")]


@given(entity_lists())
def test_every_scheme_spells_the_same_entities(case: tuple[list[Span], int]) -> None:
    found, words = case
    for tags in (to_tags(found, words), to_tags(found, words, "iobes"), iob1(found, words), bilou(found, words)):
        assert spans(tags) == found


def test_a_sentence_in_each_scheme() -> None:
    found: list[Span] = [("PER", 0, 2), ("PER", 2, 3), ("LOC", 4, 7)]
    assert to_tags(found, 7) == ["B-PER", "I-PER", "B-PER", "O", "B-LOC", "I-LOC", "I-LOC"]
    assert to_tags(found, 7, "iobes") == ["B-PER", "E-PER", "S-PER", "O", "B-LOC", "I-LOC", "E-LOC"]
    assert spans(["NN", "VB"], "plain") == [("NN", 0, 1), ("VB", 1, 2)]
    assert to_tags(spans(["NN", "VB"], "plain"), 2, "plain") == ["NN", "VB"]


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("I-PER I-PER", [("PER", 0, 2)]),
        ("O I-PER I-LOC", [("PER", 1, 2), ("LOC", 2, 3)]),
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("E-PER E-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("B-PER S-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("S-PER I-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("B-PER E-PER I-PER", [("PER", 0, 2), ("PER", 2, 3)]),
        ("I-A-B I-A-B", [("A-B", 0, 2)]),
    ],
)
def test_odd_transitions_are_repaired_as_the_scorers_do(tags: str, wanted: list[Span]) -> None:
    assert spans(tags.split()) == wanted


@given(st.lists(st.sampled_from(["O", *(f"{p}-{k}" for p in "BIES" for k in KINDS)]), max_size=9))
def test_entities_are_those_of_seqeval(tags: list[str]) -> None:
    seqeval = pytest.importorskip("seqeval.metrics.sequence_labeling")
    assert spans(tags) == [(kind, begin, end + 1) for kind, begin, end in seqeval.get_entities(tags)]


TAGS = st.sampled_from(["O", "O", *(f"{p}-{k}" for p in "BI" for k in KINDS)])


@given(st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=6), min_size=1, max_size=6))
@pytest.mark.filterwarnings("ignore")
def test_scores_are_those_of_seqeval(rows: list[list[tuple[str, str]]]) -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    true, found = ([[pair[i] for pair in row] for row in rows] for i in (0, 1))
    a, b = ([spans(tags) for tags in side] for side in (true, found))
    theirs = [f(true, found) for f in (seqeval.precision_score, seqeval.recall_score, seqeval.f1_score)]
    assert entities.f1(entities.counts(a, b).sum(0)) == pytest.approx(theirs)
    table: Any = seqeval.classification_report(true, found, output_dict=True)
    for kind, row in entities.by_type(a, b).items():
        assert row["f1"] == pytest.approx(table[kind]["f1-score"])
        assert row["entities"] == table[kind]["support"]


def test_scores_by_hand() -> None:
    true: list[list[Span]] = [[("PER", 0, 2), ("LOC", 3, 4)], [("PER", 0, 1)], []]
    found: list[list[Span]] = [[("PER", 0, 2), ("ORG", 3, 4)], [("PER", 0, 2)], [("LOC", 1, 2)]]
    table = entities.counts(true, found)
    assert table.tolist() == [[1, 2, 2], [0, 1, 1], [0, 1, 0]]
    assert entities.f1(table.sum(0)) == (1 / 4, 1 / 3, 2 / 7)
    assert entities.f1(np.zeros(3, dtype=np.int64)) == (0.0, 0.0, 0.0)
    types = entities.by_type(true, found)
    assert types["PER"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "entities": 2}
    assert types["ORG"]["entities"] == 0
    assert entities.confusion(true, found) == {
        "PER": {"PER": 1, MOVED: 1},
        "LOC": {"ORG": 1},
        NOTHING: {"LOC": 1},
    }


def test_what_a_file_is_written_in() -> None:
    def read(*rows: str) -> Reading:
        return Reading.of([row.split() for row in rows])

    assert (read("I-PER I-PER O", "I-PER B-PER").scheme, read("I-PER B-PER").repaired) == ("IOB1", 0)
    assert (read("B-PER I-PER O B-LOC").scheme, read("B-PER I-PER").repaired) == ("BIO", 0)
    assert (read("B-PER O I-LOC").scheme, read("B-PER O I-LOC").repaired) == ("BIO", 1)
    assert (read("S-PER O B-LOC E-LOC O I-LOC").scheme, read("S-PER O I-LOC").repaired) == ("IOBES", 1)


def test_labels_are_in_an_order_of_their_own() -> None:
    assert labels_for(["PER", "LOC"]) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert labels_for({"VB", "NN"}, "plain") == ("NN", "VB")
    for scheme in ("bio", "iobes", "plain"):
        assert scheme_of(labels_for(KINDS, scheme)) == scheme


def legal(tags: tuple[str, ...], scheme: Scheme) -> bool:
    """A labelling is legal if writing its entities down gives it back."""
    return tuple(to_tags(spans(tags), len(tags), scheme)) == tags


@pytest.mark.parametrize("scheme", ["bio", "iobes"])
@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_best_legal_labels_are_found(scheme: Scheme, words: int, seed: int) -> None:
    """Against all labellings, one by one."""
    labels = labels_for(["X", "Y"], scheme) if words < 4 else labels_for(["X"], scheme)
    scores = np.log(np.random.default_rng(seed).dirichlet(np.ones(len(labels)) / 2, words) + 1e-9)
    rows = [row for row in product(labels, repeat=words) if legal(row, scheme)]
    best = max(rows, key=lambda row: sum(scores[i, labels.index(tag)] for i, tag in enumerate(row)))
    assert decode([scores], labels, "legal") == [list(best)]


@given(st.integers(0, 2**32 - 1))
def test_decoding_many_is_decoding_each(seed: int) -> None:
    dice, labels = np.random.default_rng(seed), labels_for(KINDS)
    scores = [np.log(dice.dirichlet(np.ones(len(labels)), int(size))) for size in dice.integers(0, 7, 9)]
    together = decode(scores, labels, "legal")
    assert together == [decode([row], labels, "legal")[0] for row in scores]
    assert [len(row) for row in together] == [len(row) for row in scores]
    assert decode(scores, labels, "argmax") == [[labels[i] for i in row.argmax(1)] for row in scores]
