"""MediaTask: a task whose inputs are files, rows with a file or its bytes, or base64 in a request. No torch here."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, TypeVar

from headway.config.recipe import DataConfig
from headway.data.files.locate import file_format
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.errors import HeadwayError, counted
from headway.tasks.base import Json, Task
from headway.tasks.inputs import INPUT, Item, parsed, raw_rows, reject

E = TypeVar("E")


class LearnsMedia(Task):
    """A task that is trained on images or on sounds."""

    rows_module: ClassVar[str]
    """The module that reads rows: it has `read_rows`, `find_parts` and `other_files`."""

    def rows(self, spec: str, data: DataConfig) -> Iterator[Any]:
        """The images or sounds of a spec, not yet decoded; flaws in place of those that cannot be used."""
        found: Iterator[Any] = import_module(self.rows_module).read_rows(spec, data)
        return found

    def count(self, data: DataConfig) -> int | None:
        try:
            spec = import_module(self.rows_module).find_parts(data.train).get("train", data.train)
            return sum(not isinstance(row, Flaw) for row in self.rows(spec, data))
        except HeadwayError:  # training will say why
            return None

    def left_out(self, spec: str) -> str:
        names = import_module(self.rows_module).other_files(spec)
        what = f"no {self.learns}s"
        return f"{counted(len(names), 'files')} left out, {what}: {', '.join(names[:3])}" if names else ""


class MediaTask(LearnsMedia, Generic[E]):
    """A task whose inputs are images, or sounds."""

    prefix: ClassVar[str]
    """What an input begins with that headway makes: `drawn:circle`."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names under which a row or a request has its image or sound."""

    @abstractmethod
    def value(self, value: Any, folder: Path | None) -> Any:
        """What a row or request has for an image or a sound; without a folder no path is read."""

    @abstractmethod
    def example(self, source: Any, name: str, raw: Mapping[str, Any]) -> E:
        """An example of a row or request."""

    @abstractmethod
    def example_of_row(self, row: Any) -> E:
        """An example of a row of `rows`."""

    @abstractmethod
    def is_one(self, source: str) -> bool:
        """Whether a name is that of a single file, or of arrays."""

    def parse(self, raw: Mapping[str, Any]) -> E:
        """A path is one of this machine."""
        return self._parse(raw, Path())

    def parse_request(self, raw: Mapping[str, Any]) -> E:
        """Base64 only: a client must not read files of the server."""
        return self._parse(raw, None)

    def _parse(self, raw: Mapping[str, Any], folder: Path | None) -> E:
        value = next((raw[name] for name in (INPUT, *self.columns) if raw.get(name) is not None), None)
        found = self.value(value, folder)
        named = isinstance(value, str) and (isinstance(found, str) or value.startswith(self.prefix))
        return self.example(found, str(value) if named else "", raw)

    def inputs(
        self, source: str | BinaryIO, data: DataConfig, bad: BadRows, *, firm: bool = False, context: str | None = None
    ) -> Iterator[Item]:
        """Images or sounds of a folder, a table, arrays, or a list of paths in a text file or a pipe."""
        from headway.data.media.listing import is_table

        if not isinstance(source, str) or (_is_list(source) and not self.is_one(source)):
            yield from parsed(raw_rows(source), self.parse, bad)
            return
        table = is_table(Path(source))
        for row in self.rows(source, data):
            if isinstance(row, Flaw):
                reject(row, bad)
                continue
            more = {"label": row.label} if row.label is not None else {}
            yield Item(self.example_of_row(row), row.file, row.line if table or row.line else 0, more)


def _is_list(source: str) -> bool:
    return Path(source).is_file() and file_format(source)[0] == "text"


def label_lines(found: Sequence[tuple[str, Json]]) -> Iterator[str]:
    """Lines for a terminal: names of inputs, each with its label, how probable it is, and what else it may be."""
    wide = max(len(result["label"]) for _, result in found)
    for name, result in found:
        others = sorted(result["probabilities"].items(), key=lambda pair: -pair[1])[1:4]
        rest = "".join(f"  {label} {share:.1%}" for label, share in others if share >= 0.001)
        yield f"{result['label']:{wide}}  {result['probability']:6.1%}  {name}{'  ·' if rest else ''}{rest}"
