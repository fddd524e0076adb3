"""A bias is added to logits: alone, in a batch with others, by kernels, and with a draft."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headway.config.generation import Bias
from headway.generate.decode import Sampling, decode
from headway.generate.engine.engine import Engine, Request
from headway.generate.prefix_cache import PrefixCache
from headway.generate.sampling.sampler import Sampler
from headway.generate.speculative import SpeculativeDecoder
from headway.model.model import Transformer
from tests.generate.conftest import answered, tiny_model

VOCAB, PROMPT = 40, (3, 1, 4, 1, 5)
BIASES: list[dict[int, float]] = [{}, {7: 100.0}, {7: -100.0, 8: 2.5}, {i: (i % 7 - 3) / 2 for i in range(VOCAB)}]


class Plain:
    """A tokenizer of numbers."""

    def decode(self, ids: object) -> str:
        return str(ids)


def biased(values: dict[int, float], **more: object) -> Sampling:
    made = tuple(Bias(tokens=(token,), value=value) for token, value in values.items())
    return Sampling(**{"bias": made, "max_tokens": 12, "stop": (), "seed": 1, **more})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model() -> Transformer:
    return tiny_model(VOCAB, 64, 16, depth=1, seed=0)


@torch.no_grad()
def by_hand(model: Transformer, values: dict[int, float], sampling: Sampling) -> list[int]:
    """The slow twin: a forward pass for each token, a vector added to its logits, and a sampler without a bias."""
    vector = torch.zeros(VOCAB)
    for token, value in values.items():
        vector[token] += value
    tokens = list(PROMPT)
    sampler = Sampler([replace(sampling, bias=())], [tokens], [()])
    for count in range(sampling.max_tokens):
        logits = model.step(model.start(batch=1, capacity=64), torch.tensor([tokens]))[:, :VOCAB].float() + vector
        tokens.append(int(sampler.sample(sampler.process(logits, [count]), [count])))
    return tokens[len(PROMPT) :]


@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_a_bias_is_added_to_the_logits(model: Transformer, temperature: float) -> None:
    wanted = [by_hand(model, values, biased(values, temperature=temperature)) for values in BIASES]
    assert wanted[1] == [7] * 12 and 7 not in wanted[2] and len(set(map(tuple, wanted))) == 4
    settings = [biased(values, temperature=temperature) for values in BIASES]
    alone = [[p.token for p in decode(model, [PROMPT], each) if p.token is not None] for each in settings]
    assert alone == wanted
    together = answered(Engine(model, Plain()), *(Request(PROMPT, each) for each in settings))
    assert [[e.token for e in request if e.token is not None] for request in together] == wanted
    draft = tiny_model(VOCAB, 64, 8, depth=1, seed=3)
    for each, tokens in zip(settings, wanted, strict=True):
        fast = SpeculativeDecoder(PrefixCache(model), PrefixCache(draft), each)
        assert [p.token for p in decode(fast, [PROMPT], each) if p.token is not None] == tokens


def test_biases_add_up_and_wait_for_their_tokens(model: Transformer) -> None:
    both = (Bias(tokens=(7,), value=60.0), Bias(tokens=(7,), value=40.0), Bias(tokens=(7, 9), value=300.0))
    settings = replace(biased({}, temperature=0.0), bias=both)
    found = [p.token for p in decode(model, [PROMPT], settings) if p.token is not None]
    assert found == [7, 9] * 6
