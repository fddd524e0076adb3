"""The response to a request to /v1/responses: an object with output items, whole or as a stream of events."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from headway.serve.chat.tool_calls import Delta
from headway.serve.responses import GenerationResponse, sse
from headway.serve.responses_api.schema import ResponsesRequest
from headway.serve.responses_api.store import ResponseStore

Json = dict[str, Any]


class Output:
    """The output items of a response, and the events that tell how they grow."""

    def __init__(self) -> None:
        self.items: list[Json] = []
        self.open = False
        """Whether the last item may still grow."""

    def add(self, delta: Delta) -> list[Json]:
        """Events for more of the answer."""
        events: list[Json] = []
        if delta.name:
            events += self.close() + self._begin(_function_call(delta))
        elif delta.arguments:
            self.items[-1]["arguments"] += delta.arguments
            events.append(self._event("response.function_call_arguments.delta", delta=delta.arguments))
        elif delta.content or not self.items:
            if not self.open or self.items[-1]["type"] != "message":
                events += self.close() + self._begin(_message())
                events.append(self._event("response.content_part.added", content_index=0, part=_text("")))
            if delta.content:
                self.items[-1]["content"][0]["text"] += delta.content
                more = {"content_index": 0, "delta": delta.content, "logprobs": []}
                events.append(self._event("response.output_text.delta", **more))
        return events

    def close(self, status: str = "completed") -> list[Json]:
        """Events for the end of the last item."""
        if not self.open:
            return []
        item, self.open = self.items[-1], False
        item["status"] = status
        if item["type"] == "message":
            text = item["content"][0]["text"]
            done = {"content_index": 0, "text": text, "logprobs": []}
            events = [
                self._event("response.output_text.done", **done),
                self._event("response.content_part.done", content_index=0, part=_text(text)),
            ]
        else:
            done = {"arguments": item["arguments"], "name": item["name"]}
            events = [self._event("response.function_call_arguments.done", **done)]
        return [*events, self._item_event("response.output_item.done")]

    def _begin(self, item: Json) -> list[Json]:
        self.items.append(item)
        self.open = True
        event = self._item_event("response.output_item.added")
        return [event | {"item": {**item, "content": []}} if item["type"] == "message" else event]

    def _item_event(self, kind: str) -> Json:
        item = self.items[-1]
        copied = {**item, "content": [dict(part) for part in item["content"]]} if "content" in item else dict(item)
        return {"type": kind, "output_index": len(self.items) - 1, "item": copied}

    def _event(self, kind: str, **more: Any) -> Json:
        return {"type": kind, "item_id": self.items[-1]["id"], "output_index": len(self.items) - 1, **more}

    def message(self) -> Json:
        """The answer as a message of a conversation."""
        text = "".join(item["content"][0]["text"] for item in self.items if item["type"] == "message")
        calls = [
            {
                "id": item["call_id"],
                "type": "function",
                "function": {"name": item["name"], "arguments": item["arguments"]},
            }
            for item in self.items
            if item["type"] == "function_call" and item["status"] == "completed"
        ]
        return {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})


def _message() -> Json:
    content = [_text("")]
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": content,
    }


def _text(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _function_call(delta: Delta) -> Json:
    own = {"id": f"fc_{secrets.token_hex(12)}", "type": "function_call", "status": "in_progress"}
    return {**own, "call_id": delta.id, "name": delta.name, "arguments": ""}


class ResponsesResponse(GenerationResponse):
    """A generated answer in the shape of the Responses API. `remember` comes before `collect` or `stream`."""

    asked: ResponsesRequest
    messages: Sequence[Json]
    """The conversation before the answer, without instructions."""
    store: ResponseStore

    def remember(self, asked: ResponsesRequest, messages: Sequence[Json], store: ResponseStore) -> None:
        """What was asked for, and where to keep the response."""
        self.asked, self.messages, self.store = asked, messages, store
        self.id = f"resp_{secrets.token_hex(24)}"
        self.output = Output()

    async def collect(self) -> Json:
        response: Json = {}
        async for event in self._response_events():
            response = event.get("response", response)
        return response

    async def stream(self) -> AsyncGenerator[bytes, None]:
        number = 0
        try:
            async for event in self._response_events():
                yield _named_event(event | {"sequence_number": number})
                number += 1
        except Exception as error:
            api_error = self.context.record_error(error)
            failed = self._response("failed") | {"error": {"code": "server_error", "message": api_error.message}}
            event = {"type": "response.failed", "response": failed, "sequence_number": number}
            yield _named_event(event)
        finally:
            self.context.log_fields["new_tokens"] = self._usage()["completion_tokens"]

    async def _response_events(self) -> AsyncGenerator[Json, None]:
        """All events in order; the last one has the whole response."""
        for kind in ("response.created", "response.in_progress"):
            yield {"type": kind, "response": self._response("in_progress")}
        (choice,) = self.choices
        async for events in self.events():
            for each, event in events:
                for delta in self.take(each, event):
                    for made in self.output.add(delta):
                        yield made
        if not self.output.items:
            for made in self.output.add(Delta()):
                yield made
        status = "incomplete" if choice.finish == "length" else "completed"
        for made in self.output.close(status):
            yield made
        response = self._response(status)
        if self.asked.store is not False:
            self.store.put(response, [*self.messages, self.output.message()])
        self.context.log_fields["new_tokens"] = self._usage()["completion_tokens"]
        yield {"type": f"response.{status}", "response": response}

    def _response(self, status: str) -> Json:
        asked, over = self.asked, status in ("completed", "incomplete")
        shown = asked.model_dump(by_alias=True, exclude_none=True)
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": reason,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "model": self.served.id,
            "output": list(self.output.items) if over else [],
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": asked.previous_response_id,
            "reasoning": {"effort": None, "summary": None},
            "store": asked.store is not False,
            "temperature": self.requests[0].sampling.temperature,
            "text": {"format": shown.get("text", {}).get("format", {"type": "text"})},
            "tool_choice": shown.get("tool_choice", "auto"),
            "tools": [_shown_tool(tool) for tool in shown.get("tools", [])],
            "top_p": self.requests[0].sampling.top_p,
            "truncation": asked.truncation or "disabled",
            "usage": self._response_usage() if over else None,
        }

    def _response_usage(self) -> Json:
        usage = self._usage()
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": self.submitted[0].reused, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }


def _shown_tool(tool: Json) -> Json:
    return {"parameters": None, "strict": None, **tool}


def _named_event(event: Json) -> bytes:
    return f"event: {event['type']}\n".encode() + sse(event)
