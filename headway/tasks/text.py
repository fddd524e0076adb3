"""Tasks that read texts: how a row, a line or a request becomes a text, or a text with a second one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from headway.config.model import ModelConfig, TokensConfig
from headway.config.recipe import DataConfig
from headway.data.datasets.conll import WORDS, is_conll, sentences_of
from headway.data.datasets.labeled import PAIR_NAMES, TEXT_NAMES, guess_text, is_text
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows, peek, text_flaw
from headway.errors import DataError, nearest
from headway.jsonfile import show
from headway.tasks.base import Json, Task
from headway.tasks.inputs import INPUT, STDIN, Item, pipe_rows, reject, text_lines

FIRST_NAMES = tuple(first for first, _ in PAIR_NAMES)


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text to predict something for."""

    text: str
    pair: str | None = None
    """A second text: the other one of a pair, or the context of a question."""
    words: tuple[str, ...] = ()
    """The words of the text, where the file has them apart."""
    id: str = ""


@dataclass(frozen=True)
class Columns:
    """The columns of the texts in a file; an empty name is guessed."""

    text: str = ""
    pair: str = ""
    firm: bool = True
    """Whether a named column that is missing is an error; else the column is guessed."""


class TextTask(Task):
    """A task that reads a text, or two."""

    names: ClassVar[tuple[str, str]] = ("", "")
    """The columns of the two texts, where the task has fixed names for them: question and context."""
    needs_second: ClassVar[bool] = False
    splits_words: ClassVar[bool] = False
    """Whether a row may have the words of its text apart."""

    def parse(self, raw: Mapping[str, Any]) -> TextExample:
        text = raw.get(INPUT, raw.get("text"))
        words = _words(text)
        if words and self.splits_words:
            return TextExample(" ".join(words), words=words)
        second = raw.get(self.second) if self.second else None
        for what, value in ((INPUT, text), (self.second, second)):
            if value is None and (what == self.second and not self.needs_second):
                continue
            if not isinstance(value, str) or not value.strip():
                raise DataError("D001", f"{what}: expected a text that is not empty")
        return TextExample(str(text), second, id=str(raw.get("id", "")))

    def echo(self, example: TextExample) -> Json:
        """A context is not repeated: it is long, and the same for many questions."""
        second = {"pair": example.pair} if self.second == "pair" and example.pair is not None else {}
        return {**({"id": example.id} if example.id else {}), "text": example.text, **second}

    def wants_second(self, config: ModelConfig) -> bool | None:
        return self.needs_second or super().wants_second(config)

    def columns(self, data: DataConfig, *, firm: bool = False, context: str | None = None) -> Columns:
        """The columns by a recipe's data section. `context`: one second text for all inputs, so no column for it."""
        return Columns(data.text, data.pair if self.second and context is None else "", firm)

    def inputs(
        self,
        source: str | BinaryIO,
        data: DataConfig,
        bad: BadRows,
        *,
        firm: bool = False,
        context: str | None = None,
        **how: Any,
    ) -> Iterator[Item]:
        """`firm`: the user named columns, so a missing one is an error. `context`: one second text for all inputs."""
        columns, alone = self.columns(data, firm=firm, context=context), context is not None
        if isinstance(source, str):
            items = self._from_files(source, columns, bad, alone)
        else:
            items = self._from_pipe(source, columns, bad, alone)
        for item in items:
            yield replace(item, example=replace(item.example, pair=context)) if alone else item

    def _from_files(self, source: str, columns: Columns, bad: BadRows, alone: bool) -> Iterator[Item]:
        for path in find_files(source):
            if self.splits_words and is_conll(path):
                yield from _sentences(path, bad)
            elif file_format(path)[0] == "text":
                self._check_lines(str(path), alone)
                yield from self._texts(text_lines(path), INPUT, "", bad)
            else:
                rows, first = peek(path)
                yield from self._texts(rows, *self._columns(str(path), first, columns, alone), bad)

    def _from_pipe(self, file: BinaryIO, columns: Columns, bad: BadRows, alone: bool) -> Iterator[Item]:
        named = bool(columns.text and columns.firm)
        known = (columns.text,) if named else (columns.text, self.names[0], *TEXT_NAMES, *FIRST_NAMES)
        rows = pipe_rows(file, [name for name in known if name])
        first = next(rows, None)
        if first is None:
            return
        if isinstance(first, Row) and first.values.keys() != {INPUT}:
            names = self._columns(STDIN, [first], columns, alone)
        elif named:
            raise DataError("D004", f"{STDIN} has no column {columns.text!r} (data.text): its first line has no header")
        else:
            self._check_lines(STDIN, alone)
            names = INPUT, ""
        yield from self._texts(chain([first], rows), *names, bad)

    def _check_lines(self, file: str, alone: bool) -> None:
        """A bare line is one text, so a second one has to come from elsewhere."""
        if self.needs_second and not alone:
            message = f"{show(file)} has one text per line, and {self.name} needs a {self.second} for each"
            raise DataError("D004", message, f"--{self.second} FILE gives one for all")

    def _texts(self, rows: Iterable[Row | Flaw], text: str, pair: str, bad: BadRows) -> Iterator[Item]:
        for row in rows:
            words = _words(row.values.get(text)) if self.splits_words and isinstance(row, Row) else ()
            flaw = None if words else text_flaw(row, text) or (text_flaw(row, pair) if pair else None)
            if flaw is not None:
                reject(flaw, bad)
            elif isinstance(row, Row):
                value = " ".join(words) or row.values[text]
                name = str(row.values["id"]) if text == self.names[0] and "id" in row.values else ""
                second = row.values[pair] if pair else None
                yield Item(TextExample(value, second, words, name), row.file, row.line)

    def _columns(self, file: str, rows: Sequence[Row], columns: Columns, alone: bool) -> tuple[str, str]:
        """The columns of the first and the second text; the second is empty where there is none."""
        names = list(dict.fromkeys(name for row in rows for name in row.values))
        if not names:
            return columns.text or "text", columns.pair
        fixed = (self.names[0], "" if alone else self.names[1])
        settings = ("pair", "text") if self.names[0] else ("text", "pair")  # as in training
        text, pair = (
            _named(file, names, given, setting, columns.firm) or (usual if usual in names else "")
            for given, setting, usual in zip((columns.text, columns.pair), settings, fixed, strict=True)
        )
        if self.needs_second and not alone:
            if text and pair:
                return text, pair
            listed = ", ".join(f'"{show(name)[:40]}"' for name in names[:12])
            message = f'{show(file)}: no columns "{fixed[0]}" and "{fixed[1]}": there are {listed}'
            hint = f"data.pair=NAME and data.text=NAME name them, --{self.second} FILE gives the second"
            raise DataError("D004", message[:280], hint)
        if text:
            return text, pair
        if self.splits_words and (apart := [n for n in WORDS if any(_words(row.values.get(n)) for row in rows)]):
            return apart[0], ""
        found, other = guess_text(Path(file), [name for name in names if is_text(rows, name)], pair)
        return found, pair or (other if self.second == "pair" else "")


def second_texts(examples: Sequence[TextExample]) -> list[str] | None:
    """The second text of each example; None where no example has one."""
    return [e.pair or "" for e in examples] if any(e.pair is not None for e in examples) else None


def reads_text(config: ModelConfig) -> bool:
    """Whether a model's input is tokens."""
    return isinstance(config.source or config.target, TokensConfig)


def shortened(text: str, letters: int = 100) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _sentences(path: Path, bad: BadRows) -> Iterator[Item]:
    """The sentences of a CoNLL file, without their tags."""
    for found in sentences_of(path):
        if isinstance(found, Flaw):
            reject(found, bad)
        else:
            yield Item(TextExample(" ".join(found.words), words=found.words), found.file, found.line)


def _words(value: Any) -> tuple[str, ...]:
    """A list of words; empty where the value is something else."""
    if not isinstance(value, list) or not all(isinstance(word, str) and word.strip() for word in value):
        return ()
    return tuple(value)


def _named(file: str, names: Sequence[str], given: str, setting: str, firm: bool) -> str:
    if given and given not in names and firm:
        listed = ", ".join(f'"{show(name)[:40]}"' for name in names[:12])
        message = f"{show(file)}: no column {given!r}{nearest(given, names)} (data.{setting})"
        raise DataError("D004", message, f"there are {listed}")
    return given if given in names else ""
