"""Rules of timestamps: equal to those of transformers on random sequences; both ways to find the new tokens."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

from headway.config.generation import Sampling
from headway.errors import ConfigError
from headway.generate.sampling.timestamps import NewTokens, order_timestamps

END, FIRST, VOCAB, PROMPT = 20, 30, 45, 3


def sequences(seed: int, count: int, new: int) -> torch.Tensor:
    """Prompts and new tokens as the rules themselves let them grow, so that every case occurs."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, END, (count, PROMPT), generator=generator)
    for step in range(new):
        logits = 3 * torch.randn(count, VOCAB, generator=generator)
        logits[:, END] = -torch.inf
        found = order_timestamps(logits, NewTokens.of(ids, torch.full((count,), step)), (FIRST, END, 4))
        drawn = torch.multinomial(found.softmax(-1), 1, generator=generator)
        ids = torch.cat([ids, drawn], 1)
    return ids


@pytest.mark.parametrize("latest", [4, None])
@pytest.mark.parametrize("new", range(8))
def test_equal_to_transformers(new: int, latest: int | None) -> None:
    ids = sequences(new, 64, new)
    logits = 3 * torch.randn(64, VOCAB, generator=torch.Generator().manual_seed(99))
    said = SimpleNamespace(
        no_timestamps_token_id=FIRST - 1, eos_token_id=END, bos_token_id=END, max_initial_timestamp_index=latest
    )
    wanted = WhisperTimeStampLogitsProcessor(said, begin_index=PROMPT)(ids, logits)  # type: ignore[arg-type]
    rule = (FIRST, END, -1 if latest is None else latest)
    found = order_timestamps(logits, NewTokens.of(ids, torch.full((64,), new)), rule)
    assert torch.equal(found, wanted) and not torch.equal(found, logits)


def test_rows_with_different_numbers_of_new_tokens() -> None:
    """As in a batch whose sequences began at different times: each row is as if it were alone."""
    ids, counts = sequences(5, 8, 7), torch.tensor([0, 1, 2, 3, 4, 5, 6, 7])
    logits = torch.randn(8, VOCAB)
    together = order_timestamps(logits, NewTokens.of(ids, counts), (FIRST, END, 4))
    for row in range(8):
        short = ids[row : row + 1, 7 - int(counts[row]) + PROMPT - 1 :]
        alone = order_timestamps(logits[row : row + 1], NewTokens.of(short, counts[row : row + 1]), (FIRST, END, 4))
        assert torch.equal(together[row], alone[0])


@pytest.mark.parametrize("at", range(7))
def test_tokens_whose_number_only_the_device_knows(at: int) -> None:
    new = sequences(6, 16, 6)[:, PROMPT:]
    later = torch.cat([new[:, :at], torch.randint(0, VOCAB, (16, 9 - at))], 1)  # what comes after must not matter
    one, other = NewTokens.upto(later, torch.tensor([at])), NewTokens.of(new[:, :at], torch.full((16,), at))
    assert torch.equal(one.last, other.last) and torch.equal(one.before, other.before)
    assert torch.equal(one.highest, other.highest)
    logits = torch.randn(16, VOCAB)
    assert torch.equal(*(order_timestamps(logits, each, (FIRST, END, 4)) for each in (one, other)))


def test_the_rule_is_three_numbers() -> None:
    with pytest.raises(ConfigError, match="timestamps"):
        Sampling(timestamps=(1, 2))
