"""Rows of sounds: a folder per class, or a table with a column of paths or bytes; with labels, texts and segments."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.config.recipe import DataConfig
from headway.data.files.columns import END, IMAGE_LABEL, SOUND, START, TRANSCRIPT, find_columns
from headway.data.files.locate import find_files
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import brief, peek
from headway.data.media.listing import below, divided, is_table, label_of, listing, matching, others
from headway.data.media.values import class_names, parse_media
from headway.data.synthetic.sounds import KINDS, tones
from headway.errors import DataError, NotFoundError, nearest
from headway.jsonfile import show

SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".au", ".caf", ".w64"})
"""Endings of sound files."""
SOUND_COLUMNS = SOUND.names
"""Names under which a row or a request has its sound."""
PLAYED = "played:"
"""`played:rising` is a sound that headway makes, to try a model with."""


@dataclass(frozen=True, slots=True)
class SoundRow:
    """A sound with what is known of it."""

    sound: Any
    """A path, the bytes of a file, or samples with their rate; None once a store has its samples."""
    label: Any = None
    text: str = ""
    """What is said."""
    file: str = ""
    line: int = 0
    """The row of a table, from 1; 0 for a file of its own."""
    start: float = 0.0
    """Where the segment begins in the file, in seconds."""
    end: float | None = None
    """Where it ends; None: where the file does."""
    place: int = 0
    """Which sound of a store it is."""

    @property
    def shown(self) -> str:
        """What a person knows it by."""
        return f"{Path(self.file).name}:{self.line}" if self.line and self.file else self.file or f"sound {self.line}"


def find_parts(spec: str) -> dict[str, str]:
    """The parts of a dataset that a folder holds, each as a spec; empty if it is not divided."""
    path = Path(os.path.expanduser(spec))
    return divided(path, is_table) if path.is_dir() else {}


def sound_files(spec: str) -> list[Path]:
    """Every file of a spec that rows come from, in order: what a run records."""
    path = Path(os.path.expanduser(spec))
    if path.is_file():
        return [path]
    if path.is_dir():
        every = (each for each in below(path) if each.is_file())  # and no link to nothing
        return [each for each in every if each.suffix.lower() in SUFFIXES or is_table(each)]
    return matching(spec, SUFFIXES) or find_files(spec)


def read_rows(spec: str, data: DataConfig) -> Iterator[SoundRow | Flaw]:
    """The sounds of a spec in order; a flaw in place of a row that cannot be used. Nothing is decoded yet."""
    path = Path(os.path.expanduser(spec))
    if path.is_dir():
        yield from _folder_rows(path, data)
    elif path.is_file() and path.suffix.lower() in SUFFIXES:
        yield SoundRow(str(path), file=str(path))
    elif sounds := matching(spec, SUFFIXES):
        yield from (SoundRow(str(each), each.parent.name or None, file=str(each)) for each in sounds)
    else:
        for table in find_files(spec):
            yield from _table_rows(table, data)


def _folder_rows(folder: Path, data: DataConfig) -> Iterator[SoundRow | Flaw]:
    """A folder per class, or a table beside the sounds."""
    found = listing(folder, SUFFIXES)
    if not found.tables and not found.files:
        ends = ", ".join(sorted(SUFFIXES))
        raise DataError("D002", f"{show(folder)}: no sounds in this folder", f"headway reads {ends}; tables")
    for path in found.tables:
        yield from _table_rows(path, data)
    for path in [] if found.tables else found.files:
        yield SoundRow(str(path), label_of(path, folder), file=str(path))


def other_files(folder: str) -> list[str]:
    """Files of a folder of sounds that are no sounds."""
    return others(folder, sound_files(folder)) if Path(os.path.expanduser(folder)).is_dir() else []


def _table_rows(path: Path, data: DataConfig) -> Iterator[SoundRow | Flaw]:
    rows, first = peek(path)
    roles = (SOUND, IMAGE_LABEL, TRANSCRIPT, START, END)
    columns = find_columns(path, [row.values for row in first], roles, data)
    names = class_names(path, columns[1])
    for row in rows:
        yield row if isinstance(row, Flaw) else _table_row(row, path.parent, columns, names)


def _table_row(row: Row, folder: Path, columns: list[str], names: Mapping[int, str]) -> SoundRow | Flaw:
    sound, label, text, start, end = columns
    value = row.values.get(label) if label else None
    said = row.values.get(text) if text else ""
    try:
        source = parse_sound(row.values.get(sound), folder)
    except (DataError, NotFoundError) as error:
        return Flaw(row.file, row.line, error.message, sound)
    times: list[float | None] = []
    for column in (start, end):
        try:
            times.append(time_of(row.values.get(column)) if column else None)
        except DataError as error:
            return Flaw(row.file, row.line, error.message, column)
    value = names.get(value, value) if type(value) is int else value
    return SoundRow(source, value, said if isinstance(said, str) else "", row.file, row.line, times[0] or 0.0, times[1])


def time_of(value: Any) -> float | None:
    """A time in seconds of a row or request; None where it has none."""
    if value is None or value == "":
        return None
    try:
        time = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        time = math.nan
    if not math.isfinite(time):
        raise DataError("D001", f"{brief(value)} is no time in seconds")
    return time


def parse_sound(value: Any, folder: Path | None) -> Any:
    """A sound in a row or request: a path, bytes, base64, `played:rising`, or `datasets`' dictionaries.

    Paths are relative to `folder`; without one they are refused, since a request must not read files of the server.
    """
    if isinstance(value, str) and value.startswith(PLAYED):
        return _played(value.removeprefix(PLAYED))
    if isinstance(value, Mapping) and value.get("array") is not None:
        return value["array"], value.get("sampling_rate")
    return parse_media(value, folder, "sound")


def _played(kind: str) -> Any:
    """A sound of a kind that headway makes, other than those that it trains on."""
    if kind not in KINDS:
        what = f"headway makes no sound {kind[:40]!r}{nearest(kind, KINDS)}"
        raise DataError("D001", what, f"it makes {', '.join(KINDS)}")
    made = tones(1, seed=1, kinds=(kind,))[0]
    return made.samples, made.rate


def stored(row: SoundRow, place: int) -> SoundRow:
    """A row whose samples are in a store."""
    return replace(row, sound=None, place=place)
