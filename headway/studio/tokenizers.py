"""The tokenizers of the page: those of models on this machine, and those that are trained on a text of the page."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from headway.checks.merges import merge_history
from headway.checks.tokenization import STEPS_LIMIT, open_tokenizer, reader, tokenize, words
from headway.config.presets import PRESETS
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import KINDS, train_tokenizer
from headway.errors import ConfigError, NotFoundError
from headway.hub.download import local_model, resolve
from headway.jsonfile import show

Json = dict[str, Any]
KEPT = 12
"""Tokenizers in memory at a time."""
TRAINED = "trained:"
"""What the names of those begin with that were trained on the page."""
FOUND = 200
"""Entries of a vocabulary that one search shows."""


@dataclass(frozen=True)
class Known:
    """A tokenizer and what the page says of it."""

    name: str
    tokenizer: Tokenizer
    text: str = ""
    """What it was trained on, if that happened on the page."""

    def to_dict(self) -> Json:
        return {"name": self.name, "vocabulary": self.tokenizer.vocab_size, "trained": bool(self.text)}

    @cached_property
    def read(self) -> Callable[[str], str]:
        return reader(self.tokenizer)

    def split(self, text: str) -> Json:
        """The tokens of a text, and how many there are."""
        found, size = tokenize(self.tokenizer, text), len(text.encode())
        tokens = [
            {
                "id": token.id,
                "piece": token.piece,
                "text": token.piece if token.inserted else self.read(token.piece),
                "bytes": token.data.hex(" "),
                "start": token.start,
                "end": token.end,
                "unknown": token.unknown,
                "inserted": token.inserted,
            }
            for token in found.tokens
        ]
        return {**self.to_dict(), "tokens": tokens, "of_text": found.of_text, "unknown": found.unknown, "bytes": size}

    def count(self, text: str) -> Json:
        ids = self.tokenizer.encode(text, special=False).ids
        return {"tokens": len(ids), "unknown": ids.count(self.tokenizer.special.get("unk", -1))}

    def merges(self, text: str) -> Json:
        """The merges in the text it was trained on, or else in this one; or why there are none."""
        try:
            history = merge_history(self.tokenizer, self.text or text)
        except ConfigError as error:
            return {"none": error.message, "words": self.words(text[:STEPS_LIMIT])}
        pieces = {piece for word, _ in history.words for piece in word}
        pieces |= {piece for merge in history.merges for piece in (*merge.pair, "".join(merge.pair))}
        return {
            "words": history.words,
            "tokens": history.tokens,
            "merges": [[*merge.pair, merge.count, merge.tokens] for merge in history.merges],
            "read": {piece: self.read(piece) for piece in pieces},
        }

    def words(self, text: str) -> list[Json]:
        """Each word of a text with its pieces; with their scores, and the second best way, where there are any."""
        read = self.read
        return [
            {
                "text": word.text,
                "pieces": [read(piece) for piece in word.pieces],
                "scores": word.scores,
                "other": [read(piece) for piece in word.runner_up],
                "other_score": word.runner_up_score,
            }
            for word in words(self.tokenizer, text)
        ]

    @cached_property
    def vocabulary(self) -> list[tuple[int, str, str]]:
        """(id, piece, what people read) of every entry, by id."""
        read, special = self.read, set(self.tokenizer.backend.get_added_tokens_decoder())
        entries = self.tokenizer.backend.get_vocab(with_added_tokens=True)
        return sorted((i, piece, piece if i in special else read(piece)) for piece, i in entries.items())

    def search(self, query: str) -> Json:
        """Entries that hold the words of a query, or have it as their id; the nearest to the query first."""
        low = query.lower()
        found = [entry for entry in self.vocabulary if low in entry[2].lower() or low in entry[1].lower()]
        found.sort(key=lambda entry: (entry[2].strip().lower() != low, not entry[2].strip().lower().startswith(low)))
        if query.isdecimal():
            found = [entry for entry in self.vocabulary if entry[0] == int(query)] + found
        rows = [{"id": i, "piece": piece, "text": text} for i, piece, text in found[:FOUND]]
        return {"of": len(self.vocabulary), "found": len(found), "rows": rows}


class Tokenizers:
    """Tokenizers by name, each opened once."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Known] = OrderedDict()

    def get(self, name: str) -> Known:
        """A tokenizer by run, folder, tokenizer.json, model on this disk, `bytes`, or as trained on the page."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        if name.startswith(TRAINED):
            message = f"{show(name)} was trained on this page before the studio started again"
            raise NotFoundError("F005", message, "train it once more")
        return self._keep(Known(name, open_tokenizer(self._place(name))))

    def _place(self, name: str) -> str:
        """What to open: never anything that would have to be downloaded."""
        if local_model(name, self.runs) is None and (name in (*KINDS, *PRESETS) or Path(name).name == "tokenizer.json"):
            return name
        return str(resolve(name, local=True, out=self.runs))

    def train(self, kind: str, text: str, size: int, *, lower: bool) -> Known:
        """Train one on a text; the same text and settings have the same name."""
        made = train_tokenizer(kind, [text], size, lower=lower)
        digest = sha256(f"{kind} {size} {lower} {text}".encode()).hexdigest()[:4]
        name = f"{TRAINED}{kind}-{made.vocab_size}{'-lower' if lower else ''}-{digest}"
        return self._keep(Known(name, made, text))

    def _keep(self, known: Known) -> Known:
        with self._lock:
            while len(self._kept) >= KEPT:
                self._kept.popitem(last=False)
            self._kept[known.name] = known
        return known
