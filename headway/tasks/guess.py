"""Which task a file may be for, by what its rows are called and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from headway.config.recipe import DataConfig
from headway.data.datasets import parallel
from headway.data.datasets.chat import read_conversations
from headway.data.datasets.conll import TAGS, WORDS, is_conll
from headway.data.datasets.labeled import LABEL_NAMES, columns_of, label_kind, parse_labels, read_labeled
from headway.data.datasets.pairs import PAIR_NAMES, read_pairs
from headway.data.datasets.squad import ANSWERS, questions
from headway.data.files.locate import file_format
from headway.data.files.readers import Row
from headway.data.files.rows import BadRows, find_files, peek
from headway.errors import DataError
from headway.tasks.tagging.evaluate import read_tagged

TALK = ({"messages"}, {"conversations"}, {"instruction", "output"})
"""Columns of conversations, in some of their forms."""


def likely_task(spec: str) -> str:
    """A recipe's name; empty where a file tells nothing of the kind."""
    path = find_files(spec)[0]
    if is_conll(path):
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


def bad_rows_of(task: str, spec: str, settings: Sequence[str], keep: int) -> BadRows:
    """Rows that a task cannot use, `keep` of them remembered."""
    given: dict[str, Any] = {
        name: value for name, _, value in (word.removeprefix("data.").partition("=") for word in settings)
    }
    data, bad = DataConfig(**given), BadRows("skip", keep)
    with suppress(DataError):  # nothing at all can be used: they are all counted by then
        if task == "classify":
            rows = read_labeled(spec, data, bad)
            parse_labels(rows, label_kind(rows, "auto"), bad)
        elif task == "translate":
            parallel.read_parallel(spec, data.text, data.pair, bad)
        else:
            READERS[task](spec, data, bad)
    return bad


READERS: dict[str, Callable[[str, DataConfig, BadRows], Any]] = {
    "answer": lambda spec, data, bad: list(questions(spec, bad=bad)),
    "chat": lambda spec, data, bad: read_conversations(spec, bad),
    "embed": read_pairs,
    "tag": lambda spec, data, bad: read_tagged(spec, data, "auto", bad),
}


def label_settings(spec: str, text: str, labels: Mapping[str, tuple[int, bool]]) -> list[str]:
    """What a classifier has to be told to read texts and their labels, often nothing; `labels` are the columns that
    may be these, with their ranks: the lowest is taken where none has a usual name."""
    path = find_files(spec)[0]
    usual = [name for name in labels if name.lower() in LABEL_NAMES]
    label = next(iter(usual), min(labels, key=lambda name: labels[name]))
    try:
        guess = columns_of(path, peek(path)[1], DataConfig())
        if guess.label == label and text in (guess.text, guess.pair):
            return []
    except DataError:
        pass
    return [f"data.text={text}", f"data.label={label}"]
