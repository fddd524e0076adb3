"""Windows over running text: each token trained on once an epoch, each evaluated once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.batching.windows import Windows, embedded_text, evaluation_windows, split_text, tokenize
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DataError


@given(st.integers(20, 400), st.integers(1, 9), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_reads_every_window_once(tokens: int, length: int, seed: int, epoch: int) -> None:
    windows = Windows(np.arange(tokens), length, seed)
    count = len(windows)
    inputs, targets, _ = windows.read(np.arange(epoch * count, (epoch + 1) * count))
    assert (targets == inputs + 1).all()
    starts = sorted(inputs[:, 0].tolist())
    assert starts == list(range(starts[0], starts[0] + count * length, length))
    assert 0 <= starts[0] < length


def test_the_stream_does_not_depend_on_how_it_is_read() -> None:
    windows = Windows(np.arange(1000), 7, 3)
    whole = windows.read(np.arange(500))[0]
    parts = [windows.read(np.arange(a, b))[0] for a, b in ((0, 1), (1, 140), (140, 143), (143, 500))]
    assert (np.concatenate(parts) == whole).all()
    shares = [windows.read(np.arange(rank, 500, 4))[0] for rank in range(4)]  # four processes
    assert (np.stack(shares, 1).reshape(whole.shape) == whole).all()


def test_epochs_and_seeds_differ() -> None:
    windows = Windows(np.arange(1000), 7, 3)
    count = len(windows)
    first, second = (windows.read(np.arange(e * count, (e + 1) * count))[0] for e in (0, 1))
    assert (first != second).any()
    assert (first != Windows(np.arange(1000), 7, 4).read(np.arange(count))[0]).any()


@given(st.integers(2, 60), st.integers(1, 9))
def test_evaluation_predicts_each_token_once(tokens: int, length: int) -> None:
    inputs, targets = evaluation_windows(np.arange(tokens), length, -100)
    counted = targets[targets != -100]
    assert counted.tolist() == list(range(1, tokens))
    assert (inputs[targets != -100] == counted - 1).all()


def test_too_little_text_is_an_error_with_numbers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"5 tokens .* sequences of 8") as error:
        Windows(np.arange(5), 8, 0)
    assert error.value.hint == "give more text"
    with pytest.raises(DataError) as error:
        Windows(np.arange(11), 8, 0)
    assert "sequences of 5 " in error.value.hint and len(Windows(np.arange(11), 5, 0)) > 0
    with pytest.raises(DataError, match="1 token "):
        evaluation_windows(np.arange(1), 8, -100)


def test_the_embedded_text_is_there() -> None:
    train, valid = split_text(embedded_text())
    assert len(train) > 300_000
    assert len(valid) == pytest.approx(len(train) / 9, rel=0.01)


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_a_text_is_tokenized_in_chunks_that_end_with_a_line(kind: str) -> None:
    text = "a line, é 漢\n" * 50 + "no end"
    tokenizer = train_tokenizer(kind, [text], 300 if kind == "bpe" else 0)
    whole = [i for line in text.splitlines(keepends=True) for i in tokenizer.encode(line, special=False).ids]
    for chunk in (1, 30, 10_000):
        assert tokenizer.decode(tokenize(tokenizer, text, chunk).tolist()) == text
    assert tokenize(tokenizer, text, 1).tolist() == whole
    assert tokenize(tokenizer, "").tolist() == []
