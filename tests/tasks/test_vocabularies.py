"""A translator whose two sides have a vocabulary each: trained, saved, used, and as `transformers` has it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.api import load
from headway.baselines.build import make_model
from headway.checks.attention_maps import attention_maps
from headway.config.model import SpecialTokens
from headway.config.recipe import DataConfig, ShapeConfig
from headway.data.batching.packing import IGNORE
from headway.data.tokenizers.tokenizer import TARGET_FILE, Tokenizer, load_tokenizer
from headway.errors import ConfigError, DataError, NotFoundError
from headway.generate.beam.search import Beam, beam_search
from headway.generate.protocol import Source
from headway.hub.folder import load_model, save_model
from headway.model.model import Model
from headway.tasks.recipe import Recipe, load_recipe, with_settings
from headway.tasks.seq2seq.task import Settings as Seq2SeqConfig
from headway.tasks.seq2seq.training import Seq2SeqTraining
from headway.tasks.seq2seq.translate import align, translate, with_best, word_weights
from headway.tasks.training import TaskContext
from headway.train.run import start, train

SHAPE = ShapeConfig(depth=1, width=32, heads=2, norm_at="post", positions="sinusoidal", activation="relu")
TEXTS = ["A dog sees the king.", "The red horses did not help some old teachers."]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.tasks.seq2seq.training.GENERATED", 60)


def recipe(kind: Any = "words", **fields: Any) -> Recipe:
    """Words: how many each side has is its own affair."""
    data = DataConfig(tokenizer=kind, vocab=300 if kind == "bpe" else 0, length=96)
    return Recipe(task="seq2seq", seed=3, data=data, model=SHAPE,
                  settings=Seq2SeqConfig(vocabulary="separate", max_new_tokens=6, **fields))  # fmt: skip


def prepared(folder: Path, settings: Recipe | None = None) -> Seq2SeqTraining:
    return Seq2SeqTraining.prepare(TaskContext(settings or recipe(), folder / "tokens"))


def model_of(task: Seq2SeqTraining) -> Model:
    torch.manual_seed(0)
    model = make_model(task.config(None)).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def test_each_side_has_a_tokenizer_of_its_own_words(tmp_path: Path) -> None:
    task = prepared(tmp_path)
    reads, writes = task.tokenizer, task.tokenizer.target
    assert writes is not reads and writes.target is writes
    read, written = (set(side.backend.get_vocab()) for side in (reads, writes))
    assert any("dog" in word for word in read) and not any("dog" in word for word in written)
    assert any("kova" in word for word in written) and not any("kova" in word for word in read)
    assert reads.vocab_size != writes.vocab_size and task.facts["vocab"] == writes.vocab_size
    assert reads.special == writes.special
    assert task.config(None).special == SpecialTokens(**{role: writes.special[role] for role in ("pad", "bos", "eos")},
                                                      start=writes.special["bos"])  # fmt: skip
    shared = prepared(tmp_path / "b", with_settings(recipe(), {"seq2seq": {"vocabulary": "shared"}}))
    assert shared.tokenizer.target is shared.tokenizer and not (tmp_path / "b" / "tokens" / TARGET_FILE).exists()
    assert shared.tokenizer.vocab_size == len(read | written)
    again = prepared(tmp_path)  # as its folder has them
    assert again.tokenizer.target.backend.to_str() == writes.backend.to_str()


@pytest.mark.parametrize(("kind", "dropout"), [("words", 0.0), ("bpe", 0.0), ("bpe", 0.3)])
def test_a_batch_is_read_by_one_and_written_by_the_other(tmp_path: Path, kind: str, dropout: float) -> None:
    task = prepared(tmp_path, recipe(kind, bpe_dropout=dropout, prefix="the "))
    rows = task.plan(4).samples(0)
    source, attention_mask, inputs, targets = task.batch(rows).tensors
    assert source is not None and attention_mask is not None and inputs is not None and targets is not None
    texts = {(task.recipe.settings.prefix + pair.source, pair.targets[0]) for pair in task.train.pairs}
    reads, writes = task.tokenizer, task.tokenizer.target
    for i in range(4):
        pair = (
            reads.decode(source[i][attention_mask[i]].tolist()),
            writes.decode(targets[i][targets[i] != IGNORE].tolist()),
        )
        assert tuple(side.strip() for side in pair) in texts
        assert inputs[i, 0] == task.start == writes.special["bos"]
        assert targets[i][targets[i] != IGNORE][-1] == writes.special["eos"]


def test_the_model_is_marian_with_a_table_for_each_side(tmp_path: Path) -> None:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    task = prepared(tmp_path)
    model, sizes = model_of(task), (task.tokenizer.vocab_size, task.tokenizer.target.vocab_size)
    config = model.config
    assert (config.source.vocab, config.target.vocab) == sizes and not config.shared_embedding  # type: ignore[union-attr]
    folder = save_model(model, tmp_path / "model", task.tokenizer)
    theirs = json.loads((folder / "config.json").read_text())
    assert theirs["architectures"] == ["MarianMTModel"] and not theirs["share_encoder_decoder_embeddings"]
    assert (theirs["vocab_size"], theirs["decoder_vocab_size"]) == sizes
    oracle = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    source, inputs = torch.randint(0, sizes[0], (2, 7)), torch.randint(0, sizes[1], (2, 5))
    with torch.no_grad():
        logits = oracle(input_ids=source, decoder_input_ids=inputs).logits
        assert logits.shape[-1] == sizes[1]
        for ours in (model, load_model(folder)):
            assert torch.allclose(ours.lm(ours(source, inputs).hidden), logits, atol=1e-4)
    reader = transformers.AutoTokenizer.from_pretrained(folder)  # that of the source: all that this class knows of
    assert reader(TEXTS[0])["input_ids"] == task.tokenizer.encode(TEXTS[0]).ids
    oracle.save_pretrained(tmp_path / "theirs")
    back = load_model(tmp_path / "theirs")
    with torch.no_grad():
        assert torch.allclose(back.lm(back(source, inputs).hidden), logits, atol=1e-4)


def test_a_recurrent_translator(tmp_path: Path) -> None:
    settings = with_settings(recipe(), {"model": {"kind": "gru", "attention": "dot"}})
    task = prepared(tmp_path, settings)
    model = model_of(task)
    folder = save_model(model, tmp_path / "model", task.tokenizer)
    assert len(model.source.table.weight) != len(model.target.table.weight) or model.source is not model.target
    again = load(folder)
    assert again.config.target.vocab == task.tokenizer.target.vocab_size  # type: ignore[union-attr]
    assert again.translate(TEXTS) == [w[0].text for w in translate(model, task.tokenizer, TEXTS, again_recipe(again))]


def again_recipe(bundle: Any) -> Recipe:
    from headway.tasks.seq2seq.translate import recipe_of

    return recipe_of(bundle.model, bundle.folder)


def test_what_is_written_is_spelt_by_the_target(tmp_path: Path) -> None:
    """Texts, n-best and alignments, with ids that the source's tokenizer would spell as other words."""
    task = prepared(tmp_path)
    model, tokenizer = model_of(task), task.tokenizer
    found = translate(model, tokenizer, TEXTS, task.recipe, with_best(Beam(width=3, max_tokens=6), 2))
    for text, best in zip(TEXTS, found, strict=True):
        ids = torch.tensor([tokenizer.encode(text).ids])
        slow = beam_search(model, Beam(width=3, n_best=2, max_tokens=6), source=Source(ids))[0]
        assert [w.text for w in best] == [tokenizer.target.decode(h.tokens).strip() for h in slow]
        assert best[0].text != tokenizer.decode(slow[0].tokens).strip()
        words = align(model, tokenizer, best[0], task.recipe)
        assert words.source == text.split() and words.target == best[0].text.split()
        assert [i for i, _, _ in words.links] == list(range(len(words.target)))


def test_words_are_aligned_by_the_pieces_of_both(tmp_path: Path) -> None:
    """Which pieces make a word is the target's to say, for what is written, and the source's for what is read."""
    task = prepared(tmp_path, recipe("bpe"))
    model, reads, writes = model_of(task), task.tokenizer, task.tokenizer.target
    said, text = writes.encode("kova sa dravo.").ids, "The red horses"
    words = [len(writes.encode(word, special=False).ids) for word in ("kova", " sa", " dravo.")]
    parts = [len(reads.encode(word, special=False).ids) for word in ("The", " red", " horses")]
    ids = reads.encode(text).ids
    assert (sum(words), sum(parts)) == (len(said) - 1, len(ids) - 1)
    maps = attention_maps(model, torch.tensor([ids]), torch.tensor([[task.start, *said[:-1]]]))
    weights = maps["decoder.blocks.0.cross"][0].mean(0)[:-1, :-1]
    blocks = [[cell.sum() for cell in row.split(parts, 1)] for row in weights.split(words)]
    expected = torch.tensor(blocks) / torch.tensor(blocks).sum(1, keepdim=True)
    assert torch.allclose(word_weights(model, reads, "", text, said, None), expected, atol=1e-6)


def test_a_run_and_a_second_one_from_it(tmp_path: Path) -> None:
    words = ["model.depth=1", "model.width=16", "model.heads=2", "train.steps=3", "train.batch=8", "train.eval_every=3",
             "seq2seq.eval_texts=3", "seq2seq.max_new_tokens=6", f"out={tmp_path}"]  # fmt: skip
    first = ["data.tokenizer=words", "data.vocab=0", "seq2seq.vocabulary=separate"]
    run = train(start(*load_recipe("translate", [*words, *first])), lambda kind, **facts: None)
    saved, own = load_tokenizer(run.folder), run.task.tokenizer
    assert saved.target.backend.to_str() == own.target.backend.to_str() != saved.backend.to_str()
    bundle = load(run.folder)
    assert bundle.tokenizer is not None and bundle.tokenizer.target is not bundle.tokenizer
    assert bundle.recipe is not None and bundle.recipe.settings.vocabulary == "separate"
    spec = tmp_path / "pairs.tsv"
    spec.write_text("source\ttarget\n" + "A dog sees it.\tUn kova noris.\n" * 3)
    found = Seq2SeqTraining.evaluate_file(bundle.model, bundle.require_tokenizer(), bundle.recipe, str(spec))
    assert found.each[0]["new"] == bundle.translate("A dog sees it.")
    second = start(*load_recipe("translate", [*words[3:], f"model.from={run.folder}"]))
    assert second.task.tokenizer.target.backend.to_str() == own.target.backend.to_str()
    assert second.model.config == bundle.config
    bundle.save(tmp_path / "copy")
    assert load(tmp_path / "copy").translate(TEXTS, Beam(max_tokens=4)) == bundle.translate(TEXTS, Beam(max_tokens=4))


def test_one_tokenizer_does_not_do_for_two(tmp_path: Path) -> None:
    task = prepared(tmp_path)
    model = model_of(task)
    folder = save_model(model, tmp_path / "model", task.tokenizer)
    alone = Tokenizer(task.tokenizer.backend)
    with pytest.raises(DataError, match=r"writes .* others"):
        translate(model, alone, TEXTS, task.recipe)
    with pytest.raises(DataError, match=r"writes .* others"):
        replace(task, tokenizer=alone).config(model.config)
    (folder / TARGET_FILE).unlink()  # tokenizer_config.json knows of it
    with pytest.raises(NotFoundError, match=TARGET_FILE):
        load(folder).translate(TEXTS)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({k: v for k, v in json.loads(config.read_text()).items() if k != "separate_vocabs"}))
    load_tokenizer(folder)
    (folder / "target_vocab.json").write_text("{}")  # as Marian's folders have it
    with pytest.raises(NotFoundError, match=TARGET_FILE):
        load_tokenizer(folder)


def test_a_base_with_one_vocabulary_keeps_it(tmp_path: Path) -> None:
    shared = with_settings(recipe(), {"seq2seq": {"vocabulary": "shared"}})
    task = prepared(tmp_path, shared)
    folder = save_model(model_of(task), tmp_path / "base", task.tokenizer)
    asked = with_settings(recipe(), {"model": {"from": str(folder)}})
    with pytest.raises(ConfigError, match="separate"):
        Seq2SeqTraining.prepare(TaskContext(asked, tmp_path / "other", task.tokenizer))
    shutil.rmtree(tmp_path / "tokens")
    assert np.array_equal(task.train.source.ids[0], prepared(tmp_path, shared).train.source.ids[0])
