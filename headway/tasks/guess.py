"""Which task a file may be for, by what its rows are called and what they hold."""

from __future__ import annotations

from collections.abc import Sequence

from headway.data import parallel
from headway.data.conll import TAGS, WORDS, is_columns
from headway.data.formats import Row
from headway.data.records import find_files, peek
from headway.data.sources import file_format
from headway.data.squad import ANSWERS
from headway.errors import DataError
from headway.recipe import DataConfig
from headway.tasks.labelled import LABEL_NAMES, columns_of
from headway.tasks.pairs import PAIR_NAMES

TALK = ({"messages"}, {"conversations"}, {"instruction", "output"})
"""Columns of conversations, in some of their forms."""


def likely_task(spec: str) -> str:
    """A recipe's name; empty where a file tells nothing of the kind."""
    path = find_files(spec)[0]
    if is_columns(path):
        return "tag"
    return "" if file_format(path)[0] == "text" else _task_of(peek(path)[1])


def _task_of(rows: Sequence[Row]) -> str:
    names = {name for row in rows for name in row.values}
    lists = {name for name in names if any(isinstance(row.values.get(name), list) for row in rows)}

    def pairs(known: Sequence[tuple[str, str]]) -> bool:
        return any(set(both) <= names for both in known)

    if {"question", "context"} <= names and names & set(ANSWERS):
        return "answer"
    if lists & set(WORDS) and lists & set(TAGS):
        return "tag"
    if any(known <= names for known in TALK):
        return "chat"
    if parallel.NESTED in names or pairs(parallel.PAIR_NAMES):
        return "translate"
    return "embed" if pairs(PAIR_NAMES) and not names & set(LABEL_NAMES) else ""


def label_settings(spec: str, text: str, labels: Sequence[str]) -> list[str]:
    """What a classifier has to be told to read texts and one of some columns that may be labels; often nothing."""
    path = find_files(spec)[0]
    label = next((name for name in labels if name.lower() in LABEL_NAMES), labels[0])
    try:
        if columns_of(path, peek(path)[1], DataConfig()).label == label:
            return []
    except DataError:
        pass
    return [f"data.text={text}", f"data.label={label}"]
