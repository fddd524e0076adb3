"""Sounds with the text of what is said in them, for training and evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.data.batching.padding import Examples
from headway.data.batching.permutation import Index
from headway.data.datasets.labeled import hold_out
from headway.data.datasets.parallel import Pair
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.data.images.augment import Floats
from headway.data.media.listing import columns_there
from headway.data.sounds.decode import RATE
from headway.data.sounds.rows import SoundRow, find_parts
from headway.data.sounds.store import SoundStore, store_of
from headway.data.synthetic.sounds import syllables
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.tasks.audio.data import read_store
from headway.tasks.recipe import Recipe
from headway.tasks.transcribe.features import HOP, WIDTH, SoundFeatures
from headway.tasks.transcribe.prompt import SpeechTokens
from headway.tasks.transcribe.timestamps import FRAMES_PER_SECOND

MADE_UP = 2000
"""Sequences of syllables that are spoken where no data are given."""


@dataclass(frozen=True)
class Clips:
    """Some sounds of a store, and what is said in them as a decoder learns to write it."""

    store: SoundStore
    rows: list[SoundRow]
    target: Examples
    """After the start token: the tokens of language and task, the text, and its end."""
    prompt: int
    """Tokens of each target that are given, not predicted."""
    features: SoundFeatures

    @cached_property
    def pairs(self) -> list[Pair]:
        return [Pair(row.shown, (row.text,), row.file, row.line) for row in self.rows]

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest target, rounded up: all batches have this width."""
        return -(-int(self.target.lengths.max()) // 8) * 8

    def __len__(self) -> int:
        return len(self.rows)

    def some(self, count: int) -> Clips:
        """The first of them."""
        ids, types = self.target.ids[:count], self.target.token_type_ids[:count]
        return Clips(self.store, self.rows[:count], Examples(ids, types), self.prompt, self.features)

    def positions(self, rows: Index | Sequence[int]) -> int:
        """Positions of the encoder for these sounds."""
        return sum(self.features.positions_of(frames_of(self.store, self.rows[row])) for row in rows)

    def batches(self, tokens: int) -> Iterable[list[int]]:
        """All of them in batches of about so many positions, those of the encoder included."""
        size = max(1, tokens // (self.features.positions + self.longest))
        every = list(range(len(self)))
        return [every[at : at + size] for at in range(0, len(every), size)]

    def samples(self, rows: Index | Sequence[int], place: Floats | None = None) -> tuple[Tensor, Tensor | None]:
        """16-bit samples (B, n) of sounds, and which are no padding; None: silence up to the window is none either.

        A sound begins where the window does, or anywhere if `place` says for each where, from 0 to 1. A model that
        reads samples is given silence before it, at most as long as the sound.
        """
        most, raw = self.features.window * HOP, self.features.raw
        sounds = [self.store.sound(self.rows[row].place)[:most] for row in rows]
        rooms = [min(most - len(sound), len(sound)) if raw else most - len(sound) for sound in sounds]
        firsts = [0 if place is None else round(place[number] * room) for number, room in enumerate(rooms)]
        ends = [first + len(sound) for first, sound in zip(firsts, sounds, strict=True)]
        found = np.zeros((len(rows), max(WIDTH, *ends) if raw else most), np.int16)
        for row, first, end, sound in zip(found, firsts, ends, sounds, strict=True):
            row[first:end] = sound
        real = np.arange(found.shape[1]) < np.maximum(ends, WIDTH)[:, None] if raw else None
        return torch.from_numpy(found), None if real is None else torch.from_numpy(real)

    def targets(self, rows: Index | Sequence[int], width: int) -> tuple[Tensor, Tensor]:
        """Tokens (B, width), padded on the right; and which of them are to be predicted."""
        ids, said = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), bool)
        for place, row in enumerate(rows):
            count = len(self.target.ids[row])
            ids[place, :count], said[place, self.prompt : count] = self.target.ids[row], True
        return torch.from_numpy(ids), torch.from_numpy(said)


def frames_of(store: SoundStore, row: SoundRow) -> int:
    return -(-int(store.edges[row.place + 1] - store.edges[row.place]) // HOP)


@dataclass(frozen=True)
class SpokenData:
    """The stores of a run and which rows each part has."""

    train: tuple[SoundStore, list[SoundRow]]
    valid: tuple[SoundStore, list[SoundRow]]
    test: str
    about: dict[str, Any]


def load_spoken(recipe: Recipe, window: int, bad: BadRows) -> SpokenData:
    """The sounds of a recipe that have a text."""
    data = recipe.data
    parts = find_parts(data.train) if data.train else {}
    spec, valid, test = parts.get("train", data.train), data.valid or parts.get("valid", ""), data.test
    store = read_store(spec, data, RATE, bad) if spec else spoken_store(window)
    rows = spoken(store, window, bad)
    if valid:
        held = read_store(valid, data, RATE, bad)
        train, second = (store, rows), (held, spoken(held, window, bad))
    else:
        train, second = ((store, some) for some in hold_out(rows))
    about = {"train": data.train, "valid": valid, "fingerprint": store.digest, "bad_rows": bad.count}
    return SpokenData(train, second, test or parts.get("test", ""), about)


def spoken_store(window: int) -> SoundStore:
    """Syllables that headway speaks, as many as fit the window."""
    seconds = window / FRAMES_PER_SECOND
    most = max(1, min(5, int(seconds / 0.4)))
    made = syllables(MADE_UP, rate=RATE, words=(min(2, most), most))
    rows = [SoundRow(None, text=each.text, line=i + 1) for i, each in enumerate(made)]
    return store_of([each.samples for each in made], RATE, rows)


def spoken(store: SoundStore, window: int, bad: BadRows) -> list[SoundRow]:
    """Rows with a text and a sound that the encoder can read at once; `bad` takes the longer ones."""
    said = [row for row in store.rows if row.text.strip()]
    if not said:
        first = store.rows[0]
        hint = "a table with a column of sounds and one of texts (data.text=COLUMN), such as metadata.csv"
        hint += columns_there(first.file, first.line)
        raise DataError("D004", f"{first.file or 'the data'}: the sounds have no texts", hint)
    found = []
    for row in said:
        frames = frames_of(store, row)
        if frames <= window:
            found.append(row)
            continue
        seconds, most = frames / FRAMES_PER_SECOND, window / FRAMES_PER_SECOND
        reason = f"{seconds:.1f} s of sound, the model reads {most:g} s at once: cut it, or raise transcribe.seconds"
        bad.add(Flaw(row.file, row.line, reason, seen=True))
    if not found:
        raise bad.no_rows(store.rows[0].file, "sounds that fit")
    return found


def make_clips(
    store: SoundStore,
    rows: list[SoundRow],
    tokenizer: Tokenizer,
    speech: SpeechTokens,
    recipe: Recipe,
    features: SoundFeatures,
) -> Clips:
    """The targets of rows, with what the decoder reads before them."""
    settings = recipe.settings
    begin = speech.begin(settings.language, translate=settings.translate, timestamps=settings.timestamps)[1:]
    whole = []
    for row, ids in zip(rows, tokenizer.ids([text_of(row.text, speech) for row in rows]), strict=True):
        if settings.timestamps and speech.first_timestamp is not None:
            end = min(features.window, frames_of(store, row)) // 2
            ids = [speech.first_timestamp, *ids, speech.first_timestamp + end]
        whole.append([*begin, *ids, speech.end])
    limit = recipe.data.length
    target = Examples(
        [ids[:limit] for ids in whole], [[0] * len(ids[:limit]) for ids in whole], whole=[*map(len, whole)]
    )
    return Clips(store, rows, target, len(begin), features)


def text_of(text: str, speech: SpeechTokens) -> str:
    """A text as the vocabulary knows it: Whisper's words begin with a space."""
    return text.strip() if speech.first_timestamp is None else f" {text.strip()}"
