"""A draft changes how many passes a text takes, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.config.model import SpecialTokens
from headway.errors import ConfigError
from headway.generate.decode import Sampling, decode, generate
from headway.generate.prefix_cache import PrefixCache
from headway.generate.protocol import Decoder
from headway.generate.sampling.sampler import with_seed
from headway.generate.speculative import GREEDY, SpeculativeDecoder
from headway.model.model import Transformer
from tests.generate.conftest import DecoderConfig, Recurrent, tiny_model

MODELS = [tiny_model(12, 24, 16, depth=2, seed=seed).double() for seed in range(4)]
SMALL = [tiny_model(12, length, 8, depth=1, seed=length).double() for length in (1, 2, 9, 60)]


def speculate(
    model: Decoder[Any],
    draft: Decoder[Any],
    prompt: Sequence[int],
    tokens: int,
    sampling: Sampling = GREEDY,
    *,
    ahead: int = 4,
) -> Iterator[int]:
    """The ids that `generate` gives for the model, in fewer of its passes; greedy by default."""
    sampling = with_seed(sampling)
    return generate(
        SpeculativeDecoder(PrefixCache(model), PrefixCache(draft), sampling, ahead), prompt, tokens, sampling
    )


def drafts(model: Transformer) -> list[Transformer]:
    """The model itself, others as large, and smaller ones that read more or less than it."""
    return [model, *MODELS, *SMALL]


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_the_text_is_that_of_the_model_alone(seed: int) -> None:
    draw = random.Random(seed)
    model = draw.choice(MODELS)
    draft = draw.choice(drafts(model))
    prompt = [draw.randrange(12) for _ in range(draw.randint(1, 30))]
    sampling = Sampling(
        temperature=draw.choice([0.0, 0.0, 1.0, 3.0]),
        seed=draw.randrange(100),
        stop=draw.choice([None, (), (3,), (1, 5, 7)]),
        repetition=draw.choice([1.0, 1.0, 1.5]),
        top_k=draw.choice([0, 0, 3]),
        banned=draw.choice([(), ((4,), (2, 6))]),
    )
    tokens = draw.choice([0, 1, 2, 20, 40])
    found = list(speculate(model, draft, prompt, tokens, sampling, ahead=draw.randint(1, 6)))
    assert found == list(generate(model, prompt, tokens, sampling))


def test_greedy_is_the_default_and_ends_at_the_models_own_token() -> None:
    model, draft = Recurrent(12, config=DecoderConfig(None, SpecialTokens(eos=(5, 7)))), Recurrent(12, seed=3)
    alone = list(generate(model, [1, 2], 50, GREEDY))
    assert list(speculate(model, draft, [1, 2], 50)) == alone
    assert list(speculate(MODELS[0], SMALL[0], [1, 2], 50)) == list(generate(MODELS[0], [1, 2], 50, GREEDY))


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=4), Sampling(seed=5, temperature=2.0, top_p=0.9)])
def test_a_draft_that_agrees_is_always_right(sampling: Sampling) -> None:
    """Sampling too: guesses are made with the draws that will choose."""
    model = MODELS[1]
    sampling = replace(sampling, stop=())
    made = SpeculativeDecoder(PrefixCache(model), PrefixCache(model), sampling, ahead=4)
    assert len(list(generate(made, [1, 2], 16, sampling))) == 16
    # one token alone, three times a token and four guesses
    assert (made.steps, made.drafted, made.accepted, made.acceptance_rate) == (16, 12, 12, 1.0)


def test_without_a_seed_guesses_are_the_likeliest() -> None:
    made = SpeculativeDecoder(PrefixCache(MODELS[1]), PrefixCache(MODELS[1]), Sampling(temperature=1.0), ahead=2)
    assert list(generate(made, [1, 2], 16, replace(GREEDY, stop=()))) and made.acceptance_rate == 1.0
    assert SpeculativeDecoder(PrefixCache(MODELS[1]), PrefixCache(MODELS[1])).acceptance_rate == 0.0
    torch.manual_seed(0)
    texts = {tuple(speculate(MODELS[1], MODELS[1], [1], 12, Sampling(temperature=2.0))) for _ in range(3)}
    assert len(texts) == 3


def test_draws_have_the_models_distribution() -> None:
    """First tokens, and what follows one of them, as often as the model has them: any draft will do."""
    model, draft = MODELS[2], SMALL[3]
    with torch.no_grad():
        first = model.lm(model(torch.tensor([[1, 2]])).hidden[0, -1]).softmax(-1)
        likeliest = int(first.argmax())
        second = model.lm(model(torch.tensor([[1, 2, likeliest]])).hidden[0, -1]).softmax(-1)
    pairs = [list(speculate(model, draft, [1, 2], 2, Sampling(temperature=1.0, seed=i, stop=()))) for i in range(200)]
    for expected, drawn in ((first, [p[0] for p in pairs]), (second, [p[1] for p in pairs if p[0] == likeliest])):
        share = torch.bincount(torch.tensor(drawn), minlength=12) / len(drawn)
        assert float((share - expected).abs().max()) < 3 * 0.5 / len(drawn) ** 0.5


def test_vocabularies_rounded_up_differently() -> None:
    """Rows that no token has may be guessed, or written: neither model is asked about what it does not know."""
    for ours, theirs in ((12, 40), (40, 12)):
        model, draft = tiny_model(ours, 24, 16, depth=1).double(), tiny_model(theirs, 24, 16, depth=1, seed=1).double()
        for seed in range(5):
            sampling = Sampling(temperature=3.0, seed=seed, stop=())
            found = list(speculate(model, draft, [1, 2], 20, sampling))
            assert found == list(generate(model, [1, 2], 20, sampling))


class Letters:
    """Ids as letters."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(ord("a") + i) for i in ids)


def test_text_and_stop_strings_come_as_without_a_draft() -> None:
    model, draft, letters = MODELS[0], MODELS[1], Letters()
    free = Sampling(temperature=1.0, seed=1, stop=(), max_tokens=20)
    whole = "".join(piece.text for piece in decode(model, [[1]], free, tokenizer=letters))
    sampling = replace(free, stop_strings=(whole[6:9],))
    alone = list(decode(model, [[1]], sampling, tokenizer=letters))
    made = SpeculativeDecoder(PrefixCache(model), PrefixCache(draft), sampling)
    assert list(decode(made, [[1]], sampling, tokenizer=letters)) == alone
    assert alone[-1].finish == "stop" and len(whole) == 20


def test_at_least_one_guess() -> None:
    with pytest.raises(ConfigError, match="ahead = 0"):
        SpeculativeDecoder(PrefixCache(MODELS[0]), PrefixCache(MODELS[0]), GREEDY, 0)
