"""Running text as one row of token ids, and the windows that training and evaluation read of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.data.order import Index, mix, shuffled
from headway.data.tokenizer import Tokenizer
from headway.errors import DataError, NotFoundError

Ids = NDArray[np.int64]


def embedded_text() -> str:
    """The text of Python's own reference, which comes with every Python."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def read_text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise NotFoundError("F001", f"no such file: {path}") from None
    except UnicodeDecodeError as error:
        raise DataError("D003", f"{path} is not UTF-8 text, at byte {error.start}", "convert it first") from None


def split_text(text: str, share: float = 0.1) -> tuple[str, str]:
    """The past to train on and the future to test on."""
    cut = int(len(text) * (1 - share))
    return text[:cut], text[cut:]


@dataclass(frozen=True)
class Windows:
    """Stretches of `length` tokens, each with the one that follows; every epoch cuts the text at other places."""

    ids: Ids
    length: int
    seed: int

    def __post_init__(self) -> None:
        if len(self) < 1:
            need = 2 * self.length
            raise DataError("D002", f"{len(self.ids)} tokens, a window of {self.length} needs {need}", "data.length=…")

    def __len__(self) -> int:
        """Samples in an epoch, whatever its first cut."""
        return max(0, (len(self.ids) - self.length) // self.length)

    def read(self, samples: Index) -> tuple[Ids, Ids]:
        """Inputs and targets (n, length) of the samples with these numbers, counted over all epochs."""
        epoch, index = np.divmod(samples, len(self))
        starts = np.empty_like(samples)
        for number in np.unique(epoch):
            here = epoch == number
            key = int(mix(np.uint64((self.seed << 20) + int(number))))
            starts[here] = shuffled(index[here], len(self), key) * self.length + key % self.length
        rows = self.ids[starts[:, None] + np.arange(self.length + 1)]
        return rows[:, :-1].copy(), rows[:, 1:].copy()  # not two views of the same numbers


def evaluation_windows(ids: Ids, length: int, ignore: int) -> tuple[Ids, Ids]:
    """Inputs and targets that predict every token but the first exactly once; the rest of the last row is ignored."""
    count = -(-(len(ids) - 1) // length)
    if count < 1:
        raise DataError("D002", f"{len(ids)} tokens to evaluate on: too few to predict any")
    padded = np.full(count * length + 1, 0, dtype=np.int64)
    padded[: len(ids)] = ids
    targets = padded[1:].copy()
    targets[len(ids) - 1 :] = ignore
    return padded[:-1].reshape(count, length), targets.reshape(count, length)


def tokenize(tokenizer: Tokenizer, text: str, chunk: int = 1 << 16) -> Ids:
    """Ids of a long text, in chunks that end with a line: they are encoded side by side, and none grows too large."""
    chunks: list[str] = []
    lines: list[str] = []
    size = 0
    for line in text.splitlines(keepends=True):
        lines.append(line)
        size += len(line)
        if size >= chunk:
            chunks.append("".join(lines))
            lines, size = [], 0
    chunks.append("".join(lines))
    return np.concatenate([np.asarray(ids, dtype=np.int64) for ids in tokenizer.ids(chunks)])
