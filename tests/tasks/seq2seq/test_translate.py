"""Texts turned into others: many as one by one, as `transformers` does, long ones in sentences; and aligned words."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.api import Bundle, load
from headway.config.presets import gpt2
from headway.config.recipe import DataConfig, ShapeConfig
from headway.data.files.rows import BadRows
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.generate.beam.search import Beam, beam_search
from headway.generate.protocol import Source
from headway.hub.folder import save_model
from headway.model.model import Transformer
from headway.tasks.recipe import Recipe
from headway.tasks.seq2seq.task import Settings as Seq2SeqConfig
from headway.tasks.seq2seq.training import pair_tokenizer, read_pairs
from headway.tasks.seq2seq.translate import Translation, align, beam_for, recipe_of, translate, with_best, word_weights

TEXTS = ["A dog sees the king.", "The red horses did not help some old teachers in the garden.", "x", "A cat likes it"]
SHAPE = ShapeConfig(depth=2, width=32, heads=2, norm_at="post", positions="sinusoidal", activation="relu")


def recipe(**settings: Any) -> Recipe:
    return Recipe(task="seq2seq", data=DataConfig(tokenizer="bpe", vocab=300, length=16), model=SHAPE,
                  settings=Seq2SeqConfig(**settings))  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Tokenizer]:
    """A tiny model that has learnt nothing, but does not say the same of everything."""
    from headway.config.model import SpecialTokens
    from headway.config.shape import seq2seq_config

    pairs = read_pairs("", recipe(), BadRows())[:200]
    tokenizer = pair_tokenizer(tmp_path_factory.mktemp("tokens"), recipe(), pairs)
    torch.manual_seed(1)
    special = SpecialTokens(pad=0, bos=1, eos=2, start=1)
    model = Transformer(replace(seq2seq_config(SHAPE, tokenizer.vocab_size, 16), special=special)).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model, tokenizer


def test_many_are_as_one_by_one(made: tuple[Transformer, Tokenizer]) -> None:
    settings, beam = recipe(), Beam(width=3, n_best=2, max_tokens=9)
    together = translate(*made, TEXTS, settings, beam)
    for text, found in zip(TEXTS, together, strict=True):
        (alone,) = translate(*made, [text], settings, beam)
        assert [w.text for w in alone] == [w.text for w in found] and len(found) == 2
        assert [w.score for w in alone] == pytest.approx([w.score for w in found], abs=1e-5)
        assert found[0].score >= found[1].score
    assert len({found[0].text for found in together}) > 1
    assert translate(*made, [], settings) == []


def test_it_is_the_search_on_what_the_tokenizer_gives(made: tuple[Transformer, Tokenizer]) -> None:
    model, tokenizer = made
    settings = recipe(beam=3, max_new_tokens=7, length_penalty=0.5, prefix="say: ")
    assert beam_for(settings) == Beam(width=3, max_tokens=7, length_penalty=0.5)
    assert beam_for(recipe(min_new_tokens=4, no_repeat_ngram_size=2)) == Beam(max_tokens=16, min_tokens=4, no_repeat=2)
    ids = tokenizer.encode("say: A dog").ids
    assert ids[-1] == tokenizer.special["eos"]
    expected = beam_search(model, beam_for(settings), source=Source(torch.tensor([ids])))[0][0]
    found = translate(model, tokenizer, ["A dog"], settings)[0][0]
    assert found.parts == (("A dog", tuple(expected.tokens)),)
    assert found.text == tokenizer.decode(expected.tokens).strip()


def test_a_long_text_is_split_and_joined(made: tuple[Transformer, Tokenizer]) -> None:
    first, second, third = "A dog sees the king.", "The cat likes it!", "No."
    text = f"{first} {second}\n\n{third}"
    settings = recipe()
    assert len(made[1].encode(text).ids) > 16
    each = [translate(*made, [part], settings)[0][0] for part in (first, second, third)]
    (found,) = translate(*made, [text], settings)
    assert found[0].text == f"{each[0].text} {each[1].text}\n\n{each[2].text}".strip()
    assert found[0].score == pytest.approx(sum(w.score for w in each) / 3, abs=1e-5)
    assert [part for part, _ in found[0].parts] == [first, second, third]
    for how, count in (("never", 1), ("always", 3), ("long", 3)):
        assert len(translate(*made, [text], recipe(split=how))[0][0].parts) == count
    assert len(translate(*made, [f"{third} {third}"], settings)[0][0].parts) == 1  # it fits
    assert len(translate(*made, [f"{third} {third}"], recipe(split="always"))[0][0].parts) == 2
    for known, count in ((1, 2), (2, 1)):  # sentences at one time that it has learned from
        assert len(translate(*made, [f"{third} {third}"], recipe(sentences=known))[0][0].parts) == count
        assert len(translate(*made, [f"{third} {third}"], recipe(sentences=known, split="never"))[0][0].parts) == 1
    for empty in ("", " \n"):
        with pytest.raises(DataError, match="empty"):
            translate(*made, [empty], settings)


def test_more_hypotheses_need_more_beams() -> None:
    assert with_best(Beam(width=2), 5) == Beam(width=5, n_best=5)
    assert with_best(Beam(width=4), 2) == Beam(width=4, n_best=2)


def test_a_model_of_another_kind_is_refused(made: tuple[Transformer, Tokenizer]) -> None:
    with pytest.raises(DataError, match="does not turn"):
        translate(Transformer(gpt2(1, 16, 2, vocab=300, length=16)), made[1], ["a"], recipe())


@pytest.mark.parametrize("prefix", ["", "go:"])
def test_weights_of_words_are_the_map_summed_by_words(made: tuple[Transformer, Tokenizer], prefix: str) -> None:
    """Against attention maps taken by their own function, words found by hand."""
    from headway.checks.attention_maps import attention_maps

    model, tokenizer = made
    text, words = "The kings did", ["The", " kings", " did"]
    said = tokenizer.encode("kova sa.").ids
    pieces = [tokenizer.encode(word, special=False).ids for word in words]
    ids, skip = tokenizer.encode(prefix + text).ids, len(tokenizer.encode(prefix, special=False).ids)
    assert ids == [*tokenizer.encode(prefix, special=False).ids, *chain(*pieces), 2]
    maps = attention_maps(model, torch.tensor([ids]), torch.tensor([[1, *said[:-1]]]), layers=[0])
    weights = maps["decoder.blocks.0.cross"][0].mean(0)
    first = len(tokenizer.encode("kova", special=False).ids)
    expected = torch.zeros(2, 3)
    for i in range(len(said) - 1):
        at = skip
        for word, part in enumerate(pieces):
            expected[int(i >= first), word] += weights[i, at : at + len(part)].sum()
            at += len(part)
    expected /= expected.sum(1, keepdim=True)
    found = word_weights(model, tokenizer, prefix, text, said, None)
    assert torch.allclose(found, expected, atol=1e-6)


def test_an_alignment_counts_words_over_sentences(made: tuple[Transformer, Tokenizer]) -> None:
    model, tokenizer = made
    (found,) = translate(*made, ["A dog sees the king. The cat likes it!"], recipe(split="always"))
    aligned = align(model, tokenizer, found[0], recipe())
    assert aligned.source == ["A", "dog", "sees", "the", "king.", "The", "cat", "likes", "it!"]
    assert " ".join(aligned.target) == " ".join(found[0].text.split())
    count = len(tokenizer.decode(list(found[0].parts[0][1])).split())
    assert [i for i, _, _ in aligned.links] == list(range(len(aligned.target)))
    assert all(j < 5 if i < count else 5 <= j < 9 for i, j, _ in aligned.links)
    assert all(0 < share <= 1 for *_, share in aligned.links)
    assert align(model, tokenizer, Translation("", 0.0, (("A dog", (2,)),)), recipe()).links == []


def test_a_folder_of_marian_as_transformers_has_it(made: tuple[Transformer, Tokenizer], tmp_path: Path) -> None:
    """A run's folder opens in `transformers` and says the same there, by a file of its own settings."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    model, tokenizer = made
    folder = save_model(model, tmp_path / "model", tokenizer)
    said = {"num_beams": 3, "max_length": 9, "length_penalty": 0.7, "bad_words_ids": [[0], [70]]}
    said |= {"forced_eos_token_id": 2, "min_length": 4, "no_repeat_ngram_size": 2}
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **said}))
    oracle = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert type(oracle).__name__ == "MarianMTModel"
    bundle = load(folder)
    assert isinstance(bundle, Bundle)
    settings = recipe_of(bundle.model, folder)
    rules: dict[str, Any] = {"last": 2, "banned": ((0,), (70,))}
    assert beam_for(settings) == Beam(width=3, length_penalty=0.7, max_tokens=8, min_tokens=3, no_repeat=2, **rules)
    batch = theirs(TEXTS, return_tensors="pt", padding=True)
    out = oracle.generate(**batch, do_sample=False)
    assert bundle.translate(TEXTS) == [t.strip() for t in theirs.batch_decode(out, skip_special_tokens=True)]
    assert bundle.translate(TEXTS[0]) == bundle.translate(TEXTS)[0]
    best = bundle.hypotheses(TEXTS[:1], Beam(width=2, n_best=2, max_tokens=5))[0]
    assert len(best) == 2 and best[0].score >= best[1].score


def test_a_run_knows_how_it_writes(made: tuple[Transformer, Tokenizer]) -> None:
    own = recipe(beam=7)
    assert recipe_of(made[0], None, own) is own
    other = recipe_of(made[0], None, Recipe())
    assert (other.task, other.settings.beam, other.settings.max_new_tokens) == ("seq2seq", 1, 512)
