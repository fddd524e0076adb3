"""Labeled texts: parsed from rows, the kind and set of their labels, and the validation split."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from headway.config.recipe import DataConfig
from headway.data.datasets.raw import CHUNKS, raw_chunks, raw_files, read_raw
from headway.data.files.columns import LABEL, PAIR, TEXT, find_columns
from headway.data.files.readers import EMPTY, NUMBER, Flaw, Row
from headway.data.files.rows import BadRows, brief, read_examples, text_flaw
from headway.errors import DataError, counted
from headway.jsonfile import show

Kind = Literal["single", "multi", "regression"]

LABEL_SEPARATOR = "|"
"""Separates several labels in one cell of a table."""
HELD_OUT, SPLIT_KEY = 0.1, 0


class Labeled(Protocol):
    """An example with a label, of whatever kind."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def label(self) -> Any: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def shown(self) -> str:
        """What a person knows the example by."""
        ...


L = TypeVar("L", bound=Labeled)


@dataclass(frozen=True, slots=True)
class LabeledText:
    """A text, or a pair of texts, and its label."""

    text: str
    pair: str | None
    label: Any
    """As in the file; after `parse_labels` the name of a label, a tuple of names, or a number."""
    file: str = ""
    line: int = 0

    @property
    def shown(self) -> str:
        return self.text if self.pair is None else f"{self.text} ⟂ {self.pair}"


def read_labeled(spec: str, data: DataConfig, bad: BadRows) -> list[LabeledText]:
    """Read all rows of a spec that have a text and a label; of raw files, chunks labelled by their folder."""
    if data.raw:
        return _read_raw(spec, data.length, bad)
    return list(read_examples(spec, (TEXT, PAIR, LABEL), _parse_row, "labelled texts", data, bad))


def _read_raw(spec: str, length: int, bad: BadRows) -> list[LabeledText]:
    """Chunks of files in a folder for each label; `line` counts the chunks of a file."""
    found = list[LabeledText]()
    for path in raw_files(spec):
        chunks = list(raw_chunks(read_raw(path, CHUNKS * length), length))
        if not chunks:
            bad.add(Flaw(str(path), 0, "the file is empty", code=EMPTY))
        found += [LabeledText(text, None, path.parent.name, str(path), i) for i, text in enumerate(chunks, start=1)]
    return found


def _parse_row(row: Row, text: str, pair: str, label: str) -> LabeledText | Flaw:
    if flaw := text_flaw(row, text) or (text_flaw(row, pair) if pair else None):
        return flaw
    values = row.values
    if values.get(label) is None:
        return Flaw(row.file, row.line, "missing" if label in values else "there is no such field", label)
    return LabeledText(values[text], values[pair] if pair else None, _parse_list(values[label]), row.file, row.line)


def _parse_list(value: Any) -> Any:
    """Parse a list of labels in a table's cell, written as JSON or as in Python; other labels stay as they are."""
    if not (isinstance(value, str) and value.startswith("[") and value.endswith("]")):
        return value
    for text in (value, value.replace("'", '"')):
        try:
            return json.loads(text)
        except ValueError:
            continue
    return value


def label_columns(path: Path, rows: Sequence[Row], data: DataConfig) -> list[str]:
    """Return the columns of the text, of the second text ("" for none) and of the label."""
    return find_columns(path, [row.values for row in rows], (TEXT, PAIR, LABEL), data)


def has_pairs(rows: Sequence[LabeledText]) -> bool:
    """Whether all rows have a second text; a mixture is an error."""
    first = rows[0]
    if odd := next((row for row in rows if (row.pair is None) != (first.pair is None)), None):
        counts = ("two texts a row", "one")
        has, others = counts if odd.pair is not None else counts[::-1]
        message = f"{show(odd.file)} has {has}, {show(first.file)} has {others}"
        raise DataError("D004", message, "name the columns that both have: data.text=NAME data.pair=NAME")
    return first.pair is not None


def label_kind(rows: Sequence[Labeled], asked: str) -> Kind:
    """Return the kind of the labels: as `asked`, or "auto" by their values.

    A list or a|b is "multi". If most labels are numbers and one has a fraction, it is "regression", and labels that
    are not numbers are bad rows. Everything else is "single".
    """
    several = any(isinstance(row.label, list | tuple) or _has_separator(row.label) for row in rows)
    if asked == "multi" and not several:
        _check_separator(rows)
    if asked != "auto":
        return asked  # type: ignore[return-value]
    if several:
        return "multi"
    numbers = [number for row in rows if (number := parse_number(row.label)) is not None]
    fraction = any(number != int(number) for number in numbers)
    return "regression" if fraction and len(numbers) > len(rows) / 2 else "single"


def _has_separator(label: Any) -> bool:
    return isinstance(label, str) and len([part for part in label.split(LABEL_SEPARATOR) if part.strip()]) > 1


def _check_separator(rows: Sequence[Labeled]) -> None:
    """Raise an error for labels that seem to have another separator."""
    for row in rows:
        if isinstance(row.label, str) and (mark := next((mark for mark in ",;" if mark in row.label), "")):
            message = (
                f"{show(row.file)} line {row.line}: is {brief(row.label)} one label, or several separated by {mark}?"
            )
            hint = f"separate labels by {LABEL_SEPARATOR} or give a list; if it is one label, set classify.kind=single"
            raise DataError("D004", message, hint)


def parse_number(value: Any) -> float | None:
    """Return a finite number, also from a string, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not NUMBER.fullmatch(value):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def parse_labels(rows: Sequence[L], kind: Kind, bad: BadRows, column: str = "") -> list[L]:
    """Return rows with labels as names, tuples of names or numbers; rows without a usable label are bad."""
    read: Callable[[Any], Any] = {"single": _label_name, "multi": _label_names, "regression": parse_number}[kind]
    wanted = {"single": "one label", "multi": "a list of labels", "regression": "a number"}[kind]
    found = []
    for row in rows:
        label = read(row.label)
        if label is None:
            what = "empty" if row.label == "" else f"expected {wanted}, found {brief(row.label)}"
            bad.add(Flaw(row.file, row.line, f"the label: {what}", column))
        else:
            found.append(replace(row, label=label))
    if not found:
        raise DataError("D002", f"no row has {wanted} ({counted(bad.count, 'bad rows')})")
    return found


def _label_name(value: Any) -> str | None:
    """The name of a label: 1, 1.0 and "1" are the same label."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return (str(value).strip() or None) if isinstance(value, str | int | float) else None


def _label_names(value: Any) -> tuple[str, ...] | None:
    parts = [p for p in value.split(LABEL_SEPARATOR) if p.strip()] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return None
    names = [_label_name(part) for part in parts]
    return None if None in names else tuple(dict.fromkeys(name for name in names if name is not None))


def label_set(rows: Sequence[Labeled], kind: Kind) -> tuple[str, ...]:
    """Return all labels, sorted, numbers by value; regression has the one label "value"."""
    if kind == "regression":
        return ("value",)
    names = {row.label for row in rows} if kind == "single" else {name for row in rows for name in row.label}
    numbers = {name: parse_number(name) for name in names}
    if None in numbers.values():
        return tuple(sorted(names))
    return tuple(sorted(names, key=lambda name: (numbers[name], name)))


def with_known_labels(rows: Sequence[L], labels: Sequence[str], kind: Kind, bad: BadRows) -> list[L]:
    """Return the rows whose labels the model knows; the others are bad rows."""
    if kind == "regression":
        return list(rows)
    known, found = set(labels), []
    for row in rows:
        names = (row.label,) if kind == "single" else row.label
        if strange := next((name for name in names if name not in known), None):
            some = ", ".join(labels[:8]) + (" …" if len(labels) > 8 else "")
            bad.add(Flaw(row.file, row.line, f"label {brief(strange)} is unknown: training had {some}"))
        else:
            found.append(row)
    if not found:
        raise DataError("D002", f"no row has a label that the model knows ({counted(bad.count, 'bad rows')})")
    return found


def hold_out(rows: Sequence[L], share: float = HELD_OUT) -> tuple[list[L], list[L]]:
    """Split rows into train and validation, at random, because files are often sorted by label; equal for all seeds."""
    if len(rows) < 2:
        raise DataError("D002", f"{len(rows)} labelled example: none can be held out", "give data.valid")
    import numpy as np  # here, since the light half of a task reads this module

    from headway.data.batching.permutation import permute

    order = permute(np.arange(len(rows)), len(rows), SPLIT_KEY)
    held = set(order[: max(1, int(len(rows) * share))].tolist())
    return [r for i, r in enumerate(rows) if i not in held], [r for i, r in enumerate(rows) if i in held]
