"""Requests and answers as OpenAI's API has them, with `top_k`, `min_p` and `repetition_penalty` added.

Types are strict: "1" is no number. A field that nobody knows is refused, as it may be a slip of the pen; so is one that
would change the answer and is not supported here (UNSUPPORTED). What changes no answer (IGNORED) may be there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headway.errors import nearest
from headway.serve.errors import ApiError, unsupported

UNSUPPORTED = {
    "audio": "there is no sound in answers",
    "best_of": "ask for n answers instead",
    "chat_template": "a request cannot bring a template",
    "chat_template_kwargs": "a request cannot set variables of the template",
    "functions": "this server calls no functions",
    "logit_bias": "scores of single tokens cannot be changed",
    "prediction": "predicted outputs are not known here",
    "suffix": "text is written after a prompt, not into one",
    "tools": "this server calls no tools",
}
"""Field → why it is refused, unless what it says is nothing."""
EMPTY: tuple[Any, ...] = (None, False, 0, "", [], {})
"""All that JSON has to say nothing with."""
IGNORED = (
    *("function_call", "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention"),
    *("safety_identifier", "service_tier", "store", "tool_choice", "user"),
)
"""For OpenAI's accounts and caches, or about tools, without which they mean nothing."""

Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Token = Annotated[int, Field(ge=0, lt=2**32)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, lt=2**31)]


T = TypeVar("T")
FailFastList = Annotated[list[T], Field(fail_fast=True)]
"""A list that is wrong with its first wrong entry; to find all of them could take seconds."""


class RequestBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class StreamOptions(RequestBody):
    include_usage: bool | None = False


class JsonSchema(RequestBody):
    rules: Annotated[dict[str, Any], Field(alias="schema")]


class ResponseFormat(RequestBody):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class GenerationRequest(RequestBody):
    """What both kinds of text share."""

    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Count | None = 1
    stop: str | FailFastList[str] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Where this and the next ones are left out, the model's generation_config.json decides, and then OpenAI's 1."""
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Probability | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    response_format: ResponseFormat | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class Part(RequestBody):
    type: str
    text: str | None = None


class Message(RequestBody):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | FailFastList[Part] | None = None
    name: Annotated[str, Field(pattern=r"^[^\s<|\\/>]{1,64}$")] | None = None
    tool_calls: Annotated[list[Any], Field(max_length=0)] | None = None


class ChatRequest(GenerationRequest):
    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, lt=2**31)] | None = None


class CompletionRequest(GenerationRequest):
    prompt: str | FailFastList[str] | FailFastList[Token] | FailFastList[FailFastList[Token]] | None = None
    max_tokens: Count | None = 16
    echo: bool | None = False
    logprobs: Annotated[int, Field(ge=0, lt=2**31)] | None = None


class EmbeddingRequest(RequestBody):
    model: str
    input: str | FailFastList[str]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Count | None = None


class RunRequest(RequestBody):
    model: str
    input: str | dict[str, Any] | FailFastList[str | dict[str, Any]]
    """One input or several: texts, or objects with the fields that the task reads."""
    task: str | None = None
    """What to do with it; by default, the first thing that the model can do."""
    pair: str | FailFastList[str] | None = None
    """For classify: a second text to each, or one to all."""
    context: str | FailFastList[str] | None = None
    """For answer: the text that has the answer, to each question or to all."""


R = TypeVar("R", bound=RequestBody)


def validate(schema: type[R], body: Mapping[str, Any]) -> R:
    """A request of this kind, or what is wrong with it: the first mistake, by the name of its field."""
    for name, why in UNSUPPORTED.items():
        if name in body and name not in schema.model_fields and not _is_empty(name, body[name]):
            raise unsupported(name, why)
    known = {*schema.model_fields, *UNSUPPORTED, *IGNORED}
    if strange := [name[:40] for name in body if name not in known]:
        message = f"unknown field {strange[0]!r}{nearest(strange[0], schema.model_fields)}"
        raise ApiError(400, message, "C014", strange[0])
    try:
        return schema.model_validate(body)
    except ValidationError as error:
        raise _validation_error(error, body) from None


def empty_values(name: str) -> list[Any]:
    """Values of an unsupported field that change no answer."""
    return [*EMPTY, 1] if name == "best_of" else list(EMPTY)


def _is_empty(name: str, value: Any) -> bool:
    return not value or (name == "best_of" and value == 1 and value is not True)


def _validation_error(error: ValidationError, body: Mapping[str, Any]) -> ApiError:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    same = [each for each in found if each["loc"][:1] == found[0]["loc"][:1]]
    places = [_field_path(each["loc"], body, missing=each["type"] == "missing") for each in same]
    first = max(range(len(same)), key=lambda i: len(places[i]))  # of several types, the one that fitted longest
    place, kind, message = ".".join(places[first]), same[first]["type"], same[first]["msg"]
    code = "C004" if kind == "missing" else "C002" if kind.endswith("_type") else "C003"
    return ApiError(400, f"{place}: {message[:1].lower()}{message[1:]}", code, place)


def _field_path(location: Sequence[str | int], body: Any, *, missing: bool) -> list[str]:
    """Where in the body; pydantic also names the alternative of a type that it tried, which is no place."""
    parts, here = [], body
    for i, part in enumerate(location):
        inside = part in here if isinstance(here, Mapping) else isinstance(here, list) and isinstance(part, int)
        if inside or (missing and i == len(location) - 1):
            parts.append(str(part))
            here = here[part] if inside else None
    return parts


# --- answers, for the description of the API at /openapi.json; the answers themselves are plain dicts

Finish = Literal["stop", "length"]


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


class ChatMessage(BaseModel):
    role: Literal["assistant"]
    content: str


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
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
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
    """One for each input; what else it holds is the task's own."""

    model_config = ConfigDict(extra="allow")

    index: int


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
    """Of a failure."""


class Error(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(BaseModel):
    error: Error


def openapi_responses(result: type[BaseModel], *problems: int, stream: bool = False) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route. What the gate may answer comes with every route."""
    found: dict[int | str, dict[str, Any]] = {200: {"model": result}}
    if stream:
        event = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
        found[200]["content"] = {"text/event-stream": {"schema": event}}
    every = (400, 401, 403, 408, 413, 415, 429, 431, 500, 503)
    return found | {status: {"model": ErrorBody} for status in (*every, *problems)}
