"""Bodies of responses, for /openapi.json; the server itself builds plain dicts."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Finish = Literal["stop", "length", "tool_calls"]


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int


class Alternative(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(Alternative):
    top_logprobs: list[Alternative]


class ChatLogprobs(BaseModel):
    content: list[TokenLogprob]


class CalledFunction(BaseModel):
    name: str
    arguments: str


class ToolCall(BaseModel):
    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(BaseModel):
    role: Literal["assistant"]
    content: str | None
    """None where the model only calls tools."""
    tool_calls: list[ToolCall] | None = None


class ChatChoice(BaseModel):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class TextLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float | None]
    """None for the first token of a prompt that is echoed."""
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class TextChoice(BaseModel):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Finish


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class OutputItem(BaseModel):
    """A message or a call of a function. Its other fields depend on its type."""

    model_config = ConfigDict(extra="allow")

    id: str
    type: Literal["message", "function_call"]
    status: Literal["in_progress", "completed", "incomplete"]


class ResponseObject(BaseModel):
    """A response; its other fields repeat the request."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None


class DeletedResponse(BaseModel):
    id: str
    object: Literal["response"]
    deleted: bool


class Embedding(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(BaseModel):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class RunResult(BaseModel):
    """The result for one input. Its other fields depend on the task."""

    model_config = ConfigDict(extra="allow")

    index: int
    truncated_to: int | None = None
    """Tokens that were read of an input that is longer than the model reads."""


class TranscribedWord(BaseModel):
    word: str
    start: float
    end: float


class TranscribedSegment(BaseModel):
    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


class Transcription(BaseModel):
    """With response_format = verbose_json all fields are there, otherwise the text alone."""

    text: str
    task: Literal["transcribe"] | None = None
    language: str | None = None
    duration: float | None = None
    segments: list[TranscribedSegment] | None = None
    words: list[TranscribedWord] | None = None


class RunList(BaseModel):
    object: Literal["list"]
    task: str
    data: list[RunResult]
    model: str
    usage: Usage


class ModelCard(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    can: list[str]
    context: int | None


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[ModelCard]


class Health(BaseModel):
    status: Literal["ok", "stopping", "failed"]
    reason: str | None = None
    """Why the status is failed."""


class Error(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(BaseModel):
    error: Error


def openapi_responses(result: type[BaseModel], *errors: int, stream: bool = False) -> dict[int | str, dict[str, Any]]:
    """Describe the responses of a route. Every route has those of the middleware."""
    found: dict[int | str, dict[str, Any]] = {200: {"model": result}}
    if stream:
        event = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
        found[200]["content"] = {"text/event-stream": {"schema": event}}
    every = (400, 401, 403, 408, 413, 415, 429, 431, 500, 503)
    return found | {status: {"model": ErrorBody} for status in (*every, *errors)}
