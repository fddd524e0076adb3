"""A sample of the training data: how many examples there are, and some of their texts, evenly spread."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from headway.config.recipe import DataConfig
from headway.data.files.lines import read_as
from headway.data.files.rows import BadRows
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import HeadwayError
from headway.tasks.base import Task

KEPT = 1000
"""Examples of a sample: between this many and twice as many, if there are so many."""
MOST_CHARACTERS = 50_000_000
"""Characters that are read at most: enough to choose by, and a second or two of reading."""
LONGEST = 20_000
"""Characters of one text that are kept."""


@dataclass(frozen=True)
class Sample:
    """What the training data are like."""

    rows: int
    """Examples that were read."""
    characters: int
    complete: bool
    """Whether these are all examples."""
    texts: tuple[tuple[str, ...], ...]
    """Some examples, each with its texts."""

    def tokens_of(self, tokenizer: Tokenizer, *, one_sequence: bool) -> list[int]:
        """The tokens of each example: of its texts together, or of the longest."""
        flat = [text for texts in self.texts for text in texts]
        counts = iter([len(ids) for ids in tokenizer.ids(flat)])
        each = [[next(counts) for _ in texts] for texts in self.texts]
        pairs = one_sequence and max(map(len, self.texts)) > 1
        special = tokenizer.backend.num_special_tokens_to_add(pairs)
        return [(sum(counts) if one_sequence else max(counts)) + special for counts in each]

    def tokens(self, tokenizer: Tokenizer) -> int:
        """Tokens of all examples, by their share of the characters of the sample."""
        flat = [text for texts in self.texts for text in texts]
        seen = sum(map(len, flat))
        return round(sum(map(len, tokenizer.ids(flat))) * self.characters / seen) if seen else 0


def take_sample(task: Task, data: DataConfig) -> Sample | None:
    """A sample of data.train; None if it has no texts, or cannot be read: training will say why."""
    with read_as(data.encoding):
        return _sample(task, data)


def _sample(task: Task, data: DataConfig) -> Sample | None:
    kept: list[tuple[str, ...]] = []
    rows = characters = 0
    step, complete = 1, True
    try:
        for texts in task.texts(data, BadRows("skip")):
            if rows % step == 0:
                kept.append(tuple(text[:LONGEST] for text in texts))
            rows, characters = rows + 1, characters + sum(map(len, texts))
            if len(kept) == 2 * KEPT:
                kept, step = kept[::2], 2 * step
            if characters > MOST_CHARACTERS:
                complete = False
                break
    except HeadwayError:
        return None
    if not any(itertools.chain.from_iterable(kept)):
        return None
    return Sample(rows, characters, complete, tuple(kept))


def covering_length(counts: list[int], share: float, most: int) -> int:
    """A length in tokens, a multiple of 16, that `share` of the examples do not exceed; `most` at most."""
    wanted = int(np.quantile(counts, share, method="higher"))
    return min(max(16, -(-wanted // 16) * 16), most)
