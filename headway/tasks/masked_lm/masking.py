"""Which tokens are hidden from a model, and what it sees in their place (Devlin et al. 2019).

A pure function of the sample's number: masks are others in each epoch, and the same in a resumed run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.data.batching.packing import IGNORE
from headway.data.batching.permutation import Index, splitmix64
from headway.data.batching.windows import Ids
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import byte_ids
from headway.errors import DataError
from headway.tasks.masked_lm.task import Settings

Flags = NDArray[np.bool_]
Dice = NDArray[np.uint64]
SALT = 0x6D61736B
"""Keeps these dice apart from those that other parts of a run throw with the same seed."""


@dataclass(frozen=True)
class Masking:
    """The rules, and what they need to know of a vocabulary."""

    config: Settings
    mask: int
    special: Flags
    """By id: tokens that are never chosen, and never put in another's place."""
    inside: Flags
    """By id: pieces that go on with the word before them …"""
    open: Flags
    """… if that piece is one of these."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: Settings) -> Masking:
        if missing := [role for role in ("cls", "sep", "mask") if role not in tokenizer.special]:
            what = ", ".join(f"[{role.upper()}]" for role in missing)
            raise DataError("D001", f"the tokenizer has no {what}, which masked words need", "data.tokenizer=wordpiece")
        special = np.zeros(tokenizer.vocab_size, dtype=bool)
        special[list(tokenizer.special.values())] = True
        special[[i for i, token in tokenizer.backend.get_added_tokens_decoder().items() if token.special]] = True
        inside, open_ = word_pieces(tokenizer)
        return cls(config, tokenizer.special["mask"], special, inside & ~special, open_ & ~special)

    def number(self, free: Index | int) -> Index:
        """How many of so many tokens are chosen: the share, and one at least."""
        wanted = np.rint(self.config.probability * np.asarray(free)).astype(np.int64)
        return np.minimum(np.maximum(wanted, 1), free)

    def hide(self, rows: Ids, samples: Index, seed: int, most: int) -> tuple[Ids, Ids, Ids]:
        """Inputs (n, width), places (n, most) of what is to be predicted, in order, and the tokens there.

        Rows with fewer places than `most` have others behind them, whose target is IGNORE: batches keep one shape.
        """
        dice, free = throw(samples, rows.shape[1], seed), ~self.special[rows]
        count = np.minimum(self.number(free.sum(1)), most)
        chosen = self._words(rows, free, dice, count) if self.config.whole_word_mask else lowest(dice, free, count)
        places = np.argsort(~chosen, axis=1, kind="stable")[:, :most]
        counted = np.take_along_axis(chosen, places, 1)
        targets = np.where(counted, np.take_along_axis(rows, places, 1), IGNORE)
        return self._replaced(rows, chosen, splitmix64(dice)), places, targets

    def _replaced(self, rows: Ids, chosen: Flags, dice: Dice) -> Ids:
        chance = (dice >> np.uint64(11)).astype(np.float64) / 2**53
        ordinary = np.flatnonzero(~self.special)
        other = ordinary[(dice % np.uint64(len(ordinary))).astype(np.int64)]
        hidden = chosen & (chance < self.config.mask_replace_prob)
        swapped = chosen & ~hidden & (chance < self.config.mask_replace_prob + self.config.random_replace_prob)
        return np.where(hidden, self.mask, np.where(swapped, other, rows)).astype(np.int64)

    def _words(self, rows: Ids, free: Flags, dice: Dice, count: Index) -> Flags:
        """Whole words in the order drawn, leaving out those that no longer fit.

        Where not even one fits, the first of its pieces: a row without predictions would teach nothing.
        """
        begins = free.copy()
        begins[:, 1:] &= ~(self.inside[rows[:, 1:]] & self.open[rows[:, :-1]])
        chosen = np.zeros_like(free)
        for row, left in enumerate(count.tolist()):
            first = np.flatnonzero(begins[row])
            sizes = np.diff(np.searchsorted(np.flatnonzero(free[row]), np.append(first, rows.shape[1])))
            drawn = np.argsort(dice[row, first]).tolist()
            for word in drawn:
                if sizes[word] <= left:
                    chosen[row, first[word] : first[word] + sizes[word]] = True
                    left -= int(sizes[word])
                if not left:
                    break
            if drawn and not chosen[row].any():
                chosen[row, first[drawn[0]] : first[drawn[0]] + left] = True
        return chosen


def throw(samples: Index, width: int, seed: int) -> Dice:
    """A die for every cell: (n, width)."""
    cell = (samples[:, None].astype(np.uint64) << np.uint64(24)) | np.arange(width, dtype=np.uint64)
    return splitmix64(cell ^ splitmix64(splitmix64(np.uint64(seed)) ^ np.uint64(SALT)))


def lowest(dice: Dice, free: Flags, count: Index) -> Flags:
    """The cells with the `count` lowest dice of each row, of those that are free."""
    order = np.argsort(np.where(free, dice, np.uint64(2**64 - 1)), axis=1)[:, : int(count.max())]
    chosen = np.zeros_like(free)
    np.put_along_axis(chosen, order, np.arange(order.shape[1]) < count[:, None], 1)
    return chosen


def word_pieces(tokenizer: Tokenizer) -> tuple[Flags, Flags]:
    """By id: whether a piece can go on with a word, and whether a word can go on after it.

    WordPiece says so itself. Byte-level and SentencePiece vocabularies begin a word with its space, so a piece that
    begins with a letter or digit goes on where one has ended; a comma belongs to no word.
    """
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    if any(piece.startswith("##") and len(piece) > 2 for piece in pieces):
        return np.array([piece.startswith("##") and len(piece) > 2 for piece in pieces]), np.ones(len(pieces), bool)
    spelled = byte_ids()
    bytewise = "Ġ" in pieces

    def letter(char: str) -> bool:
        if not bytewise:
            return char.isalnum()
        return spelled.get(char, 0) >= 0x80 or chr(spelled.get(char, 0)).isalnum()

    return np.array([letter(p[:1] or " ") for p in pieces]), np.array([letter(p[-1:] or " ") for p in pieces])
