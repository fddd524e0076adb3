"""Bodies of requests to /v1/responses. What a chat request can express is translated to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from headway.serve.schemas import (
    Count,
    FailFastList,
    FunctionName,
    Probability,
    RequestBody,
    StreamOptions,
)

Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]


class TextFormat(RequestBody):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    rules: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class TextOptions(RequestBody):
    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class FunctionTool(RequestBody):
    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionChoice(RequestBody):
    type: Literal["function"]
    name: FunctionName


class ResponsesRequest(RequestBody):
    model: str
    input: str | FailFastList[dict[str, Any]]
    """A text, or items: messages, calls of functions, and what these calls returned."""
    instructions: str | None = None
    """A system message. It holds for this response only, also where the conversation goes on."""
    previous_response_id: str | None = None
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Probability | None = None
    tools: FailFastList[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = True
    text: TextOptions | None = None
    truncation: Literal["auto", "disabled"] | None = "disabled"
    """auto: leave out the oldest turns of a conversation that is too long."""
    store: bool | None = True
    metadata: Metadata | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    unsupported: ClassVar[Mapping[str, str]] = {
        "background": "this server answers at once",
        "context_management": "use truncation instead",
        "conversation": "use previous_response_id instead",
        "include": "this server adds nothing to its responses",
        "max_tool_calls": "this server calls no tools itself",
        "moderation": "this server does not moderate",
        "prompt": "this server has no prompt templates",
        "reasoning": "this server does not reason apart from its answer",
        "top_logprobs": "use /v1/chat/completions for log-probabilities",
    }
    ignored: ClassVar[Sequence[str]] = (
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "user"),
    )
