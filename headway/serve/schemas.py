"""Bodies of requests and responses: OpenAI's API plus `top_k`, `min_p` and `repetition_penalty`.

Types are strict: "1" is not a number. Unknown fields are refused, because they may be typing errors. UNSUPPORTED fields
are refused because they would change the response. IGNORED fields do not change it and are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headway.errors import nearest
from headway.serve.errors import ApiError, unsupported

UNSUPPORTED = {
    "audio": "this server does not generate audio",
    "best_of": "use n instead",
    "chat_template": "requests cannot change the chat template",
    "chat_template_kwargs": "requests cannot set variables of the chat template",
    "functions": "use tools instead",
    "prediction": "this server does not use predicted outputs",
    "suffix": "this server generates only after a prompt, not inside it",
    "tools": "only conversations take tools",
}
"""Field → why it is refused, unless its value is empty."""
EMPTY: tuple[Any, ...] = (None, False, 0, "", [], {})
"""Values with which a field is as good as absent."""
IGNORED = (
    *("function_call", "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention"),
    *("safety_identifier", "service_tier", "store", "tool_choice", "user"),
)
"""Fields for OpenAI's accounts and caches, or for tools."""

Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Token = Annotated[int, Field(ge=0, lt=2**32)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
LogitBias = dict[Annotated[str, Field(pattern=r"^[0-9]{1,10}$")], Annotated[float, Field(ge=-100, le=100)]]
"""Token ids, as strings, to what is added to their logits."""


T = TypeVar("T")
FailFastList = Annotated[list[T], Field(fail_fast=True)]
"""A list whose validation ends at the first wrong entry: finding all of them could take seconds."""


class RequestBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    unsupported: ClassVar[Mapping[str, str]] = UNSUPPORTED
    ignored: ClassVar[Sequence[str]] = IGNORED


class StreamOptions(RequestBody):
    include_usage: bool | None = False


class JsonSchema(RequestBody):
    rules: Annotated[dict[str, Any], Field(alias="schema")]


class ResponseFormat(RequestBody):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class GenerationRequest(RequestBody):
    """Fields of both /v1/chat/completions and /v1/completions."""

    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Count | None = 1
    stop: str | FailFastList[str] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Default of this and the following settings: the model's generation_config.json, or else OpenAI's."""
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Probability | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    response_format: ResponseFormat | None = None
    logit_bias: LogitBias | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def count(self) -> int:
        """Completions of each prompt."""
        return self.n or 1

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the numbers of tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)


class Part(RequestBody):
    type: str
    text: str | None = None


class Function(RequestBody):
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """A JSON schema of the arguments; None: there are no arguments."""
    strict: bool | None = None


class Tool(RequestBody):
    type: Literal["function"]
    function: Function


class FunctionReference(RequestBody):
    name: FunctionName


class NamedTool(RequestBody):
    type: Literal["function"]
    function: FunctionReference


class CalledFunction(RequestBody):
    name: FunctionName
    arguments: str
    """JSON, as OpenAI's API has it."""


class ToolCall(RequestBody):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(RequestBody):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | FailFastList[Part] | None = None
    name: Annotated[str, Field(pattern=r"^[^\s<|\\/>]{1,64}$")] | None = None
    tool_calls: FailFastList[ToolCall] | None = None
    tool_call_id: str | None = None


class ChatRequest(GenerationRequest):
    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    tools: FailFastList[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = True

    @property
    def max_new_tokens(self) -> int | None:
        """The most tokens to generate; None: as many as fit."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """How many alternatives to report for each token; None: no log-probabilities at all."""
        return self.top_logprobs or 0 if self.logprobs else None


class CompletionRequest(GenerationRequest):
    prompt: str | FailFastList[str] | FailFastList[Token] | FailFastList[FailFastList[Token]] | None = None
    max_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = 16
    """0 generates nothing: with `echo` and `logprobs` it scores the prompt."""
    echo: bool | None = False
    logprobs: Annotated[int, Field(ge=0, lt=2**31)] | None = None

    @property
    def max_new_tokens(self) -> int:
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def alternatives(self) -> int | None:
        return self.logprobs


class EmbeddingRequest(RequestBody):
    model: str
    input: str | FailFastList[str] | FailFastList[Token] | FailFastList[FailFastList[Token]]
    """One text or several; a text may be a list of token ids."""
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Count | None = None


class RunRequest(RequestBody):
    model: str
    input: str | dict[str, Any] | FailFastList[str | dict[str, Any]]
    """One input or several: texts, or objects with the fields that the task reads."""
    task: str | None = None
    """The task to run; default: the first one that the model can do."""
    pair: str | FailFastList[str] | None = None
    """For classify: a second text for each input, or one for all inputs."""
    context: str | FailFastList[str] | None = None
    """For answer: a context for each question, or one for all questions."""


R = TypeVar("R", bound=RequestBody)


def validate(schema: type[R], body: Mapping[str, Any]) -> R:
    """Return the request, or raise an error for the first wrong field."""
    for name, why in schema.unsupported.items():
        if name in body and name not in schema.model_fields and not _is_empty(name, body[name]):
            raise unsupported(name, why)
    known = {*schema.model_fields, *schema.unsupported, *schema.ignored}
    if strange := [name[:40] for name in body if name not in known]:
        message = f"unknown field {strange[0]!r}{nearest(strange[0], schema.model_fields)}"
        raise ApiError(400, message, "C014", strange[0])
    try:
        return schema.model_validate(body)
    except ValidationError as error:
        raise _validation_error(error, body) from None


def empty_values(name: str) -> list[Any]:
    """List the values of an unsupported field that are allowed."""
    return [*EMPTY, 1] if name == "best_of" else list(EMPTY)


def _is_empty(name: str, value: Any) -> bool:
    return not value or (name == "best_of" and value == 1 and value is not True)


def _validation_error(error: ValidationError, body: Mapping[str, Any]) -> ApiError:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    same = [each for each in found if each["loc"][:1] == found[0]["loc"][:1]]
    places = [_field_path(each["loc"], body, missing=each["type"] == "missing") for each in same]
    first = max(
        range(len(same)), key=lambda i: len(places[i])
    )  # of several alternative types, the one that matched furthest
    place, kind, message = ".".join(places[first]), same[first]["type"], same[first]["msg"]
    code = "C004" if kind == "missing" else "C002" if kind.endswith("_type") else "C003"
    return ApiError(400, f"{place}: {message[:1].lower()}{message[1:]}", code, place)


def _field_path(location: Sequence[str | int], body: Any, *, missing: bool) -> list[str]:
    """Return the path of a field in the body, without the names of alternative types that pydantic puts into it."""
    parts, here = [], body
    for i, part in enumerate(location):
        inside = part in here if isinstance(here, Mapping) else isinstance(here, list) and isinstance(part, int)
        if inside or (missing and i == len(location) - 1):
            parts.append(str(part))
            here = here[part] if inside else None
    return parts
