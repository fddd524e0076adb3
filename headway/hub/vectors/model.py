"""A file of word vectors as a model, with a tokenizer that has its words; and as the embeddings of another model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from headway.config.networks.words import WordsConfig, WordVectorsConfig
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError
from headway.front.tokens import TokenEmbedding
from headway.hub.restored import TensorSource
from headway.hub.vectors.file import read_vectors

UNKNOWN = "<unk>"
"""The token of all words without a vector; it has the last id, and no row."""
PATTERNS = {"letters": r"\w+", "spaces": r"\S+"}
"""What a word is: letters, digits and underscores; or all between white space."""


def open_vectors(path: Path) -> tuple[WordVectorsConfig, TensorSource]:
    """The config and the weights of a file. They have no output vectors, so they are looked up, not trained."""
    words, vectors = read_vectors(path)
    lower = all(word == word.lower() for word in words)
    config = WordVectorsConfig(source=WordsConfig(vocab=len(words)), width=vectors.shape[1], trains=False, lower=lower)
    return config, TensorSource({"inputs": torch.from_numpy(vectors)})


def load_words(path: Path) -> Tokenizer:
    """The tokenizer of a file."""
    words, _ = read_vectors(path, rows=False)
    return words_tokenizer(words, "spaces", all(word == word.lower() for word in words))


def words_tokenizer(words: Iterable[str], split: str, lower: bool) -> Tokenizer:
    """A tokenizer with these words: a token for each, and one for all others."""
    import tokenizers as tk

    vocab = {word: number for number, word in enumerate(words)}
    backend = tk.Tokenizer(tk.models.WordLevel({**vocab, UNKNOWN: len(vocab)}, unk_token=UNKNOWN))
    backend.normalizer = tk.normalizers.Lowercase() if lower else None
    backend.pre_tokenizer = tk.pre_tokenizers.Split(tk.Regex(PATTERNS[split]), "removed", invert=True)
    return Tokenizer(backend, {"unk_token": UNKNOWN})


@torch.no_grad()
def fill_embeddings(table: TokenEmbedding, tokenizer: Tokenizer, path: Path) -> float:
    """Set the rows of tokens that a file has a vector for; the share of the vocabulary that it has.

    The vectors get the mean length of the rows that they replace, so that layers after them start as they would have.
    """
    words, vectors = read_vectors(path)
    width = table.table.weight.shape[1]
    if vectors.shape[1] != width:
        what = f"model.embeddings = {path} has vectors of {vectors.shape[1]} numbers, and the model is {width} wide"
        raise ConfigError("C004", what, f"set model.width={vectors.shape[1]}")
    index = {word: number for number, word in enumerate(words)}
    vocab = tokenizer.backend.get_vocab()
    pairs = [(row, index[token]) for token, row in vocab.items() if token in index]
    if not pairs:
        hint = 'data.tokenizer="words" has whole words as tokens, and data.lower=true makes them lower case'
        raise DataError("D001", f"model.embeddings = {path} has a vector for no token of the vocabulary", hint)
    rows, places = (np.array(side) for side in zip(*pairs, strict=True))
    found, there = torch.from_numpy(vectors[places]), table.table.weight[torch.from_numpy(rows)]
    scale = there.norm(dim=1).mean() / found.norm(dim=1).mean().clamp(min=1e-12)
    table.table.weight[torch.from_numpy(rows)] = (found * scale.cpu()).to(table.table.weight)
    return len(pairs) / len(vocab)
