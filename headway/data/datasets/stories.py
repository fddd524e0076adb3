"""Stories with questions: bAbI's numbered lines (Weston et al. 2015), and rows with story, question and answer.

    1 Mary took the milk.
    2 Mary went to the kitchen.
    3 Where is the milk?<TAB>kitchen<TAB>1 2

Numbers begin again with each story. A line with tabs is a question, its answer, and the lines that tell the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from headway.data.files.lines import BadLine, Lines, open_text
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import Flaw, Row, empty_file, read_file
from headway.data.files.rows import BadRows, brief
from headway.errors import counted

PART = re.compile(r"[._-](train|valid|test)$")
"""How the name of a file says which part of its dataset it is: qa1_single-supporting-fact_train.txt.gz."""
NUMBERED = re.compile(r"(\d+)\s+(\S.*)")
WORD = re.compile(r"\w+(?:['’-]\w+)*")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
STORY, QUESTION, ANSWER, KIND = "story", "question", "answer", "kind"
"""Fields of a row."""


@dataclass(frozen=True, slots=True)
class Story:
    """A question, and the sentences that were told before it."""

    told: tuple[str, ...]
    question: str
    label: str = ""
    """The answer; empty where nobody knows."""
    kind: str = ""
    """The task that it belongs to: the name of its file, or the field `kind` of its row."""
    support: tuple[int, ...] = ()
    """The places of the sentences that tell the answer, where the file has them."""
    file: str = ""
    line: int = 0
    """Of the question."""

    @property
    def shown(self) -> str:
        return f"{' '.join(self.told)} {self.question}"


@lru_cache(maxsize=1 << 16)
def words_of(sentence: str) -> tuple[str, ...]:
    """The words of a sentence, in lower case and without punctuation."""
    return tuple(WORD.findall(sentence.lower()))


def sentences_of(text: str) -> tuple[str, ...]:
    """The sentences of a text, without numbers at the beginning of its lines; what has no words is left out."""
    lines = (found[2] if (found := NUMBERED.fullmatch(line.strip())) else line for line in text.splitlines())
    return tuple(part.strip() for part in SENTENCE_END.split("\n".join(lines)) if words_of(part))


def story_files(spec: str, part: str = "") -> list[Path]:
    """The files of a spec. Of several, where names tell their part, those of `part`."""
    found = find_files(spec)
    parts = [part_of(path) for path in found]
    if not part or len(found) < 2 or not any(parts):
        return found
    return [path for path, own in zip(found, parts, strict=True) if own == part]


def part_of(path: Path) -> str:
    found = PART.search(_stem(path))
    return found[1] if found else ""


def kind_of(path: Path) -> str:
    """The name of a file without its part."""
    return PART.sub("", _stem(path))


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[0] or path.name


def read_stories(files: Sequence[Path], spec: str, bad: BadRows) -> list[Story]:
    """All questions of files, in order; flaws go to `bad`, and files without a question are an error."""
    return list(bad.filter((item for path in files for item in stories_of(path)), spec, "questions"))


def stories_of(path: Path) -> Iterator[Story | Flaw]:
    """The questions of one file."""
    if file_format(path)[0] == "text":
        return _numbered_lines(path)
    return _rows(path)


def _rows(path: Path) -> Iterator[Story | Flaw]:
    for row in read_file(path):
        if isinstance(row, Flaw):
            yield row
            continue
        found = parse_story(row, kind_of(path))
        if isinstance(found, Story) and not found.label:
            yield Flaw(row.file, row.line, "missing", ANSWER)
        else:
            yield found


def parse_story(row: Row, kind: str = "") -> Story | Flaw:
    """The story of a row: a text or a list of sentences. An answer may be missing."""
    values = row.values
    told, asked, answer = (values.get(name) for name in (STORY, QUESTION, ANSWER))
    if not isinstance(asked, str) or not words_of(asked):
        return Flaw(row.file, row.line, _missing(asked, "a question"), QUESTION)
    if isinstance(told, list) and all(isinstance(each, str) for each in told):
        told = "\n".join(told)
    if not isinstance(told, str) or not (sentences := sentences_of(told)):
        return Flaw(row.file, row.line, _missing(told, "a text or a list of sentences"), STORY)
    if answer is not None and not isinstance(answer, str | int):
        return Flaw(row.file, row.line, f"expected an answer, found {brief(answer)}", ANSWER)
    label = "" if answer is None else str(answer).strip()
    return Story(sentences, asked.strip(), label, str(values.get(KIND) or kind), (), row.file, row.line)


def _missing(value: Any, what: str) -> str:
    return "missing" if value is None else f"expected {what}, found {brief(value)}"


def is_numbered(path: Path) -> bool:
    """Whether a file looks like bAbI's: a text whose first line has the number 1, and a line with tabs."""
    if file_format(path)[0] != "text":
        return False
    with open_text(path) as file:
        head = file.peek(1 << 13)[: 1 << 13]
    return head.startswith(b"1 ") and b"\t" in head


@dataclass
class _Telling:
    """A story while its lines are read."""

    file: str
    kind: str
    number: int = 0
    """Of the last line."""
    begin: int = 0
    """The line of the file where the story begins."""
    asked: bool = False
    broken: bool = False
    """Whether a line was wrong, so that the rest of the story is left out."""

    def __post_init__(self) -> None:
        self.told: list[str] = []
        self.places: dict[int, int] = {}

    def unasked(self) -> Iterator[Flaw]:
        """The flaw of a story that ends without a question."""
        if self.number and not self.asked and not self.broken:
            yield Flaw(self.file, self.begin, f"a story of {counted(len(self.told), 'sentences')} without a question")

    def line(self, number: int, text: str, at: int) -> Story | str | None:
        """Take a line: the story of a question, nothing for a sentence, or what is wrong."""
        if number != self.number + 1:
            return f"line {number} of a story after line {self.number}: numbers grow by 1, and begin again at 1"
        self.number = number
        question, tab, rest = text.partition("\t")
        if not words_of(question):
            return f"no words: {brief(text)}"
        if not tab:
            if question.rstrip().endswith("?"):
                return "a question without an answer: QUESTION, a tab, ANSWER, a tab and the lines that tell it"
            self.places[number] = len(self.told)
            self.told.append(question.strip())
            return None
        answer, _, support = rest.partition("\t")
        if not answer.strip():
            return f"the question {brief(question.strip())} has no answer"
        if not self.told:
            return f"the question {brief(question.strip())} comes before any sentence"
        lines = support.split()
        if wrong := [each for each in lines if not each.isdecimal() or int(each) not in self.places]:
            return f"the answer is told by line {brief(wrong[0])}, which is no sentence of the story"
        self.asked = True
        where = tuple(self.places[int(each)] for each in lines)
        return Story(tuple(self.told), question.strip(), answer.strip(), self.kind, where, self.file, at)


def _numbered_lines(path: Path) -> Iterator[Story | Flaw]:
    name, kind = str(path), kind_of(path)
    with open_text(path) as file:
        lines, story, some = Lines(file), _Telling(str(path), kind), False
        while True:
            try:
                line = next(lines, None)
            except BadLine as wrong:
                yield Flaw(name, lines.number, wrong.reason, code=wrong.code)
                story.broken = True
                continue
            if line is None:
                break
            if not line.strip():
                continue
            some = True
            found = NUMBERED.fullmatch(line.strip(" \r\n"))
            if found is None:
                yield Flaw(name, lines.number, f"expected a number and a sentence, found {brief(line.strip())}")
                story.broken = True
                continue
            if int(found[1]) == 1:
                yield from story.unasked()
                story = _Telling(name, kind, begin=lines.number)
            if story.broken:
                continue
            item = story.line(int(found[1]), found[2], lines.number)
            if isinstance(item, Story):
                yield item
            elif item is not None:
                story.broken = True
                yield Flaw(name, lines.number, item)
        yield from story.unasked()
        if not some:
            yield empty_file(path)
