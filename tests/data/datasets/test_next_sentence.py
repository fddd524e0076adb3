"""Rows for encoders: every token in its place, and neighbours that only their meaning tells from strangers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.datasets.next_sentence import (
    EvaluationRows,
    NextSentences,
    SpecialIds,
    TextRows,
    p99_sentence_count,
    sentences,
)
from headway.errors import DataError

MARKS = SpecialIds(2, 3, 0, (3,))


def test_what_is_usual_leaves_out_a_hundredth() -> None:
    assert p99_sentence_count(["One."] * 199 + ["One. Two."]) == 1
    assert p99_sentence_count(["One."] * 90 + ["One. Two."] * 9 + ["One. Two. Three."]) == 2
    assert p99_sentence_count([" "]) == 1


def test_sentences_end_after_stops_and_at_empty_lines() -> None:
    text = 'One is\nhere. Two? "Three!" (Four.) Five 3.5 goes on\n\n  A title \n \nSix'
    assert list(sentences(text)) == [
        "One is here.",
        "Two?",
        '"Three!"',
        "(Four.)",
        "Five 3.5 goes on",
        "A title",
        "Six",
    ]
    assert list(sentences(" \n\n ")) == []


def test_rows_of_running_text() -> None:
    rows = TextRows(np.arange(100, 200), 12, seed=1, special=MARKS)
    drawn = rows.read(np.arange(4 * len(rows)))
    assert (
        drawn.ids.shape == (36, 12)
        and drawn.attention_mask is drawn.token_type_ids is drawn.next_sentence_label is None
    )
    assert (drawn.ids[:, 0] == 2).all() and (drawn.ids[:, -1] == 3).all()
    assert (np.diff(drawn.ids[:, 1:-1], axis=1) == 1).all()
    epochs = {tuple(sorted(part[:, 1].tolist())) for part in np.split(drawn.ids, 4)}
    assert all(len(set(begins)) == 9 for begins in epochs) and len(epochs) > 2  # each cuts elsewhere


@given(st.integers(1, 60), st.integers(4, 20))
def test_what_is_held_out_is_read_once(size: int, length: int) -> None:
    rows = EvaluationRows(np.arange(100, 100 + size), length, MARKS)
    drawn = rows.read(np.arange(len(rows)))
    attention_mask = np.ones_like(drawn.ids) if drawn.attention_mask is None else drawn.attention_mask
    assert (drawn.attention_mask is None) == (size % (length - 2) == 0)
    assert drawn.ids[drawn.ids >= 100].tolist() == list(range(100, 100 + size))
    for row, real in zip(drawn.ids, attention_mask.astype(bool), strict=True):
        assert row[0] == 2 and row[real][-1] == 3 and (row[real][1:-1] >= 100).all()
        assert (row[~real] == 0).all() and (np.diff(real.astype(int)) <= 0).all()


def pairs(lengths: list[list[int]], length: int = 20, seed: int = 1) -> NextSentences:
    """Documents of sentences with these lengths; every token has an id of its own, from 100 on."""
    flat = [n for document in lengths for n in document]
    starts = np.concatenate([[0], np.cumsum(flat)]).astype(np.int64)
    bounds = np.concatenate([[0], np.cumsum([len(d) for d in lengths])]).astype(np.int64)
    return NextSentences(np.arange(100, 100 + sum(flat)), starts, bounds, length, seed, MARKS)


def parts(ids: np.ndarray, token_type_ids: np.ndarray, attention_mask: np.ndarray) -> tuple[list[int], list[int]]:
    """The two texts of a row, with their marks checked."""
    real = ids[attention_mask.astype(bool)]
    assert (np.diff(attention_mask) <= 0).all() and (ids[attention_mask == 0] == 0).all()
    first = real[token_type_ids[: len(real)] == 0].tolist()
    second = real[token_type_ids[: len(real)] == 1].tolist()
    assert (token_type_ids[len(real) :] == 0).all()
    assert first[0] == 2 and first[-1] == 3 and second[-1] == 3
    return first[1:-1], second[:-1]


LENGTHS = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=12), min_size=1, max_size=8)


@settings(max_examples=50)
@given(LENGTHS, st.integers(8, 40))
def test_pairs_are_neighbours_or_strangers(lengths: list[list[int]], length: int) -> None:
    try:
        rows = pairs(lengths, length)
    except DataError as error:
        assert error.code == "D002"
        return
    drawn = rows.read(np.arange(3 * len(rows)))
    assert (
        drawn.attention_mask is not None and drawn.token_type_ids is not None and drawn.next_sentence_label is not None
    )
    ends = np.cumsum([sum(d) for d in lengths]) + 100
    for row, attention_mask, token_type_ids, is_random in zip(*drawn, strict=True):  # type: ignore[arg-type]
        first, second = parts(row, token_type_ids, attention_mask)
        assert first and second
        for text in (first, second):
            assert text == list(range(text[0], text[0] + len(text)))
            assert np.searchsorted(ends, text[0], "right") == np.searchsorted(ends, text[-1], "right")  # one document
        assert (second[0] == first[-1] + 1) == (is_random == 0)


def test_an_epoch_takes_every_stretch_once() -> None:
    rows = pairs([[6, 6, 7, 3, 3], [9, 9, 1], [5] * 7])
    first = rows.read(np.arange(len(rows)))
    begins = [parts(*row)[0][0] for row in zip(first.ids, first.token_type_ids, first.attention_mask, strict=True)]  # type: ignore[arg-type]
    # room 17, units of at most 8: 6 6 | 7 3 3 and 8 1 8 | 1 1 and 5 5 5 | 5 5 5 (the last is alone)
    assert sorted(begins) == [100, 112, 125, 142, 144, 159]


def test_batches_are_as_one_by_one_and_epochs_differ() -> None:
    rows = pairs([[5, 4, 6, 3, 7, 5] for _ in range(30)])
    together = rows.read(np.arange(2 * len(rows)))
    for i in range(0, 2 * len(rows), 7):
        alone = rows.read(np.array([i]))
        assert all(np.array_equal(a[i : i + 1], b) for a, b in zip(together, alone, strict=True))  # type: ignore[index,arg-type]
    first, second = (set(map(bytes, part)) for part in np.split(together.ids, 2))
    assert len(first & second) < len(rows) // 3


def test_only_the_meaning_tells_neighbours_from_strangers() -> None:
    """As many of each; second texts as long, and ending with a sentence, in both."""
    generator = np.random.default_rng(0)
    lengths = [generator.integers(4, 30, 40).tolist() for _ in range(60)]
    rows = pairs(lengths, 128)
    drawn = rows.read(np.arange(8 * len(rows)))
    assert (
        drawn.next_sentence_label is not None and drawn.token_type_ids is not None and drawn.attention_mask is not None
    )
    is_random = drawn.next_sentence_label == 1
    assert is_random.mean() == pytest.approx(0.5, abs=0.03)
    size = drawn.token_type_ids.sum(1)
    assert size[is_random].mean() == pytest.approx(size[~is_random].mean(), rel=0.02)
    assert drawn.attention_mask.sum(1)[is_random].mean() == pytest.approx(
        drawn.attention_mask.sum(1)[~is_random].mean(), rel=0.01
    )
    last = drawn.ids[np.arange(len(size)), drawn.attention_mask.sum(1) - 2] + 1 - 100
    whole = np.isin(last, rows.starts)
    assert whole[~is_random].all() and whole[is_random].mean() > 0.97


def test_too_little_text_is_said() -> None:
    for lengths in ([[5]], [[5], [6], [7]], [[5, 5]], [[0, 0, 3]]):
        with pytest.raises(DataError, match=r"too little text for mlm\.next_sentence"):
            pairs(lengths)
    with pytest.raises(DataError, match="0 tokens"):
        EvaluationRows(np.arange(0), 8, MARKS)
