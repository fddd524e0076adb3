"""Survey of two parallel files, SOURCE,TARGET: pairs of lines, lengths and their ratio, flaws, samples side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np

from headway.config.recipe import UTF_8
from headway.data.batching.permutation import splitmix64
from headway.data.datasets.parallel import Pair, all_lines, read_two_files
from headway.data.files.lines import read_as
from headway.data.files.locate import find_files
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.data.profile.duplicates import DuplicateIndex
from headway.data.profile.lengths import LengthCounter, Lengths
from headway.data.profile.survey import SHOWN_BAD, length_table, share_of
from headway.data.profile.tally import one_line
from headway.data.profile.texts import measure, text_array
from headway.errors import DataError, counted
from headway.jsonfile import show

BATCH, SAMPLES = 1000, 3
FAR = 3
"""A pair whose sides differ by more than this factor in words is probably none."""
FEWEST_WORDS = 5
"""Words of the longer side from which on the ratio means something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSurvey:
    spec: str
    files: int
    bytes: int
    source_lines: int
    target_lines: int
    """Unequal numbers of lines cannot be paired."""
    pairs: int
    """Pairs without a flaw."""
    lengths: dict[str, Lengths]
    ratio: float
    """Words of all targets for a word of all sources."""
    far: int
    """Pairs whose sides differ by more than FAR times in words."""
    same: int
    """Pairs with two equal sides."""
    duplicates: int
    samples: tuple[tuple[str, str], ...]
    bad: int
    bad_lines: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """The survey as lines for one screen."""
        yield f"{show(self.spec)}: {counted(self.files, 'files')}, {self.bytes / 1e6:,.2f} MB, text"
        yield f"{self.pairs:,} pairs of lines"
        if self.source_lines != self.target_lines:
            both = f"{self.source_lines:,} lines and {self.target_lines:,} lines"
            yield f"the files have {both}: they are not parallel, and pairs after a missing line are wrong"
        if self.pairs:
            yield ""
            yield from length_table("length", self.lengths)
            yield ""
            yield f"{'ratio':11} {self.ratio:.2f} target words for a source word"
            far = share_of(self.far, self.pairs, "pairs")
            yield f"{'far apart':11} {far} have over {FAR} times as many words on one side"
            yield f"{'same':11} {share_of(self.same, self.pairs, 'pairs')} have two equal sides"
            yield f"{'duplicates':11} {share_of(self.duplicates, self.pairs, 'pairs')}"
        yield f"{'bad lines':11} {self.bad:,}"
        yield from (f"{'':11} {line}" for line in self.bad_lines[:SHOWN_BAD])
        for source, target in self.samples:
            yield from ("", f"  {one_line(source, 110)}", f"  {one_line(target, 110)}")


def survey_pairs(source: str, target: str, *, keep: int = 20, encoding: str = UTF_8) -> PairSurvey:
    """Survey two files whose lines are pairs. `keep` bad lines are kept."""
    with read_as(encoding):
        return _survey(source, target, keep)


def _survey(source: str, target: str, keep: int) -> PairSurvey:
    bad, tally, seen = BadRows("skip", keep), LengthCounter(), DuplicateIndex()
    far, same, words, samples = 0, 0, np.zeros(2, dtype=np.int64), list[tuple[str, str]]()
    pairs = _pairs(source, target, bad)
    while batch := list(islice(pairs, BATCH)):
        first, second = (measure(text_array(side)) for side in _sides(batch))
        tally.add(**{"source words": first.words, "target words": second.words})
        tally.add(**{"source characters": first.characters, "target characters": second.characters})
        lines = np.array([pair.line for pair in batch])
        seen.add(splitmix64(first.hashes) ^ second.hashes, batch[0].file, lines)
        more, fewer = np.maximum(first.words, second.words), np.minimum(first.words, second.words)
        far += int(((more >= FEWEST_WORDS) & (more > FAR * fewer)).sum())
        same += int((first.hashes == second.hashes).sum())
        words += [first.words.sum(), second.words.sum()]
        samples += [(pair.source, pair.targets[0]) for pair in batch[: SAMPLES - len(samples)]]
    files = [find_files(side) for side in (source, target)]
    source_lines, target_lines = (sum(1 for path in paths for _ in all_lines(path)) for paths in files)
    return PairSurvey(
        spec=f"{source},{target}",
        files=sum(map(len, files)),
        bytes=sum(path.stat().st_size for paths in files for path in paths),
        source_lines=source_lines,
        target_lines=target_lines,
        pairs=len(seen),
        lengths=tally.lengths(),
        ratio=float(words[1] / max(1, words[0])),
        far=far,
        same=same,
        duplicates=seen.repeats()[0],
        samples=tuple(samples),
        bad=bad.count,
        bad_lines=tuple(bad.first),
    )


def _sides(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    return [pair.source for pair in pairs], [pair.targets[0] for pair in pairs]


def _pairs(source: str, target: str, bad: BadRows) -> Iterator[Pair]:
    """The pairs up to the end of the shorter file."""
    try:
        for item in read_two_files(source, target):
            if isinstance(item, Flaw):
                bad.add(item)
            else:
                yield item
    except DataError:
        if len(find_files(source)) != len(find_files(target)):
            raise  # otherwise the numbers of lines tell
