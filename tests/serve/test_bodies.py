"""Wrong bodies: the server refuses each within a second, with a code and the name of the wrong field."""

from __future__ import annotations

import json
import re
import resource
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serve.conftest import LENGTH, Running, http, refusal, status

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def text(**more: Any) -> dict[str, Any]:
    return {"model": "reciter", "prompt": "a", "max_tokens": 2} | more


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "reciter", "messages": HELLO, "max_tokens": 2} | more


NO_OBJECT = (
    *(b"", b"{", b"[]", b"null", b'"text"', b"{} {}", b"\xff\xfe{}", '{"model": "reciter"}'.encode("utf-16")),
    *(b'{"model": "a", "model": "b"}', b'{"prompt": "\\ud800"}', b"[" * 100_000),
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in (65, 100_000)),
    b'{"a":[' + b"1," * 250_000 + b"1]}",
    *(b'{"temperature": ' + value + b"}" for value in (b"NaN", b"Infinity", b"1e999", b"9" * 100_000)),
)
FIELDS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("model", "C002", (7, None)),
    ("prompt", "C002", (7, {})),
    ("prompt", "D001", ([258], [10**9], ["a"] * 17)),
    ("max_tokens", "C002", ("5", 2.5)),
    ("max_tokens", "C003", (10**30, -5)),
    ("max_tokens", "D001", (LENGTH, 10**9)),
    ("n", "C002", (True,)),
    ("n", "C003", (0, 9, 10**6)),
    ("temperature", "C002", ("hot", True)),
    ("temperature", "C003", (-0.1, 2.01)),
    ("top_p", "C003", (1.1,)),
    ("top_k", "C003", (-2,)),
    ("min_p", "C003", (-1,)),
    ("presence_penalty", "C003", (3,)),
    ("frequency_penalty", "C003", (-3,)),
    ("repetition_penalty", "C003", (0,)),
    ("seed", "C002", (1.5,)),
    ("seed", "C003", (2**63,)),
    ("stop", "C002", (7,)),
    ("stop", "C003", ("", ["a", ""], ["x"] * 17, ["x"] * 10_000, "x" * 257)),
    ("stream", "C002", ("yes",)),
    ("stream_options", "C004", ({"include_usage": True},)),
    ("logprobs", "C002", (True,)),
    ("logprobs", "C003", (21,)),
    ("messages", "C014", (HELLO,)),
    ("best_of", "unsupported", (3, True)),
    ("suffix", "unsupported", ("end",)),
]
WRONG: list[tuple[str, Any, str, str | None]] = [
    *((TEXT, raw, "C001", None) for raw in NO_OBJECT),
    *((TEXT, text(**{name: value}), code, name) for name, code, values in FIELDS for value in values),
    (TEXT, {"prompt": "a"}, "C004", "model"),
    (CHAT, {"model": "reciter"}, "C004", "messages"),
    *((TEXT, text(prompt=prompt), "C002", "prompt.0") for prompt in ([1, "a"], [-1], [1.5], [True])),
    (TEXT, text(prompt=["a"] * 90_000 + [1]), "C002", "prompt.90000"),
    (TEXT, text(prompt=[None] * 190_000), "C002", "prompt.0"),
    (TEXT, text(prompt=[[1], [None] * 150_000]), "C002", "prompt.1.0"),
    (TEXT, text(prompt=["a"] * 16, n=2), "D001", "prompt"),
    *((TEXT, text(prompt="a" * count), "D001", None) for count in (LENGTH, 1_500_000)),
    (TEXT, text(stop=[7]), "C002", "stop.0"),
    (TEXT, text(stream=True, stream_options=[]), "C002", "stream_options"),
    (CHAT, chat(n=10**6), "C003", "n"),
    (CHAT, chat(messages=[None] * 190_000), "C002", "messages.0"),
    # conversations
    (CHAT, chat(messages=[]), "C003", "messages"),
    (CHAT, chat(messages="Hello"), "C002", "messages"),
    (CHAT, chat(messages=["Hello"]), "C002", "messages.0"),
    (CHAT, chat(messages=[{"content": "a"}]), "C004", "messages.0.role"),
    (CHAT, chat(messages=[{"role": "king", "content": "a"}]), "C003", "messages.0.role"),
    (CHAT, chat(messages=[*HELLO, {"role": "user", "content": 7}]), "C002", "messages.1.content"),
    (CHAT, chat(messages=[{"role": "user", "content": [{"text": "a"}]}]), "C004", "messages.0.content.0.type"),
    (CHAT, chat(messages=[{"role": "user", "content": [{"type": "text"}]}]), "D007", None),
    (CHAT, chat(messages=[{"role": "user", "content": "a", "name": "<|im_end|>"}]), "C003", "messages.0.name"),
    (CHAT, chat(messages=HELLO * 1001), "D001", "messages"),
    (CHAT, chat(messages=[{"role": "user", "content": "a" * LENGTH}]), "D001", None),
    (CHAT, chat(top_logprobs=2), "C004", "top_logprobs"),
    (CHAT, chat(logprobs=True, top_logprobs=21), "C003", "top_logprobs"),
    (CHAT, chat(logprobs=2), "C002", "logprobs"),
    # unknown and unsupported fields
    (CHAT, chat(tools=[{"type": "function"}]), "unsupported", "tools"),
    (CHAT, chat(functions=[{}]), "unsupported", "functions"),
    (CHAT, chat(chat_template="{{ 1 }}"), "unsupported", "chat_template"),
    (CHAT, chat(chat_template_kwargs={"messages": []}), "unsupported", "chat_template_kwargs"),
    (CHAT, chat(max_tokens=0), "C003", "max_tokens"),
    (CHAT, chat(messages=[{"role": "assistant", "tool_calls": [{}]}]), "C004", "messages.0.tool_calls.0.id"),
    (CHAT, chat(messages=[{"role": "assistant", "tool_calls": [None] * 90_000}]), "C002", "messages.0.tool_calls.0"),
    (TEXT, text(tools=[{"type": "function"}]), "unsupported", "tools"),
    (CHAT, chat(temprature=1), "C014", "temprature"),
    (CHAT, chat(**{"x" * 100: 1}), "C014", "x" * 40),
    (
        CHAT,
        chat(response_format={"type": "json_schema", "json_schema": {}}),
        "C004",
        "response_format.json_schema.schema",
    ),
    (CHAT, chat(response_format={"type": "xml"}), "C003", "response_format.type"),
    (
        CHAT,
        chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/"}}]}]),
        "unsupported",
        "messages.0.content",
    ),
    ("/v1/embeddings", {"model": "reciter", "input": [1, None]}, "C002", "input.0"),
    ("/v1/embeddings", {"model": "reciter", "input": "a", "encoding_format": "hex"}, "C003", "encoding_format"),
    ("/v1/run", {"model": "reciter"}, "C004", "input"),
    ("/v1/run", {"model": "reciter", "input": "a", "task": 7}, "C002", "task"),
]


def test_a_typing_error_gets_a_suggestion(reciter: Running) -> None:
    assert '"temperature"' in reciter.post(CHAT, chat(temprature=1)).json()["error"]["message"]


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize(("path", "body", "code", "param"), WRONG, ids=range(len(WRONG)))  # type: ignore[arg-type]
def test_a_wrong_body(reciter: Running, path: str, body: Any, code: str, param: str | None) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    began = time.monotonic()
    answer = reciter.post(path, raw)
    seconds = time.monotonic() - began
    assert refusal(answer) == (400, code), answer.text
    error = answer.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert 5 < len(error["message"]) < 400
    assert not re.search(r"Traceback|\.py|(/[\w.-]+){2,}", error["message"].replace("/v1/completions", ""))
    assert seconds < 1


def test_wrong_bodies_cost_little_memory(reciter: Running) -> None:
    bodies = [(path, body) for path, body, *_ in WRONG if isinstance(body, bytes)]
    for path, body in bodies:
        reciter.post(path, body)
    before = memory()
    for path, body in bodies * 3:
        assert reciter.post(path, body).status_code == 400
    assert memory() - before < 32_000  # kB


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_that_is_too_large(reciter: Running, declared: bool) -> None:
    """Refused by its Content-Length, or as soon as it is too large; and the client can read the response."""
    part = b'{"prompt": "' + b"a" * 100_000
    content = part * 40 if declared else (part for _ in range(40))
    began = time.monotonic()
    with reciter.http(**{"content-type": "application/json"}) as client:
        answer = client.post(TEXT, content=content)
    assert refusal(answer) == (413, "request_too_large")
    assert answer.headers["connection"] == "close"
    assert time.monotonic() - began < 2
    assert reciter.get("/health").status_code == 200


def test_a_content_length_that_is_too_large(reciter: Running) -> None:
    """Refused before any of the body arrives. The connection closes a little later, so that the client sees why."""
    began = time.monotonic()
    assert status(reciter.raw(http(f"POST {TEXT}", headers="Content-Length: 100000000\r\n"))) == 413
    assert 0.8 < time.monotonic() - began < 3


def test_the_largest_body(reciter: Running) -> None:
    body = json.dumps(text()).encode()
    assert reciter.post(TEXT, body + b" " * (2_000_000 - len(body))).status_code == 200
    assert reciter.post(TEXT, body + b" " * (2_000_001 - len(body))).status_code == 413


def test_a_model_without_a_chat_template(reciter: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reciter.served.requests is not None
    monkeypatch.setattr(reciter.served.requests, "template", None)
    assert refusal(reciter.post(CHAT, chat())) == (400, "D008")
    assert reciter.served.capabilities() == ["complete"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NAMES = (
    *("prompt", "messages", "max_tokens", "n", "stop", "temperature", "top_p", "top_k", "min_p", "seed", "logprobs"),
    *("top_logprobs", "echo", "stream", "stream_options", "response_format", "presence_penalty", "logit_bias"),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from([CHAT, TEXT]), field=st.sampled_from(NAMES), value=JSON)
def test_any_value_of_a_field_gets_a_response(reciter: Running, path: str, field: str, value: Any) -> None:
    base = chat() if path == CHAT else text()
    answer = reciter.post(path, json.dumps(base | {field: value}).encode("utf-8", "surrogatepass"))
    assert answer.status_code in (200, 400), answer.text
    assert answer.status_code == 200 or refusal(answer)[0] == 400
