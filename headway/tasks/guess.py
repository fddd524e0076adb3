"""Which task a file may be for, by what its rows are called and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from headway.config.recipe import DataConfig
from headway.data.datasets import parallel
from headway.data.datasets.chat import read_conversations
from headway.data.datasets.conll import is_conll
from headway.data.datasets.labeled import label_columns, label_kind, parse_labels, read_labeled
from headway.data.datasets.pairs import read_pairs
from headway.data.datasets.squad import questions
from headway.data.files import columns
from headway.data.files.locate import file_format
from headway.data.files.readers import Row
from headway.data.files.rows import BadRows, find_files, peek
from headway.errors import DataError
from headway.tasks.tagging.evaluate import read_tagged


def likely_task(spec: str) -> str:
    """A recipe's name; empty where a file tells nothing of the kind."""
    path = find_files(spec)[0]
    if is_conll(path):
        return "tag"
    return "" if file_format(path)[0] == "text" else _task_of(peek(path)[1])


def _task_of(rows: Sequence[Row]) -> str:
    values = [row.values for row in rows]
    names = columns.column_names(values)

    def has(*roles: columns.Role) -> bool:
        return all(columns.named(values, role) for role in roles)

    if has(columns.QUESTION, columns.CONTEXT, columns.ANSWERS):
        return "answer"
    if has(columns.WORDS, columns.TAGS):
        return "tag"
    if has(columns.MESSAGES) or {"instruction", "output"} <= set(names):
        return "chat"
    if parallel.NESTED in names or columns.named_together(names, (columns.SOURCE, columns.TARGET)):
        return "translate"
    pairs = columns.named_together(names, (columns.ANCHOR, columns.POSITIVE))
    return "embed" if pairs and not has(columns.LABEL) else ""


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
    usual = [name for name in labels if name.lower() in columns.LABEL.names]
    label = next(iter(usual), min(labels, key=lambda name: labels[name]))
    try:
        *texts, guess = label_columns(path, peek(path)[1], DataConfig())
        if guess == label and text in texts:
            return []
    except DataError:
        pass
    return [f"data.text={text}", f"data.label={label}"]
