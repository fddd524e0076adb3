"""Columns and their roles (text, label, question …), by a setting, a usual name, or elimination."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
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

CLEAR = 1.5
"""How many times as much text as the next column a column has if it is certainly the text."""
ID_NAME = re.compile(r"(?:.*[_ -])?(?:id|uuid|guid|key|hash|url|uri|link|e?mail|file|filename|path)", re.IGNORECASE)
ID_VALUE = re.compile(r"[!-~]*[0-9/@_=][!-~]*")
"""Names and values of columns that are no texts, however long: identifiers, addresses, paths."""
NO_LABELS = ("float", "list", "object", "bytes")
"""Types of values that are no labels."""
LABELS, LABEL_LETTERS = 200, 40
"""The most different values of a column that may be a label, and the letters of one."""
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
    """The type of its values; `texts` is a text or a list of texts."""
    otherwise: Literal["only", "error", "none"] = "error"
    """Without a setting or a usual name: take the only possible column, raise an error, or leave the role out."""


TEXT_NAMES = ("text", "content", "document", "sentence", "body", "review", "comment")
TEXT = Role("text", "data.text", TEXT_NAMES, otherwise="only")
PAIR = Role("second text", "data.pair", otherwise="none")
LABEL_NAMES = (
    *("label", "labels", "class", "category", "target", "stars", "rating", "sentiment", "score", "similarity", "tag"),
    *("gold_label", "label_text", "coarse_label", "intent", "topic", "emotion"),
)
LABEL = Role("label", "data.label", LABEL_NAMES, holds="any", otherwise="only")
IMAGE_NAMES = ("image", "img", "picture", "photo", "file_name", "filename", "image_path", "image_file", "path", "file")
IMAGE = Role("image", "data.image", IMAGE_NAMES, holds="any")
IMAGE_LABEL = Role("label", "data.label", LABEL_NAMES, holds="any", otherwise="none")
CAPTION = Role("caption", "data.text", ("caption", "captions", *TEXT_NAMES), holds="texts", otherwise="none")
SOUND_NAMES = ("audio", "sound", "wav", "speech", "recording", "clip", "audio_path", "audio_file", "sound_file")
SOUND = Role("sound", "data.sound", (*SOUND_NAMES, "file_name", "filename", "path", "file"), holds="any")
TRANSCRIPT_NAMES = ("transcription", "transcript", "text", "sentence", "normalized_text")
TRANSCRIPT = Role("text", "data.text", TRANSCRIPT_NAMES, otherwise="none")
START = Role("start", "", ("start", "begin", "onset", "start_time"), holds="any", otherwise="none")
END = Role("end", "", ("end", "stop", "offset", "end_time"), holds="any", otherwise="none")
TIME_NAMES = ("time", "date", "datetime", "date_time", "timestamp", "ds", "day", "hour", "month", "year", "t")
TIME = Role("time", "data.time", TIME_NAMES, holds="any", otherwise="none")
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
CHOICE_SERIES = re.compile(r"(?:(?:choice|option|ending|answer)s?[_ ]?)?([a-h]|[0-9])", re.IGNORECASE)
"""Columns that hold one choice each: a, B, choice_0, ending1, option_c …"""

HEADER_NAMES = (*TEXT_NAMES, "question", "message", "title")
"""Names that show that the first line of a pipe is a header."""
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
"""Two roles → pairs of names that their columns usually have, the likeliest first."""


_FOUND: ContextVar[dict[str, Role] | None] = ContextVar("columns", default=None)


@contextmanager
def recorded_columns() -> Iterator[dict[str, Role]]:
    """Column → role of all columns that are found inside: `headway data` shows what a task takes them for."""
    found: dict[str, Role] = {}
    token = _FOUND.set(found)
    try:
        yield found
    finally:
        _FOUND.reset(token)


def find_columns(
    where: Path | str,
    rows: Sequence[Mapping[str, Any]],
    roles: Sequence[Role],
    given: Mapping[str, str] | DataConfig | None = None,
    *,
    strict: bool = True,
) -> list[str]:
    """Return the column of each role, "" for an optional role without one. `rows` are the first rows of the file.

    Settings win. Then usual names count, pairs of names before single names. Then a role takes the only column that
    can have it. With `strict`, a setting that names a missing column is an error.
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
        asked = not found.keys().isdisjoint(pair)  # with one column set, an optional second one stays out
        for role, column in zip(pair, named_together(names, pair), strict=False):
            if role not in found and column not in found.values() and not (asked and role.otherwise == "none"):
                found[role] = column
    for role in roles:
        if role not in found and (column := named(rows, role, without=found.values())):
            found[role] = column
    missing = [role for role in roles if role not in found and role.otherwise != "none"]
    for _, group in groupby(missing, key=lambda role: role.holds):
        _take_what_is_left(where, rows, roles, list(group), found)
    if (recorded := _FOUND.get()) is not None:
        recorded |= {column: role for role, column in found.items()}
    return [found.get(role, "") for role in roles]


def _take_what_is_left(
    where: Path | str,
    rows: Sequence[Mapping[str, Any]],
    roles: Sequence[Role],
    wanted: Sequence[Role],
    found: dict[Role, str],
) -> None:
    """Give roles of one type the remaining columns if the counts agree; names of later roles are left for those."""
    later = {name for role in roles[roles.index(wanted[-1]) + 1 :] for name in role.names}
    left = [
        name
        for name in column_names(rows)
        if name not in found.values() and name.lower() not in later and _can_be(rows, name, wanted[0])
    ]
    if len(left) == len(wanted) and all(role.otherwise == "only" for role in wanted):
        found.update(zip(wanted, left, strict=True))
        return
    if len(wanted) == 1 and wanted[0].otherwise == "only" and (column := _likeliest(rows, left, wanted[0])):
        found[wanted[0]] = column
        return
    what = " and the ".join(role.name for role in wanted)
    if len(left) > len(wanted) and wanted[0].otherwise == "only":
        problem = f"any of {len(left)} columns may be the {what}: {quoted(left)}"
    else:
        problem = f"no column can be the {what}: there are {quoted(column_names(rows))}"
    settings = " ".join(f"{role.setting}=NAME" for role in wanted)
    unnamed = left and all(UNNAMED.fullmatch(name) for name in left)
    counted = f" (columns without a header are called {left[0]} and so on)" if unnamed else ""
    hint = f"set {settings}{counted}; headway data {shlex.quote(show(where))} shows the columns"
    raise DataError("D004", f"{show(where)}: {problem}"[:280], hint)


def _likeliest(rows: Sequence[Mapping[str, Any]], names: Sequence[str], role: Role) -> str:
    """The column that clearly has the role, by the values of several possible columns; "" if none is clear."""
    if role.holds == "any":
        few = [name for name in names if few_values([row.get(name) for row in rows])]
        return few[0] if len(few) == 1 else ""
    if role.holds != "text" or len(names) < 2:
        return ""
    first, second, *_ = by_text(rows, names)
    return first if text_weight(rows, first) > CLEAR * text_weight(rows, second) else ""


def by_text(rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Columns in the order in which they may be the text: most different text first."""
    return sorted(names, key=lambda name: -text_weight(rows, name))


def text_weight(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """The letters of all different texts in a column; those of identifiers count a hundredth."""
    texts: set[str] = {row[name] for row in rows if value_type(row.get(name)) == "text"}
    ids = 2 * sum(bool(ID_VALUE.fullmatch(text)) for text in texts) > len(texts) or ID_NAME.fullmatch(name)
    return sum(map(len, texts)) * (0.01 if ids else 1)


def few_values(values: Iterable[Any]) -> bool:
    """Whether a column may be a label: few values, each of them often."""
    there = [value for value in values if value_type(value) != "missing"]
    if any(value_type(value) in NO_LABELS or len(str(value)) > LABEL_LETTERS for value in there):
        return False
    return 2 <= len({str(value) for value in there}) <= min(LABELS, len(there) / 2)


def named(rows: Sequence[Mapping[str, Any]], role: Role, without: Collection[str] = ()) -> str:
    """Return the first column with a usual name of the role and values of its type, or ""."""
    lower = {name.lower(): name for name in reversed(column_names(rows)) if name not in without}
    usual = (lower[name] for name in role.names if name in lower)
    return next((name for name in usual if any(_fits(row.get(name), role) for row in rows)), "")


def named_together(names: Iterable[str], roles: tuple[Role, Role]) -> tuple[str, ...]:
    """Return two columns whose names are a usual pair for these roles, or an empty tuple."""
    lower = {name.lower(): name for name in reversed(list(names))}
    return next((tuple(lower[n] for n in both) for both in TOGETHER[roles] if lower.keys() >= set(both)), ())


def has_choices(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rows are multiple-choice questions: a question, several choices, and which of them is right."""
    several = named(rows, CHOICES)
    lists = several and all(_is_list(row.get(several)) for row in rows)
    series = [name for name in column_names(rows) if CHOICE_SERIES.fullmatch(name)]
    named_both = named(rows, CHOICE_PROMPT) and named(rows, CHOICE_ANSWER, without=[several])
    return bool(named_both and (lists or len(series) > 1))


def _is_list(value: Any) -> bool:
    """Whether a value is a list of texts, or a cell or an object that holds one."""
    inner = value.get("text") if isinstance(value, Mapping) else value
    if isinstance(inner, list):
        return all(isinstance(each, str) for each in inner)
    return isinstance(inner, str) and inner.lstrip().startswith("[")


def candidates(rows: Sequence[Mapping[str, Any]], role: Role) -> list[str]:
    """Return the columns that can have the role: the one with a usual name, else all with values of its type."""
    usual = named(rows, role)
    return [usual] if usual else [name for name in column_names(rows) if _can_be(rows, name, role)]


def column_names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the columns of all rows, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def quoted(names: Sequence[str]) -> str:
    """Quote the first names for an error message."""
    return ", ".join(f'"{show(name)[:40]}"' for name in names[:12])


def _settings(given: Mapping[str, str] | DataConfig | None) -> Mapping[str, str]:
    if isinstance(given, DataConfig):
        names = ("text", "pair", "label", "image", "sound", "time")
        return {f"data.{name}": getattr(given, name) for name in names}
    return given or {}


def _fits(value: Any, role: Role) -> bool:
    """Whether a value is of the role's type, in a column with a usual name."""
    if role.holds == "number":
        return value_type(value) in ("int", "float")
    kinds = {"text": (str,), "texts": (str, list, tuple), "list": (list,), "any": (object,)}[role.holds]
    return isinstance(value, kinds)


def _can_be(rows: Sequence[Mapping[str, Any]], name: str, role: Role) -> bool:
    """Whether a column without a usual name can have the role; numbers and dates in a table's cells are not texts."""
    texts = role.holds in ("text", "texts")
    return any(value_type(row.get(name)) == "text" if texts else _fits(row.get(name), role) for row in rows)


def value_type(value: Any) -> str:
    """The type of a value; a string in a table's cell may be a number or a date."""
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
    """The type of a column, from the types of its values."""
    found = set(types) - {"missing"}
    if len(found) < 2:
        return found.pop() if found else "missing"
    if found == {"int", "float"}:
        return "float"
    return "text" if "text" in found and found <= {"text", "int", "float", "date"} else "mixed"
