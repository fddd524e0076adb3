"""Decoding: the cached choice is the uncached one, seeds repeat, filters keep what they say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.api import Bundle
from headway.data.vocabulary import train_tokenizer
from headway.errors import DataError
from headway.generate.decode import Sampling, generate
from headway.generate.logits import choose, keep_top_k, keep_top_p
from headway.model.model import Model
from headway.recipe import ShapeConfig, decoder_config


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    made = Model(decoder_config(ShapeConfig(depth=2, width=32, heads=2), 256, 24)).eval()
    for parameter in made.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return made


@torch.no_grad()
def slowly(model: Model, prompt: list[int], tokens: int) -> list[int]:
    """Greedy decoding that reads everything again for each token."""
    text = list(prompt)
    for _ in range(tokens):
        text.append(int(model.lm(model(torch.tensor([text])).hidden[:, -1]).argmax(-1)))
    return text[len(prompt) :]


def test_greedy_equals_reading_all_again(model: Model) -> None:
    prompt = [5, 17, 200]
    assert list(generate(model, prompt, 20, Sampling(temperature=0))) == slowly(model, prompt, 20)


def test_past_its_length_it_goes_on_from_the_last_half(model: Model) -> None:
    new = list(generate(model, [1, 2, 3], 60, Sampling(temperature=0)))
    assert len(new) == 60
    text = [1, 2, 3, *new]
    # the cache holds 24: full after the 21st new token is read, begun anew with the 12 before
    assert new[22] == slowly(model, text[13:25], 1)[0]
    assert list(generate(model, list(range(40)), 1, Sampling(temperature=0))) == slowly(model, list(range(16, 40)), 1)


def test_a_seed_repeats_and_another_differs(model: Model) -> None:
    draw = [list(generate(model, [9], 30, Sampling(seed=seed))) for seed in (1, 1, 2)]
    assert draw[0] == draw[1] != draw[2]


scores = st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=20, unique=True)


@given(scores, st.integers(1, 25))
def test_top_k_keeps_the_k_best(values: list[float], k: int) -> None:
    kept = keep_top_k(torch.tensor([values]), k)[0]
    expected = set(sorted(range(len(values)), key=lambda i: -values[i])[:k])
    assert set((kept > -torch.inf).nonzero().flatten().tolist()) == expected


@given(scores, st.floats(0.05, 0.99))
def test_top_p_keeps_the_fewest_that_reach_p(values: list[float], p: float) -> None:
    probabilities = torch.tensor(values).softmax(-1)
    kept = (keep_top_p(torch.tensor([values]), p)[0] > -torch.inf).nonzero().flatten().tolist()
    mass = float(probabilities[kept].sum())
    assert mass >= p - 1e-5
    assert mass - float(probabilities[kept].min()) < p + 1e-5
    rest = probabilities[[i for i in range(len(values)) if i not in kept]]
    assert bool((rest <= probabilities[kept].min()).all())  # scores may differ where probabilities do not


def test_temperature_zero_is_the_best_and_one_is_the_distribution() -> None:
    row = torch.tensor([[0.0, 2.0, 1.0]])
    assert int(choose(row, 0.0, None)) == 1
    generator = torch.Generator().manual_seed(0)
    draws = choose(row.expand(20_000, 3), 1.0, generator)
    shares = torch.bincount(draws, minlength=3) / 20_000
    assert torch.allclose(shares, row.softmax(-1)[0], atol=0.02)


def test_streamed_text_is_whole_characters(model: Model) -> None:
    bundle = Bundle("test", model, train_tokenizer("bytes", []), None)
    pieces = list(bundle.stream("é", 40, Sampling(seed=3)))
    ids = list(generate(model, list("é".encode()), 40, Sampling(seed=3)))
    assert bundle.tokenizer is not None
    assert bundle.tokenizer.decode(ids).startswith("".join(pieces))
    assert list(bundle.stream("", 3, Sampling(seed=0)))
    with pytest.raises(DataError, match="bare has no tokenizer"):
        list(Bundle("bare", model, None, None).stream("a"))
