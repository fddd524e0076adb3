"""Word vectors as the embeddings of another model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headway.config.model import TokensConfig
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError, HeadwayError
from headway.front.tokens import TokenEmbedding
from headway.hub.vectors.file import write_vectors
from headway.hub.vectors.model import fill_embeddings
from headway.tasks.recipe import load_recipe
from headway.train.run import start, train

WORDS = ("dog", "cat", "car")
VECTORS = np.random.default_rng(1).standard_normal((3, 16)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_vectors(tmp_path / "vectors.bin", WORDS, VECTORS, binary=True)
    return tmp_path / "vectors.bin"


def test_tokens_start_from_the_vectors_of_their_words(path: Path) -> None:
    tokenizer = train_tokenizer("words", ["cat dog bird dog bird bird"])
    table = TokenEmbedding(TokensConfig(vocab=tokenizer.vocab_size), 16)
    before = table.table.weight.detach().clone()
    assert fill_embeddings(table, tokenizer, path) == 2 / 4
    vocab = tokenizer.backend.get_vocab()
    after = table.table.weight.detach()
    for number, word in enumerate(WORDS[:2]):
        cosine = torch.cosine_similarity(after[vocab[word]], torch.from_numpy(VECTORS[number]), dim=0)
        assert float(cosine) == pytest.approx(1.0, abs=1e-5)
    assert torch.equal(after[vocab["bird"]], before[vocab["bird"]])
    rows = [vocab["dog"], vocab["cat"]]
    assert float(after[rows].norm(dim=1).mean()) == pytest.approx(float(before[rows].norm(dim=1).mean()), rel=1e-4)


def test_a_wrong_width_and_a_foreign_vocabulary_are_refused(path: Path) -> None:
    tokenizer = train_tokenizer("words", ["cat dog"])
    with pytest.raises(ConfigError, match=r"16 numbers, and the model is 8 wide"):
        fill_embeddings(TokenEmbedding(TokensConfig(vocab=3), 8), tokenizer, path)
    with pytest.raises(DataError, match="no token of the vocabulary"):
        fill_embeddings(TokenEmbedding(TokensConfig(vocab=3), 16), train_tokenizer("words", ["x y"]), path)


def test_a_run_starts_from_them(path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the dog saw a cat and a car\n" * 40)
    size = ("model.depth=1", "model.width=16", "model.heads=2", "data.length=8", "train.batch=2", "train.steps=1")
    words = [f"data.train={text}", "data.tokenizer=words", f"model.embeddings={path}", f"out={tmp_path}", *size]
    run = start("run", load_recipe("lm", [*words, "train.lr=0", "train.warmup=0"])[1])
    vocab = run.task.tokenizer.backend.get_vocab()  # type: ignore[union-attr]
    train(run, lambda kind, **facts: None)
    row = run.model.target.table.weight.detach()[vocab["dog"]]
    assert float(torch.cosine_similarity(row, torch.from_numpy(VECTORS[0]), dim=0)) > 0.999
    assert "vectors for 38% of the vocabulary" in caplog.text


@pytest.mark.parametrize(
    ("recipe", "words", "says"),
    [("images", (), "for models that read text"), ("lm", ("model.embeddings=none.bin",), "no file of word vectors")],
)
def test_where_they_make_no_sense_they_are_refused(
    recipe: str, words: tuple[str, ...], says: str, path: Path, tmp_path: Path
) -> None:
    given = [f"model.embeddings={path}", f"out={tmp_path}", "model.depth=1", *words]
    with pytest.raises(HeadwayError, match=says):
        start("run", load_recipe(recipe, given)[1])
