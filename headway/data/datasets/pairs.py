"""Pairs of texts that belong together, with or without a number that says how much, from tables of any kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headway.config.recipe import DataConfig
from headway.data.files.columns import ANCHOR, POSITIVE, SCORE, find_columns, value_type
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows, brief, find_files, peek, text_flaw
from headway.data.synthetic.paraphrases import make_paraphrases
from headway.errors import DataError
from headway.jsonfile import show

SYNTHETIC_PAIRS = 4000
"""Pairs that are made up where no file is given."""


@dataclass(frozen=True)
class TextPairs:
    first: list[str]
    second: list[str]
    scores: list[float] | None = None
    """How much each pair belongs together, where the data say so."""

    def __len__(self) -> int:
        return len(self.first)

    def part(self, chosen: slice) -> TextPairs:
        return TextPairs(self.first[chosen], self.second[chosen], self.scores and self.scores[chosen])


def read_pairs(spec: str, data: DataConfig, bad: BadRows) -> TextPairs:
    """All rows that have both texts, and a score if the file has any; an empty spec is made up by a small grammar."""
    if not spec:
        made = make_paraphrases(SYNTHETIC_PAIRS)
        return TextPairs([first for first, _ in made], [second for _, second in made])
    rows: list[tuple[str, str, float | None]] = []
    for path in find_files(spec):
        items, first = peek(path)
        columns = find_columns(path, [row.values for row in first], (ANCHOR, POSITIVE, SCORE), data)
        for item in items:
            if flaw := _flaw(item, columns):
                bad.add(flaw)
            elif isinstance(item, Row):
                text, pair, score = (item.values.get(name) for name in columns)
                rows.append((text, pair, float(score) if columns[2] else None))  # type: ignore[arg-type]
    if not rows:
        raise bad.no_rows(spec, "pairs of texts")
    texts, pairs, scores = (list(part) for part in zip(*rows, strict=True))
    if None in scores and any(score is not None for score in scores):
        raise DataError("D004", f"{show(spec)}: some files have a column of scores and some have none")
    return TextPairs(texts, pairs, None if None in scores else scores)


def _flaw(item: Row | Flaw, columns: Sequence[str]) -> Flaw | None:
    """Why a row is no pair, if it is none."""
    if flaw := text_flaw(item, columns[0]) or text_flaw(item, columns[1]):
        return flaw
    if not columns[2] or isinstance(item, Flaw):
        return None
    value = item.values.get(columns[2])
    if value_type(value) in ("int", "float") and math.isfinite(float(value)):  # type: ignore[arg-type]
        return None
    return Flaw(item.file, item.line, f"expected a number, found {brief(value)}", columns[2])
