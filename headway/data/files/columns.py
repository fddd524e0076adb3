"""Columns: which column of a file has which role, by settings, by usual names, or as the only one it can be."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from headway.config.recipe import DataConfig
from headway.data.files.readers import DATE, NUMBER
from headway.errors import DataError, nearest
from headway.jsonfile import show

UNNAMED = re.compile(r"column\d+")
"""What the readers call the columns of a table without a header."""


@dataclass(frozen=True)
class Role:
    """What a column is for: the setting that names it, and the names it usually has."""

    name: str
    setting: str
    names: tuple[str, ...] = ()
    """In lower case, the likeliest first; a column may have capitals."""
    holds: Literal["text", "texts", "number", "list", "any"] = "text"
    """What its values are; `texts` is a text or a list of them."""
    otherwise: Literal["only", "error", "none"] = "error"
    """Without a setting or a usual name: the only column it can be, an error, or no column at all."""


DOCUMENT = Role("text", "data.text", ("text", "content", "document", "sentence", "body"), otherwise="only")
TEXT = Role(
    "text", "data.text", (*DOCUMENT.names, "review", "comment", "question", "message", "title"), otherwise="only"
)
PAIR = Role("second text", "data.pair", otherwise="none")
LABEL_NAMES = (
    *("label", "labels", "class", "category", "target", "stars", "rating", "sentiment", "score", "similarity", "tag"),
    *("gold_label", "label_text", "coarse_label", "intent", "topic", "emotion"),
)
LABEL = Role("label", "data.label", LABEL_NAMES, holds="any", otherwise="only")
ANCHOR = Role("first text", "data.text", otherwise="only")
POSITIVE = Role("second text", "data.pair", otherwise="only")
SCORE_NAMES = ("score", "similarity", "similarity_score", "relatedness", "label")
SCORE = Role("score", "data.label", SCORE_NAMES, holds="number", otherwise="none")
SOURCE = Role("source", "data.text", holds="texts", otherwise="only")
TARGET = Role("target", "data.pair", holds="texts", otherwise="only")
QUESTION = Role("question", "data.pair", ("question",), holds="any")
CONTEXT = Role("context", "data.text", ("context",), holds="any")
ANSWERS = Role("answers", "data.label", ("answers", "answer"), holds="any", otherwise="none")
WORDS = Role("list of words", "data.text", ("tokens", "words", "text"), holds="list")
TAGS = Role("list of tags", "data.label", ("ner_tags", "tags", "labels", "ner", "label"), holds="list")
MESSAGES = Role("list of messages", "", ("messages", "conversations"), holds="any")
PROMPT, RESPONSE = Role("prompt", ""), Role("response", "")
CHOICE_PROMPT_NAMES = ("question", "prompt", "query", "context", "ctx", "sentence", "text", "input", "goal")
CHOICE_PROMPT = Role("prompt", "prompt", CHOICE_PROMPT_NAMES, holds="any")
CHOICES = Role("choices", "choices", ("choices", "options", "endings", "candidates", "answers"), holds="any")
CHOICE_ANSWER_NAMES = ("answer", "label", "gold", "correct", "target", "answerkey", "answer_idx")
CHOICE_ANSWER = Role("answer", "answer", CHOICE_ANSWER_NAMES, holds="any")

PAIR_NAMES = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text1", "text2"),
    ("sentence_a", "sentence_b"), ("text_a", "text_b"), ("question", "sentence"), ("query", "passage"),
)  # fmt: skip
TOGETHER: dict[tuple[Role, Role], tuple[tuple[str, str], ...]] = {
    (TEXT, PAIR): PAIR_NAMES,
    (ANCHOR, POSITIVE): (
        ("text", "pair"), ("anchor", "positive"), ("query", "positive"), ("query", "document"),
        ("question", "answer"), ("source", "target"), *PAIR_NAMES,
    ),
    (SOURCE, TARGET): (
        ("source", "target"), ("src", "tgt"), ("article", "summary"), ("article", "highlights"),
        ("document", "summary"), ("dialogue", "summary"), ("text", "summary"), ("input", "output"),
        ("en", "de"), ("en", "fr"),
    ),
    (PROMPT, RESPONSE): (
        ("prompt", "response"), ("prompt", "completion"), ("question", "answer"), ("instruction", "output"),
    ),
}  # fmt: skip
"""Two roles → the names that their columns usually have together, the likeliest first."""


def find_columns(
    where: Path | str,
    rows: Sequence[Mapping[str, Any]],
    roles: Sequence[Role],
    given: Mapping[str, str] | DataConfig | None = None,
    *,
    strict: bool = True,
) -> list[str]:
    """The column of each role, "" for a role that may have none; `rows` are the first rows of a file.

    A column that a setting names wins. Then usual names count, those of two columns together before those of one.
    Then a role takes the only column it can be. `strict`: a setting that names no column is an error.
    """
    settings, names = _settings(given), column_names(rows)
    found: dict[Role, str] = {}
    if not rows:
        return [settings.get(role.setting, "") for role in roles]
    for role in roles:
        if (column := settings.get(role.setting, "")) in names:
            found[role] = column
        elif column and strict:
            message = f"{show(where)}: no column {column!r}{nearest(column, names)} ({role.setting})"
            raise DataError("D004", message, f"there are {quoted(names)}")
    for pair in (pair for pair in TOGETHER if set(pair) <= set(roles)):
        asked = not found.keys().isdisjoint(pair)  # a pair of which one column is set needs the other only if it must
        for role, column in zip(pair, named_together(names, pair), strict=False):
            if role not in found and column not in found.values() and not (asked and role.otherwise == "none"):
                found[role] = column
    for role in roles:
        if role not in found and (column := named(rows, role, without=found.values())):
            found[role] = column
    missing = [role for role in roles if role not in found and role.otherwise != "none"]
    for _, group in groupby(missing, key=lambda role: role.holds):
        _take_what_is_left(where, rows, roles, list(group), found)
    return [found.get(role, "") for role in roles]


def _take_what_is_left(
    where: Path | str,
    rows: Sequence[Mapping[str, Any]],
    roles: Sequence[Role],
    wanted: Sequence[Role],
    found: dict[Role, str],
) -> None:
    """Give roles of one kind the columns that are left, if there are as many; a name of a later role is not left."""
    later = {name for role in roles[roles.index(wanted[-1]) + 1 :] for name in role.names}
    left = [
        name
        for name in column_names(rows)
        if name not in found.values() and name.lower() not in later and _can_be(rows, name, wanted[0])
    ]
    if len(left) == len(wanted) and all(role.otherwise == "only" for role in wanted):
        found.update(zip(wanted, left, strict=True))
        return
    what = " and the ".join(role.name for role in wanted)
    if len(left) > len(wanted) and wanted[0].otherwise == "only":
        problem = f"any of {len(left)} columns may be the {what}: {quoted(left)}"
    else:
        problem = f"no column can be the {what}: there are {quoted(column_names(rows))}"
    settings = " ".join(f"{role.setting}=NAME" for role in wanted)
    unnamed = left and all(UNNAMED.fullmatch(name) for name in left)
    counted = f", where NAME is {left[0]} or another: columns without names are counted" if unnamed else ""
    hint = f"name it: {settings}{counted}; headway data {shlex.quote(show(where))} shows what columns hold"
    raise DataError("D004", f"{show(where)}: {problem}"[:280], hint)


def named(rows: Sequence[Mapping[str, Any]], role: Role, without: Collection[str] = ()) -> str:
    """The first column that has a usual name of a role, and holds what the role does; "" if there is none."""
    lower = {name.lower(): name for name in reversed(column_names(rows)) if name not in without}
    usual = (lower[name] for name in role.names if name in lower)
    return next((name for name in usual if any(_fits(row.get(name), role) for row in rows)), "")


def named_together(names: Iterable[str], roles: tuple[Role, Role]) -> tuple[str, ...]:
    """Two columns whose names usually go together in these roles; empty if there are none."""
    lower = {name.lower(): name for name in reversed(list(names))}
    return next((tuple(lower[n] for n in both) for both in TOGETHER[roles] if lower.keys() >= set(both)), ())


def candidates(rows: Sequence[Mapping[str, Any]], role: Role) -> list[str]:
    """The columns that can have a role: only one if it has a usual name."""
    usual = named(rows, role)
    return [usual] if usual else [name for name in column_names(rows) if _can_be(rows, name, role)]


def column_names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """All columns of some rows, in their order."""
    return list(dict.fromkeys(name for row in rows for name in row))


def quoted(names: Sequence[str]) -> str:
    """Names for an error message."""
    return ", ".join(f'"{show(name)[:40]}"' for name in names[:12])


def _settings(given: Mapping[str, str] | DataConfig | None) -> Mapping[str, str]:
    if isinstance(given, DataConfig):
        return {"data.text": given.text, "data.pair": given.pair, "data.label": given.label}
    return given or {}


def _fits(value: Any, role: Role) -> bool:
    """Whether a column of a usual name holds what a role does."""
    if role.holds == "number":
        return value_type(value) in ("int", "float")
    kinds = {"text": (str,), "texts": (str, list, tuple), "list": (list,), "any": (object,)}[role.holds]
    return isinstance(value, kinds)


def _can_be(rows: Sequence[Mapping[str, Any]], name: str, role: Role) -> bool:
    """Whether a column of any other name may have a role: a text is no number or date that is spelled."""
    texts = role.holds in ("text", "texts")
    return any(value_type(row.get(name)) == "text" if texts else _fits(row.get(name), role) for row in rows)


def value_type(value: Any) -> str:
    """What a value is; a cell of a table is what it reads as."""
    if value is None or value == "":
        return "missing"
    if isinstance(value, str):
        if NUMBER.fullmatch(value):
            return "int" if value.strip().lstrip("+-").isdecimal() else "float"
        return "date" if DATE.fullmatch(value) else "text"
    if isinstance(value, bool | int):
        return type(value).__name__
    if isinstance(value, float | Decimal):
        return "float"
    if isinstance(value, date):
        return "date"
    return "object" if isinstance(value, dict) else type(value).__name__


def column_type(types: Collection[str]) -> str:
    """What a column is, from the types of its values."""
    found = set(types) - {"missing"}
    if len(found) < 2:
        return found.pop() if found else "missing"
    if found == {"int", "float"}:
        return "float"
    return "text" if "text" in found and found <= {"text", "int", "float", "date"} else "mixed"
