"""Zero- and few-shot evaluation on multiple-choice questions: the model takes the most likely choice."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from headway.config.ranges import check_encoding
from headway.config.recipe import UTF_8
from headway.data.files.columns import CHOICE_ANSWER, CHOICE_PROMPT, CHOICE_SERIES, CHOICES, find_columns, named
from headway.data.files.lines import read_as
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows, Row, brief, rows
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError, counted, nearest
from headway.generate.prefix_cache import PrefixCache
from headway.generate.protocol import Decoder, S
from headway.generate.score import By, rank_choices
from headway.progress import track

BY: dict[str, By] = {"bytes": "per_byte", "tokens": "per_token", "none": "log_probability"}
BETWEEN = "\n\n"
"""The separator between examples of a few-shot prompt."""


@dataclass(frozen=True, kw_only=True)
class ChoicesConfig:
    """Settings of task=choices. Columns are guessed by their names unless given."""

    data: str = ""
    """A file, glob or folder: jsonl, csv, tsv, parquet …"""
    prompt: str = ""
    """The column of the question."""
    choices: str = ""
    """The column with a list of choices, or several columns with one each, separated by commas."""
    answer: str = ""
    """The column of the right choice: its text, its letter, or its index from 0."""
    template: str = "{prompt}"
    """The prompt; names in braces are columns, {prompt} is the question."""
    shots: int = 0
    """The number of answered examples in the prompt."""
    shots_from: str = ""
    """A file whose first rows are the examples; by default the first rows of the data, which are then not scored."""
    normalise: Literal["bytes", "tokens", "none"] = "bytes"
    """Compare log-probabilities per byte, per token, or unnormalised."""
    limit: int = 0
    """The most rows to score; 0: all."""
    bad_rows: Literal["stop", "skip"] = "stop"
    encoding: str = UTF_8
    """As data.encoding of a recipe."""

    def __post_init__(self) -> None:
        check_encoding("encoding", self.encoding)
        for name in ("shots", "limit"):
            if getattr(self, name) < 0:
                raise ConfigError("C003", f"{name} = {getattr(self, name)} should be at least 0")
        if self.shots_from and not self.shots:
            raise ConfigError("C004", f"shots_from = {self.shots_from} needs shots", "set shots, such as shots=4")


@dataclass(frozen=True)
class Question:
    prompt: str
    choices: list[str]
    answer: int
    file: str
    line: int


@dataclass(frozen=True)
class Answered:
    """The choice that the model took, and the normalised log-probability of each."""

    file: str
    line: int
    answer: int
    taken: int
    right: bool
    worth: list[float]


@dataclass(frozen=True)
class Accuracy:
    n: int
    accuracy: tuple[float, float, float]
    """With its 95 % confidence interval (Wilson 1927)."""
    chance: float
    """The expected accuracy of random choices."""
    rows: list[Answered]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"interval": "Wilson, 95 %"}


def measure_choices(model: Decoder[S], tokenizer: Tokenizer, config: ChoicesConfig, bad: BadRows) -> Accuracy:
    """Score every question; the KV cache keeps the examples, and each question for its choices."""
    with read_as(config.encoding):
        return _measured(model, tokenizer, config, bad)


def _measured(model: Decoder[S], tokenizer: Tokenizer, config: ChoicesConfig, bad: BadRows) -> Accuracy:
    asked, shots, prefix = questions(config.data, config, bad), "", PrefixCache(model)
    if config.shots:
        taken = questions(config.shots_from, config, bad) if config.shots_from else asked
        examples = [question for _, question in zip(range(config.shots), taken, strict=False)]
        if len(examples) < config.shots:
            where = config.shots_from or config.data
            raise DataError("D002", f"{where} has only {counted(len(examples), 'rows')}: shots = {config.shots}")
        shots = "".join(joined(q.prompt, q.choices[q.answer]) + BETWEEN for q in examples)
    found: list[Answered] = []
    counts: list[int] = []
    for question in track(asked, "evaluating", config.limit or None, "questions"):
        if config.limit and len(found) == config.limit:
            break
        try:
            found.append(score_question(model, tokenizer, question, shots, BY[config.normalise], prefix))
        except DataError as error:  # longer than the context, or a choice without tokens
            bad.add(Flaw(question.file, question.line, error.message))
        else:
            counts.append(len(question.choices))
    if not found:
        raise DataError("D002", f"{config.data}: no questions to score{f' after {config.shots}' * bool(shots)}")
    return Accuracy(
        len(found), wilson_interval(sum(row.right for row in found), len(found)), fmean(1 / n for n in counts), found
    )


def score_question(
    model: Decoder[S], tokenizer: Tokenizer, question: Question, shots: str, by: By, prefix: PrefixCache | None
) -> Answered:
    """Score one question after the examples."""
    context = shots + question.prompt
    choices = [joined(context, choice)[len(context) :] for choice in question.choices]
    ranked = rank_choices(model, tokenizer, context, choices, by=by, prefix=prefix)
    worth = [float(getattr(choice, by)) for choice in sorted(ranked, key=lambda r: r.index)]
    taken, answer = ranked[0].index, question.answer
    return Answered(question.file, question.line, answer, taken, taken == answer, worth)


def joined(prompt: str, choice: str) -> str:
    """The prompt and a choice, with a space between them unless there is one."""
    apart = not prompt or prompt[-1].isspace() or choice[:1].isspace()
    return prompt + choice if apart else f"{prompt} {choice}"


def wilson_interval(right: int, n: int, z: float = 1.959964) -> tuple[float, float, float]:
    """A proportion and its 95 % confidence interval, which stays within 0 and 1 for any n."""
    p, scale = right / n, 1 + z * z / n
    middle = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / scale
    return p, max(0.0, middle - half), min(1.0, middle + half)


def questions(spec: str, config: ChoicesConfig, bad: BadRows) -> Iterator[Question]:
    """The rows of a file as questions. The first row determines the columns; bad rows are reported with their line."""
    columns: _Columns | None = None
    for row in rows(spec, bad):
        columns = columns or _Columns.of(row, config)
        try:
            yield _question(row, columns, config.template)
        except ValueError as flaw:
            bad.add(Flaw(row.file, row.line, str(flaw)))


@dataclass(frozen=True)
class _Columns:
    prompt: str
    choices: tuple[str, ...]
    """One column of lists, or several columns of texts."""
    answer: str

    @classmethod
    def of(cls, row: Row, config: ChoicesConfig) -> _Columns:
        values = [row.values]
        series = [name for name in row.values if CHOICE_SERIES.fullmatch(name)]
        given = config.choices.split(",") if config.choices else []
        if not given and not named(values, CHOICES) and len(series) > 1:
            given = series
        choices = [find_columns(row.file, values, [CHOICES], {"choices": name})[0] for name in given or [""]]
        settings = {"prompt": config.prompt, "answer": config.answer}
        prompt, answer = find_columns(row.file, values, (CHOICE_PROMPT, CHOICE_ANSWER), settings)
        return cls(prompt, tuple(choices), answer)


def _question(row: Row, columns: _Columns, template: str) -> Question:
    """Parse a row; a ValueError says what is wrong."""
    prompt = row.values.get(columns.prompt)
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"{columns.prompt}: expected text, found {brief(prompt)}")
    choices, letters = _choices(row, columns.choices)
    answer = _answer(row.values.get(columns.answer), choices, letters)
    return Question(fill(template, {**row.values, "prompt": prompt}), choices, answer, row.file, row.line)


def _choices(row: Row, columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """The choices and their letters. A cell may hold a list as JSON; files of the hub hold {text, label}."""
    value: Any = [row.values.get(name) for name in columns]
    names: Any = [found[1].upper() for name in columns if (found := CHOICE_SERIES.fullmatch(name))]
    if len(columns) == 1:
        value = value[0]
        if isinstance(value, str) and value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except ValueError:
                raise ValueError(f"{columns[0]}: not a list in JSON: {brief(value)}") from None
    if isinstance(value, Mapping):
        value, names = value.get("text"), value.get("label")
    if not isinstance(value, list) or not all(isinstance(choice, str) and choice.strip() for choice in value):
        raise ValueError(f"{','.join(columns)}: expected a list of texts, found {brief(value)}")
    if len(value) < 2:
        raise ValueError(f"{','.join(columns)}: {len(value)} choices, at least 2 are needed")
    if not isinstance(names, list) or len(names) != len(value):
        names = [chr(ord("A") + i) for i in range(len(value))]
    return value, [str(name) for name in names]


def _answer(value: Any, choices: list[str], names: list[str]) -> int:
    """The index of the right choice, given by its text, else its letter, else its index."""
    plain = value.strip() if isinstance(value, str) else str(value) if type(value) is int else ""
    texts = [choice.strip() for choice in choices] if isinstance(value, str) else []
    for known in (texts, names, [name.lower() for name in names]):
        if known.count(plain) == 1:
            return known.index(plain)
    if plain.isdecimal() and int(plain) < len(choices):
        return int(plain)
    raise ValueError(
        f"the answer {brief(value)} is not one of {len(choices)} choices: give its text, letter or index from 0"
    )


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Replace names in braces by their values. Python's own format language could also read attributes."""

    def found(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            listed = ", ".join(map(str, list(values)[:12]))
            raise DataError("D004", f"template: no column {name!r}{nearest(name, values)}", f"there are {listed}")
        return str(values[name])

    return re.sub(r"\{(\w+)\}", found, template.replace("\\n", "\n"))
