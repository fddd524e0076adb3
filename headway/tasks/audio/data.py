"""The sounds of a run: train, validation and test stores of one rate, and how sounds become spectrograms.

Letters: B clips, n samples, F bands, T frames, L labels.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.config.augment import SoundAugmentConfig
from headway.config.recipe import DataConfig
from headway.data.batching.permutation import Index
from headway.data.datasets.labeled import hold_out
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.data.media.store import decoded
from headway.data.sounds.augment import SoundDraws, draw, mask, perturb
from headway.data.sounds.decode import RATE
from headway.data.sounds.mel import log_mels, mel_filters
from headway.data.sounds.preprocess import FILE, SoundPreprocess, preprocess_of
from headway.data.sounds.rows import SoundRow, find_parts, read_rows, sound_files
from headway.data.sounds.store import FULL, Pcm, SoundStore, build_store, pcm_of, store_of
from headway.data.synthetic.sounds import Tone, tones
from headway.errors import ConfigError, DataError
from headway.hub.download import resolve, side_file
from headway.jsonfile import read_json
from headway.tasks.recipe import Recipe

MADE_UP = 2400
"""Sounds that are made up where no data are given."""
Make = Callable[[int], list[Tone]]
LONGEST, COVERED = 10.0, 0.9
"""The longest clip that headway chooses, in seconds; and the share of the sounds that fit into a clip."""
MELS, FEW_MELS = 80, 48
"""Bands at 16,000 samples a second and more, and below."""
MEASURED = 1000
"""Sounds by which spectrograms are normalised."""
BATCH = 64
"""Clips that are evaluated at a time."""


@dataclass(frozen=True)
class Sounds:
    """Some sounds of a store with their rows."""

    store: SoundStore
    rows: list[SoundRow]

    def __len__(self) -> int:
        return len(self.rows)

    def pcm(self, number: int) -> Pcm:
        return self.store.sound(self.rows[number].place)

    @cached_property
    def lengths(self) -> Index:
        """In samples."""
        places = np.array([row.place for row in self.rows], dtype=np.int64)
        found: Index = self.store.edges[places + 1] - self.store.edges[places]
        return found


@dataclass(frozen=True)
class SoundData:
    """The sounds of a run."""

    preprocess: SoundPreprocess
    train: Sounds
    valid: Sounds
    test: str
    """A spec of test sounds; empty if there are none."""
    about: dict[str, Any]

    def read(self, spec: str, data: DataConfig, bad: BadRows) -> Sounds:
        """Other sounds, at the same rate."""
        store = read_store(spec, data, self.preprocess.rate, bad)
        return Sounds(store, store.rows)


def load_sounds(
    recipe: Recipe, bad: BadRows, usable: Callable[[Sequence[SoundRow]], list[SoundRow]] = list, make: Make = tones
) -> SoundData:
    """Read the sounds of a recipe. `usable` keeps the rows that the task can learn from, and may change labels.

    `make` makes sounds where no data are given. The task's settings have rate, seconds and mels.
    """
    data = recipe.data
    base = base_preprocess(recipe)
    parts = find_parts(data.train) if data.train else {}
    spec, valid, test = parts.get("train", data.train), data.valid or parts.get("valid", ""), data.test
    made = make(MADE_UP) if not spec else []
    rate = base.rate if base else recipe.settings.rate or (made[0].rate if made else RATE)
    store = read_store(spec, data, rate, bad) if spec else made_store(made, rate)
    rows = usable(store.rows)
    if valid:
        held = read_store(valid, data, rate, bad)
        train, second = Sounds(store, rows), Sounds(held, usable(held.rows))
    else:
        train, second = (Sounds(store, some) for some in hold_out(rows))
    preprocess = base or measured(chosen(recipe, rate, train), train)
    about = {"train": data.train, "valid": valid, "fingerprint": store.digest, "bad_rows": bad.count}
    return SoundData(preprocess, train, second, test or parts.get("test", ""), about)


def base_preprocess(recipe: Recipe) -> SoundPreprocess | None:
    """How model.from says that sounds are prepared; None for a new model."""
    settings = recipe.settings
    if not recipe.model.from_:
        return None
    found = folder_preprocess(resolve(recipe.model.from_))
    for name in ("rate", "seconds", "mels"):
        asked, own = getattr(settings, name), getattr(found, name)
        if asked and asked != own:
            raise ConfigError("C004", f"{recipe.task}.{name} = {asked}, but {recipe.model.from_} has {own}")
    return found


def file_to_try(first: SoundRow, data: DataConfig) -> str:
    """The file of a held-out sound, also where a table names it; empty if sounds are no files."""
    if not first.line or not first.file:
        return first.file
    rows = (row for row in read_rows(first.file, data) if isinstance(row, SoundRow))
    sound = next((row.sound for row in rows if row.line == first.line), None)
    return sound if isinstance(sound, str) else ""


def chosen(recipe: Recipe, rate: int, train: Sounds) -> SoundPreprocess:
    """As the settings say, or by the lengths of the sounds; not normalised yet."""
    settings = recipe.settings
    usual = float(np.quantile(train.lengths, COVERED)) / rate
    seconds = settings.seconds or min(LONGEST, max(0.1, np.ceil(usual * 10) / 10))
    return SoundPreprocess(rate, float(seconds), settings.mels or (MELS if rate >= RATE else FEW_MELS))


def made_store(made: Sequence[Tone], rate: int) -> SoundStore:
    """Sounds that headway makes."""
    if made[0].rate != rate:
        raise ConfigError("C004", f"rate = {rate}: the sounds that headway makes have {made[0].rate} samples a second")
    rows = [SoundRow(None, tone.kind, line=i + 1) for i, tone in enumerate(made)]
    return store_of([tone.samples for tone in made], rate, rows)


def read_store(spec: str, data: DataConfig, rate: int, bad: BadRows) -> SoundStore:
    """The sounds of a spec at a rate; `bad` takes those that cannot be used."""
    store = build_store(read_rows(spec, data), rate, _stamp(spec, data))
    for flaw in store.flaws:
        bad.add(flaw)
    if not len(store):
        raise bad.no_rows(spec, "sounds")
    return store


def _stamp(spec: str, data: DataConfig) -> str:
    """What names the content of a spec: its files with their sizes and times, and the columns that are read."""
    found = hashlib.sha256(repr((spec, data.sound, data.label, data.text)).encode())
    for path in sound_files(spec):
        state = path.stat()
        found.update(f"{os.path.abspath(path)}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return found.hexdigest()


# --- spectrograms


class Listener:
    """Clips to the normalised spectrograms that a model reads, on any device: tensors that a batch takes along."""

    def __init__(self, preprocess: SoundPreprocess) -> None:
        self.preprocess = preprocess
        self.filters = torch.from_numpy(mel_filters(preprocess.mels, preprocess.rate)).float()
        self.norm = torch.tensor([preprocess.mean, preprocess.std])

    def __call__(self, clips: Tensor) -> Tensor:
        """16-bit clips (B, n) to (B, 1, F, T), without augmentation."""
        device = clips.device
        return spectrograms(clips.float() / FULL, self.filters.to(device), self.norm.to(device), self.preprocess.rate)


def spectrograms(x: Tensor, filters: Tensor, norm: Tensor, rate: int) -> Tensor:
    """Samples (B, n) to normalised (B, 1, F, T)."""
    return ((log_mels(x, filters, rate) - norm[0]) / norm[1])[:, None]


def heard(
    settings: SoundAugmentConfig, clips: Tensor, draws: SoundDraws, filters: Tensor, norm: Tensor, rate: int
) -> Tensor:
    """Augmented spectrograms (B, 1, F, T) of a batch; with mixup its second half is mixed into the first."""
    x = perturb(settings, clips, draws)
    if settings.mixup:
        share = draws.mixed.chunk(2)[0][:, None]
        first, second = x.chunk(2)
        x = share * first + (1 - share) * second
        draws = SoundDraws(*(each.chunk(2)[0] for each in draws))
    return mask(settings, spectrograms(x, filters, norm, rate)[:, 0], draws)[:, None]


def training_clips(
    part: Sounds, rows: Index, samples: Index, preprocess: SoundPreprocess, settings: SoundAugmentConfig, seed: int
) -> tuple[Tensor, SoundDraws]:
    """Random 16-bit clips (B, n) of sounds: anywhere in a longer one, and a shorter one near the middle of its clip."""
    draws, place = draw(settings, seed, samples)
    lengths, n = part.lengths[rows], preprocess.samples
    longer = (place + 1) / 2 * (lengths - n)
    shorter = (lengths - n) / 2 - place * settings.shift * n
    firsts = np.where(lengths > n, longer, shorter).round().astype(int)
    clips = [preprocess.clip(part.pcm(row), first) for row, first in zip(rows.tolist(), firsts.tolist(), strict=True)]
    return torch.from_numpy(np.stack(clips)), draws


def measured(preprocess: SoundPreprocess, part: Sounds) -> SoundPreprocess:
    """Normalised by the mean and the standard deviation of the spectrograms themselves."""
    listen, values = Listener(replace(preprocess, mean=0.0, std=1.0)), []
    for number in range(0, len(part), max(1, len(part) // MEASURED)):
        pcm = part.pcm(number)
        first = (len(pcm) - preprocess.samples) // 2
        values.append(listen(torch.from_numpy(preprocess.clip(pcm, first))[None]).double())
    every = torch.cat(values)
    return replace(preprocess, mean=float(every.mean()), std=max(1e-3, float(every.std())))


# --- whole sounds, in windows


@dataclass(frozen=True)
class Windows:
    """The clips that cover sounds: a short sound has one."""

    sounds: Sequence[Pcm]
    preprocess: SoundPreprocess

    @cached_property
    def places(self) -> tuple[Index, Index]:
        """Of each clip: which sound it is of, and where it begins there."""
        starts = [self.preprocess.starts(len(sound)) for sound in self.sounds]
        return np.repeat(np.arange(len(starts)), [len(each) for each in starts]), np.concatenate(starts)

    def clips(self, which: Index) -> Tensor:
        """16-bit clips (B, n)."""
        owners, starts = self.places
        found = [self.preprocess.clip(self.sounds[owners[i]], int(starts[i])) for i in which]
        return torch.from_numpy(np.stack(found))

    @property
    def batches(self) -> list[Index]:
        count = len(self.places[0])
        return [np.arange(at, min(at + BATCH, count)) for at in range(0, count, BATCH)]

    def combined(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """(sounds, L): logarithms of the mean probabilities over each sound's clips, from logits (clips, L)."""
        powers = np.exp(logits - logits.max(1, keepdims=True))
        shares, owners = powers / powers.sum(1, keepdims=True), self.places[0]
        sums = np.zeros((len(self.sounds), logits.shape[1]))
        np.add.at(sums, owners, shares)
        return np.log(np.maximum(sums / np.bincount(owners)[:, None], 1e-30))


def folder_preprocess(folder: Path | None) -> SoundPreprocess:
    """How a model's folder says that sounds are prepared."""
    found = None if folder is None else side_file(folder, FILE)
    if found is None:
        raise DataError("D001", f"this model has no {FILE}, which says how sounds are prepared")
    return preprocess_of(read_json(found))


def decode_sounds(examples: Sequence[Any], rate: int) -> list[Pcm]:
    """Sounds of examples, decoded ahead in threads; a DataError names one that is broken."""
    rows = [SoundRow(each.sound, file=each.name, start=each.start, end=each.end) for each in examples]
    found: list[Pcm] = []
    for each in decoded(rows, lambda row: pcm_of(row, rate)):
        if isinstance(each, Flaw):
            where = f"{each.file}: " if each.file else ""
            raise DataError(each.code, f"{where}{each.reason}")
        found.append(each[1])
    return found
