"""Blanks and pseudo-perplexity: batched answers against one text, one blank, all scores at a time."""

from __future__ import annotations

import pytest
import torch

from headway.config.presets import bert, gpt2
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DataError
from headway.model.model import Transformer
from headway.tasks.masked_lm.fill import fill_all, pseudo_perplexity

TOKENIZER = train_tokenizer(
    "wordpiece", ["the small dog barked at the other dog, which was not small at all. " * 3], 80
)
TEXTS = [
    "the [MASK] dog",
    "[MASK] was at the other [MASK], which was not the [MASK] dog at all.",
    "a [MASK]",
    "at all [MASK] small dog barked at the other dog, which was not small",
]


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    model = Transformer(bert(2, 32, 2, vocab=TOKENIZER.vocab_size, length=40)).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model


@torch.no_grad()
def test_blanks_are_filled_as_one_by_one(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.tasks.masked_lm.fill.inference_batch_tokens", lambda device: 40)  # more than one batch
    for text, found in zip(TEXTS, fill_all(model, TOKENIZER, TEXTS, top=3), strict=True):
        ids = torch.tensor([TOKENIZER.encode(text).ids])
        likely = model.logits(model(ids))["lm"][0].softmax(-1)
        places = (ids[0] == TOKENIZER.special["mask"]).nonzero()[:, 0].tolist()
        assert len(places) == len(found.blanks) == text.count("[MASK]")
        for place, blank in zip(places, found.blanks, strict=True):
            best, tokens = likely[place].topk(3)
            assert [p for _, p in blank.choices] == pytest.approx(best.tolist(), abs=1e-5)
            assert [name for name, _ in blank.choices] == [
                TOKENIZER.decode([int(i)]) or name for i, (name, _) in zip(tokens, blank.choices, strict=True)
            ]
            assert text[slice(*blank.span)] == "[MASK]"
        rest = text
        for blank in found.blanks:
            rest = rest.replace("[MASK]", blank.choices[0][0].removeprefix("##"), 1)
        assert found.best == rest and found.text == text
    assert fill_all(model, TOKENIZER, []) == []


def test_a_blank_may_be_written_either_way(model: Transformer) -> None:
    other = train_tokenizer("bpe", ["a small dog " * 9], 280, special=("<s>", "</s>", "<pad>", "<mask>"))
    assert other.special["mask"] == 3
    small = Transformer(bert(1, 16, 2, vocab=other.vocab_size, length=20)).eval()
    ours, theirs = (fill_all(small, other, [f"a {mask} dog"])[0].blanks for mask in ("[MASK]", "<mask>"))
    assert len(ours) == 1 and ours[0].choices == theirs[0].choices


@torch.no_grad()
def test_pseudo_perplexity_is_that_of_each_token_hidden_alone(model: Transformer) -> None:
    texts = ["the dog", "small", "the small dog barked at the other dog.", "which was not unseen"]
    found = pseudo_perplexity(model, TOKENIZER, texts)
    for text, scored in zip(texts, found, strict=True):
        ids = torch.tensor([TOKENIZER.encode(text).ids])
        total = 0.0
        for place in range(1, ids.shape[1] - 1):
            hidden = ids.clone()
            hidden[0, place] = TOKENIZER.special["mask"]
            total += float(model.logits(model(hidden))["lm"][0, place].log_softmax(-1)[ids[0, place]])
        assert scored.text == text and scored.tokens == ids.shape[1] - 2
        assert scored.log_probability == pytest.approx(total, rel=1e-5)
        assert scored.perplexity == pytest.approx(torch.tensor(-total / scored.tokens).exp().item(), rel=1e-5)
    assert pseudo_perplexity(model, TOKENIZER, []) == []


def test_what_cannot_be_done_is_said(model: Transformer) -> None:
    with pytest.raises(DataError, match=r"no \[MASK\] in 'the dog'"):
        fill_all(model, TOKENIZER, ["the dog"])
    with pytest.raises(DataError, match="has 52 tokens, the model reads 40"):
        fill_all(model, TOKENIZER, ["[MASK] " * 50])
    with pytest.raises(DataError, match="has 52 tokens, the model reads 40"):
        pseudo_perplexity(model, TOKENIZER, ["dog " * 50])
    with pytest.raises(DataError, match="has no token to predict"):
        pseudo_perplexity(model, TOKENIZER, [""])
    with pytest.raises(DataError, match="no head for masked words"):
        fill_all(Transformer(gpt2(1, 16, 1, vocab=80, length=8)), TOKENIZER, ["[MASK]"])
    with pytest.raises(DataError, match=r"the tokenizer has no \[MASK\]"):
        fill_all(model, train_tokenizer("bytes", []), ["[MASK]"])
