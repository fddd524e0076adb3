"""A bundle: conversations with a kept KV cache, speculative decoding, predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch import Tensor

from headway.api import Bundle, load
from headway.checks.choices import ChoicesConfig
from headway.config.model import ClassifyHeadConfig, SpanHeadConfig, TagHeadConfig
from headway.config.presets import bert, gpt2
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError
from headway.generate.sampling.sampler import Sampling
from headway.hub.folder import save_model
from headway.model.model import Transformer

CHATML = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture
def bundle() -> Bundle:
    torch.manual_seed(0)
    tokenizer = train_tokenizer("bytes", ["abc"])
    tokenizer.config["chat_template"] = CHATML
    model = Transformer(gpt2(2, 16, 2, vocab=256, length=128)).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return Bundle("tiny", model, tokenizer, None)


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(seed=3, temperature=1.5)])
def test_turns_are_as_if_read_anew(bundle: Bundle, monkeypatch: pytest.MonkeyPatch, sampling: Sampling) -> None:
    passes: list[int] = []
    whole = Transformer.extend

    def extend(self: Transformer, cache: Any, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        passes.append(ids.shape[1])
        return whole(self, cache, ids, attention_mask)

    monkeypatch.setattr(Transformer, "extend", extend)
    messages: list[dict[str, str]] = []
    for line, first in (("hello", 23), ("again", None), ("and more", None)):
        messages.append({"role": "user", "content": line})
        alone = "".join(bundle.chat(messages, 6, sampling, by=bundle.model))
        anew = passes[0]
        passes.clear()
        assert "".join(bundle.chat(messages, 6, sampling)) == alone
        assert passes[0] == anew == first if first else passes[0] < anew - 20
        passes.clear()
        messages.append({"role": "assistant", "content": "a fixed answer"})


def test_a_draft_needs_the_same_tokenizer(bundle: Bundle) -> None:
    other = Bundle("other", bundle.model, train_tokenizer("bpe", ["ab ab ab"], 258), None)
    with pytest.raises(DataError, match="D001"):
        bundle.speculation(other, Sampling())
    made = bundle.speculation(bundle, Sampling(seed=1), ahead=2)
    assert "".join(bundle.stream("ab", 10, Sampling(seed=1), by=made)) == "".join(
        bundle.stream("ab", 10, Sampling(seed=1))
    )
    assert made.accepted == made.drafted == 6


def test_choices_are_only_asked_of_what_writes(bundle: Bundle) -> None:
    with pytest.raises(DataError, match="D001"):
        load("bert-tiny").choices(ChoicesConfig(data="x.jsonl"))


def test_a_model_does_what_it_has_a_head_for() -> None:
    """The methods are those of the tasks; a text alone is one text, not as many as it has letters."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer("wordpiece", ["anna lives in oslo " * 9], 60)
    base = bert(1, 16, 2, vocab=len(tokenizer), length=24)
    head = ClassifyHeadConfig(labels=2)
    every = Transformer(
        replace(base, nsp=None, classify=head, tag=TagHeadConfig(labels=2), span=SpanHeadConfig())
    ).eval()
    every.config = replace(every.config, labels=("O", "X"))
    made = Bundle("all", every, tokenizer, None)
    texts = ["anna lives", "oslo"]
    assert made.classify("anna lives") == made.classify(["anna lives"])[0] and len(made.classify(texts)) == 2
    assert made.classify("anna", "oslo") != made.classify("anna") and made.classify(texts, texts)[0].label in "OX"
    assert made.tag("anna lives") == made.tag(["anna lives"])[0] and len(made.tag([["anna", "lives"], "oslo"])) == 2
    assert made.answer("where", "anna lives in oslo")[0].score > 0
    assert len(made.fill("anna [MASK]", top=3).blanks[0].choices) == 3
    assert torch.equal(made.embed("oslo"), made.embed(["oslo"])[0]) and made.embed([]).shape == (0, 16)
    assert not torch.allclose(made.embed("oslo"), made.embed("oslo", pool="first"))
    assert [near.text for near in made.nearest("oslo", texts, k=1)] == ["oslo"]
    assert made.predict("anna lives") == made.classify("anna lives").to_dict() == made.predict(["anna lives"])[0]
    assert len(made.predict("anna [MASK]", task="fill", top=3)["blanks"][0]["choices"]) == 3
    asked = {"input": "where", "context": "anna lives in oslo"}
    assert made.predict(asked, task="answer", top=1)["best"] == [
        made.answer("where", "anna lives in oslo")[0].to_dict()
    ]
    with pytest.raises(ConfigError, match=r"C014.*tops.*did you mean"):
        made.predict("anna [MASK]", task="mlm", tops=3)
    with pytest.raises(DataError, match=r"(?s)cannot do forecast.*it can do classify, tag"):
        made.predict("anna", task="forecast")
    with pytest.raises(DataError, match="does not answer questions"):
        Bundle("none", Transformer(base), tokenizer, None).answer("where", "anna")


def test_texts_are_written_as_if_alone(bundle: Bundle) -> None:
    sampling = Sampling(seed=5, max_tokens=8)
    found = bundle.generate(["abc", "x", ""], sampling)
    assert found == ["".join(bundle.stream(text, 8, sampling)) for text in ("abc", "x", "")] and len(set(found)) > 1
    assert bundle.generate([], sampling) == []


def test_vectors_are_pooled_as_trained(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("wordpiece", ["anna lives in oslo " * 9], 60)
    torch.manual_seed(0)
    model = Transformer(replace(bert(1, 16, 2, vocab=len(tokenizer), length=24), nsp=None, lm=None)).eval()
    folder = save_model(model, tmp_path / "m", tokenizer)
    plain = load(folder)
    assert plain.recipe is None and torch.equal(plain.embed("anna lives"), plain.embed("anna lives", "mean"))
    (folder / "run").mkdir()
    (folder / "run" / "recipe.toml").write_text('task = "embed"\n[train]\nsteps = 1\n[embed]\npool = "first"\n')
    trained = load(folder)
    assert trained.recipe is not None and trained.recipe.task == "embed"
    assert torch.equal(trained.embed("anna lives"), plain.embed("anna lives", "first"))
    assert trained.nearest("anna", ["oslo", "anna"], 1)[0].text == "anna"


def test_keywords_are_fields_of_sampling(bundle: Bundle) -> None:
    by_object = bundle.generate(["abc"], Sampling(temperature=1.5, seed=3, max_tokens=6))
    assert bundle.generate("abc", temperature=1.5, seed=3, max_tokens=6) == by_object[0]
    assert bundle.generate(["abc", "x"], temperature=1.5, seed=3, max_tokens=6)[0] == by_object[0]
    assert bundle.stream("abc", temperature=1.5, seed=3, max_tokens=6).text == by_object[0]
    assert bundle.generate("abc", temperature=np.float64(1.5), seed=np.int64(3), max_tokens=6) == by_object[0]
    greedy = "".join(bundle.chat("hello", temperature=0, max_tokens=6))
    assert greedy == str(bundle.chat([{"role": "user", "content": "hello"}], 6, Sampling(temperature=0.0)))
    assert [each.text for each in bundle.beams("ab", width=2, n_best=2, max_tokens=3)] == [
        text for text, _ in bundle.beams("ab", bundle.beam(width=2, n_best=2, max_tokens=3))
    ]


@pytest.mark.parametrize("verb", ["generate", "stream", "chat", "beams"])
def test_an_unknown_keyword_names_the_nearest(bundle: Bundle, verb: str) -> None:
    with pytest.raises(ConfigError, match=r'C014.*temprature.*"temperature"|C014.*max_token.*"max_tokens"'):
        getattr(bundle, verb)("ab", **{"max_token" if verb == "beams" else "temprature": 1})
    with pytest.raises(ConfigError, match="C004"):
        settings = bundle.beam() if verb == "beams" else bundle.sampling()
        getattr(bundle, verb)("ab", **{"beam" if verb == "beams" else "sampling": settings}, max_tokens=3)


def test_text_can_be_taken_whole_or_piece_by_piece(bundle: Bundle) -> None:
    pieces = bundle.stream("abc", 8, Sampling(seed=5))
    first = next(pieces)
    assert repr(first) in repr(pieces) and str(pieces).startswith(first) and pieces.text == str(pieces)
    assert pieces.text == bundle.generate("abc", seed=5, max_tokens=8)


@pytest.mark.parametrize("wrong", [None, 3, b"abc", {"a": 1}, ["a", None], ["a", ["b"]], Path("a")])
def test_what_is_no_text_is_refused(bundle: Bundle, wrong: Any) -> None:
    classifier = load("bert-tiny")
    for call in (bundle.generate, bundle.score, classifier.embed, classifier.classify, classifier.fill):
        with pytest.raises(DataError, match="D001"):
            call(wrong)
    for call in (bundle.stream, bundle.beams, lambda text: classifier.nearest(text, ["a"])):
        with pytest.raises(DataError, match="D001"):
            call(wrong)
    with pytest.raises(DataError, match="D001"):
        classifier.nearest("a", wrong)


def test_a_text_is_never_taken_letter_by_letter(bundle: Bundle) -> None:
    assert bundle.score("abc") == bundle.score(["abc"])[0] and bundle.score("abc").text == "abc"
    assert bundle.score(pandas.Series(["ab", "abc"])) == bundle.score(["ab", "abc"])


def test_a_bundle_is_one_line(bundle: Bundle) -> None:
    assert repr(bundle) == "Bundle('tiny', lm, 0.01M parameters, cpu)"
    assert "\n" not in repr(load("vit-tiny"))
