"""Tagged sentences as a model reads them: in windows, with their neighbours beside them, each word at its first piece.

Letters: B windows of a batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.data.batching.padding import Examples
from headway.data.batching.permutation import Index
from headway.data.batching.strides import (
    Context,
    Subwords,
    Window,
    document_context,
    fit_context,
    max_text_tokens,
    sentence_windows,
    special_layout,
    subwords,
    window_ids,
)
from headway.data.datasets.conll import Sentence
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.recipe import Recipe


@dataclass(frozen=True)
class Rows:
    """Sentences as a model reads them: windows, and where in them the words are."""

    examples: Examples
    windows: list[Window]
    places: list[list[tuple[int, int]]]
    """For each window, the words that are its own and have a piece: their number in the sentence, and their token."""

    def targets(self, rows: Sequence[int] | Index, width: int, ids: Sequence[Sequence[int]]) -> Tensor:
        """(B, T): the label of each word at its first piece; `ids` are the labels of all sentences."""
        targets = np.full((len(rows), width), IGNORE, dtype=np.int64)
        for i, row in enumerate(rows):
            labels = ids[self.windows[row].sentence]
            for word, token in self.places[row]:
                targets[i, token] = labels[word]
        return torch.from_numpy(targets)


def lay_out(
    texts: Sequence[Subwords],
    tokenizer: Tokenizer,
    limit: int | None,
    recipe: Recipe | None = None,
    context: Sequence[Context] | None = None,
) -> Rows:
    """Sentences in windows of at most `limit` tokens, those that fit into one with their context beside them.

    The recipe says in what order they are learned. Windows without words are none.
    """
    around = special_layout(tokenizer)
    room = max_text_tokens(around, limit)
    windows, ids, token_type_ids, places = [], [], [], []
    for window in sentence_windows(texts, around, limit):
        text = texts[window.sentence]
        row, first = window_ids(text, window, room)
        before: list[int] = []
        if context and (room is None or len(text.ids) <= room):
            before, after = fit_context(context[window.sentence], None if room is None else room - len(row))
            row = [*before, *row, *after]
        own, place = range(window.label_begin, window.label_end), len(around.before[0]) + len(before)
        here = [(w, place + first[w - window.begin]) for w in own if first[w - window.begin] >= 0]
        if not here:
            continue
        windows.append(window)
        places.append(here)
        row, kinds = around.wrap(row)
        ids.append(row)
        token_type_ids.append(kinds)
    if not windows:
        raise DataError("D002", "the tokenizer finds nothing to read in these sentences")
    seed, by_length = (recipe.seed, bool(recipe.train.batch_tokens)) if recipe else (0, False)
    return Rows(Examples(ids, token_type_ids, seed, by_length), windows, places)


class Part(NamedTuple):
    """Tagged sentences, their pieces, and what is read beside each."""

    sentences: Sequence[Sentence]
    pieces: list[Subwords]
    context: list[Context] | None

    def some(self, rows: Sequence[int]) -> Part:
        """A few of them, beside whom they had."""
        context = None if self.context is None else [self.context[i] for i in rows]
        return Part([self.sentences[i] for i in rows], [self.pieces[i] for i in rows], context)


def read_part(sentences: Sequence[Sentence], tokenizer: Tokenizer, context: int = 0) -> Part:
    """`context` is how many tokens of its neighbours are read on each side of a sentence."""
    texts = subwords(tokenizer, [row.words for row in sentences])
    documents = [(row.file, row.document) for row in sentences]
    return Part(sentences, texts, document_context(texts, documents, context) if context else None)
