"""The grammar of an answer that must call tools, or may: the arguments of the calls obey their JSON schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.serve.chat.call_format import CallFormat
from headway.serve.schemas import Function

COMPACT = {"whitespace_flexible": False}
"""No white space between JSON tokens, which a model could generate without end."""


@dataclass(frozen=True)
class CallRules:
    """Which calls an answer makes."""

    functions: Sequence[Function]
    form: CallFormat
    shown: Mapping[int, str]
    """Special tokens of the format."""
    several: bool
    forced: bool
    """Whether the answer must be a call. Else it may be text too, or what `answer` says."""
    answer: Mapping[str, Any] | None = None
    """JSON schema of an answer without calls."""


def call_grammar(rules: CallRules) -> str:
    """The grammar of such an answer, in llguidance's variant of Lark."""
    form, several = rules.form, rules.several and rules.form.several
    opening, closing = (_mark(mark, rules.shown) for mark in (form.opening, form.closing))
    if form.listed:
        more = '(", " call)*' if several else ""
        calls = f'{opening} "[" call {more} "]"'
    elif form.opening:
        one = f'{opening} "\\n" call "\\n" {closing}'
        calls = f'{one} ("\\n" {one})*' if several else one
    else:
        calls = "call"
    lines = [f"start: {calls}"]
    if not rules.forced and rules.answer is not None:
        lines = [f"start: answer | {calls}", f"answer: {_json_rule(rules.answer)}"]
    elif not rules.forced:
        lines = _with_text(rules, opening, calls)
    lines.append("call: " + " | ".join(f"call_{i}" for i in range(len(rules.functions))))
    for i, function in enumerate(rules.functions):
        head = json.dumps(f'{{"name": "{function.name}", "{form.key}": ')
        lines.append(f'call_{i}: {head} arguments_{i} "}}"')
        lines.append(f"arguments_{i}: {_json_rule(_arguments_schema(function, rules.forced))}")
    return "\n".join(lines)


def _with_text(rules: CallRules, opening: str, calls: str) -> list[str]:
    """Any text, in which an opening begins calls; without an opening, a text that does not begin like a call."""
    if not rules.form.opening:
        return [f"start: {calls} | TEXT?", r"TEXT: /[^\s{](.|\n)*/"]
    start = "start: calls? TEXT" if rules.form.closing else "start: calls | TEXT"
    lines, begin, inner = [start, r"TEXT: /(.|\n)*/"], f"TEXT {opening}", calls.removeprefix(opening)
    if opening.startswith('"'):  # letters, and no special token: the text ends where they first come
        return [*lines, f"begin[lazy]: {begin}", f"calls: begin {inner}"]
    return [*lines, f"calls: {begin} {inner}"]


def _arguments_schema(function: Function, forced: bool) -> dict[str, Any]:
    """The JSON schema of a function's arguments, which are always an object. In free text only `strict` ones obey it.

    So it is in OpenAI's API.
    """
    if not forced and not function.strict:
        return {"type": "object"}
    if not function.parameters:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    return {"type": "object", **function.parameters}


def _json_rule(schema: Mapping[str, Any]) -> str:
    return "%json " + json.dumps({**schema, "x-guidance": COMPACT})


def _mark(text: str, shown: Mapping[int, str]) -> str:
    """A mark of the format: its special token, or its letters."""
    return next((f"<[{token}]>" for token, spelled in shown.items() if spelled == text), json.dumps(text))
