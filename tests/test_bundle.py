"""A bundle in conversation: what was read of it is held, and no word changes by that."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from headway.api import Bundle, load
from headway.data.vocabulary import train_tokenizer
from headway.errors import DataError
from headway.generate.sampling import Sampling
from headway.inspection.choices import ChoicesConfig
from headway.model.model import Model
from headway.presets import gpt2

CHATML = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture
def bundle() -> Bundle:
    torch.manual_seed(0)
    tokenizer = train_tokenizer("bytes", ["abc"])
    tokenizer.config["chat_template"] = CHATML
    model = Model(gpt2(2, 16, 2, vocab=256, length=128)).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return Bundle("tiny", model, tokenizer, None)


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(seed=3, temperature=1.5)])
def test_turns_are_as_if_read_anew(bundle: Bundle, monkeypatch: pytest.MonkeyPatch, sampling: Sampling) -> None:
    passes: list[int] = []
    whole = Model.extend

    def extend(self: Model, cache: Any, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        passes.append(ids.shape[1])
        return whole(self, cache, ids, keep)

    monkeypatch.setattr(Model, "extend", extend)
    messages: list[dict[str, str]] = []
    for line, first in (("hello", 23), ("again", None), ("and more", None)):
        messages.append({"role": "user", "content": line})
        alone = "".join(bundle.reply(messages, 6, sampling, by=bundle.model))
        anew = passes[0]
        passes.clear()
        assert "".join(bundle.reply(messages, 6, sampling)) == alone
        assert passes[0] == anew == first if first else passes[0] < anew - 20
        passes.clear()
        messages.append({"role": "assistant", "content": "a fixed answer"})


def test_a_draft_needs_the_same_tokenizer(bundle: Bundle) -> None:
    other = Bundle("other", bundle.model, train_tokenizer("bpe", ["ab ab ab"], 258), None)
    with pytest.raises(DataError, match="other cannot guess for tiny"):
        bundle.speculation(other, Sampling())
    made = bundle.speculation(bundle, Sampling(seed=1), ahead=2)
    assert "".join(bundle.stream("ab", 10, Sampling(seed=1), by=made)) == "".join(
        bundle.stream("ab", 10, Sampling(seed=1))
    )
    assert made.taken == made.guessed == 6


def test_choices_are_only_asked_of_what_writes(bundle: Bundle) -> None:
    with pytest.raises(DataError, match="does not write text"):
        load("bert-tiny").choices(ChoicesConfig(data="x.jsonl"))
