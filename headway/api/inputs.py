"""Inputs of a model from Python: texts and settings, checked; and the text that comes back piece by piece."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from headway.api.settings import plain
from headway.data.chat_template.template import Message
from headway.errors import ConfigError, DataError

S = TypeVar("S")
HINT = 'a text is "…", several are a list: ["…", "…"]'


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


def conversation(messages: str | Sequence[Message]) -> Sequence[Message]:
    """The messages of a conversation; a text alone is what the user says first."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, list | tuple) or not all(isinstance(message, Mapping) for message in messages):
        raise DataError("D001", "messages are a text, or a list of dicts", '[{"role": "user", "content": "…"}]')
    return messages


def keyword_settings(settings: S | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
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
