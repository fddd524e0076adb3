"""What a model that reads both ways makes of a text: words for its blanks, and how likely it finds what is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.data.batching.padding import Examples, inference_batch_tokens
from headway.data.batching.permutation import Index
from headway.data.tokenizers.tokenizer import Encoded, Tokenizer
from headway.errors import DataError
from headway.generate.score import Scored
from headway.model.model import Model

BLANK = "[MASK]"
"""How a blank may be written, whatever the model's own tokenizer calls it."""

Choices = list[tuple[int, float]]
"""Token ids with their probabilities, the likeliest first."""


@dataclass(frozen=True)
class Blank:
    """One blank of a text."""

    span: tuple[int, int]
    """Characters [start, end) of the text that it takes."""
    choices: list[tuple[str, float]]
    """Tokens with their probabilities, the likeliest first."""


@dataclass(frozen=True)
class Filled:
    """A text, its blanks from left to right, and the same text with the best token in each."""

    text: str
    blanks: list[Blank]
    best: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def fill_all(model: Model, tokenizer: Tokenizer, texts: Sequence[str], top: int = 5) -> list[Filled]:
    """The most probable tokens for each [MASK] of each text, all blanks of a text at once. Batches are by length."""
    mask = _mask(model, tokenizer)
    name = tokenizer.pieces([mask])[0]
    texts = [text.replace(BLANK, name) for text in texts]
    read = tokenizer.encode_batch(texts)
    places = [[i for i, token in enumerate(row.ids) if token == mask] for row in read]
    for text, row, found in zip(texts, read, places, strict=True):
        _check(model, text, row)
        if not found:
            raise DataError("D001", f"no {BLANK} in {text[:60]!r}", f"write {BLANK} for each word to predict")
    answers = fill_rows(model, [row.ids for row in read], places, top)
    return [_filled(tokenizer, *each) for each in zip(texts, read, places, answers, strict=True)]


def _filled(tokenizer: Tokenizer, text: str, row: Encoded, places: list[int], answers: list[Choices]) -> Filled:
    blanks = [
        Blank(row.offsets[place], [(tokenizer.decode([i]).strip() or tokenizer.pieces([i])[0], p) for i, p in choices])
        for place, choices in zip(places, answers, strict=True)
    ]
    best = text
    for blank in reversed(blanks):
        start, end = blank.span
        word = blank.choices[0][0]
        if text[start:end][:1].isspace():  # a mask that takes the space before it
            word = " " + word
        if word.startswith("##"):
            word = word[2:]
        best = best[:start] + word + best[end:]
    return Filled(text, blanks, best)


@torch.no_grad()
def fill_rows(
    model: Model, rows: Sequence[Sequence[int]], places: Sequence[Sequence[int]], top: int
) -> list[list[Choices]]:
    """The likeliest tokens at some places, one at least, of each row."""
    found: list[list[Choices]] = [[] for _ in rows]
    if not rows:
        return found
    examples = _examples(rows)
    for chosen in examples.batches(inference_batch_tokens(next(model.parameters()).device)):
        ids, attention_mask, _ = examples.read(chosen)
        cells = np.array([(n, place) for n, i in enumerate(chosen) for place in places[i]])
        probabilities = _logits(model, ids, attention_mask, cells).softmax(-1)
        best, tokens = probabilities.topk(min(top, probabilities.shape[-1]))
        for n, values, names in zip(cells[:, 0].tolist(), best.tolist(), tokens.tolist(), strict=True):
            found[chosen[n]].append(list(zip(names, values, strict=True)))
    return found


@torch.no_grad()
def pseudo_perplexity(model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Scored]:
    """Every token of every text hidden in turn and predicted from all the others; copies of like length together."""
    mask = _mask(model, tokenizer)
    read = tokenizer.encode_batch(list(texts))
    places = [[i for i, word in enumerate(row.words) if word is not None] for row in read]
    for text, row, found in zip(texts, read, places, strict=True):
        _check(model, text, row)
        if not found:
            raise DataError("D001", f"{text[:60]!r} has no token to predict")
    if not texts:
        return []
    copies = [(i, place) for i, found in enumerate(places) for place in found]
    examples, totals = _examples([read[i].ids for i, _ in copies]), np.zeros(len(texts))
    for chosen in examples.batches(inference_batch_tokens(next(model.parameters()).device)):
        ids, attention_mask, _ = examples.read(chosen)
        cells = np.array([(n, copies[i][1]) for n, i in enumerate(chosen)])
        targets = ids[cells[:, 0], cells[:, 1]].clone()
        ids[cells[:, 0], cells[:, 1]] = mask
        likely = _logits(model, ids, attention_mask, cells).log_softmax(-1).cpu().gather(1, targets[:, None])[:, 0]
        np.add.at(totals, [copies[i][0] for i in chosen], likely.double().numpy())
    return [Scored(text, float(s), len(p)) for text, s, p in zip(texts, totals, places, strict=True)]


def _examples(rows: Sequence[Sequence[int]]) -> Examples:
    return Examples(rows, [[0] * len(row) for row in rows])


def _logits(model: Model, ids: Tensor, attention_mask: Tensor, cells: Index) -> Tensor:
    """Scores (n, V) at cells (n, 2) of a batch, the only ones that are computed."""
    device = next(model.parameters()).device
    hidden = model(ids.to(device), attention_mask=attention_mask.to(device)).hidden
    row, place = torch.from_numpy(cells).to(device).T
    logits: Tensor = model.lm(hidden[row, place]).float()
    return logits


def _mask(model: Model, tokenizer: Tokenizer) -> int:
    """The id of a blank, where model and tokenizer know what that is."""
    if model.config.kind != "encoder" or model.config.lm is None:
        raise DataError(
            "D001", "this model has no head for masked words", "headway train mlm model.from=… gives it one"
        )
    if "mask" not in tokenizer.special:
        raise DataError("D001", "the tokenizer has no [MASK]")
    return tokenizer.special["mask"]


def _check(model: Model, text: str, row: Encoded) -> None:
    limit = model.config.max_length
    if limit is not None and len(row.ids) > limit:
        raise DataError("D001", f"{text[:60]!r}… has {len(row.ids)} tokens, the model reads {limit}", "split it")
