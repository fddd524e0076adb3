"""`headway check` of models of stories: it passes for right ones, and sees a wrong path."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headway.baselines.build import make_model
from headway.baselines.memory import MemoryNetwork
from headway.checks.equivalence.result import MEANINGS
from headway.checks.equivalence.suite import check_model
from headway.config.model import ClassifyHeadConfig, StackConfig
from headway.config.networks.memory import MemoryConfig, StoryConfig
from headway.joint.memory import StoryTransformer
from headway.model.model import Model

SOURCE = StoryConfig(words=tuple("abcdefghij"), memories=12, longest=6)
LABELS = ("a", "b", "c d")


def model(network: str = "memory") -> Model:
    if network == "memory":
        made = make_model(MemoryConfig(source=SOURCE, labels=LABELS, width=16))
    else:
        stack = StackConfig(d_model=16, n_layers=2, n_heads=2, d_ff=32)
        head = ClassifyHeadConfig(labels=3)
        made = make_model(MemoryConfig(source=SOURCE, labels=LABELS, width=16, encoder=stack, classify=head))
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return made


@pytest.mark.parametrize("network", ["memory", "transformer"])
def test_a_right_model_passes(network: str) -> None:
    results = list(check_model(model(network), compiled=False))
    assert all(result.ok for result in results) and {result.name for result in results} <= MEANINGS.keys()
    skipped = [result.name for result in results if result.difference is None]
    assert skipped == ([] if network == "memory" else ["sentences = words", "hops sum to 1"])


def failures(made: Model) -> set[str]:
    return {result.name for result in check_model(made, compiled=False) if not result.ok}


def test_attention_to_padding_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryNetwork, "weights", lambda self, scores, absent: scores.softmax(1))
    assert failures(model()) == {"batch = single", "padded = unpadded", "hops sum to 1"}


def test_wrong_weights_of_words_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = MemoryNetwork.sentence_vectors

    def wrong(self: MemoryNetwork, sentences: Tensor) -> Tensor:
        return right(self, sentences.flip(1))

    monkeypatch.setattr(MemoryNetwork, "sentence_vectors", wrong)
    assert "sentences = words" in failures(model())


def test_a_transformer_that_reads_padding_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = StoryTransformer.forward

    def wrong(self: StoryTransformer, inputs: Tensor, *rest: object, stories: object, **more: object) -> object:
        return right(self, inputs, stories=stories._replace(tokens=stories.tokens.clamp(min=0)))  # type: ignore[attr-defined]

    monkeypatch.setattr(StoryTransformer, "forward", wrong)
    assert failures(model("transformer")) == {"batch = single", "padded = unpadded"}
