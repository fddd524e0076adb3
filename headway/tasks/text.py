"""Tasks that read texts: how a row, a line or a request becomes a text, or a text with a second one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from headway.config.model import TokensConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import DataConfig
from headway.data.datasets.conll import is_conll, sentences_of
from headway.data.datasets.raw import RAW, raw_files, read_raw
from headway.data.files.columns import (
    HEADER_NAMES,
    PAIR,
    QUESTION,
    TEXT,
    TOGETHER,
    WORDS,
    Role,
    column_names,
    find_columns,
    named_together,
)
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import EMPTY, Flaw, Row
from headway.data.files.rows import BadRows, peek, text_flaw
from headway.errors import DataError
from headway.jsonfile import show
from headway.tasks.base import Json, Task
from headway.tasks.inputs import INPUT, STDIN, Item, pipe_rows, reject, text_lines


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text to predict something for."""

    text: str
    pair: str | None = None
    """A second text: the other one of a pair, or the context of a question."""
    words: tuple[str, ...] = ()
    """The words of the text, where the file has them apart."""
    id: str = ""


class TextTask(Task):
    """A task that reads a text, or two."""

    roles: ClassVar[tuple[Role, Role]] = (TEXT, PAIR)
    """The roles of the two columns that a file may have."""
    together: ClassVar[tuple[Role, Role] | None] = None
    """Roles of the two columns in the task's own training files, of which the first is the text to predict for."""
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

    def wants_second(self, config: AnyConfig) -> bool | None:
        return self.needs_second or super().wants_second(config)

    def inputs(
        self, source: str | BinaryIO, data: DataConfig, bad: BadRows, *, firm: bool = False, context: str | None = None
    ) -> Iterator[Item]:
        """`firm`: the user named columns, so a missing one is an error. `context`: one second text for all inputs."""
        reading = _Reading(self, data, firm=firm, alone=context is not None)
        items = reading.files(source, bad) if isinstance(source, str) else reading.pipe(source, bad)
        for item in items:
            yield item if context is None else replace(item, example=replace(item.example, pair=context))


@dataclass(frozen=True)
class _Reading:
    """How the inputs of a task are read from a file or a pipe."""

    task: TextTask
    data: DataConfig
    firm: bool
    alone: bool
    """Whether rows have the first text only, and the second comes from elsewhere."""

    def files(self, source: str, bad: BadRows) -> Iterator[Item]:
        if self.data.raw:
            yield from _raw(source, self.data.length, bad)
            return
        for path in find_files(source):
            if self.task.splits_words and is_conll(path):
                yield from _sentences(path, bad)
            elif file_format(path)[0] == "text":
                self._check_lines(str(path))
                yield from self._texts(text_lines(path), INPUT, "", bad)
            else:
                rows, first = peek(path)
                yield from self._texts(rows, *self._columns(str(path), first), bad)

    def pipe(self, file: BinaryIO, bad: BadRows) -> Iterator[Item]:
        if self.data.raw:
            yield from _raw_item(file.read(self.data.length).decode(RAW), STDIN, bad)
            return
        first_role = self.task.roles[0]
        given = self.data.pair if first_role.setting == "data.pair" else self.data.text
        pairs = [*TOGETHER[TEXT, PAIR], *(() if self.task.together is None else TOGETHER[self.task.together])]
        usual = (*first_role.names, *HEADER_NAMES, *(name for name, _ in pairs))
        rows = pipe_rows(file, [given] if given and self.firm else [*filter(None, [given]), *usual])
        first = next(rows, None)
        if first is None:
            return
        if isinstance(first, Row) and first.values.keys() != {INPUT}:
            names = self._columns(STDIN, [first])
        elif given and self.firm:
            message = f"{STDIN} has no column {given!r} ({first_role.setting}): its first line has no header"
            raise DataError("D004", message)
        else:
            self._check_lines(STDIN)
            names = INPUT, ""
        yield from self._texts(chain([first], rows), *names, bad)

    def _check_lines(self, file: str) -> None:
        """A line is one text, so the second text has to come from elsewhere."""
        if self.task.needs_second and not self.alone:
            second = self.task.second
            message = f"{show(file)} has one text per line and no {second}s"
            raise DataError("D004", message, f"--{second} FILE gives one for all")

    def _columns(self, file: str, rows: Sequence[Row]) -> tuple[str, str]:
        """The columns of the first and the second text; the second is empty where there is none."""
        task, values = self.task, [row.values for row in rows]
        first, second = task.roles
        apart = [name for name in WORDS.names if any(_words(row.get(name)) for row in values)]
        named = self.data.text and (self.firm or self.data.text in column_names(values))
        if task.splits_words and apart and not named:
            return apart[0], ""
        pairs = () if task.together is None or named else named_together(column_names(values), task.together)
        if pairs:
            return pairs[0], ""
        if self.alone:
            role = replace(TEXT, setting=first.setting, names=(*first.names, *TEXT.names))
            return find_columns(file, values, [role], self.data, strict=self.firm)[0], ""
        try:
            text, pair = find_columns(file, values, (first, second), self.data, strict=self.firm)
        except DataError as error:
            more = f"; --{task.second} FILE gives one for all" if task.needs_second else ""
            raise DataError(error.code, error.message, f"{error.hint}{more}") from None
        return text or "text", pair if task.second else ""

    def _texts(self, rows: Iterable[Row | Flaw], text: str, pair: str, bad: BadRows) -> Iterator[Item]:
        for row in rows:
            words = _words(row.values.get(text)) if self.task.splits_words and isinstance(row, Row) else ()
            flaw = None if words else text_flaw(row, text) or (text_flaw(row, pair) if pair else None)
            if flaw is not None:
                reject(flaw, bad)
            elif isinstance(row, Row):
                value = " ".join(words) or row.values[text]
                named = text.lower() in QUESTION.names and "id" in row.values
                second = row.values[pair] if pair else None
                example = TextExample(value, second, words, str(row.values["id"]) if named else "")
                others = {name: value for name, value in row.values.items() if name not in (text, pair)}
                yield Item(example, row.file, row.line, others)


def second_texts(examples: Sequence[TextExample]) -> list[str] | None:
    """The second text of each example; None where no example has one."""
    return [e.pair or "" for e in examples] if any(e.pair is not None for e in examples) else None


def reads_text(config: AnyConfig) -> bool:
    """Whether a model's input is tokens."""
    return isinstance(config.source or config.target, TokensConfig)


def shortened(text: str, letters: int = 100) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= letters else text[: letters - 1] + "…"


def score_line(text: str, result: Json) -> str:
    """How likely a text is, on one line."""
    numbers = f"{result['log_probability']:10.3f}  {result['tokens']:4} tokens"
    return f"{numbers}  perplexity {result['perplexity']:10.2f}  {text}"


def _raw(source: str, length: int, bad: BadRows) -> Iterator[Item]:
    """The first bytes of each file."""
    for path in raw_files(source):
        yield from _raw_item(read_raw(path, length), str(path), bad)


def _raw_item(text: str, name: str, bad: BadRows) -> Iterator[Item]:
    """Bytes; where they are all alike blank, as of an empty file, they are no input."""
    if text.strip():
        yield Item(TextExample(text), name)
    else:
        reject(Flaw(name, 0, "the file is empty", code=EMPTY), bad)


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
