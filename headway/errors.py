"""Every error that a user can meet. Each has a stable code; each class has an exit code.

    HeadwayError             exit 1   B  a bug of headway
    ├── UsageError           exit 2   U  the command line itself
    ├── ConfigError          exit 3   C  a setting, a recipe, a config.json
    ├── DataError            exit 4   D  rows, text, images, sound
    ├── NotFoundError        exit 5   F  a file, a run, a model, a package; no access
    ├── NetworkError         exit 6   N  the hub, or being offline
    ├── MemoryOrDiskError    exit 7   M  too little memory or disk
    ├── DivergedError        exit 8   T  training went wrong
    └── DamagedError         exit 9   X  a model or checkpoint that cannot be trusted

A message says what happened and where; `hint` says what to do now. Numbers, not adjectives.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class HeadwayError(Exception):
    """Base class of all errors that headway raises on purpose."""

    exit_code = 1

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        assert code in CATALOGUE, f"error code {code} is not in the catalogue"
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint

    def __str__(self) -> str:
        first = f"error[{self.code}]: {self.message}"
        return f"{first}\n  {self.hint}" if self.hint else first


class UsageError(HeadwayError):
    """A command line that headway does not understand."""

    exit_code = 2


class ConfigError(HeadwayError):
    """A setting, a recipe or a config.json that is wrong."""

    exit_code = 3


class DataError(HeadwayError):
    """Rows, texts, images or sound that cannot be used."""

    exit_code = 4


class NotFoundError(HeadwayError):
    """A file, a run, a model or a package that is not there."""

    exit_code = 5


class NetworkError(HeadwayError):
    """The hub cannot be reached, or offline mode is on."""

    exit_code = 6


class MemoryOrDiskError(HeadwayError):
    """Too little memory or disk, or a folder that cannot be written."""

    exit_code = 7


class DivergedError(HeadwayError):
    """Training went wrong: a number is not finite."""

    exit_code = 8


class DamagedError(HeadwayError):
    """A model, checkpoint or check that cannot be trusted."""

    exit_code = 9


CATALOGUE = {
    "B000": "an unexpected error: a bug of headway",
    "U001": "a wrong argument on the command line",
    "C001": "a file that is not valid TOML or JSON",
    "C002": "a value of the wrong type",
    "C003": "a value outside its range or choices",
    "C004": "settings that contradict each other",
    "C005": "a pattern or schema that takes too long or too much memory to follow",
    "C014": "an unknown setting",
    "C020": "a model family headway does not know",
    "C021": "a config.json field headway does not know",
    "C022": "a config.json field with a value headway cannot express",
    "C023": "a config.json field that names code",
    "C024": "an architecture (head) headway does not know",
    "C030": "a run folder that another process uses",
    "C040": "a setting that cannot change in a resumed run",
    "D001": "input that does not fit the model",
    "D002": "a dataset with nothing in it",
    "D003": "text in another encoding than data.encoding says, or a file that is not text",
    "D004": "a column that is missing, or ambiguous",
    "D006": "a data file that is damaged",
    "D007": "a row that cannot be used",
    "D008": "a chat template that cannot be used",
    "D020": "data that have changed since the run began",
    "F001": "a model folder, file or run that does not exist",
    "F002": "a folder without the files of a model",
    "F003": "a package that is not installed",
    "F004": "an output folder that already exists",
    "F005": "a tokenizer that cannot be built from the files of its folder",
    "F006": "an adapter whose base model is not on this machine",
    "F007": "a file or folder that cannot be written, for another reason than a full disk",
    "N001": "the hub could not be reached, or offline mode is on",
    "M001": "too little memory for the model",
    "M002": "too little disk space",
    "M010": "memory ran out",
    "M011": "a run that needs more memory than is available",
    "T001": "a loss, gradient or weight that is not a finite number",
    "X001": "a weight, tokenizer or checkpoint file that is damaged",
    "X002": "a tensor that is missing",
    "X003": "a tensor of the wrong shape",
    "X004": "a tensor that the model does not have",
    "X005": "a pickle file where safetensors is needed",
    "X006": "a path that leaves its folder",
    "X007": "a self-check that failed",
    "X008": "a base model that has changed since the run began",
    "X009": "a tensor that differs from the one it copies",
    "X020": "a tokenizer that has changed since the run began",
}
"""Code → meaning. Codes are never reused."""


def nearest(name: str, names: Iterable[str]) -> str:
    """` — did you mean "x"?` with the closest name; empty if none is close."""
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f' — did you mean "{found[0]}"?' if found else ""


def counted(number: int, nouns: str) -> str:
    """A number with its noun: 1 row, 2,000 rows; 1 process, 2 processes."""
    ending = "es" if nouns.endswith(("sses", "ches", "xes")) else "s"
    return f"{number:,} {nouns.removesuffix(ending) if number == 1 else nouns}"


def short(value: Any) -> str:
    """A value for a message: on one line, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
