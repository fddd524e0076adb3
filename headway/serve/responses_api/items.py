"""Items of the Responses API to messages of a chat request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.serve.errors import ApiError, unsupported
from headway.serve.responses_api.schema import ResponsesRequest
from headway.serve.schemas import ChatRequest, validate

Json = dict[str, Any]
TEXTS = ("input_text", "output_text", "text")
"""Kinds of content that are text."""
ROLES = ("user", "assistant", "system", "developer")
CHAT_NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
}
"""Fields of a chat request → what they are made from."""


def input_messages(body: ResponsesRequest) -> list[Json]:
    """The messages of a request, without its instructions and without the conversation before it."""
    if isinstance(body.input, str):
        return [{"role": "user", "content": body.input}]
    messages: list[Json] = []
    for i, item in enumerate(body.input):
        _add_item(messages, item, f"input.{i}")
    return messages


def _add_item(messages: list[Json], item: Mapping[str, Any], where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        if item.get("role") not in ROLES:
            raise ApiError(400, f"{where}.role should be one of {', '.join(ROLES)}", "C003", f"{where}.role")
        messages.append({"role": item["role"], "content": _text(item.get("content"), f"{where}.content")})
    elif kind == "function_call":
        call_id, name, arguments = (_string(item, key, where) for key in ("call_id", "name", "arguments"))
        if not messages or messages[-1]["role"] != "assistant":  # calls belong to the message before them
            messages.append({"role": "assistant", "content": None})
        function = {"name": name, "arguments": arguments}
        messages[-1].setdefault("tool_calls", []).append({"id": call_id, "type": "function", "function": function})
    elif kind == "function_call_output":
        content = _text(item.get("output"), f"{where}.output")
        messages.append({"role": "tool", "tool_call_id": _string(item, "call_id", where), "content": content})
    else:
        shown = kind[:40] if isinstance(kind, str) else "something else"
        raise unsupported(where, f"an item of type {shown!r}; this server takes messages and calls of functions")


def _string(item: Mapping[str, Any], key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        code, what = ("C004", "is missing") if key not in item else ("C002", "should be a text")
        raise ApiError(400, f"{where}.{key} {what}", code, f"{where}.{key}")
    return value


def _text(content: Any, where: str) -> str:
    """The text of a message or of what a call returned: a text, or a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ApiError(400, f"{where} should be a text or a list of parts", "C002", where)
    texts: list[str] = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in TEXTS:
            raise unsupported(f"{where}.{i}", f"a part of type {str(kind)[:40]!r}; this server takes only text")
        texts.append(_string(part, "text", f"{where}.{i}"))
    return "".join(texts)


def chat_request(body: ResponsesRequest, messages: Sequence[Json]) -> ChatRequest:
    """The chat request that has the same answer; `messages` are the whole conversation without instructions."""
    system = [{"role": "system", "content": body.instructions}] if body.instructions else []
    choice = body.tool_choice
    if choice is not None and not isinstance(choice, str):
        choice = {"type": "function", "function": {"name": choice.name}}  # type: ignore[assignment]
    values: Json = {
        "model": body.model,
        "messages": [*system, *messages],
        "max_completion_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "tools": [_tool(tool.model_dump(exclude_none=True)) for tool in body.tools or ()] or None,
        "tool_choice": choice,
        "parallel_tool_calls": body.parallel_tool_calls,
        "response_format": _response_format(body),
        "stream": body.stream,
    }
    return validate(ChatRequest, values)


def _tool(tool: Json) -> Json:
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _response_format(body: ResponsesRequest) -> Json | None:
    wanted = None if body.text is None else body.text.format
    if wanted is None:
        return None
    if wanted.type == "json_schema" and wanted.rules is None:
        raise ApiError(400, "text.format: type json_schema needs a schema", "C004", "text.format.schema")
    schema = {"json_schema": {"schema": wanted.rules}} if wanted.type == "json_schema" else {}
    return {"type": wanted.type, **schema}


def rename(error: ApiError) -> ApiError:
    """An error about the chat request, with the names that the client knows."""
    if error.param is not None:
        first, dot, rest = error.param.partition(".")
        if first in CHAT_NAMES:
            # places in the messages are not places in the input: instructions and earlier messages come first
            error.message = error.message.removeprefix(f"{error.param}: ")
            error.param = CHAT_NAMES[first]
        elif first == "tools":
            error.param = first + dot + rest.replace(".function", "")
        elif first == "tool_choice":
            error.param = first + dot + rest.removeprefix("function.")
    return error
