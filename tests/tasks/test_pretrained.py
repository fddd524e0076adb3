"""Folders of T5, BART and Marian as `transformers` writes them: used, trained on, and opened there again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.api import load
from headway.config.recipe import DataConfig
from headway.data.files.rows import BadRows
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.generate.beam.search import Beam
from headway.hub.generation_config import read_generation
from headway.tasks.recipe import Recipe, load_recipe, with_settings
from headway.tasks.seq2seq.training import Seq2SeqTraining, pair_tokenizer, read_pairs
from headway.tasks.seq2seq.translate import beam_for, recipe_of
from headway.train.run import start, train

PAD, BOS, EOS = 0, 1, 2
BART: dict[str, Any] = dict(
    d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
    encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64, pad_token_id=PAD, bos_token_id=BOS,
    eos_token_id=EOS, decoder_start_token_id=EOS,
)  # fmt: skip
MARIAN: dict[str, Any] = {**BART, "decoder_start_token_id": PAD, "forced_eos_token_id": EOS}
T5: dict[str, Any] = dict(
    d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, pad_token_id=PAD, eos_token_id=EOS,
    decoder_start_token_id=PAD,
)  # fmt: skip
CASES = {
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "t5-1.1": ("T5ForConditionalGeneration", "T5Config",
               {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "bart": ("BartForConditionalGeneration", "BartConfig", BART),
    "marian": ("MarianMTModel", "MarianConfig", MARIAN),
    "marian-apart": ("MarianMTModel", "MarianConfig", {**MARIAN, "share_encoder_decoder_embeddings": False}),
}  # fmt: skip
TEXTS = ["A dog sees the king.", "The red horses did not help some old teachers in the garden.", "x"]
CNN = {"num_beams": 4, "max_length": 14, "min_length": 5, "length_penalty": 2.0, "no_repeat_ngram_size": 2,
       "early_stopping": True, "forced_bos_token_id": BOS, "forced_eos_token_id": EOS,
       "bad_words_ids": [[PAD]]}  # fmt: skip
"""What a folder for summaries says of how to write them, shorter."""
WORDS = ["train.steps=2", "train.batch=8", "train.warmup=1", "train.eval_every=2", "train.save_every=2",
         "seq2seq.eval_texts=2", "seq2seq.max_new_tokens=6", "seq2seq.prefix=translate: "]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    recipe = Recipe(task="seq2seq", data=DataConfig(tokenizer="bpe", vocab=300))
    return pair_tokenizer(tmp_path_factory.mktemp("tokens"), recipe, read_pairs("", recipe, BadRows())[:200])


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path: Path) -> tuple[Path, Any]:
    """A folder, and the model of `transformers` that it is of."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model, config, fields = CASES[request.param]
    torch.manual_seed(1)
    made = getattr(transformers, model)(getattr(transformers, config)(vocab_size=tokenizer.vocab_size, **fields)).eval()
    for parameter in made.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter) * parameter.requires_grad
    made.save_pretrained(tmp_path / "base")
    tokenizer.save(tmp_path / "base")
    return tmp_path / "base", made


def written_by(oracle: Any, folder: Path, **settings: Any) -> list[str]:
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    found = oracle.generate(**batch, do_sample=False, **settings)
    return [text.strip() for text in tokenizer.batch_decode(found, skip_special_tokens=True)]


def test_it_writes_what_transformers_writes(case: tuple[Path, Any]) -> None:
    folder, oracle = case
    bundle, rules = load(folder), read_generation(folder).rules
    for width in (1, 4):
        ours = bundle.translate(TEXTS, Beam(width=width, max_tokens=9, **rules))
        assert ours == written_by(oracle, folder, num_beams=width, max_new_tokens=9)


def test_it_writes_as_the_folder_says(case: tuple[Path, Any]) -> None:
    import transformers

    folder, _ = case
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **CNN}))
    oracle = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    bundle = load(folder)
    assert bundle.translate(TEXTS) == written_by(oracle, folder)
    pairs = folder.parent / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"source": text, "target": "kova"}) + "\n" for text in TEXTS))
    found = Seq2SeqTraining.evaluate_file(
        bundle.model, bundle.require_tokenizer(), recipe_of(bundle.model, folder), str(pairs)
    )
    assert [row["new"] for row in found.each] == bundle.translate(TEXTS)  # an evaluation writes by the same rules


def test_the_rules_of_one_model_are_not_those_of_another(case: tuple[Path, Any], tmp_path: Path) -> None:
    """Compared by a recipe of the first, the second is held to no tokens that mean something else to it."""
    folder, oracle = case
    bundle, asked = load(folder), recipe_of(load(folder).model, folder)
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"source": text, "target": "kova"}) + "\n" for text in TEXTS))
    oracle.config.decoder_start_token_id = oracle.generation_config.decoder_start_token_id = BOS
    oracle.generation_config.update(**CNN)
    oracle.save_pretrained(tmp_path / "other")
    other = with_settings(asked, {"model": {"from": str(tmp_path / "other")}})
    free = with_settings(asked, {"model": {"from": ""}})
    assert beam_for(other).banned and not beam_for(free).banned
    ours, theirs = (
        Seq2SeqTraining.evaluate_file(bundle.model, bundle.require_tokenizer(), r, str(pairs)).each
        for r in (free, other)
    )
    assert [row["new"] for row in ours] == [row["new"] for row in theirs]


@torch.no_grad()
def test_trained_and_opened_there_again(
    case: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    folder, oracle = case
    monkeypatch.setattr("headway.tasks.seq2seq.training.GENERATED", 40)
    words = [*WORDS, f"out={tmp_path / 'runs'}", f"model.from={folder}"]
    with torch.enable_grad():
        run = train(start(*load_recipe("translate", words)), lambda kind, **facts: None)
    assert isinstance(run.task, Seq2SeqTraining)
    assert read_generation(run.folder).rules == read_generation(folder).rules
    first = run.task.train.source.ids[0]
    assert run.task.tokenizer.decode(first).startswith("translate: ")
    ours = load(run.folder)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(run.folder).eval()
    assert type(theirs) is type(oracle)
    size = oracle.config.vocab_size
    source, inputs = torch.randint(0, size, (2, 7)), torch.randint(0, size, (2, 5))
    logits = theirs(input_ids=source, decoder_input_ids=inputs).logits
    assert torch.allclose(ours.model.lm(ours.model(source, inputs).hidden), logits, atol=1e-4)
    assert not torch.allclose(oracle(input_ids=source, decoder_input_ids=inputs).logits, logits, atol=1e-2)


def test_a_run_keeps_to_the_rules_of_its_base(case: tuple[Path, Any], tmp_path: Path) -> None:
    """BART begins with a token of its own, Marian never writes padding: also while it is trained on."""
    folder, _ = case
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **CNN}))
    run = start(*load_recipe("translate", [*WORDS, f"out={tmp_path / 'runs'}", f"model.from={folder}"]))
    beam = beam_for(run.recipe)
    assert (beam.first, beam.last, beam.banned, beam.early) == (BOS, EOS, ((PAD,),), True)
    assert (beam.max_tokens, beam.length_penalty, beam.no_repeat) == (6, 1.0, 0)  # what a recipe has settings for


def test_families_that_are_not_known(tmp_path: Path) -> None:
    import transformers

    made = transformers.BlenderbotForConditionalGeneration(transformers.BlenderbotConfig(vocab_size=30, **BART))
    made.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"model_type 'blenderbot'"):
        load(tmp_path)
