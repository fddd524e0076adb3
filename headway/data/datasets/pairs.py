"""Pairs of similar texts, with or without a similarity score, for embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.config.recipe import DataConfig
from headway.data.files.columns import ANCHOR, POSITIVE, SCORE, value_type
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows, brief, read_examples, text_flaw
from headway.data.synthetic.texts.paraphrases import make_paraphrases
from headway.errors import DataError
from headway.jsonfile import show

SYNTHETIC_PAIRS = 4000
"""Synthetic pairs if no file is given."""


@dataclass(frozen=True)
class TextPairs:
    first: list[str]
    second: list[str]
    scores: list[float] | None = None
    """The similarity of each pair, if the data have scores."""

    def __len__(self) -> int:
        return len(self.first)

    def part(self, chosen: slice) -> TextPairs:
        return TextPairs(self.first[chosen], self.second[chosen], self.scores and self.scores[chosen])


def read_pairs(spec: str, data: DataConfig, bad: BadRows) -> TextPairs:
    """Read all pairs of a spec, with scores if it has them; synthetic pairs for an empty spec."""
    if not spec:
        made = make_paraphrases(SYNTHETIC_PAIRS)
        return TextPairs([first for first, _ in made], [second for _, second in made])
    rows = read_examples(spec, (ANCHOR, POSITIVE, SCORE), _parse_row, "pairs of texts", data, bad)
    texts, pairs, scores = (list(part) for part in zip(*rows, strict=True))
    if None in scores and any(score is not None for score in scores):
        raise DataError("D004", f"{show(spec)}: some files have a column of scores and some have none")
    return TextPairs(texts, pairs, None if None in scores else scores)


def _parse_row(row: Row, first: str, second: str, score: str) -> tuple[str, str, float | None] | Flaw:
    if flaw := text_flaw(row, first) or text_flaw(row, second):
        return flaw
    value = row.values.get(score)
    if score and not (value_type(value) in ("int", "float") and math.isfinite(float(value))):  # type: ignore[arg-type]
        return Flaw(row.file, row.line, f"expected a number, found {brief(value)}", score)
    return row.values[first], row.values[second], float(value) if score else None  # type: ignore[arg-type]
