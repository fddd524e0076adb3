"""Pairs of texts that belong together, with or without a number that says how much, from tables of any kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.config.recipe import DataConfig
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows, brief, find_files, peek, text_flaw, value_type
from headway.data.synthetic.paraphrases import make_paraphrases
from headway.errors import DataError, nearest
from headway.jsonfile import show

PAIR_NAMES = (
    ("text", "pair"), ("sentence1", "sentence2"), ("anchor", "positive"), ("query", "positive"),
    ("query", "document"), ("query", "passage"), ("question", "answer"), ("question1", "question2"),
    ("text1", "text2"), ("text_a", "text_b"), ("source", "target"), ("premise", "hypothesis"),
)  # fmt: skip
"""What two columns of texts that belong together are usually called."""
SCORE_NAMES = ("score", "similarity", "similarity_score", "relatedness", "label")
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
        columns = pair_columns(path, first, data) if first else ("", "", "")
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


def _flaw(item: Row | Flaw, columns: tuple[str, str, str]) -> Flaw | None:
    """Why a row is no pair, if it is none."""
    if flaw := text_flaw(item, columns[0]) or text_flaw(item, columns[1]):
        return flaw
    if not columns[2] or isinstance(item, Flaw):
        return None
    value = item.values.get(columns[2])
    if value_type(value) in ("int", "float") and math.isfinite(float(value)):  # type: ignore[arg-type]
        return None
    return Flaw(item.file, item.line, f"expected a number, found {brief(value)}", columns[2])


def pair_columns(path: Path, rows: Sequence[Row], data: DataConfig) -> tuple[str, str, str]:
    """The two columns of texts and that of scores, "" for none: as named, by their usual names, or the only two."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    for setting in ("text", "pair", "label"):
        if (name := getattr(data, setting)) and name not in names:
            message = f"{show(path)}: no column {name!r}{nearest(name, names)} (data.{setting})"
            raise DataError("D004", message, f"there are {_list(names)}")
    texts = [name for name in names if _kinds(rows, name) == {"text"}]
    usual = next((both for both in PAIR_NAMES if set(both) <= set(names)), None)
    rest = [name for name in texts if name not in (data.text, data.pair, data.label)]
    found = [name for name in (data.text, data.pair) if name]
    if not found and usual:
        found = list(usual)
    elif len(found) + len(rest) == 2:
        found = [data.text or rest.pop(0), data.pair or rest.pop(0)]
    if len(found) != 2:
        problem = f"columns that hold text: {len(texts)}" if texts else "no column holds text"
        remedy = "name the two that belong together: data.text=NAME data.pair=NAME"
        raise DataError("D004", f"{show(path)}: {problem}: {_list(texts or names)}"[:280], remedy)
    scores = (name for name in SCORE_NAMES if name in names and _kinds(rows, name) & {"int", "float"})
    return found[0], found[1], data.label or next(scores, "")


def _kinds(rows: Sequence[Row], name: str) -> set[str]:
    return {value_type(row.values.get(name)) for row in rows} - {"missing"}


def _list(names: Sequence[Any]) -> str:
    return ", ".join(f'"{show(name)[:40]}"' for name in names[:12])
