"""Word and character error rates: equal to jiwer's, on random and on real strings."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headway.tasks.metrics.error_rate import edits, error_rate, normalized

jiwer = pytest.importorskip("jiwer")

REAL = [
    ("the cat sat on the mat", "the cat sat on a mat today"),
    ("hello world", "hello beautiful world"),
    ("one two three", ""),
    ("it's a dog", "its a dog"),
    ("", "nothing was heard"),
]


@pytest.mark.parametrize("seed", range(30))
def test_edits_and_rates_are_those_of_jiwer(seed: int) -> None:
    draw = random.Random(seed)
    pairs = [
        tuple(" ".join(draw.choice(["a", "bb", "ab", "c"]) for _ in range(draw.randint(1, 9))) for _ in range(2))
        for _ in range(5)
    ]
    texts, references = [a for a, _ in pairs], [b for _, b in pairs]
    assert error_rate("wer", texts, references, "none").value == pytest.approx(jiwer.wer(references, texts))
    assert error_rate("cer", texts, references, "none").value == pytest.approx(jiwer.cer(references, texts))


def test_real_strings() -> None:
    pairs = [pair for pair in REAL if pair[1]]
    texts, references = [a for a, _ in pairs], [b for _, b in pairs]
    for name, theirs in (("wer", jiwer.wer), ("cer", jiwer.cer)):
        assert error_rate(name, texts, references, "none").value == pytest.approx(theirs(references, texts))  # type: ignore[arg-type]
    assert edits(["one", "two", "three"], []) == 3 and edits([], []) == 0 and edits("kitten", "sitting") == 3


def test_normalization() -> None:
    assert normalized("  It’s 'fine', Mr. O'Neil—really!  ", "words") == "it's fine mr o'neil really"
    assert normalized("ﬁne Straße", "words") == "fine straße"
    assert normalized(" As. It ", "none") == " As. It "
    assert error_rate("wer", ["Hello, World."], ["hello world"]).value == 0
    assert error_rate("wer", ["Hello, World."], ["hello world"], "none").value == 1


def test_a_rate_weighs_texts_by_their_length_and_has_an_interval() -> None:
    metric = error_rate("wer", ["a b c d", "x"], ["a b c d", "y"])
    assert metric.value == pytest.approx(1 / 5) and metric.some(np.array([1])) == 1
    value, low, high = metric.interval()
    assert low <= value <= high
    assert error_rate("wer", ["a b c"], ["a"]).value == 2 and error_rate("wer", ["a"], [""]).value == 1
