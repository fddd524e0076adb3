"""Tool calls in generated text, found while it comes: text to deltas of content, names and arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from headway.generate.detokenize import overlap
from headway.serve.chat.call_format import CallFormat

GUIDED_CALL = re.compile(r'\{"name": "([A-Za-z0-9_-]+)", "(?:arguments|parameters)": (?=\{)')
"""The beginning of a call as `call_grammar` spells it."""
BETWEEN = re.compile(r"[\s;,]*")
"""What may stand between two calls."""


@dataclass(frozen=True)
class Delta:
    """More of an answer: text, or the name of a new call, or more of its arguments."""

    content: str = ""
    call: int = 0
    """Number of the call in its answer."""
    id: str = ""
    name: str = ""
    arguments: str = ""


class CallParser(Protocol):
    count: int
    """Calls so far."""

    def push(self, text: str) -> list[Delta]:
        """More text of the answer."""

    def close(self) -> list[Delta]:
        """What is left at the end of the answer."""


class FreeCalls:
    """Calls in a text that no grammar rules. A call counts once it is complete and valid; anything else is text."""

    def __init__(self, form: CallFormat, names: Collection[str], *, several: bool = True) -> None:
        """`names` are the functions of the request. If not `several`, calls after the first one are left out."""
        self.form, self.names, self.several, self.count = form, names, several, 0
        self._text = ""
        self._inside = False
        """Whether `_text` comes after an opening."""
        self._blank = True
        """Whether nothing but white space has come since the beginning or the last call."""

    def push(self, text: str) -> list[Delta]:
        self._text += text
        found: list[Delta] = []
        while True:
            before = self._text, self._inside
            found += self._inner() if self._inside else self._outer()
            if before == (self._text, self._inside):
                return found

    def close(self) -> list[Delta]:
        rest, self._text = self._text, ""
        if not self._inside:
            return self._content(rest) if rest.strip() else []
        return self._calls(rest, self.form.opening + rest)

    def _outer(self) -> list[Delta]:
        """Outside of calls: pass text on, up to an opening."""
        form = self.form
        if not form.opening:
            return self._first_letter()
        start = self._text.find(form.opening)
        if start >= 0:
            text, self._text, self._inside = self._text[:start], self._text[start + len(form.opening) :], True
            return self._content(text) if text.strip() else []
        waiting = overlap(self._text, (form.opening,))
        text = self._text[: len(self._text) - waiting]
        if self._blank and not text.strip():  # white space around calls is no content
            return []
        self._text = self._text[len(text) :]
        return self._content(text)

    def _first_letter(self) -> list[Delta]:
        """A format without an opening: the text is a call if it begins like one, and else it is only text."""
        begun = self._text.lstrip()
        if self._blank and (not begun or self.form.alias.startswith(begun)):
            return []
        if self._blank and begun.startswith(("{", self.form.alias)):
            self._inside = True
            return []
        text, self._text = self._text, ""
        return self._content(text)

    def _inner(self) -> list[Delta]:
        closing = self.form.closing
        end = self._text.find(closing) if closing else -1
        if end < 0:
            return []
        call, self._text, self._inside = self._text[:end], self._text[end + len(closing) :], False
        return self._calls(call, self.form.opening + call + closing)

    def _content(self, text: str) -> list[Delta]:
        self._blank = False
        return [Delta(text)] if text else []

    def _calls(self, text: str, spelled: str) -> list[Delta]:
        """The calls in a text, or else what was `spelled`, as content."""
        calls = parse_calls(text.lstrip().removeprefix(self.form.alias), self.names)
        if not calls:
            return self._content(spelled)
        found, self._blank = list[Delta](), True
        for name, arguments in calls if self.several else calls[: 1 - min(1, self.count)]:
            found.append(Delta(call=self.count, id=self.form.new_id(), name=name))
            found.append(Delta(call=self.count, arguments=arguments))
            self.count += 1
        return found


def parse_calls(text: str, names: Collection[str]) -> list[tuple[str, str]]:
    """Names and arguments of the calls in a text: JSON objects, one after another or in a list. Empty: not valid.

    Arguments are JSON again: what json.loads takes is more than JSON, and may be half a surrogate pair.
    """
    values, at, read = list[Any](), 0, json.JSONDecoder().raw_decode
    text = text.strip()
    while at < len(text):
        try:
            value, at = read(text, at)
        except (ValueError, RecursionError):
            return []
        values += value if isinstance(value, list) else [value]
        at = BETWEEN.match(text, at).end()  # type: ignore[union-attr]
    calls: list[tuple[str, str]] = []
    for value in values:
        name = value.get("name") if isinstance(value, dict) else None
        arguments = value.get("arguments", value.get("parameters", {})) if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in names or not isinstance(arguments, dict):
            return []
        try:
            spelled = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
            spelled.encode()
        except ValueError:
            return []
        calls.append((name, spelled))
    return calls


class GuidedCalls:
    """Calls in a text that follows `call_grammar`: names and arguments are passed on while they come."""

    def __init__(self, form: CallFormat) -> None:
        self.form, self.count = form, 0
        self._text = ""
        self._depth = 0
        """Open braces and brackets of the arguments; 0 between calls."""
        self._quoted = self._escaped = False

    def push(self, text: str) -> list[Delta]:
        self._text += text
        found: list[Delta] = []
        while self._text:
            if not self._depth:
                begin = GUIDED_CALL.search(self._text)
                if begin is None:
                    return found
                found.append(Delta(call=self.count, id=self.form.new_id(), name=begin[1]))
                self._text = self._text[begin.end() :]
                self.count += 1
            size = self._arguments()
            if size:
                found.append(Delta(call=self.count - 1, arguments=self._text[:size]))
            self._text = self._text[size:]
        return found

    def _arguments(self) -> int:
        """How many of the next letters belong to the arguments."""
        for i, letter in enumerate(self._text):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped, self._quoted = letter == "\\", letter != '"'
            elif letter in '"{}[]':
                self._quoted = letter == '"'
                self._depth += (letter in "{[") - (letter in "}]")
                if not self._depth:
                    return i + 1
        return len(self._text)

    def close(self) -> list[Delta]:
        return []
