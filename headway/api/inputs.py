"""What Python hands in: texts, conversations, keywords, rows of data; each checked, rows kept in a file for runs."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.api.settings import plain
from headway.errors import ConfigError, DataError
from headway.resources import save_text

if TYPE_CHECKING:
    from headway.config.recipe import DataConfig
    from headway.data.chat_template.template import Message
    from headway.tasks.audio.task import SoundExample
    from headway.tasks.image import ImageExample
    from headway.tasks.series.task import SeriesExample, SeriesTask

HINT = 'a text is "…", several are a list: ["…", "…"]'
FOLDER = "data"
"""Where rows are kept, inside the folder of the runs: a resumed run reads them again."""
ROWS = "a dataset is a file, or a list of dicts or of texts"
PARTS = ("train", "valid", "test")


def one_text(text: Any, name: str = "text") -> str:
    """A single text; anything else is refused."""
    if not isinstance(text, str):
        raise DataError("D001", f"{name} is of type {type(text).__name__}, not a text", HINT)
    return text


def several_texts(texts: Any, name: str = "texts") -> list[str]:
    """Texts of a list, a column of pandas or any other iterable; a single text is a list of one, never its letters."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes | Mapping | os.PathLike) or not isinstance(texts, Iterable):
        raise DataError("D001", f"{name}: type {type(texts).__name__} is no text and no list of texts", HINT)
    found = list(texts)
    for number, text in enumerate(found, start=1):
        one_text(text, f"number {number} of {name}")
    return found


def several_images(images: Any) -> tuple[list[ImageExample], bool]:
    """Images of a list or any other iterable, and whether there may be several; an array of one image is one."""
    from headway.tasks.image import example_of

    found, many = several_things(images)
    return [example_of(image, i) for i, image in enumerate(found, start=1)], many


def several_sounds(sounds: Any) -> tuple[list[SoundExample], bool]:
    """Sounds of a list or any other iterable, and whether there may be several; samples, or samples with their rate,
    are one."""
    from headway.tasks.audio.task import sound_of

    pair = isinstance(sounds, tuple) and len(sounds) == 2 and isinstance(sounds[1], int)
    one = pair or isinstance(sounds, str | bytes | os.PathLike) or hasattr(sounds, "ndim")
    found = [sounds] if one or not isinstance(sounds, Iterable) else list(sounds)
    return [sound_of(sound, i) for i, sound in enumerate(found, start=1)], not one


def one_series(series: Any, steps: int | None, data: DataConfig, task: SeriesTask) -> SeriesExample:
    """A table's path, a DataFrame, rows as dicts, or numbers."""
    from headway.data.files.readers import Row
    from headway.data.files.rows import BadRows
    from headway.data.series.table import read_tables, table_of
    from headway.tasks.series.task import DRAWN, SeriesExample

    if isinstance(series, os.PathLike) or (isinstance(series, str) and os.path.exists(series)):
        (table, *others) = read_tables(os.fspath(series), data, BadRows(data.bad_rows))
        if others:
            raise DataError("D001", f"{os.fspath(series)} is {1 + len(others)} tables", "give one of them")
        return SeriesExample(table, os.fspath(series), steps)
    if hasattr(series, "columns") and hasattr(series, "to_dict"):  # a DataFrame of pandas
        series = series.to_dict("records")
    rows = list(series) if isinstance(series, Iterable) and not isinstance(series, str | bytes | Mapping) else []
    if rows and all(isinstance(row, Mapping) for row in rows):
        made = [Row(row, "", number) for number, row in enumerate(rows, start=1)]
        return SeriesExample(table_of(made, rows[:100], "series", data.time, BadRows(data.bad_rows)), "", steps)
    if hasattr(series, "tolist"):  # an array
        series = series.tolist()
    if isinstance(series, str) and not DRAWN.fullmatch(series.strip()) and not any(map(str.isdigit, series)):
        raise DataError("D001", f"no such file: {series[:200]}", "a series is a table's path, rows, or numbers")
    return task.parse_request({"values": series, "horizon": steps})


def several_graphs(graphs: Any) -> tuple[list[Mapping[str, Any]], bool]:
    """Graphs as tasks parse them, and whether there may be several; a graph is a dict, a text, or a path."""
    many = not isinstance(graphs, str | os.PathLike | Mapping) and isinstance(graphs, Iterable)
    found = list(graphs) if many else [graphs]
    for number, graph in enumerate(found, start=1):
        if not isinstance(graph, str | os.PathLike | Mapping):
            message = f"number {number} of graphs is of type {type(graph).__name__}"
            raise DataError("D001", message, '{"nodes": [{"tag": "C"}, {"tag": "O"}], "edges": [[0, 1]]}')
    return [graph if isinstance(graph, Mapping) else {"input": os.fspath(graph)} for graph in found], many


def several_things(things: Any) -> tuple[list[Any], bool]:
    """Images and texts of a list or any other iterable, and whether there may be several."""
    many = isinstance(things, Iterable) and not (
        isinstance(things, str | bytes | os.PathLike) or getattr(things, "ndim", 0) in (2, 3) or hasattr(things, "mode")
    )
    return list(things) if many else [things], many


def conversation(messages: str | Sequence[Message]) -> Sequence[Message]:
    """The messages of a conversation; a text alone is what the user says first."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, list | tuple) or not all(isinstance(message, Mapping) for message in messages):
        raise DataError("D001", "messages are a text, or a list of dicts", '[{"role": "user", "content": "…"}]')
    return messages


def keyword_settings(settings: object | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords such as `temperature=0.7` as plain values; they do not go together with a settings object."""
    if settings is not None and keywords:
        kind, name = type(settings).__name__, next(iter(keywords))
        raise ConfigError("C004", f"{name} is given beside a {kind}", f"give keywords, or {kind}({name}=…)")
    return {name: plain(value) for name, value in keywords.items()}


class Pieces(Iterator[str]):
    """Text while it is generated: iterate over its pieces, or take all of it as `.text` or `print(…)`."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces, self._seen = pieces, ""

    def __next__(self) -> str:
        piece = next(self._pieces)
        self._seen += piece
        return piece

    @property
    def text(self) -> str:
        """The whole text; waits until it is complete."""
        for _ in self:
            pass
        return self._seen

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Pieces({self._seen!r} …)"


def is_rows(value: Any) -> bool:
    """Whether a value is a dataset, and not the name of one or settings about it."""
    return not isinstance(value, str | bytes | os.PathLike | Mapping) and isinstance(value, Iterable)


def data_spec(data: Any, folder: Path) -> str:
    """The name of a dataset: as given, or of the file that its rows are written to."""
    if is_rows(data):
        return rows_file(data, folder)
    if not isinstance(data, str | os.PathLike):
        raise DataError("D001", f"data are of type {type(data).__name__}", ROWS)
    return os.fspath(data)


def kept_rows(settings: dict[str, Any], out: Path) -> dict[str, Any]:
    """Settings in which every dataset is a file: `data` itself, or train, valid and test inside."""
    data = settings.get("data")
    if is_rows(data):
        return {**settings, "data": {"train": rows_file(data, out / FOLDER)}}
    if not isinstance(data, Mapping):
        return settings
    files = {part: rows_file(data[part], out / FOLDER) for part in PARTS if is_rows(data.get(part))}
    return {**settings, "data": {**data, **files}}


def rows_file(rows: Any, folder: Path) -> str:
    """Write rows to a file that is named by its content: the same rows are the same file."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _records(rows))
    if not text:
        raise DataError("D002", "the dataset has no rows")
    path = folder / f"rows-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        save_text(str(path), text)
    return str(path)


def _records(rows: Any) -> Iterator[dict[str, Any]]:
    """Rows as plain dicts: of a DataFrame, a `datasets` object, dicts, or texts."""
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas
        rows = rows.to_dict("records")
    for number, row in enumerate(rows, start=1):
        if isinstance(row, str):
            row = {"text": row}
        if not isinstance(row, Mapping):
            raise DataError("D007", f"row {number} is of type {type(row).__name__}", ROWS)
        yield {str(key): _value(value, number, key) for key, value in row.items()}


def _value(value: Any, number: int, key: object) -> Any:
    value = value.tolist() if hasattr(value, "tolist") else plain(value)  # arrays and scalars of numpy
    if isinstance(value, float) and not math.isfinite(value):
        return None  # how pandas says that a cell is empty
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise DataError("D007", f"row {number}: {key} is of type {kind}, which no data file can hold") from None
    return value
