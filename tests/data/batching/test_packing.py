"""Packed and padded rows: the bins of a naive best fit, every token once, targets that stay in their document."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from headway.config.presets import gpt2
from headway.data.batching.packing import IGNORE, PackedRows, PaddedRows, Rows, pack, padded_width
from headway.data.batching.permutation import shuffle_samples
from headway.errors import DataError
from headway.model.model import Transformer
from headway.tasks.losses import tokens as loss

Piece = tuple[int, int, int]
documents = st.lists(st.integers(0, 40), max_size=60)


def naive_pack(lengths: list[int], capacity: int) -> list[list[Piece]]:
    """Best-fit decreasing by its definition: look at all rows for every piece."""
    pieces = [(d, s, min(capacity, n - s)) for d, n in enumerate(lengths) for s in range(0, n, capacity)]
    rows: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: -piece[2]):
        free = [capacity - sum(length for *_, length in row) for row in rows]
        fitting = [(space, number) for number, space in enumerate(free) if space >= piece[2]]
        if fitting:
            rows[min(fitting)[1]].append(piece)
        else:
            rows.append([piece])
    return rows


@given(documents, st.integers(1, 50))
def test_the_rows_are_those_of_a_naive_best_fit(lengths: list[int], capacity: int) -> None:
    packed = pack(np.array(lengths, dtype=np.int64), capacity)
    rows = naive_pack(lengths, capacity)
    assert [packed.row(number) for number in range(len(packed))] == rows
    assert packed.fill == (sum(lengths) / (len(rows) * capacity) if rows else 0)


def test_many_equal_lengths_are_placed_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    for capacity, lengths in ((64, [64, 33, 31, 16, 7, 2, 1]), (100, [51, 49, 34, 33, 17, 3])):
        many = rng.choice(lengths, 400)
        packed = pack(many, capacity)
        assert [packed.row(number) for number in range(len(packed))] == naive_pack(many.tolist(), capacity)


def corpus(lengths: list[int]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Every token is another one, so that a mistake of one place shows."""
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.arange(1, starts[-1] + 1).astype(np.uint16), starts


def laid_out(ids: NDArray[Any], starts: NDArray[np.int64], rows: list[list[Piece]], width: int) -> Rows:
    """What a batch of these rows should be, a token at a time."""
    inputs, targets, segment_ids = (np.full((len(rows), width), fill, dtype=np.int64) for fill in (0, IGNORE, 0))
    for number, row in enumerate(rows):
        column = 0
        for mark, (document, start, length) in enumerate(row, start=1):
            for place in range(int(starts[document]) + start, int(starts[document]) + start + length):
                inputs[number, column], segment_ids[number, column] = ids[place], mark
                if place + 1 < starts[document + 1]:
                    targets[number, column] = ids[place + 1]
                column += 1
    return inputs, targets, segment_ids


def same(left: Rows, right: Rows) -> bool:
    return all(a.dtype == b.dtype and a.shape == b.shape and (a == b).all() for a, b in zip(left, right, strict=True))


samples_of = st.lists(st.integers(0, 300), max_size=12)


@given(documents.filter(any), st.integers(1, 50), st.integers(0, 3), samples_of)
def test_packed_rows_read_as_they_are_packed(lengths: list[int], length: int, seed: int, samples: list[int]) -> None:
    ids, starts = corpus(lengths)
    rows, numbers = PackedRows(ids, starts, length, seed), np.array(samples, dtype=np.int64)
    assert len(rows) == len(rows.packed)
    wanted = [rows.packed.row(row) for row in shuffle_samples(numbers, len(rows), seed).tolist()]
    assert same(rows.read(numbers), laid_out(ids, starts, wanted, length))


@given(documents.filter(any), st.integers(1, 50), st.integers(0, 3))
def test_an_epoch_reads_and_predicts_every_token_once(lengths: list[int], length: int, epoch: int) -> None:
    ids, starts = corpus(lengths)
    rows = PackedRows(ids, starts, length, 0)
    inputs, targets, segment_ids = rows.read(np.arange(epoch * len(rows), (epoch + 1) * len(rows)))
    assert sorted(inputs[segment_ids > 0].tolist()) == ids.tolist()
    # all but the first of each document, those after a cut included
    assert sorted(targets[targets != IGNORE].tolist()) == sorted(set(ids.tolist()) - set((starts[:-1] + 1).tolist()))
    assert (targets[segment_ids == 0] == IGNORE).all()


@given(documents.filter(any), st.integers(1, 50), st.integers(0, 3), st.booleans(), samples_of)
def test_padded_rows_are_a_document_each(
    lengths: list[int], length: int, seed: int, shuffle: bool, samples: list[int]
) -> None:
    ids, starts = corpus(lengths)
    rows, numbers = PaddedRows(ids, starts, length, seed, shuffle), np.array(samples, dtype=np.int64)
    assert rows.lengths.tolist() == [min(n, length) for n in lengths]
    chosen = shuffle_samples(numbers, len(lengths), seed) if shuffle else numbers % len(lengths)
    wanted = [[(document, 0, min(lengths[document], length))] for document in chosen.tolist()]
    longest = max((row[0][2] for row in wanted), default=0)
    width = next(w for w in range(8, 64, 8) if w >= longest)
    assert same(rows.read(numbers), laid_out(ids, starts, wanted, width))


@given(st.integers(0, 1000))
def test_rows_are_padded_to_the_next_multiple_of_eight(length: int) -> None:
    assert padded_width(np.array(length)) == next(w for w in range(8, 1010, 8) if w >= length)


@pytest.mark.parametrize("kind", [PackedRows, PaddedRows])
def test_the_stream_does_not_depend_on_how_it_is_read(kind: type[PackedRows] | type[PaddedRows]) -> None:
    ids, starts = corpus(np.random.default_rng(0).integers(1, 30, 200).tolist())
    rows = kind(ids, starts, 24, 3)
    size = len(rows)
    first, again, other = (rows.read(np.arange(a, a + size))[0] for a in (0, 0, size))
    assert (first == again).all()
    assert (first != other).any()
    assert (first != kind(ids, starts, 24, 4).read(np.arange(size))[0]).any()
    shares = [rows.read(np.arange(rank, size, 4))[0] for rank in range(4)]  # four processes
    for rank, share in enumerate(shares):
        assert (share == first[rank::4, : share.shape[1]]).all()


@pytest.mark.parametrize("kind", [PackedRows, PaddedRows])
def test_nothing_to_read_is_an_error_with_numbers(kind: type[PackedRows] | type[PaddedRows]) -> None:
    count = 3 if kind is PackedRows else 0
    with pytest.raises(DataError, match=f"{count} documents"):
        kind(np.zeros(0, dtype=np.uint16), np.zeros(count + 1, dtype=np.int64), 8, 0)


def test_a_packed_batch_has_the_loss_of_its_documents_one_by_one() -> None:
    torch.manual_seed(0)
    lengths = [9, 5, 1, 14, 3, 7, 16, 2]
    ids, starts = corpus(lengths)
    model = Transformer(gpt2(2, 16, 2, vocab=64, length=16)).eval()

    def total(rows: PackedRows | PaddedRows, samples: list[int]) -> tuple[float, int]:
        inputs, targets, segment_ids = (torch.from_numpy(a) for a in rows.read(np.array(samples)))
        with torch.no_grad():
            value, count = loss.token_loss(model.lm, model(inputs, attention_mask=segment_ids).hidden, targets)
        return float(value), int(count)

    packed = PackedRows(ids, starts, 16, 0)
    assert len(packed) < len(lengths)
    together = total(packed, list(range(len(packed))))
    single = [total(PaddedRows(ids, starts, 16, 0), [sample]) for sample in range(len(lengths))]
    assert together[0] == pytest.approx(sum(value for value, _ in single), rel=1e-5)
    assert together[1] == sum(count for _, count in single) == sum(lengths) - len(lengths)


def test_the_losses_ignore_the_same_targets() -> None:
    assert IGNORE == loss.IGNORE
