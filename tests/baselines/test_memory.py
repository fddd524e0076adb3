"""The memory network against its definition, question by question; linear start; what ages and places change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.baselines.build import make_model
from headway.baselines.memory import LOWEST, MemoryNetwork
from headway.config.networks.memory import MemoryConfig, StoryConfig
from headway.errors import ConfigError
from headway.joint.memory import StoryTensors

WORDS = ("anna", "boris", "garden", "office", "to", "went", "where")
CONFIG = MemoryConfig(
    source=StoryConfig(words=WORDS, memories=6, longest=5), labels=("garden", "north,west", "office"), width=8, n_hops=2
)
SENTENCES = torch.tensor([[0, 0, 0, 0], [1, 6, 5, 3], [2, 6, 5, 4], [7, 1, 0, 0], [7, 0, 0, 0]])
STORIES = StoryTensors(SENTENCES, torch.tensor([[2, 1, 0], [1, 0, 0], [1, 0, 2]]))
ASKED = torch.tensor([3, 4, 3])


def network(**changes: Any) -> MemoryNetwork:
    model = make_model(replace(CONFIG, **changes))
    assert isinstance(model, MemoryNetwork)
    with torch.no_grad():
        for weight in (model.words, model.times):
            if weight is not None:
                weight.mul_(5)
    return model.eval()


def plainly(model: MemoryNetwork, asked: int, memories: list[int]) -> tuple[Tensor, list[Tensor]]:
    """Logits of one question and the weights of its hops, written as the paper has them."""
    config = model.config
    tables = model.words.unflatten(1, (config.tables, -1)).transpose(0, 1)
    times = None if model.times is None else model.times.unflatten(1, (config.tables, -1)).transpose(0, 1)

    def vector(table: int, sentence: int) -> Tensor:
        words = [word for word in SENTENCES[sentence].tolist() if word]
        total = torch.zeros(config.width)
        for j, word in enumerate(words, start=1):
            for k in range(config.width):
                share = (1 - j / len(words)) - (k + 1) / config.width * (1 - 2 * j / len(words))
                total[k] += (share if config.position_encoding else 1.0) * tables[table][word][k]
        return total

    def remembered(table: int) -> Tensor:
        rows = [vector(table, s) + (0 if times is None else times[table][age]) for age, s in enumerate(memories) if s]
        return torch.stack(rows)

    adjacent, weights = config.tying == "adjacent", []
    state = vector(0 if adjacent else 2, asked)
    for hop in range(config.n_hops):
        keys, values = (remembered(hop), remembered(hop + 1)) if adjacent else (remembered(0), remembered(1))
        weights.append((keys @ state).softmax(0))
        state = weights[-1] @ values + (state if model.between is None else model.between(state))
        half = round(config.relu * config.width)
        state = torch.cat([state[:half].relu(), state[half:]])
    if model.answers is not None:
        return model.answers @ state, weights
    last = tables[-1]
    return torch.stack([last[row] @ state for row in config.answer_rows]), weights


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tying": "layerwise"},
        {"tying": "layerwise", "relu": 0.5, "n_hops": 3},
        {"position_encoding": False},
        {"temporal_encoding": False, "relu": 1.0},
    ],
)
@torch.no_grad()
def test_the_network_is_its_definition(changes: dict[str, Any]) -> None:
    model, seen = network(**changes), dict[str, Tensor]()
    output = model(ASKED, stories=STORIES, hook=lambda name, make: seen.update({name: make()}))
    logits = model.label_logits(output)
    for row, memories in enumerate(STORIES.memories.tolist()):
        expected, weights = plainly(model, int(ASKED[row]), memories)
        assert torch.allclose(logits[row], expected, atol=1e-5)
        for hop, own in enumerate(weights):
            given = seen[f"hops.{hop}.weights"][row]
            assert torch.allclose(given[given > 0], own, atol=1e-6)


def test_answers_that_are_words_share_their_rows() -> None:
    assert CONFIG.answer_rows == (3, 8, 4) and CONFIG.n_rows == 9 and CONFIG.tables == 3
    model = network()
    model.label_logits(model(ASKED, stories=STORIES)).sum().backward()
    assert model.words.grad is not None
    assert not model.words.grad[0].any() and model.words.grad[8].any() and model.words.shape == (9, 3 * 8)


@torch.no_grad()
def test_before_the_softmax_weights_are_the_scores_themselves() -> None:
    model, seen = network(linear_start=True), list[Tensor]()
    assert model.linear is not None and model.linear.item() == LOWEST
    model(ASKED, stories=STORIES, hook=lambda name, make: seen.append(make()))
    keys = model.sentence_vectors(SENTENCES)[:, :8]
    assert model.times is not None
    expected = (keys[2] + model.times[0, :8]) @ keys[3]
    assert seen[0][0, 0] == pytest.approx(expected.item(), rel=1e-4) and seen[0][0, 2] == 0
    model.linear.zero_()
    model(ASKED, stories=STORIES, hook=lambda name, make: seen.append(make()))
    assert torch.allclose(seen[2].sum(1), torch.ones(3))


def test_the_mark_of_linear_start_gets_no_gradient() -> None:
    model = network(linear_start=True)
    model.label_logits(model(ASKED, stories=STORIES)).sum().backward()
    assert model.linear is not None and model.linear.grad is None


@torch.no_grad()
def test_order_of_words_and_of_sentences_matters_only_where_it_is_encoded() -> None:
    turned = StoryTensors(SENTENCES[:, [2, 1, 0, 3]], STORIES.memories)
    swapped = StoryTensors(SENTENCES, STORIES.memories[:, [1, 0, 2]])
    for changes, other, same in (
        ({}, turned, False),
        ({"position_encoding": False}, turned, True),
        ({}, swapped, False),
        ({"temporal_encoding": False}, swapped, True),
    ):
        model = network(**changes)
        found = [
            model.label_logits(model(ASKED[:1], stories=StoryTensors(s.sentences, s.memories[:1])))
            for s in (STORIES, other)
        ]
        assert torch.allclose(*found, atol=1e-6) == same


def test_a_config_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"source\.words is empty"):
        StoryConfig(words=(), memories=1, longest=1)
    with pytest.raises(ConfigError, match="labels is empty"):
        replace(CONFIG, labels=())
    with pytest.raises(ConfigError, match="n_hops"):
        replace(CONFIG, n_hops=0)
