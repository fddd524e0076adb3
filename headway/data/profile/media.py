"""What surveys of images and of sounds share: labels, parts, duplicates, broken files."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headway.data.files.locate import file_format
from headway.data.files.readers import Flaw
from headway.data.files.rows import peek
from headway.data.media.listing import TABLES
from headway.errors import HeadwayError, counted
from headway.jsonfile import show

SHOWN_CLASSES, SHOWN_DUPLICATES = 12, 5


@dataclass
class MediaSurvey:
    """What a dataset of images or sounds holds."""

    spec: str
    parts: dict[str, int] = field(default_factory=dict)
    """Examples of each part of the dataset, if it is divided."""
    labels: dict[str, int] = field(default_factory=dict)
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    """Examples whose content is equal: the later one and the first one."""
    across: int = 0
    """Duplicates between training data and other parts."""
    bad: int = 0
    bad_lines: tuple[str, ...] = ()
    others: list[str] = field(default_factory=list)
    """Files that are no examples."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def part_text(self) -> str:
        parts = ", ".join(f"{count:,} {part}" for part, count in self.parts.items())
        return f": {parts}" if parts else ""

    def label_lines(self, noun: str) -> Iterator[str]:
        if not self.labels:
            return
        yield f"{counted(len(self.labels), 'labels')}:"
        ordered = sorted(self.labels.items(), key=lambda pair: -pair[1])
        for name, count in ordered[:SHOWN_CLASSES]:
            yield f"  {count:8,}  {count / sum(self.labels.values()):6.1%}  {name}"
        if len(ordered) > SHOWN_CLASSES:
            yield f"  … and {len(ordered) - SHOWN_CLASSES:,} more, the rarest with {ordered[-1][1]:,}"
        if single := [name for name, count in ordered if count == 1]:
            yield f"  {counted(len(single), 'labels')} with a single {noun}: {', '.join(single[:3])}"

    def trouble_lines(self, noun: str) -> Iterator[str]:
        if self.duplicates:
            some = ", ".join(f"{a} = {b}" for a, b in self.duplicates[:SHOWN_DUPLICATES])
            between = f", {self.across:,} of them of training {noun}s in other parts" if self.across else ""
            yield f"{counted(len(self.duplicates), 'duplicates')}{between}: {some}"
        if self.others:
            yield f"{counted(len(self.others), 'files')} left out, no {noun}s: {', '.join(self.others[:3])}"
        if self.bad:
            yield f"{counted(self.bad, f'bad {noun}s')}, the first:"
            yield from (f"  {line}" for line in self.bad_lines[:SHOWN_DUPLICATES])


class Tally:
    """Counts the examples of a survey one after the other; `keep` bad ones are listed."""

    def __init__(self, survey: MediaSurvey, keep: int) -> None:
        self.survey, self.keep = survey, keep
        self.labels = Counter[str]()
        self.seen: dict[bytes, tuple[str, str]] = {}

    def flaw(self, flaw: Flaw) -> None:
        where = f"{show(flaw.file)}:{flaw.line}" if flaw.line else show(flaw.file)
        self.survey.bad += 1
        if len(self.survey.bad_lines) < self.keep:
            self.survey.bad_lines += (f"{where}: {flaw.reason}",)

    def example(self, shown: str, label: Any, part: str, content: bytes) -> None:
        if part:
            self.survey.parts[part] = self.survey.parts.get(part, 0) + 1
        if label is not None:
            self.labels[str(label)] += 1
        digest = hashlib.sha256(content).digest()
        if digest in self.seen:
            name, first_part = self.seen[digest]
            self.survey.duplicates.append((shown, name))
            self.survey.across += first_part != part and "train" in (first_part, part)
        else:
            self.seen[digest] = shown, part

    def finish(self, others: list[str]) -> None:
        self.survey.labels, self.survey.others = dict(sorted(self.labels.items())), others


def spread(values: list[Any]) -> tuple[Any, Any, Any]:
    """The smallest, the median and the largest."""
    values = sorted(values)
    return values[0], values[len(values) // 2], values[-1]


def is_table_of(path: Path, names: Collection[str], suffixes: Collection[str], *, paths: bool = False) -> bool:
    """Whether a column with a usual name holds the bytes of files, or paths with one of these endings.

    `paths`: only such paths count.
    """
    if file_format(path)[0] not in TABLES:
        return False
    try:
        values = [row.values for row in peek(path)[1][:5]]
    except HeadwayError:
        return False
    for row in values:
        for name in (each for each in row if each.lower() in names):
            value = row[name]
            if not paths and (isinstance(value, bytes) or (isinstance(value, dict) and "bytes" in value)):
                return True
            if isinstance(value, str) and Path(value).suffix.lower() in suffixes:
                return True
    return False
