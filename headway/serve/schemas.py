"""Requests and answers as OpenAI's API has them, with `top_k` and `min_p` added.

Types are strict: "1" is no number. A field that nobody knows is ignored, as OpenAI does; one that would change the
answer and is not supported here (UNSUPPORTED) is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headway.serve.problems import Problem, unsupported

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
"""Field → why it is refused, unless it is null, empty or zero."""

Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Token = Annotated[int, Field(ge=0, lt=2**32)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, lt=2**31)]


T = TypeVar("T")
Several = Annotated[list[T], Field(fail_fast=True)]
"""A list that is wrong with its first wrong entry; to find all of them could take seconds."""


class Asked(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class StreamOptions(Asked):
    include_usage: bool | None = False


class ResponseFormat(Asked):
    type: Literal["text", "json_object", "json_schema"]


class WritingRequest(Asked):
    """What both kinds of text share."""

    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Count | None = 1
    stop: str | Several[str] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 1.0
    top_p: Share | None = 1.0
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = 0
    min_p: Share | None = 0.0
    seed: Seed | None = None
    presence_penalty: Penalty | None = 0.0
    frequency_penalty: Penalty | None = 0.0
    response_format: ResponseFormat | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class Part(Asked):
    type: str
    text: str | None = None


class Message(Asked):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Several[Part] | None = None
    name: Annotated[str, Field(pattern=r"^[^\s<|\\/>]{1,64}$")] | None = None


class ChatRequest(WritingRequest):
    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, lt=2**31)] | None = None


class CompletionRequest(WritingRequest):
    prompt: str | Several[str] | Several[Token] | Several[Several[Token]] | None = None
    max_tokens: Count | None = 16
    echo: bool | None = False
    logprobs: Annotated[int, Field(ge=0, lt=2**31)] | None = None


class EmbeddingRequest(Asked):
    model: str
    input: str | Several[str]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Count | None = None


class RunRequest(Asked):
    model: str
    input: str | Several[str]


R = TypeVar("R", bound=Asked)


def read(schema: type[R], body: Mapping[str, Any]) -> R:
    """A request of this kind, or what is wrong with it: the first mistake, by the name of its field."""
    for name, why in UNSUPPORTED.items():
        if body.get(name) and name not in schema.model_fields and not (name == "best_of" and body[name] == 1):
            raise unsupported(name, why)
    try:
        return schema.model_validate(body)
    except ValidationError as error:
        raise _mistake(error, body) from None


def _mistake(error: ValidationError, body: Mapping[str, Any]) -> Problem:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    same = [each for each in found if each["loc"][:1] == found[0]["loc"][:1]]
    places = [_place(each["loc"], body, missing=each["type"] == "missing") for each in same]
    first = max(range(len(same)), key=lambda i: len(places[i]))  # of several types, the one that fitted longest
    place, kind, message = ".".join(places[first]), same[first]["type"], same[first]["msg"]
    code = "C004" if kind == "missing" else "C002" if kind.endswith("_type") else "C003"
    return Problem(400, f"{place}: {message[:1].lower()}{message[1:]}", code, place)


def _place(location: Sequence[str | int], body: Any, *, missing: bool) -> list[str]:
    """Where in the body; pydantic also names the alternative of a type that it tried, which is no place."""
    parts, here = [], body
    for i, part in enumerate(location):
        inside = part in here if isinstance(here, Mapping) else isinstance(here, list) and isinstance(part, int)
        if inside or (missing and i == len(location) - 1):
            parts.append(str(part))
            here = here[part] if inside else None
    return parts
