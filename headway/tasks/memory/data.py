"""The stories of a run in parts, and stories as numbers: distinct sentences, and which of them a question remembers.

Letters: B questions, S distinct sentences, L words of a sentence, N memories, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from headway.config.networks.memory import MemoryConfig, StoryConfig
from headway.data.batching.permutation import Index, permute, splitmix64
from headway.data.datasets.labeled import HELD_OUT, SPLIT_KEY
from headway.data.datasets.stories import Story, part_of, read_stories, story_files, words_of
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.data.synthetic.texts.errands import make_errands
from headway.errors import DataError, nearest
from headway.joint.memory import StoryTensors
from headway.progress import track
from headway.tasks.recipe import Recipe

MADE_UP = 20_000
"""Questions that headway makes up where no data are given."""
SHOWN = 40
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Part:
    """Questions as a model reads them."""

    stories: list[Story]
    sentences: Index
    """(S, L) rows of words, padded with 0; sentence 0 has no words."""
    memories: Index
    """(B, N) numbers of sentences, the last one first; 0 is no memory."""
    questions: Index
    """(B,) numbers of sentences."""
    truth: Index
    """(B,) the place of each answer; -1: training has no such answer."""

    def __len__(self) -> int:
        return len(self.stories)

    @cached_property
    def lengths(self) -> Index:
        """(S,) words of each sentence."""
        found: Index = (self.sentences > 0).sum(1)
        return found

    @cached_property
    def kinds(self) -> list[str]:
        return [story.kind for story in self.stories]

    @cached_property
    def tokens(self) -> int:
        """Words of all questions with the sentences that they remember."""
        return int(self.lengths[self.memories].sum() + self.lengths[self.questions].sum())


@dataclass(frozen=True)
class StoryData:
    """Questions read and split; no numbers yet."""

    source: StoryConfig
    labels: tuple[str, ...]
    split: dict[str, list[Story]]
    bad: BadRows

    def part(self, name: str, config: MemoryConfig) -> Part:
        return make_part(self.split[name], config, self.bad, name)


def read_data(recipe: Recipe) -> StoryData:
    """The questions of a recipe, or made-up ones, in parts. Words and answers are those of train and validation."""
    data, bad = recipe.data, BadRows(recipe.data.bad_rows)
    if data.train:
        files = story_files(data.train, "train")
        if not files:
            raise DataError("D002", f"{data.train}: no file is called …_train", "name the files: data.train=FILE")
        stories = read_stories(files, data.train, bad)
    else:
        stories = make_errands(MADE_UP)
    split = {"train": stories}
    if data.valid:
        split["valid"] = read_stories(story_files(data.valid, "valid"), data.valid, bad)
    else:
        split["train"], split["valid"] = hold_out(stories)
    if not data.test and data.train:
        known = {story.kind for story in stories}
        tests = [path for path in story_files(data.train, "test") if part_of(path)]
        if tests:
            found = read_stories(tests, data.train, bad)
            split["test"] = [story for story in found if story.kind in known]
    if not split.get("test", ["some"]):
        del split["test"]
    words, longest = set[str](), 0
    for text in {text for story in stories for text in (*story.told, story.question)}:
        words.update(words_of(text))
        longest = max(longest, len(words_of(text)))
    labels = tuple(sorted({story.label for story in stories}))
    if len(labels) < 2:
        raise DataError("D002", f"nothing to tell apart: the only answer is {labels[0]!r}")
    source = StoryConfig(words=tuple(sorted(words)), memories=recipe.settings.memories, longest=longest)
    return StoryData(source, labels, split, bad)


def hold_out(stories: Sequence[Story]) -> tuple[list[Story], list[Story]]:
    """Split questions into train and validation at random; questions about one story stay together."""
    groups: list[list[Story]] = []
    for story in stories:
        before = groups[-1][-1] if groups else None
        if before is None or before.file != story.file or story.told[: len(before.told)] != before.told:
            groups.append([])
        groups[-1].append(story)
    if len(groups) < 2:
        raise DataError("D002", "questions about one story alone: none can be held out", "give data.valid")
    order = permute(np.arange(len(groups)), len(groups), SPLIT_KEY)
    held = set(order[: max(1, int(len(groups) * HELD_OUT))].tolist())
    parts = [[story for i, group in enumerate(groups) if (i in held) == valid for story in group] for valid in (0, 1)]
    return parts[0], parts[1]


def make_part(
    stories: Sequence[Story], config: MemoryConfig, bad: BadRows | None = None, what: str = "stories"
) -> Part:
    """Questions as numbers; those that the model cannot read are bad rows, or an error where nobody counts those."""
    numbers: dict[str, int] = {}
    tables: list[list[int]] = [[]]
    memories = np.zeros((len(stories), config.source.memories), dtype=np.int64)
    kept, questions = list[Story](), list[int]()
    for story in track(stories, f"reading {what}", unit="questions"):
        told = story.told[: -config.source.memories - 1 : -1]
        try:
            for text in (story.question, *told):
                if text not in numbers:
                    tables.append(_rows(text, config.source))
                    numbers[text] = len(tables) - 1
        except DataError as error:
            if bad is None:
                raise
            bad.add(Flaw(story.file, story.line, error.message, code=error.code))
            continue
        memories[len(kept), : len(told)] = [numbers[text] for text in told]
        questions.append(numbers[story.question])
        kept.append(story)
    if not kept and bad is not None:
        raise bad.no_rows(what, "questions that the model can read")
    sentences = np.zeros((len(tables), max(map(len, tables))), dtype=np.int64)
    for place, rows in enumerate(tables):
        sentences[place, : len(rows)] = rows
    places = {label: i for i, label in enumerate(config.labels)}
    truth = np.array([places.get(story.label, -1) for story in kept], dtype=np.int64)
    return Part(kept, sentences, memories[: len(kept)], np.array(questions, dtype=np.int64), truth)


def _rows(text: str, source: StoryConfig) -> list[int]:
    """The rows of the words of a sentence; a `DataError` for a word or a length that training did not have."""
    words = words_of(text)
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    if len(words) > source.longest:
        why = f"{len(words)} words, and the longest sentence of training has {source.longest}: {shown}"
        raise DataError("D001", why)
    for word in words:
        if word not in source.rows:
            raise DataError("D001", f"the word {word!r} was not in training{nearest(word, source.rows)}: {shown}")
    return [source.rows[word] for word in words]


def collate(
    part: Part, rows: Index, *, transformer: bool, noise: float = 0.0, keys: Keys | None = None
) -> tuple[torch.Tensor, StoryTensors]:
    """The numbers of the questions (B,) among the sentences of a batch, and the batch.

    `noise` is the share of empty memories among those of a story, at most; the `keys` (B,) say how many, and where.
    """
    memories = part.memories[rows]
    most = max(1, int((memories > 0).sum(1).max(initial=0)))
    memories = memories[:, :most]
    if noise and keys is not None:
        memories = _with_gaps(memories, part.memories.shape[1], noise, keys)
    asked = part.questions[rows]
    distinct, places = np.unique(np.concatenate([[0], asked, memories.ravel()]), return_inverse=True)
    longest = max(1, int(part.lengths[distinct].max()))
    sentences, places = part.sentences[distinct, :longest], places.ravel()[1:]
    inputs, memories = places[: len(rows)], places[len(rows) :].reshape(memories.shape)
    tokens = _tokens(part.lengths[distinct], inputs, memories, longest) if transformer else None
    stories = StoryTensors(
        torch.from_numpy(np.ascontiguousarray(sentences)),
        torch.from_numpy(memories),
        None if tokens is None else torch.from_numpy(tokens),
    )
    return torch.from_numpy(inputs), stories


def _with_gaps(memories: Index, most: int, noise: float, keys: Keys) -> Index:
    """Memories with empty ones among them; what is then older than the memory reaches is forgotten.

    A story gets from none to `noise` of its sentences, rounded up: of two sentences every second time one.
    """
    count = (memories > 0).sum(1)
    width = memories.shape[1] + math.ceil(noise * memories.shape[1])
    bits = splitmix64(keys[:, None] + np.arange(1, width + 2, dtype=np.uint64)) >> np.uint64(11)
    drawn = bits / float(1 << 53)  # (B, width + 1): a number of empty memories, and a key for each place
    empty = (drawn[:, 0] * (np.ceil(noise * count) + 1)).astype(np.int64)
    places = np.where(np.arange(width) < (count + empty)[:, None], drawn[:, 1:], 2.0)
    rank = places.argsort(1).argsort(1)
    real = (rank >= empty[:, None]) & (places < 2)
    found = np.zeros((len(memories), width), dtype=np.int64)
    found[real] = memories[memories > 0]
    return found[:, : min(most, int((count + empty).max()))]


def _tokens(lengths: Index, inputs: Index, memories: Index, longest: int) -> Index:
    """(B, T): the places of words among question and memories, padded with -1."""
    count = np.concatenate([lengths[inputs][:, None], lengths[memories]], 1)  # (B, 1 + N)
    real = (np.arange(longest) < count[..., None]).reshape(len(count), -1)
    order = np.argsort(~real, axis=1, kind="stable")[:, : int(real.sum(1).max())]
    found: Index = np.where(np.take_along_axis(real, order, 1), order, -1)
    return found
