"""Messages of a request as chat templates read them, and the tools that the next one may call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headway.data.chat_template.template import special_token_strings
from headway.data.prompts import PromptEncoder
from headway.errors import DataError
from headway.jsonfile import parse_object
from headway.serve.chat.call_format import CallFormat, find_format
from headway.serve.chat.call_grammar import CallRules
from headway.serve.chat.tool_calls import CallParser, FreeCalls, GuidedCalls
from headway.serve.errors import ApiError, unsupported
from headway.serve.limits import Limits
from headway.serve.schemas import ChatRequest, Function, Message, NamedTool, ToolCall

NO_TOOLS = "this model's chat template takes no tools"


@dataclass(frozen=True)
class ToolUse:
    """The tools of one request, and what the model may or must do with them."""

    functions: tuple[Function, ...]
    """Functions that the answer may call."""
    form: CallFormat
    shown: dict[int, str]
    forced: bool
    """Whether the answer must be a call."""
    several: bool

    def parser(self, *, guided: bool) -> CallParser:
        """A parser for one answer; `guided`: a grammar lets it be nothing but calls."""
        if guided:
            return GuidedCalls(self.form)
        return FreeCalls(self.form, {function.name for function in self.functions}, several=self.several)

    @property
    def strict(self) -> bool:
        """Whether a call must obey its schema, though the answer may be text."""
        return any(function.strict for function in self.functions)

    def rules(self, answer: Mapping[str, Any] | None) -> CallRules:
        """What a grammar holds the answer to; `answer` is the schema of an answer without calls."""
        return CallRules(self.functions, self.form, self.shown, self.several, self.forced, answer)


class Conversations:
    """Prepares conversations for one model's chat template."""

    def __init__(self, encoder: PromptEncoder, limits: Limits) -> None:
        self.encoder, self.limits = encoder, limits

    @cached_property
    def form(self) -> CallFormat | None:
        """How the model calls tools; None: its chat template takes none. Found once: it renders the template."""
        return find_format(self.encoder.tool_template, special_token_strings(self.encoder.tokenizer))

    def check_tools(self, body: dict[str, Any]) -> None:
        """Refuse tools that the model would not see, before anything else about them."""
        if body.get("tools") and self.form is None:
            raise unsupported("tools", NO_TOOLS)

    def tool_use(self, body: ChatRequest) -> ToolUse | None:
        """The tools that the answer may call; None: none."""
        choice, tools = body.tool_choice, body.tools or []
        if not tools:
            if choice in (None, "none", "auto"):
                return None
            raise ApiError(400, "tool_choice needs tools", "C004", "tool_choice")
        self._check_functions([tool.function for tool in tools])
        if self.form is None:
            raise unsupported("tools", NO_TOOLS)
        if choice == "none":
            return None
        functions = tuple(tool.function for tool in tools)
        if named := isinstance(choice, NamedTool):
            functions = tuple(function for function in functions if function.name == choice.function.name)
            if not functions:
                message = f"there is no tool {choice.function.name!r}"
                raise ApiError(400, message, "C003", "tool_choice.function.name")
        forced, several = named or choice == "required", body.parallel_tool_calls is not False and not named
        return ToolUse(functions, self.form, self.form.shown(self.encoder.tokenizer), forced, several)

    def _check_functions(self, functions: Sequence[Function]) -> None:
        limits, names = self.limits, [function.name for function in functions]
        if len(functions) > limits.tools:
            raise ApiError(400, f"{len(functions)} tools; the limit is {limits.tools}", "C003", "tools")
        size = sum(len(json.dumps(function.model_dump(), ensure_ascii=False).encode()) for function in functions)
        if size > limits.tool_bytes:
            raise ApiError(400, f"the tools have {size:,} bytes; the limit is {limits.tool_bytes:,}", "C003", "tools")
        for i, function in enumerate(functions):
            if function.name in names[:i]:
                raise ApiError(400, f"two tools are called {function.name!r}", "C003", f"tools.{i}.function.name")
            if (function.parameters or {}).get("type", "object") != "object":
                where = f"tools.{i}.function.parameters"
                raise ApiError(400, f"{where}: the schema of arguments has the type object", "C003", where)

    def encode(self, body: ChatRequest, check: Any) -> list[int]:
        """The ids of a conversation up to the next answer."""
        if len(body.messages) > self.limits.messages:
            many = f"{len(body.messages)} messages; the limit is {self.limits.messages}"
            raise ApiError(400, many, "D001", "messages")
        called: dict[str, str] = {}
        rows = [self._row(message, i, called) for i, message in enumerate(body.messages)]
        tools = None
        if body.tools and body.tool_choice != "none":
            tools = [tool.model_dump(exclude_none=True) for tool in body.tools]
        return self.encoder.chat(rows, check, tools)

    def _row(self, message: Message, number: int, called: dict[str, str]) -> dict[str, Any]:
        """A message as templates read it; `called` collects id → name of calls, since some templates want the name."""
        row: dict[str, Any] = {
            "role": "system" if message.role == "developer" else message.role,
            "content": _content(message, number),
        }
        name = message.name or called.get(message.tool_call_id or "")
        row |= {"name": name} if name is not None else {}
        row |= {"tool_call_id": message.tool_call_id} if message.tool_call_id is not None else {}
        if message.tool_calls:
            if message.role != "assistant":
                where = f"messages.{number}.tool_calls"
                raise ApiError(400, f"{where}: only an assistant calls tools", "C004", where)
            if self.form is None:
                raise unsupported(f"messages.{number}.tool_calls", NO_TOOLS)
            called |= {call.id: call.function.name for call in message.tool_calls}
            row["tool_calls"] = [
                self._call(call, f"messages.{number}.tool_calls.{i}") for i, call in enumerate(message.tool_calls)
            ]
        return row

    def _call(self, call: ToolCall, where: str) -> dict[str, Any]:
        """A call as templates read it: its arguments are an object, not the JSON that OpenAI's API has."""
        try:
            arguments = parse_object((call.function.arguments or "{}").encode(), self.limits.json_values)
        except ValueError as error:
            where = f"{where}.function.arguments"
            raise ApiError(400, f"{where}: {error}", "C003", where) from None
        return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def _content(message: Message, number: int) -> str:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type != "text":
            where = f"messages.{number}.content"
            raise unsupported(where, f"a part of type {part.type[:40]!r}; this server takes only text")
        if part.text is None:
            raise DataError("D007", f"message {number + 1} has a part of type text without a text")
    return "".join(part.text or "" for part in content)
