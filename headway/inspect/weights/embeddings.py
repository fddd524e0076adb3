"""Embeddings of a model: neighbours of a word, a map of words in two dimensions, and what positions look like.

Letters: V tokens, N words or positions, M width of the model, H heads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import TokensConfig
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError, NotFoundError
from headway.front.embedded import Positions
from headway.front.patches import PatchEmbedding
from headway.inspect.parts import Part
from headway.inspect.trace import rounded
from headway.joint.words import WordVectors
from headway.model.positions import alibi_slopes
from headway.tasks.predictor import DIGITS, Loaded
from headway.tasks.word2vec.map import flattened
from headway.tasks.word2vec.predict import WordVectorsPredictor
from headway.tasks.word2vec.search import Neighbour, Search

WORDS, LETTERS = 150, 2
"""Words of a map where nobody names them: whole words of so many letters at least, from the front of the vocabulary."""
POSITIONS = 256
"""The most positions that are compared with each other."""
SPACES = "Ġ▁"
"""Signs of a space at the front of a piece."""
UMAP_WORDS = 8
"""Fewer words have no neighbourhoods that could be kept."""
Projection = Literal["pca", "umap"]
FAR = 128
"""The largest distance at which a learned bias is shown."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingMap:
    """Words in two dimensions: the two directions in which their vectors differ most (PCA), or UMAP's."""

    words: tuple[str, ...]
    points: Tensor
    """(N, 2)"""
    share: float | None
    """Of the variance, which these two directions hold; None for UMAP, which keeps neighbours instead."""

    def to_dict(self) -> dict[str, Any]:
        share = None if self.share is None else round(self.share, DIGITS)
        return {"words": list(self.words), "points": rounded(self.points), "share": share}


@dataclass(frozen=True)
class Vocabulary:
    """The words or tokens of a model, and their vectors."""

    words: list[str]
    vectors: Tensor
    """(V, M)"""
    ids: Callable[[str], list[int]]
    """The rows of a word: several if it has several tokens."""

    def vector(self, word: str) -> Tensor:
        """(M,): the mean over the tokens of a word."""
        return self.vectors[torch.tensor(self.ids(word))].mean(0)


def vocabulary(loaded: Loaded) -> Vocabulary:
    """Everything that has a vector of its own."""
    model = loaded.model
    if isinstance(model, WordVectors):
        search = WordVectorsPredictor(loaded).search
        return Vocabulary(search.words, search.vectors.float(), partial(_known_word, search))
    for name in ("source", "target"):
        front = getattr(model, name, None)
        table = getattr(front, "table", None)
        if front is not None and isinstance(table, nn.Embedding) and isinstance(front.config, TokensConfig):
            tokenizer = loaded.require_tokenizer()
            vectors = table.weight.detach()[: front.config.vocab].float()
            return Vocabulary(tokenizer.pieces(range(len(vectors))), vectors, partial(_tokens_of, tokenizer))
    raise DataError("D001", f"{loaded.name} reads no tokens, so it has no vectors of words")


def _known_word(search: Search, word: str) -> list[int]:
    place = search.place(word)
    if place is None:
        search.vector(word)  # an error that names near spellings, or a word that only n-grams know
        raise DataError("D001", f"{word!r} has a vector by its n-grams only", "headway run finds its neighbours")
    return [place]


def _tokens_of(tokenizer: Tokenizer, word: str) -> list[int]:
    ids = tokenizer.ids([word])[0]
    if not ids:
        raise DataError("D001", f"the tokenizer has no token for {word!r}")
    return ids


def neighbours(loaded: Loaded, word: str, k: int) -> list[Neighbour]:
    """The k words or tokens with the highest cosine to a word, itself left out."""
    known = vocabulary(loaded)
    own = known.ids(word)
    cosines = F.cosine_similarity(known.vectors, known.vector(word)[None])
    if len(own) == 1:
        cosines[own[0]] = -torch.inf
    best = cosines.topk(min(k, len(cosines) - 1))
    return [
        Neighbour(readable(known.words[i]), cosine)
        for cosine, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def readable(piece: str) -> str:
    """A piece with its space, where byte-level and sentencepiece vocabularies have a sign for it."""
    return " " + piece[1:] if piece[:1] in SPACES else piece


def embedding_map(loaded: Loaded, words: Sequence[str], by: Projection = "pca") -> EmbeddingMap:
    """A map of these words; without any, of the first whole words of the vocabulary."""
    known = vocabulary(loaded)
    if words:
        chosen, rows = list(words), torch.stack([known.vector(word) for word in words])
    else:
        plain = [(i, piece.lstrip(SPACES)) for i, piece in enumerate(known.words)]
        found = [(i, word) for i, word in plain if word.isalpha() and len(word) >= LETTERS] or plain
        chosen, rows = [word for _, word in found[:WORDS]], known.vectors[torch.tensor([i for i, _ in found[:WORDS]])]
    if len(chosen) < 2:
        raise DataError("D001", "a map needs two words or more")
    if by == "umap":
        return EmbeddingMap(words=tuple(chosen), points=_by_umap(rows), share=None)
    points, share = flattened(rows)
    return EmbeddingMap(words=tuple(chosen), points=points, share=share)


def _by_umap(rows: Tensor) -> Tensor:
    """(N, 2): neighbours by cosine stay neighbours (McInnes et al. 2018). The seed is fixed, so is the map."""
    try:
        from umap import UMAP
    except ImportError:
        raise NotFoundError("F003", "this map needs the package umap-learn", "pip install 'headway[umap]'") from None
    if len(rows) < UMAP_WORDS:
        raise DataError("D001", f"a map by UMAP needs {UMAP_WORDS} words or more, and there are {len(rows)}")
    near = min(15, len(rows) - 1)
    with warnings.catch_warnings():  # that a seed means one thread
        warnings.simplefilter("ignore")
        found = UMAP(n_neighbors=near, metric="cosine", random_state=0).fit_transform(rows.numpy())
    return torch.from_numpy(found)


def positions(part: Part, front: Any) -> dict[str, Any]:
    """How a stack knows of positions, as numbers for a picture."""
    if part.stack is None:
        return {"kind": "none"}
    config, relative = part.config, part.stack.relative
    vectors = position_vectors(front)
    if vectors is not None:
        cosines = F.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
        return {"kind": "vectors", "cosines": rounded(cosines), "norms": rounded(vectors.norm(dim=1))}
    ropes = [rope for kind in part.stack.kinds if (rope := kind.rope) is not None]
    if ropes:  # where layers differ, the first one
        rotated = max(2, ropes[0].rotated(config.head_width))
        pairs = torch.arange(0, rotated, 2) / rotated
        return {"kind": "rotary", "wavelengths": rounded(2 * torch.pi * ropes[0].theta ** pairs)}
    if config.alibi:
        return {"kind": "alibi", "slopes": alibi_slopes(config.n_heads)}
    if relative is not None:
        apart = torch.arange(-FAR, 1 if config.causal else FAR + 1, device=relative.table.weight.device)
        bias = relative(torch.zeros_like(apart[:1])[None], apart[None])[0, :, 0].detach()
        return {"kind": "relative", "distances": apart.tolist(), "bias": rounded(bias)}
    return {"kind": "none"}


def position_vectors(front: Any) -> Tensor | None:
    """(N, M): the vectors that a front end adds; None if it adds none."""
    own = getattr(front, "positions", None)
    if isinstance(front, PatchEmbedding) and own is not None:
        found: Tensor = own.detach().float()[:POSITIONS]
        return found
    if isinstance(own, Positions):
        with torch.no_grad():
            count = min(own.config.length, POSITIONS)
            device = next(front.parameters()).device
            vectors: Tensor = own(torch.arange(count, device=device)).float()
        return vectors
    return None
