"""Each function against a plain Python twin, row by row, and against `transformers` where it has the same."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.generate.sampling import logits
from headway.generate.sampling.logits import (
    _keep_sorted,
    apply_mask,
    ban,
    ban_repeats,
    force,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    last_tokens,
    penalise_counts,
    penalise_repetition,
    sample_inverse_cdf,
    scale,
)

INF = math.inf
Row = list[float]

numbers = st.floats(-5, 5, width=32)
rows = st.integers(2, 12).flatmap(
    lambda v: st.lists(st.lists(numbers, min_size=v, max_size=v, unique=True), min_size=1, max_size=4)
)


def softmax(row: Row) -> Row:
    weights = [math.exp(x - max(row)) for x in row]
    return [w / sum(weights) for w in weights]


def by_row(table: list[Row], settings: list[float], twin: Callable[[Row, float], Row]) -> list[Row]:
    return [twin(row, setting) for row, setting in zip(table, settings, strict=True)]


def both_ways(fast: Callable[[Tensor, float | Tensor], Tensor], table: list[Row], settings: list[float]) -> list[Row]:
    """The function with one setting for each row; it must say the same with each row alone and a plain number."""
    scores = torch.tensor(table)
    together = fast(scores, torch.tensor(settings)[:, None])
    alone = torch.cat([fast(scores[i : i + 1], s) for i, s in enumerate(settings)])
    assert torch.equal(together.isinf(), alone.isinf())
    torch.testing.assert_close(together, alone)
    assert torch.equal(scores, torch.tensor(table)), "the argument was changed"
    return [[float(x) for x in row] for row in together]


def slow_top_k(row: Row, k: float) -> Row:
    if k <= 0:
        return row
    last = sorted(row, reverse=True)[: int(k)][-1]
    return [x if x >= last else -INF for x in row]


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0, 12.0])
def test_the_likeliest_of_many_are_found_without_sorting_all(spread: float) -> None:
    torch.manual_seed(0)
    scores = spread * torch.randn(40, 5000)
    scores[3, 7:] = -torch.inf
    ps = torch.rand(40, 1)
    ps[:3] = torch.tensor([[0.0], [1.0], [0.999]])
    assert torch.equal(keep_top_p(scores, ps), _keep_sorted(scores, ps))
    assert torch.equal(keep_top_p(scores, 0.9), _keep_sorted(scores, 0.9))
    for row in (0, 5, 11):
        assert torch.equal(keep_top_p(scores[row : row + 1], ps[row : row + 1])[0], keep_top_p(scores, ps)[row])


def slow_top_p(row: Row, p: float) -> Row:
    shares, kept, mass = softmax(row), set(), 0.0
    for i in sorted(range(len(row)), key=lambda i: -row[i]):
        if kept and (mass >= p and p < 1):
            break
        kept.add(i)
        mass += shares[i]
    return [x if i in kept else -INF for i, x in enumerate(row)]


def slow_min_p(row: Row, p: float) -> Row:
    shares = softmax(row)
    return [x if share >= p * max(shares) else -INF for x, share in zip(row, shares, strict=True)]


def clear_cut(row: Row, p: float, *, of_best: bool = False) -> bool:
    """Whether no probability, or sum of the best of them, is so near the threshold that rounding decides."""
    shares = sorted(softmax(row), reverse=True)
    sums = [s / shares[0] for s in shares] if of_best else [sum(shares[:n]) for n in range(1, len(row) + 1)]
    return all(abs(x - p) > 1e-5 for x in sums) and len(set(shares)) == len(shares)


@given(rows, st.data())
def test_top_k_keeps_the_k_best(table: list[Row], data: st.DataObject) -> None:
    ks = data.draw(st.lists(st.integers(0, 14), min_size=len(table), max_size=len(table)))
    fast = both_ways(
        lambda s, k: keep_top_k(s, k.long() if isinstance(k, Tensor) else int(k)), table, [*map(float, ks)]
    )
    assert fast == by_row(table, [*map(float, ks)], slow_top_k)


@given(rows, st.data())
def test_top_p_keeps_the_fewest_that_reach_p(table: list[Row], data: st.DataObject) -> None:
    ps = data.draw(st.lists(st.floats(0, 1), min_size=len(table), max_size=len(table)))
    kept = [i for i, (row, p) in enumerate(zip(table, ps, strict=True)) if clear_cut(row, p) or p == 1]
    table, ps = [table[i] for i in kept], [ps[i] for i in kept]
    if table:
        assert both_ways(keep_top_p, table, ps) == by_row(table, ps, slow_top_p)


@given(rows, st.data())
def test_min_p_keeps_a_share_of_the_best(table: list[Row], data: st.DataObject) -> None:
    ps = data.draw(st.lists(st.floats(0, 1), min_size=len(table), max_size=len(table)))
    kept = [i for i, (row, p) in enumerate(zip(table, ps, strict=True)) if clear_cut(row, p, of_best=True)]
    table, ps = [table[i] for i in kept], [ps[i] for i in kept]
    if table:
        assert both_ways(keep_min_p, table, ps) == by_row(table, ps, slow_min_p)


@given(rows, st.data())
def test_temperature_divides(table: list[Row], data: st.DataObject) -> None:
    heat = data.draw(st.lists(st.floats(0.1, 4), min_size=len(table), max_size=len(table)))
    slow = by_row(table, heat, lambda row, t: [x / t for x in row])
    torch.testing.assert_close(torch.tensor(both_ways(scale, table, heat)), torch.tensor(slow))


@given(rows, st.data())
def test_penalties(table: list[Row], data: st.DataObject) -> None:
    shape = st.lists(st.integers(0, 3), min_size=len(table[0]), max_size=len(table[0]))
    counts = data.draw(st.lists(shape, min_size=len(table), max_size=len(table)))
    a, b = data.draw(st.floats(0.2, 3)), data.draw(st.floats(-2, 2))
    scores, often = torch.tensor(table), torch.tensor(counts)
    pairs = [[*zip(row, times, strict=True)] for row, times in zip(table, counts, strict=True)]
    slow = [[(x / a if x >= 0 else x * a) if n else x for x, n in row] for row in pairs]
    torch.testing.assert_close(penalise_repetition(scores, often > 0, a), torch.tensor(slow))
    slow = [[x - n * a - (b if n else 0) for x, n in row] for row in pairs]
    torch.testing.assert_close(penalise_counts(scores, often, b, a), torch.tensor(slow))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_the_same_as_transformers(seed: int) -> None:
    from transformers.generation import logits_process as theirs

    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(4, 30, generator=generator)
    text = torch.randint(30, (4, 9), generator=generator)
    few = text % 3  # so that something comes again
    k, p = seed % 29 + 1, 0.05 + 0.9 * (seed % 101) / 101
    clear = all(clear_cut(row, q, of_best=m) for row in scores.tolist() for q, m in ((p, False), (p, True)))
    words = [[3], [*text[0, -2:].tolist(), 4], [*text[1, -1:].tolist(), 5], [29, 6]]
    pairs = [
        (scale(scores, p), theirs.TemperatureLogitsWarper(p)),
        (keep_top_k(scores, k), theirs.TopKLogitsWarper(k)),
        (penalise_repetition(scores, torch.zeros(4, 30).scatter(1, text, 1) > 0, 1 + p),
         theirs.RepetitionPenaltyLogitsProcessor(1 + p)),
        (ban(scores, text, words), theirs.NoBadWordsLogitsProcessor(words)),
        *((ban_repeats(scores, few, n), theirs.NoRepeatNGramLogitsProcessor(n)) for n in (1, 2, 3, 9, 10)),
        (force(scores, 7), theirs.ForcedEOSTokenLogitsProcessor(10, 7)),
    ]  # fmt: skip
    if clear:
        pairs += [
            (keep_top_p(scores, p), theirs.TopPLogitsWarper(p)),
            (keep_min_p(scores, p), theirs.MinPLogitsWarper(p)),
        ]
    for ours, process in pairs:
        seen = few if "Repeat" in type(process).__name__ else text
        torch.testing.assert_close(ours, process(seen, scores), msg=type(process).__name__)


tokens = st.integers(0, 3)


@given(st.lists(st.lists(tokens, max_size=6), min_size=1, max_size=3),
       st.lists(st.lists(tokens, min_size=1, max_size=4), max_size=5))  # fmt: skip
def test_a_sequence_is_banned_at_its_last_token(texts: list[list[int]], sequences: list[list[int]]) -> None:
    scores = torch.zeros(len(texts), 4)
    banned = ban(scores, last_tokens(texts, max(map(len, sequences), default=1) - 1), sequences)
    for text, row in zip(texts, banned, strict=True):
        for token in range(4):
            ends = any([*text, token][-len(s) :] == s for s in sequences)
            assert (float(row[token]) == -INF) == ends


@given(st.lists(st.lists(tokens, max_size=9), min_size=1, max_size=4), st.integers(1, 4))
def test_what_was_there_does_not_come_again(texts: list[list[int]], size: int) -> None:
    """Texts of different lengths side by side: what fills them up is no token that came before."""
    banned = ban_repeats(torch.zeros(len(texts), 4), last_tokens(texts, max(map(len, texts))), size)
    for text, row in zip(texts, banned, strict=True):
        rows = [text[i : i + size] for i in range(len(text) - size + 1)]
        for token in range(4):
            new = [*text, token][-size:]
            assert (float(row[token]) == -INF) == (new in rows)


def test_only_what_is_allowed_stays() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0]])
    assert apply_mask(scores, torch.tensor([[True, False, True]])).tolist() == [[1.0, -INF, 3.0]]


@given(rows, st.lists(st.floats(0, 1, exclude_max=True), min_size=4, max_size=4))
def test_the_token_drawn_is_where_the_sum_passes(table: list[Row], draws: list[float]) -> None:
    picked = sample_inverse_cdf(torch.tensor(table), torch.tensor(draws[: len(table)], dtype=torch.float64))
    for row, draw, token in zip(table, draws, picked.tolist(), strict=False):
        shares = softmax(row)
        assert sum(shares[:token]) <= draw + 1e-9
        assert sum(shares[: token + 1]) > draw - 1e-9


@pytest.mark.parametrize("draw", [0.0, 0.5, 1 - 2**-48])
def test_an_impossible_token_is_never_drawn(draw: float) -> None:
    scores = torch.tensor([[-INF, 1.0, -INF, 2.0, -INF]]).repeat(1, 1000)
    assert float(scores[0, sample_inverse_cdf(scores, torch.tensor([draw], dtype=torch.float64))]) > -INF


def test_draws_follow_the_distribution() -> None:
    row = torch.tensor([[0.0, 2.0, 1.0, -1.0]])
    draws = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    shares = torch.bincount(sample_inverse_cdf(row.expand(10_000, 4), draws), minlength=4) / 10_000
    torch.testing.assert_close(shares, row.softmax(-1)[0], atol=2e-4, rtol=0)


def test_large_vocabularies_are_summed_exactly() -> None:
    """Sums of many probabilities round: to 1 before the end, or to less than a draw."""
    for seed in (2, 9, 28):
        scores = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(keep_top_p(scores, 1.0), scores)
        scores[:, -5:] = -INF
        assert int(sample_inverse_cdf(scores, torch.tensor([1 - 2**-48], dtype=torch.float64))) < 19_995
    rare = torch.zeros(1, 1_000_001)
    rare[0, 0] = math.log(99e6)  # 99 of 100 draws take the first token: sums after it are 1e-8 from each other
    first = math.exp(float(rare[0, 0]))
    for token in (1, 2, 3, 500_000, 500_001):
        draw = torch.tensor([(first + token - 0.5) / (first + 1_000_000)], dtype=torch.float64)
        assert int(sample_inverse_cdf(rare, draw)) == token


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 700), st.integers(1, 12), st.booleans(), st.integers(0, 10**6))
def test_the_highest_scores_in_two_rounds(rows: int, vocab: int, count: int, few: bool, seed: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    scores = torch.randn(2, rows, vocab, generator=dice)
    scores = scores.round() if few else scores  # equals everywhere
    scores[torch.rand(scores.shape, generator=dice) < 0.3] = -torch.inf
    count = min(count, vocab)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logits, "PART", 8)
        values, tokens = logits.top(scores, count)
    assert torch.equal(values, scores.topk(count).values) and torch.equal(scores.gather(-1, tokens), values)
    assert all(len(set(row)) == count for row in tokens.flatten(0, 1).tolist())  # none twice
