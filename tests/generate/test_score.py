"""Scores of given texts: one padded pass equals reading token by token."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.config.model import SpecialTokens
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DataError
from headway.generate import score as module
from headway.generate.protocol import Decoder, Source
from headway.generate.score import perplexity, rank_choices, score
from tests.generate.conftest import DecoderConfig, Recurrent, tiny_model


@torch.no_grad()
def slowly(model: Decoder, row: list[int], prompt: int, source: Source | None = None) -> list[float]:
    """One token after the other, through `step`."""
    inputs = None if source is None else source.inputs
    state = model.start(inputs, attention_mask=None if source is None else source.attention_mask, capacity=len(row))
    found = []
    for i, token in enumerate(row[:-1]):
        logp = model.step(state, torch.tensor([[token]])).double().log_softmax(-1)
        if i + 1 >= prompt:
            found.append(float(logp[0, row[i + 1]]))
    return found


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([1, 100, module.LOGITS_AT_ONCE]))
def test_one_pass_is_reading_step_by_step(kind: str, seed: int, count: int, part: int) -> None:
    model: Decoder = tiny_model(12, 24, 16, depth=1) if kind == "transformer" else Recurrent(12)
    draw = random.Random(seed)
    rows = [[draw.randrange(12) for _ in range(draw.randint(1, 20))] for _ in range(count)]
    prompts = [draw.randint(1, len(row)) for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LOGITS_AT_ONCE", part)
        found = score(model, rows, prompts)
    for row, prompt, values in zip(rows, prompts, found, strict=True):
        assert len(values) == len(row) - prompt
        assert values.tolist() == pytest.approx(slowly(model, row, prompt), abs=1e-4)


def test_an_encoder_decoder_is_scored_with_its_source() -> None:
    model = Recurrent(12)
    inputs, attention_mask = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([[True] * 3, [True, True, False]])
    rows = [[1, 2, 3, 4], [1, 5]]
    found = score(model, rows, [1, 1], source=Source(inputs, attention_mask))
    for i, row in enumerate(rows):
        alone = slowly(model, row, 1, Source(inputs[i : i + 1, : 3 - i]))
        assert found[i].tolist() == pytest.approx(alone, abs=1e-4)
    assert found[0].tolist() != pytest.approx(slowly(model, rows[0], 1), abs=1e-3)


def test_half_precision_is_scored_in_full() -> None:
    model = tiny_model(12, 24, 16, depth=1).bfloat16()
    values = score(model, [[1, 2, 3, 4]], [1])[0]
    assert values.dtype == torch.float32
    with torch.no_grad():
        exact = model.lm(model(torch.tensor([[1, 2, 3]])).hidden).double().log_softmax(-1)[0]
    assert values.tolist() == pytest.approx([float(exact[i, i + 2]) for i in range(3)], abs=1e-4)


def test_perplexity_is_over_tokens_not_rows() -> None:
    rows = [torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-4.0]), torch.tensor([])]
    assert perplexity(rows) == pytest.approx(math.exp(2.5))
    assert perplexity([torch.tensor([-1e6])]) == math.inf
    assert perplexity(score(Recurrent(7), [[1] * 5], [1])) > 1
    with pytest.raises(DataError) as error:
        perplexity([torch.tensor([])])
    assert error.value.code == "D002"


def test_choices_are_ranked_by_sum_token_or_byte() -> None:
    tokenizer = train_tokenizer("bytes", [])
    model = tiny_model(256, 64)
    choices = ["é", "bbb", " cd", "x"]
    context = [*b"ab"]
    slow = [slowly(model, [*context, *c.encode()], 2) for c in choices]
    for by, size in (
        ("log_probability", lambda c, s: 1),
        ("per_token", lambda c, s: len(s)),
        ("per_byte", lambda c, s: len(c.encode())),
    ):
        ranked = rank_choices(model, tokenizer, "ab", choices, by=by)
        worth = [sum(s) / size(c, s) for c, s in zip(choices, slow, strict=True)]
        assert [r.index for r in ranked] == sorted(range(4), key=lambda i: -worth[i])
        assert [getattr(r, by) for r in ranked] == pytest.approx(sorted(worth, reverse=True), abs=1e-3)
        assert [(r.text, r.tokens, r.bytes) for r in ranked] == [
            (c, len(c.encode()), len(c.encode())) for c in (choices[r.index] for r in ranked)
        ]


def test_where_texts_are_joined_tokens_may_be_too() -> None:
    """ "a" + "b" is one token: both choices are scored from before it."""
    tokenizer = train_tokenizer("bpe", ["ab ab ab ab x ac"], 258)
    context, whole = tokenizer.encode("xa", special=False).ids, tokenizer.encode("xab", special=False).ids
    assert whole[:2] != context and len(whole) == 2
    model = tiny_model(tokenizer.vocab_size, 64)
    ranked = {r.text: r for r in rank_choices(model, tokenizer, "xa", ["b", "c"])}
    assert (ranked["b"].tokens, ranked["c"].tokens) == (1, 2)
    assert ranked["c"].per_byte == ranked["c"].log_probability == 2 * ranked["c"].per_token
    other = tokenizer.encode("xac", special=False).ids
    assert ranked["b"].log_probability == pytest.approx(sum(slowly(model, whole, 1)), abs=1e-4)
    assert ranked["c"].log_probability == pytest.approx(sum(slowly(model, other, 1)), abs=1e-4)


def test_without_a_context_a_start_token_takes_its_place() -> None:
    tokenizer = train_tokenizer("bytes", [])
    model = Recurrent(256, config=DecoderConfig(special=SpecialTokens(bos=7, eos=8)))
    assert rank_choices(model, tokenizer, "", ["a"])[0].log_probability == pytest.approx(
        sum(slowly(model, [7, 97], 1)), abs=1e-4
    )
    model.config = DecoderConfig(special=SpecialTokens(eos=8))
    assert rank_choices(model, tokenizer, "", ["a"])[0].log_probability == pytest.approx(
        sum(slowly(model, [8, 97], 1)), abs=1e-4
    )
    model.config = DecoderConfig()
    with pytest.raises(DataError, match="no BOS token"):
        rank_choices(model, tokenizer, "", ["a"])
    with pytest.raises(DataError, match="'' adds no token"):
        rank_choices(model, tokenizer, "a", ["b", ""])


def test_what_cannot_be_scored() -> None:
    model = tiny_model(12, 8, 16, depth=1)
    for rows, prompts, match in (
        ([[1, 2]], [0], "the first token of a text"),
        ([[1, 2]], [3], "row 0 has 2 tokens, 3 of them"),
        ([[1, 2]], [1, 1], "1 rows but 2 prompt lengths"),
        ([[1], [1] * 9], [1, 1], "row 1 has 9 tokens, the model reads at most 8"),
    ):
        with pytest.raises(DataError) as error:
            score(model, rows, prompts)
        assert match in str(error.value)
    with pytest.raises(DataError, match="1 rows but 2"):
        score(model, [[1]], [1], source=Source(torch.zeros(2, 3)))
    assert score(model, [], []) == []
    assert score(model, [[1]], [1])[0].tolist() == []
