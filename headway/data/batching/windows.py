"""Windows over running text: sequences of fixed length for training, overlapping ones for evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.batching.permutation import Index, by_epoch
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError, counted

Ids = NDArray[np.int64]
Tokens = NDArray[np.integer[Any]]
"""Ids of any integer type, as in a token store."""
CHUNK = 1 << 16
"""The least characters that are tokenized at a time, if the text has as many."""
LINE_END = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""Where str.splitlines splits."""


def embedded_text() -> str:
    """The text of Python's language reference, which every Python includes."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def split_text(text: str, share: float = 0.1) -> tuple[str, str]:
    """Split a text into its beginning for training and its end for validation."""
    cut = int(len(text) * (1 - share))
    return text[:cut], text[cut:]


@dataclass(frozen=True)
class Windows:
    """Windows of `length` tokens and their targets; every epoch cuts the text at other places."""

    ids: Tokens
    length: int
    seed: int

    def __post_init__(self) -> None:
        if len(self) < 1:
            message = (
                f"{counted(len(self.ids), 'tokens')} are too few: sequences of {self.length} tokens need twice as many"
            )
            fits = len(self.ids) // 2
            hint = f"give more text, or sequences of {fits} tokens at most (data.length minus special tokens)"
            raise DataError("D002", message, hint if fits > 2 else "give more text")

    def __len__(self) -> int:
        """Samples per epoch, wherever it cuts first."""
        return max(0, (len(self.ids) - self.length) // self.length)

    def read(self, samples: Index) -> tuple[Ids, Ids, None]:
        """Return inputs and targets (n, length) of these samples, numbered over all epochs; no segment ids."""
        starts = np.empty_like(samples)
        for here, index, key in by_epoch(samples, len(self), self.seed):
            starts[here] = index * self.length + key % self.length
        rows = self.ids[starts[:, None] + np.arange(self.length + 1)]
        return rows[:, :-1].astype(np.int64), rows[:, 1:].astype(np.int64), None  # copies, not two views


def evaluation_windows(ids: Tokens, length: int, ignore: int, overlap: int = 0) -> tuple[Ids, Ids]:
    """Return inputs and targets that predict every token but the first exactly once; padding has the target `ignore`.

    Each row but the first starts with `overlap` tokens of the row before, as context only.
    """
    stride = length - overlap
    count = 1 + max(0, -(-(len(ids) - 1 - length) // stride))
    if len(ids) < 2:
        raise DataError("D002", f"{counted(len(ids), 'tokens')} to evaluate on: too few to predict any")
    padded = np.zeros(length + (count - 1) * stride + 1, dtype=np.int64)
    padded[: len(ids)] = ids
    places = np.arange(count)[:, None] * stride + np.arange(length)
    targets = padded[places + 1]
    targets[places + 1 >= len(ids)] = ignore
    targets[1:, :overlap] = ignore
    return padded[places], targets


def tokenize(tokenizer: Tokenizer, text: str, chunk: int = CHUNK) -> Ids:
    """Tokenize a long text in chunks that end with a line: chunks run in parallel and bound the memory."""
    chunks = list(line_chunks(text, chunk))
    return np.concatenate([np.asarray(ids, dtype=np.int64) for ids in tokenizer.ids(chunks)])


def line_chunks(text: str, chunk: int = CHUNK) -> Iterator[str]:
    """Split a text at the first line end after `chunk` characters, again and again; the last chunk may be empty."""
    start = 0
    while found := LINE_END.search(text, start + chunk - 1):
        yield text[start : found.end()]
        start = found.end()
    yield text[start:]
