"""/v1/audio/transcriptions: OpenAI's form, and a transcript in the format that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastapi.responses import JSONResponse, PlainTextResponse, Response

from headway.data.sounds.decode import open_sound
from headway.errors import DataError, nearest
from headway.serve.audio.form import Form
from headway.serve.errors import ApiError, unsupported
from headway.serve.limits import Limits
from headway.tasks.base import Json, Task
from headway.tasks.predictor import Loaded, RunOptions

FORMATS = {"json": "json", "text": "txt", "srt": "srt", "vtt": "vtt", "verbose_json": "verbose_json"}
"""OpenAI's names of formats → those of the task."""
GRANULARITIES = ("segment", "word")
IGNORED = frozenset({"user", "metadata"})
REFUSED = {
    "stream": "this server answers with a whole transcript",
    "chunking_strategy": "this server cuts long sounds by itself",
    "include": "this server reports no log-probabilities of tokens",
}
KNOWN = ("file", "model", "language", "prompt", "response_format", "temperature", "timestamp_granularities")
MEDIA = {"txt": "text/plain", "srt": "text/plain", "vtt": "text/vtt"}


@dataclass(frozen=True)
class TranscriptionRequest:
    """A form that has been checked."""

    model: str
    sound: bytes
    language: str
    prompt: str
    format: str
    """As the task calls it."""
    temperature: float | None
    words: bool


def read_request(form: Form) -> TranscriptionRequest:
    """The request of a form. Unknown fields are refused, because they may be typing errors."""
    for name in form.fields:
        if name in REFUSED and form.fields[name] not in ([""], ["false"]):
            raise unsupported(name, REFUSED[name])
        if name not in (*KNOWN, *REFUSED, *IGNORED):
            raise ApiError(400, f"unknown field {name[:40]!r}{nearest(name, KNOWN)}", "C014", name[:40])
    if "file" not in form.files:
        raise ApiError(400, "the form has no file", "D001", "file")
    asked = _one(form, "response_format") or "json"
    if asked not in FORMATS:
        raise ApiError(
            400, f"response_format is {asked[:40]!r}, not one of {', '.join(FORMATS)}", "C003", "response_format"
        )
    return TranscriptionRequest(
        model=_one(form, "model"),
        sound=form.files["file"],
        language=_one(form, "language"),
        prompt=_one(form, "prompt"),
        format=FORMATS[asked],
        temperature=_temperature(_one(form, "temperature")),
        words=_wants_words(form.fields.get("timestamp_granularities", []), asked),
    )


def _one(form: Form, name: str) -> str:
    values = form.fields.get(name, [])
    if len(values) > 1:
        raise ApiError(400, f"{name} is given {len(values)} times", "C004", name)
    return values[0] if values else ""


def _temperature(text: str) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        value = -1.0
    if value is not None and not 0 <= value <= 1:
        raise ApiError(400, f"temperature is {text[:40]!r}, not a number from 0 to 1", "C003", "temperature")
    return value


def _wants_words(asked: Sequence[str], response_format: str) -> bool:
    name = "timestamp_granularities"
    if wrong := [each for each in asked if each not in GRANULARITIES]:
        raise ApiError(400, f"{name} has {wrong[0][:40]!r}, not segment or word", "C003", name)
    if asked and response_format != "verbose_json":
        raise ApiError(400, f"{name} needs response_format = verbose_json", "C004", name)
    return "word" in asked


def transcript(bundle: Loaded, task: Task, asked: TranscriptionRequest, limits: Limits) -> Json:
    """The result of a request, as the task gives it."""
    try:
        seconds = open_sound(asked.sound, "file").seconds
    except DataError as error:
        raise ApiError(400, error.message, error.code, "file") from None
    if seconds > limits.sound_seconds:
        message = f"the file has {seconds:,.0f} seconds of sound; the limit is {limits.sound_seconds:,.0f}"
        raise ApiError(400, message, "D001", "file")
    made = task.load_predictor()
    recipe = made.default_recipe(bundle)
    changes: dict[str, Any] = {"prompt": asked.prompt}
    if asked.temperature is not None:
        changes["temperature"] = asked.temperature
    recipe = replace(recipe, settings=replace(recipe.settings, **changes))
    predictor = made(bundle, recipe, RunOptions(language=asked.language, words=asked.words))
    try:
        found: Json = predictor.predict([task.parse({"input": asked.sound})])[0].to_dict()
    except DataError as error:
        raise ApiError(400, error.message, error.code, "language" if asked.language else "prompt") from None
    return found


def response_of(found: Mapping[str, Any], task: Task, name: str) -> Response:
    """A transcript as an answer: JSON, or a text."""
    if name == "json":
        return JSONResponse({"text": found["text"]})
    shown = task.formats[name](found)
    if name in MEDIA:
        return PlainTextResponse(shown, media_type=MEDIA[name])
    return Response(shown, media_type="application/json")


def form_schema(model: str) -> dict[str, Any]:
    """The body of a request, for /openapi.json."""
    text = {"type": "string"}
    properties: dict[str, Any] = {
        "file": {"type": "string", "format": "binary"},
        "model": {**text, "enum": [model]},
        "language": text,
        "prompt": text,
        "response_format": {**text, "enum": [*FORMATS], "default": "json"},
        "temperature": {"type": "number", "minimum": 0, "maximum": 1},
        "timestamp_granularities[]": {"type": "array", "items": {**text, "enum": [*GRANULARITIES]}},
    }
    schema = {"type": "object", "required": ["file", "model"], "properties": properties, "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}
