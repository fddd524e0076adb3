"""Texts as vectors of length one, whatever a model was trained for, and the search for the nearest.

Letters: B batch, T tokens, N texts, M width of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.batching.padding import Examples, inference_batch_tokens, truncate
from headway.data.batching.permutation import Index
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.model.heads import pool as pooled
from headway.model.model import Model, Transformer


class Near(NamedTuple):
    """A text that was found."""

    place: int
    """Where it stands among those searched."""
    cosine: float
    text: str

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()


def embed(model: Model, tokenizer: Tokenizer, texts: Sequence[str], pool: str = "mean") -> Tensor:
    """Vectors (N, M) of length one, on the CPU; texts of like length are read together, long ones are cut."""
    if model.config.encoder is None or model.config.source is None or model.config.source.kind != "tokens":
        raise DataError("D001", "this model has no text encoder")
    if not texts:
        return torch.empty(0, model.config.encoder.d_model)
    return vectors(model, read_texts(tokenizer, texts, model.config.max_length), pool)


def nearest(
    model: Model, tokenizer: Tokenizer, query: str, texts: Sequence[str], k: int = 5, pool: str = "mean"
) -> list[Near]:
    """The k texts with the highest cosine to the query, the best first; of equals, the earlier."""
    return nearest_of(
        embed(model, tokenizer, [query], pool)[0], embed(model, tokenizer, texts, pool), texts.__getitem__, k
    )


def nearest_of(asked: Tensor, found: Tensor, text: Callable[[int], str], k: int = 5) -> list[Near]:
    """The same from vectors: of the query (M,), and of the texts (N, M); `text` gives the text at a place."""
    cosines = (found @ asked).double().numpy()
    order = np.argsort(-cosines, kind="stable")[:k].tolist()
    return [Near(i, float(cosines[i]), text(i)) for i in order]


def read_texts(tokenizer: Tokenizer, texts: Sequence[str], limit: int | None, seed: int = 0) -> Examples:
    encoded = tokenizer.encode_batch(texts)
    rows, whole = [truncate(text, limit) for text in encoded], [len(text.ids) for text in encoded]
    return Examples([ids for ids, _ in rows], [token_type_ids for _, token_type_ids in rows], seed, whole=whole)


@torch.no_grad()
def vectors(model: Model, examples: Examples, pool: str) -> Tensor:
    """(N, M), in the order of the examples."""
    device = next(model.parameters()).device
    assert model.config.encoder is not None
    found = torch.empty(len(examples), model.config.encoder.d_model)
    for rows in examples.batches(inference_batch_tokens(device)):
        ids, attention_mask, _ = examples.read(rows)
        found[rows] = vector(model, ids.to(device), attention_mask.to(device), pool).cpu()
    return found


def vector(model: Model, ids: Tensor, attention_mask: Tensor, pool: str) -> Tensor:
    """(B, T) to (B, M), of length one."""
    assert isinstance(model, Transformer)
    output = model.encode(ids, attention_mask=attention_mask)
    return F.normalize(pooled(output.hidden.float(), output.attention_mask, pool), dim=-1)


def found_at(u: Tensor, v: Tensor, names: Index, chunk: int = 1024) -> Index:
    """(N,) from 1 on: where u finds its v among all of them. Equals stand before it, unless they are the same text."""
    name, ranks = torch.from_numpy(names), []
    for at in range(0, len(u), chunk):
        cosines = u[at : at + chunk] @ v.T
        here = torch.arange(at, at + len(cosines))
        own = cosines.gather(1, here[:, None])
        ranks.append(1 + ((cosines >= own) & (name[None] != name[here, None])).sum(1))
    return torch.cat(ranks).numpy()
