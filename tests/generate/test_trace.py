"""The tree of a beam search has every text that was found, and all that was given up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.generate.beam.search import Beam, beam_search
from headway.generate.trace import Branch, Growth, Node, tree
from tests.generate.conftest import tiny_model


def paths(nodes: list[Node], before: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Node]]:
    for node in nodes:
        text = (*before, node.token)
        yield text, node
        yield from paths(node.next, text)


def test_a_tree_grows_from_branches() -> None:
    steps = [
        Growth(0, 0, [Branch(0, 5, -1.0), Branch(0, 6, -2.0)], []),
        Growth(0, 1, [Branch(1, 7, -3.0), Branch(1, 8, -4.0)], [Branch(0, 9, -0.5)]),
    ]
    five, six = tree(steps)
    assert (five.token, [node.token for node in five.next], five.next[0].ended) == (5, [9], True)
    assert [(node.token, node.score, node.ended) for node in six.next] == [(7, -3.0, False), (8, -4.0, False)]
    assert tree([]) == []


@pytest.mark.parametrize("width", [1, 3])
def test_every_hypothesis_is_a_path_to_an_end(width: int) -> None:
    steps: list[Growth] = []
    beam = Beam(width=width, n_best=width, max_tokens=6, eos=(3,))
    found = beam_search(tiny_model(12, 24, 16), beam, [[1, 2]], trace=steps)[0]
    ends = {text: node.score for text, node in paths(tree(steps)) if node.ended}
    assert all(ends[tuple(hypothesis.tokens)] == pytest.approx(hypothesis.score) for hypothesis in found)
