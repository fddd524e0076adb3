"""Examples of unequal length: truncated, shuffled per epoch, and padded into batches.

For tasks whose examples are single texts or pairs; a corpus is read by `packing` and `windows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway import progress
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler, TokenBatchSampler
from headway.data.batching.packing import padded_width
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.profile.lengths import quantile_99
from headway.data.tokenizers.tokenizer import Encoded
from headway.errors import DataError


def inference_batch_tokens(device: torch.device) -> int:
    """Tokens of a batch, padding included, for inference: many keep a GPU busy; few fit a CPU's cache and need less
    padding."""
    return 1 << 10 if device.type == "cpu" else 1 << 14


@dataclass(frozen=True)
class Examples:
    """Token ids and token type ids of each example."""

    ids: Sequence[Sequence[int]]
    token_type_ids: Sequence[Sequence[int]]
    seed: int = 0
    by_length: bool = False
    """Whether batches have an equal number of tokens, not of examples; their sampler shuffles, so `rows` must not."""
    whole: Sequence[int] = ()
    """The lengths before truncation; empty if nothing was truncated."""

    def __post_init__(self) -> None:
        if not self.ids:
            raise DataError("D002", "0 examples")

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def lengths(self) -> Index:
        return np.array([len(row) for row in self.ids])

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Which examples have lost tokens."""
        return np.asarray(self.lengths < np.array(self.whole if len(self.whole) else self.lengths))

    @property
    def length_99(self) -> int:
        """The length that would leave 99 % of the examples as they are."""
        return quantile_99(self.whole if len(self.whole) else self.lengths)

    def plan(self, batch: int, batch_tokens: int = 0) -> BatchSampler:
        """The batch sampler: `batch` examples per step, or `batch_tokens` tokens of similar length."""
        return (
            TokenBatchSampler(self.lengths, batch_tokens, self.seed)
            if self.by_length
            else FixedBatchSampler(len(self), batch)
        )

    def rows(self, samples: Index) -> Index:
        """Return the examples of these samples, numbered over all epochs."""
        return samples % len(self) if self.by_length else shuffle_samples(samples, len(self), self.seed)

    def read(self, rows: Sequence[int] | Index) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids, attention mask and token type ids (n, width), padded on the right; see `padded_width`."""
        width = int(padded_width(self.lengths[list(rows)].max()))
        ids, attention_mask, token_type_ids = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(3))
        for place, row in enumerate(rows):
            count = len(self.ids[row])
            ids[place, :count], attention_mask[place, :count] = self.ids[row], 1
            token_type_ids[place, :count] = self.token_type_ids[row]
        return torch.from_numpy(ids), torch.from_numpy(attention_mask).bool(), torch.from_numpy(token_type_ids)

    def batches(self, tokens: int) -> Iterator[list[int]]:
        """Yield all examples in batches of similar length, the longest first: later batches need no more memory."""
        order = np.argsort(-self.lengths, kind="stable").tolist()
        at = 0
        with progress.bar("computing", len(order), "examples") as tick:
            while at < len(order):
                count = max(1, tokens // int(padded_width(self.lengths[order[at]])))
                yield order[at : at + count]
                at += count
                tick(count)


def truncate(text: Encoded, limit: int | None) -> tuple[list[int], list[int]]:
    """Truncate to `limit` ids and token type ids: the longer of two texts loses tokens, special tokens stay."""
    count = len(text.ids)
    if limit is None or count <= limit:
        return list(text.ids), list(text.token_type_ids)
    places = [[i for i, owner in enumerate(text.texts) if owner == number] for number in (0, 1)]
    sizes = [len(part) for part in places]
    first, second = _longest_first(sizes[0], sizes[1], max(0, limit - (count - sum(sizes))))
    gone = {*places[0][first:], *places[1][second:]}
    kept = [i for i in range(count) if i not in gone][:limit]
    return [text.ids[i] for i in kept], [text.token_type_ids[i] for i in kept]


def _longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Tokens that two texts keep of `room`: the shorter text keeps all, up to half; of two equally long texts the
    second gets the odd token. This is "longest_first" of `tokenizers`, which most pair models were trained with."""
    if first > second:
        return _longest_first(second, first, room)[::-1]
    kept = min(first, room // 2)
    return kept, room - kept
