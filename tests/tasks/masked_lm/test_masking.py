"""Masks: who is chosen, what is seen instead, and that it all follows from the sample's number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DataError
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.masked_lm.masking import Masking, word_pieces
from headway.tasks.masked_lm.task import Settings as MaskedLMConfig

TEXT = "the unhappy dog barked loudly at another unbelievably unhappy dog, then it stopped barking. " * 3
WORDPIECE = train_tokenizer("wordpiece", [TEXT], 60)
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BYTES = train_tokenizer("bpe", [TEXT], 290, special=MARKS)


def masking(tokenizer: Tokenizer = WORDPIECE, **settings: object) -> Masking:
    return Masking.of(tokenizer, MaskedLMConfig(**settings))  # type: ignore[arg-type]


def some_rows(count: int, width: int, seed: int = 0) -> np.ndarray:
    """Ids of all kinds, a fifth of them special."""
    generator = np.random.default_rng(seed)
    rows = generator.integers(5, WORDPIECE.vocab_size, (count, width))
    return np.where(generator.random((count, width)) < 0.2, generator.integers(0, 5, (count, width)), rows)


@given(st.integers(1, 6), st.integers(2, 40), st.floats(0.02, 0.9), st.booleans(), st.integers(0, 10**6))
def test_what_is_chosen(count: int, width: int, share: float, words: bool, first: int) -> None:
    rules = masking(probability=share, whole_word_mask=words)
    rows, samples = some_rows(count, width, first), np.arange(first, first + count)
    most = int(rules.number(width))
    inputs, places, targets = rules.hide(rows, samples, seed=1, most=most)
    assert inputs.shape == rows.shape and places.shape == targets.shape == (count, most)
    for row, seen, place, target in zip(rows, inputs, places, targets, strict=True):
        free = row >= 5
        counted = target != IGNORE
        wanted = min(most, max(1, round(share * int(free.sum())))) if free.any() else 0
        assert 0 < counted.sum() <= wanted if words and wanted else counted.sum() == wanted
        assert free[place[counted]].all() and (row[place[counted]] == target[counted]).all()
        assert (np.diff(place[counted]) > 0).all() and len(set(place.tolist())) == most
        other = np.setdiff1d(np.arange(width), place[counted])
        assert (seen[other] == row[other]).all()
        assert (seen[place[counted]] >= 4).all()  # the mask, or an ordinary token


@given(st.integers(0, 10**9), st.booleans())
def test_masks_follow_from_the_sample(first: int, words: bool) -> None:
    rules = masking(whole_word_mask=words)
    rows, samples = some_rows(5, 30), np.arange(first, first + 5)
    together = rules.hide(rows, samples, seed=3, most=4)
    for i in range(5):
        alone = rules.hide(rows[i : i + 1], samples[i : i + 1], seed=3, most=4)
        assert all(np.array_equal(a[i : i + 1], b) for a, b in zip(together, alone, strict=True))


def test_masks_are_others_in_another_epoch_and_for_another_seed() -> None:
    rules, rows = masking(), np.tile(some_rows(1, 200), (3, 1))
    places = rules.hide(rows, np.arange(3), seed=3, most=24)[1]
    other = rules.hide(rows, np.arange(3), seed=4, most=24)[1]
    assert len({row.tobytes() for row in (*places, *other)}) == 6


def test_shares_are_kept_and_every_place_is_as_likely() -> None:
    rules = masking(probability=0.2, mask_replace_prob=0.5, random_replace_prob=0.3)
    rows = np.full((4000, 20), 7)
    inputs, places, _ = rules.hide(rows, np.arange(4000), seed=0, most=4)
    seen = np.take_along_axis(inputs, places, 1).ravel()
    assert (seen == rules.mask).mean() == pytest.approx(0.5, abs=0.02)
    assert (seen == 7).mean() == pytest.approx(0.2 + 0.3 / (WORDPIECE.vocab_size - 5), abs=0.02)
    drawn = np.bincount(seen, minlength=WORDPIECE.vocab_size)[5:]
    assert drawn.min() > 0  # any ordinary token may stand there
    assert np.bincount(places.ravel(), minlength=20) / 4000 == pytest.approx(np.full(20, 0.2), abs=0.03)
    chosen = np.zeros((4000, 20))
    np.put_along_axis(chosen, places, 1, 1)
    hidden = (inputs == rules.mask).sum(0) / chosen.sum(0)
    assert hidden == pytest.approx(np.full(20, 0.5), abs=0.08)  # whatever the place


def spans(pieces: list[str], bytewise: bool) -> list[set[int]]:
    """Words as sets of places, told one piece after the other."""
    words: list[set[int]] = []
    for i, piece in enumerate(pieces):
        before = pieces[i - 1] if i else ""
        joins = piece[0].isalpha() and piece[0] != "Ġ" and before[-1:].isalpha() if bytewise else piece[:2] == "##"
        if i and joins:
            words[-1].add(i)
        else:
            words.append({i})
    return words


@pytest.mark.parametrize("tokenizer", [WORDPIECE, BYTES], ids=["wordpiece", "bytes"])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_whole_words_are_chosen_whole(tokenizer: Tokenizer, share: float) -> None:
    ids = tokenizer.encode("unhappy dog, barked unbelievably at another dog.", special=False).ids
    words = spans(tokenizer.pieces(ids), tokenizer is BYTES)
    assert max(map(len, words)) > 2 and len(words) == 9
    rules = masking(tokenizer, probability=share, whole_word_mask=True)
    rows, most = np.tile(np.array(ids), (200, 1)), int(rules.number(len(ids)))
    _, places, targets = rules.hide(rows, np.arange(200), seed=0, most=most)
    met = set()
    for place, target in zip(places, targets, strict=True):
        chosen = set(place[target != IGNORE].tolist())
        assert all(word <= chosen or not word & chosen for word in words if len(word) <= most)
        met |= chosen
    assert met >= set().union(*(word for word in words if len(word) <= most))


def test_a_word_too_long_gives_some_of_its_pieces() -> None:
    rules = masking(whole_word_mask=True, probability=0.15)
    first = next(i for i, piece in enumerate(WORDPIECE.pieces(range(60))) if i > 4 and piece[:2] != "##")
    inner = next(i for i, piece in enumerate(WORDPIECE.pieces(range(60))) if piece[:2] == "##")
    rows = np.array([[2, first, *[inner] * 9, 3]])
    _, places, targets = rules.hide(rows, np.array([0]), seed=0, most=2)
    assert places.tolist() == [[1, 2]] and targets.tolist() == [[first, inner]]


def test_pieces_that_go_on_with_a_word() -> None:
    inside, open_ = word_pieces(BYTES)
    vocab = BYTES.backend.get_vocab()
    assert inside[vocab["b"]] and not inside[vocab["Ġ"]] and not inside[vocab[","]] and not inside[vocab["Ċ"]]
    assert open_[vocab["b"]] and not open_[vocab["Ġ"]] and not open_[vocab[","]]
    assert inside[vocab["Ã"]] and open_[vocab["©"]]  # the bytes of é


def test_a_tokenizer_without_marks_is_refused() -> None:
    with pytest.raises(DataError, match=r"no \[CLS\], \[SEP\], \[MASK\], which masked words need"):
        masking(train_tokenizer("bytes", []))
