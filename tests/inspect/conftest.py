"""Small models with a tokenizer of bytes, of two layers and four heads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headway.api import Bundle
from headway.config.model import ClassifyHeadConfig, LayerConfig, ModelConfig, SpecialTokens, TokensConfig
from headway.config.presets import bert, gpt2, llama, t5
from headway.data.tokenizers.train import train_tokenizer
from headway.model.model import Transformer

MODELS = ("gpt2", "llama", "bert", "classifier", "t5", "shared", "capped")


def made(config: ModelConfig, name: str) -> Bundle:
    torch.manual_seed(0)
    model = Transformer(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return Bundle(name, model, train_tokenizer("bytes", ["abc"]), None)


def config_of(name: str) -> ModelConfig:
    """A model of two layers and four heads over bytes."""
    if name == "gpt2":
        return gpt2(2, 32, 4, vocab=256, length=64)
    if name == "llama":
        found = llama(2, 32, 4, 2, 64)
        assert found.target is not None
        return replace(found, target=replace(found.target, vocab=256))
    if name == "t5":
        found = t5(2, 32, 4, 64)
        front = TokensConfig(vocab=256, positions=found.target.positions) if found.target else None
        return replace(found, source=front, target=front, special=SpecialTokens(pad=0, eos=1, start=0))
    if (
        name == "capped"
    ):  # what Gemma 2 has: capped scores, norms on both sides of a branch, windows in every other layer
        found = config_of("llama")
        assert found.decoder is not None and found.decoder.rope is not None
        rope = found.decoder.rope
        layers = (LayerConfig(window=4, rope=rope), LayerConfig(rope=rope))
        stack = replace(found.decoder, rope=None, pattern=layers, norm_at="sandwich", softcap=5.0, qk_norm="head")
        return replace(found, decoder=stack)
    if name == "shared":  # as in ALBERT
        found = config_of("bert")
        assert found.encoder is not None
        return replace(found, encoder=replace(found.encoder, shared=True))
    found = bert(2, 32, 4, vocab=256, length=64)
    if name == "bert":
        return found
    return replace(
        found, lm=None, nsp=None, classify=ClassifyHeadConfig(labels=3, dense="tanh"), labels=("a", "b", "c")
    )


@pytest.fixture(params=MODELS)
def any_bundle(request: pytest.FixtureRequest) -> Bundle:
    return made(config_of(request.param), request.param)


@pytest.fixture
def bundle() -> Bundle:
    return made(config_of("gpt2"), "gpt2")


@pytest.fixture
def classifier() -> Bundle:
    return made(config_of("classifier"), "classifier")


@pytest.fixture
def seq2seq() -> Bundle:
    return made(config_of("t5"), "t5")
