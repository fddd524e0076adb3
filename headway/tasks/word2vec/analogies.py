"""Analogies: a is to b as c is to which word? Files of such questions, and how many a model answers.

The answer is the word nearest to b - a + c (3CosAdd, Mikolov et al. 2013) of the most frequent ones, a, b and c aside.
Letters: N questions, V words, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.data.batching.permutation import Index
from headway.data.files.lines import open_text
from headway.data.files.locate import find_files
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.errors import DataError, counted
from headway.tasks.inputs import reject
from headway.tasks.metrics.bootstrap import Evaluation, mean_interval

MOST_FREQUENT = 30_000
"""Words that may be an answer: rare ones are noise."""
CHUNK = 1024
"""Questions that are answered together."""
SHOWN = 20
"""Wrong answers in a report."""


@dataclass(frozen=True)
class Questions:
    """The questions of a file, section by section."""

    words: list[tuple[str, str, str, str]]
    """a, b, c, and the answer."""
    sections: list[str]
    """The section of each."""
    lines: list[int]

    def __len__(self) -> int:
        return len(self.words)


def is_questions(source: str) -> bool:
    """Whether a file has questions: its first line names a section."""
    files = find_files(source)
    if len(files) != 1 or files[0].suffix not in (".txt", ""):
        return False
    with open_text(files[0]) as file:
        return file.readline(100).lstrip().startswith(b":")


def read_questions(source: str, bad: BadRows) -> Questions:
    """A file with `: section` lines and four words on each other line."""
    path, found, section = Path(find_files(source)[0]), Questions([], [], []), ""
    with open_text(path) as file:
        for number, raw in enumerate(file, start=1):
            line = raw.decode().strip()
            words = line.split()
            if line.startswith(":"):
                section = line[1:].strip()
            elif len(words) == 4:
                found.words.append((words[0], words[1], words[2], words[3]))
                found.sections.append(section)
                found.lines.append(number)
            elif words:
                reject(Flaw(str(path), number, f"an analogy has four words, this line has {len(words)}"), bad)
    if not found.words:
        raise bad.no_rows(source, "analogies")
    return found


@dataclass(frozen=True)
class Answers:
    """What a model answers: of each question whether it is right, and which word is nearest."""

    asked: Index
    """The questions whose words all have vectors."""
    right: np.ndarray
    nearest: list[str]
    questions: Questions

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())


def answer(vectors: Tensor, words: Sequence[str], questions: Questions) -> Answers:
    """The answers of vectors (V, D) of length one, the most frequent word first. Case does not matter."""
    index: dict[str, int] = {}
    for number, word in enumerate(words[:MOST_FREQUENT]):
        index.setdefault(word.lower(), number)
    numbers = [[index.get(word.lower(), -1) for word in row] for row in questions.words]
    every = np.array(numbers, np.int64).reshape(-1, 4)
    asked = np.flatnonzero((every >= 0).all(1))
    if not len(asked):
        first = next(word for word, n in zip(questions.words[0], numbers[0], strict=True) if n < 0)
        what = f"none of {counted(len(questions), 'analogies')} has four words that the model knows: no {first!r}"
        raise DataError("D002", what, f"an answer is one of its {min(len(words), MOST_FREQUENT):,} most frequent words")
    vectors, found = vectors[: len(words[:MOST_FREQUENT])], []
    for begin in range(0, len(asked), CHUNK):
        a, b, c, _ = torch.from_numpy(every[asked[begin : begin + CHUNK]]).T
        wanted = torch.nn.functional.normalize(vectors[b] - vectors[a] + vectors[c], dim=1)
        cosines = wanted @ vectors.T
        for given in (a, b, c):
            cosines[torch.arange(len(given)), given] = -torch.inf
        found.append(cosines.argmax(1))
    best = torch.cat(found).numpy()
    return Answers(asked, best == every[asked, 3], [words[place] for place in best], questions)


def evaluation(answers: Answers) -> Evaluation:
    """Accuracy with its interval, a table of sections, and some wrong answers."""
    questions, right = answers.questions, answers.right
    sections = np.array(questions.sections, object)
    rows = []
    for section in [*dict.fromkeys(questions.sections), "all"]:
        every = np.ones(len(questions), bool) if section == "all" else sections == section
        here = every[answers.asked]
        row = {"kind": section or "no section", "examples": int(every.sum()), "known": float(here.sum() / every.sum())}
        rows.append({**row, "accuracy": float(right[here].mean()) if here.any() else None})
    details: dict[str, Any] = {"by_section": rows, "worst": _wrong(answers)}
    details["measured_by"] = f"3CosAdd, the {MOST_FREQUENT:,} most frequent words, questions with unknown words aside"
    return Evaluation(
        len(answers.asked), {"accuracy": mean_interval(right.astype(np.float64))}, details, answers.nearest
    )


def _wrong(answers: Answers) -> list[dict[str, Any]]:
    places = np.flatnonzero(~answers.right)
    found = []
    for place in places[:: max(1, len(places) // SHOWN)][:SHOWN]:
        question = answers.asked[place]
        a, b, c, true = answers.questions.words[question]
        line = answers.questions.lines[question]
        found.append(
            {"text": f"{a} : {b} :: {c} : ?", "predicted": answers.nearest[place], "label": true, "line": line}
        )
    return found
