"""Tagged sentences: CoNLL files, and rows with a list of words and a list of tags.

A CoNLL file has one word per line, its tag in the last column, and blank lines between sentences. A `-DOCSTART-` line
starts a document. jsonl, json and parquet files have both lists in each row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from headway.data.files.columns import TAGS, WORDS
from headway.data.files.lines import BadLine, Lines, open_text
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows, brief, parse_file
from headway.errors import ConfigError, counted

DOCUMENT = "-DOCSTART-"
MAX_WORD_PARTS = 4
"""The most parts, split at white space, that a word may have; more parts are a text."""
PEEK, MIN_LINES, MIN_ALIKE = 1 << 14, 6, 0.8
"""To detect CoNLL files: bytes to look at, the least lines with words, and the share of them with equal cell counts."""


@dataclass(frozen=True, slots=True)
class Sentence:
    words: tuple[str, ...]
    tags: tuple[str, ...]
    """As in the file."""
    file: str = ""
    line: int = 0
    """The first line of the sentence."""
    document: int = 0
    """Number of the document in a CoNLL file; 0 for all rows of other files."""


def sentences(spec: str, words: str = "", tags: str = "", bad: BadRows | None = None) -> Iterator[Sentence]:
    """Yield all sentences of a spec in order; `words` and `tags` name columns, or number those of CoNLL files from 1.

    A sentence with a flaw is a bad row as a whole.
    """
    bad = bad or BadRows()
    files = (sentences_of(path, words, tags) for path in find_files(spec))
    yield from bad.filter(chain.from_iterable(files), spec, "sentences")


def sentences_of(path: Path, words: str = "", tags: str = "") -> Iterator[Sentence | Flaw]:
    if file_format(path)[0] in ("text", "tsv"):
        return _read_conll(path, _number(words, 0), _number(tags, -1))
    return parse_file(path, (WORDS, TAGS), _parse_row, {WORDS.setting: words, TAGS.setting: tags})


def is_conll(path: Path) -> bool:
    """Whether a text file looks like CoNLL: mostly equal cell counts, blank lines, and few different tags."""
    if file_format(path)[0] != "text":
        return False
    with open_text(path) as file:
        lines = [line.split() for line in file.peek(PEEK)[:PEEK].split(b"\n")[:-1]]
    found = [cells for cells in lines if cells and cells[0] != DOCUMENT.encode()]
    if len(found) < MIN_LINES or len(found) == len(lines):
        return False
    width, alike = Counter(map(len, found)).most_common(1)[0]
    return width > 1 and alike >= MIN_ALIKE * len(found) and len({cells[-1] for cells in found}) <= len(found) / 2


def _number(name: str, usual: int) -> int:
    """Convert a column number from 1 to an index from 0."""
    if not name:
        return usual
    if not name.isdecimal() or int(name) < 1:
        raise ConfigError("C003", f"{name!r}: columns of a CoNLL file are numbers from 1")
    return int(name) - 1


def _read_conll(path: Path, word: int, tag: int) -> Iterator[Sentence | Flaw]:
    with open_text(path) as file:
        lines = Lines(file)
        block: list[tuple[str, str]] = []
        begin, width, document, flaw = 0, 0, 0, None  # type: int, int, int, Flaw | None
        while True:
            try:
                line = next(lines, None)
            except BadLine as wrong:
                flaw = flaw or Flaw(str(path), lines.number, wrong.reason, code=wrong.code)
                continue
            if line is not None and line.strip():
                cells = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
                if cells[0] == DOCUMENT:
                    document += 1
                    continue
                begin, width = begin if block else lines.number, width or len(cells)
                if reason := _column_flaw(cells, width, word, tag):
                    flaw = flaw or Flaw(str(path), lines.number, reason)
                    cells = [""] * width
                block.append((cells[word].strip(), cells[tag].strip()) if not reason else ("", ""))
                continue
            if flaw or block:
                words, tags = (tuple(pair[i] for pair in block) for i in (0, 1))
                yield flaw or Sentence(words, tags, str(path), begin, document)
            block, flaw = [], None
            if line is None:
                return


def _column_flaw(cells: Sequence[str], width: int, word: int, tag: int) -> str:
    if len(cells) != width:
        return f"{counted(len(cells), 'columns')} where the first line has {width}"
    if width < 2:
        return "one column, but a word and its tag need two"
    if max(word, tag) >= width:
        return f"{width} columns, and data.text or data.label asks for number {max(word, tag) + 1}"
    if not cells[word].strip() or not cells[tag].strip():
        return "an empty word or tag"
    if len(cells[word].split()) > MAX_WORD_PARTS:
        return f"{brief(cells[word])} is a text, not a word; use the task classify for labels of texts"
    return ""


def _parse_row(row: Row, words: str, tags: str) -> Sentence | Flaw:
    for column in (words, tags):
        if reason := _list_flaw(row.values.get(column)):
            return Flaw(row.file, row.line, reason, column)
    first, second = row.values[words], row.values[tags]
    if len(first) != len(second):
        return Flaw(row.file, row.line, f"{counted(len(first), 'words')} but {counted(len(second), 'tags')}")
    return Sentence(tuple(first), tuple(second), row.file, row.line)


def _list_flaw(value: Any) -> str:
    if not isinstance(value, list):
        return "missing" if value is None else f"expected a list, found {brief(value)}"
    if not value:
        return "empty"
    for entry in value:
        if not isinstance(entry, str):
            return f"{brief(entry)} ({type(entry).__name__}) in a list of words or tags; give names, not numbers"
        if not entry.strip():
            return "an empty word or tag"
    return ""
