"""Bodies that are wrong: each is refused within a second, with the field that is wrong and a code."""

from __future__ import annotations

import json
import re
import resource
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serve.conftest import KEY, LENGTH, Running

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def text(**more: Any) -> dict[str, Any]:
    return {"model": "reciter", "prompt": "a", "max_tokens": 2} | more


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "reciter", "messages": HELLO, "max_tokens": 2} | more


WRONG: list[tuple[str, Any, str, str | None]] = [
    # what is no JSON object
    (TEXT, b"", "C001", None),
    (TEXT, b"{", "C001", None),
    (TEXT, b"[]", "C001", None),
    (TEXT, b"null", "C001", None),
    (TEXT, b'"text"', "C001", None),
    (TEXT, b"{} {}", "C001", None),
    (TEXT, b"\xff\xfe{}", "C001", None),
    (TEXT, '{"model": "reciter"}'.encode("utf-16"), "C001", None),
    (TEXT, b'{"model": "a", "model": "b"}', "C001", None),
    (TEXT, b'{"prompt": "\\ud800"}', "C001", None),
    (TEXT, b"[" * 100_000, "C001", None),
    (TEXT, b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "C001", None),
    (TEXT, b'{"a":' * 65 + b"1" + b"}" * 65, "C001", None),
    (TEXT, b'{"a":[' + b"1," * 250_000 + b"1]}", "C001", None),
    (TEXT, b'{"temperature": NaN}', "C001", None),
    (TEXT, b'{"temperature": Infinity}', "C001", None),
    (TEXT, b'{"temperature": 1e999}', "C001", None),
    (TEXT, b'{"seed": ' + b"9" * 100_000 + b"}", "C001", None),
    # missing, of another type, out of range
    (TEXT, {"prompt": "a"}, "C004", "model"),
    (CHAT, {"model": "reciter"}, "C004", "messages"),
    (TEXT, text(model=7), "C002", "model"),
    (TEXT, text(model=None), "C002", "model"),
    (TEXT, text(prompt=7), "C002", "prompt"),
    (TEXT, text(prompt={}), "C002", "prompt"),
    (TEXT, text(prompt=[1, "a"]), "C002", "prompt.0"),
    (TEXT, text(prompt=[-1]), "C002", "prompt.0"),
    (TEXT, text(prompt=[1.5]), "C002", "prompt.0"),
    (TEXT, text(prompt=["a"] * 90_000 + [1]), "C002", "prompt.90000"),
    (TEXT, text(prompt=[None] * 190_000), "C002", "prompt.0"),
    (TEXT, text(prompt=[[1], [None] * 150_000]), "C002", "prompt.1.0"),
    (CHAT, chat(messages=[None] * 190_000), "C002", "messages.0"),
    (TEXT, text(prompt=[True]), "C002", "prompt.0"),
    (TEXT, text(prompt=[258]), "D001", "prompt"),
    (TEXT, text(prompt=[10**9]), "D001", "prompt"),
    (TEXT, text(prompt=["a"] * 17), "D001", "prompt"),
    (TEXT, text(prompt=["a"] * 16, n=2), "D001", "prompt"),
    (TEXT, text(prompt="a" * LENGTH), "D001", None),
    (TEXT, text(prompt="a" * 1_500_000), "D001", None),
    (TEXT, text(max_tokens=LENGTH), "D001", "max_tokens"),
    (TEXT, text(max_tokens=10**9), "D001", "max_tokens"),
    (TEXT, text(max_tokens=10**30), "C003", "max_tokens"),
    (TEXT, text(max_tokens=0), "C003", "max_tokens"),
    (TEXT, text(max_tokens=-5), "C003", "max_tokens"),
    (TEXT, text(max_tokens="5"), "C002", "max_tokens"),
    (TEXT, text(max_tokens=2.5), "C002", "max_tokens"),
    (TEXT, text(n=0), "C003", "n"),
    (TEXT, text(n=9), "C003", "n"),
    (TEXT, text(n=10**6), "C003", "n"),
    (CHAT, chat(n=10**6), "C003", "n"),
    (TEXT, text(n=True), "C002", "n"),
    (TEXT, text(temperature=-0.1), "C003", "temperature"),
    (TEXT, text(temperature=2.01), "C003", "temperature"),
    (TEXT, text(temperature="hot"), "C002", "temperature"),
    (TEXT, text(temperature=True), "C002", "temperature"),
    (TEXT, text(top_p=1.1), "C003", "top_p"),
    (TEXT, text(top_k=-2), "C003", "top_k"),
    (TEXT, text(min_p=-1), "C003", "min_p"),
    (TEXT, text(presence_penalty=3), "C003", "presence_penalty"),
    (TEXT, text(frequency_penalty=-3), "C003", "frequency_penalty"),
    (TEXT, text(seed=2**63), "C003", "seed"),
    (TEXT, text(seed=1.5), "C002", "seed"),
    (TEXT, text(stop=7), "C002", "stop"),
    (TEXT, text(stop=[7]), "C002", "stop.0"),
    (TEXT, text(stop=""), "C003", "stop"),
    (TEXT, text(stop=["a", ""]), "C003", "stop"),
    (TEXT, text(stop=["x"] * 17), "C003", "stop"),
    (TEXT, text(stop=["x"] * 10_000), "C003", "stop"),
    (TEXT, text(stop="x" * 257), "C003", "stop"),
    (TEXT, text(stream="yes"), "C002", "stream"),
    (TEXT, text(stream_options={"include_usage": True}), "C004", "stream_options"),
    (TEXT, text(stream=True, stream_options=[]), "C002", "stream_options"),
    (TEXT, text(logprobs=21), "C003", "logprobs"),
    (TEXT, text(logprobs=True), "C002", "logprobs"),
    (TEXT, text(logprobs=1, echo=True), "unsupported", "echo"),
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
    # what is not there
    (CHAT, chat(tools=[{"type": "function"}]), "unsupported", "tools"),
    (CHAT, chat(functions=[{}]), "unsupported", "functions"),
    (CHAT, chat(chat_template="{{ 1 }}"), "unsupported", "chat_template"),
    (CHAT, chat(chat_template_kwargs={"messages": []}), "unsupported", "chat_template_kwargs"),
    (CHAT, chat(logit_bias={"5": 1}), "unsupported", "logit_bias"),
    (CHAT, chat(logit_bias={str(i): 1 for i in range(90_000)}), "unsupported", "logit_bias"),
    (CHAT, chat(messages=[{"role": "assistant", "tool_calls": [{}]}]), "C003", "messages.0.tool_calls"),
    (CHAT, chat(temprature=1), "C014", "temprature"),
    (CHAT, chat(**{"x" * 100: 1}), "C014", "x" * 40),
    (TEXT, text(messages=HELLO), "C014", "messages"),
    (TEXT, text(repetition_penalty=0), "C003", "repetition_penalty"),
    (
        CHAT,
        chat(response_format={"type": "json_schema", "json_schema": {}}),
        "C004",
        "response_format.json_schema.schema",
    ),
    (CHAT, chat(response_format={"type": "xml"}), "C003", "response_format.type"),
    (TEXT, text(best_of=3), "unsupported", "best_of"),
    (TEXT, text(best_of=True), "unsupported", "best_of"),
    (TEXT, text(suffix="end"), "unsupported", "suffix"),
    (
        CHAT,
        chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/"}}]}]),
        "unsupported",
        "messages.0.content",
    ),
    ("/v1/embeddings", {"model": "reciter", "input": [1, 2]}, "C002", "input.0"),
    ("/v1/embeddings", {"model": "reciter", "input": "a", "encoding_format": "hex"}, "C003", "encoding_format"),
    ("/v1/run", {"model": "reciter"}, "C004", "input"),
    ("/v1/run", {"model": "reciter", "input": "a", "task": 7}, "C002", "task"),
]


def test_a_slip_of_the_pen_is_named(reciter: Running) -> None:
    message = reciter.post(CHAT, chat(temprature=1)).json()["error"]["message"]
    assert message == "unknown field 'temprature' — did you mean \"temperature\"?"


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize(("path", "body", "code", "param"), WRONG, ids=range(len(WRONG)))  # type: ignore[arg-type]
def test_a_wrong_body(reciter: Running, path: str, body: Any, code: str, param: str | None) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    began = time.monotonic()
    answer = reciter.post(path, raw)
    seconds = time.monotonic() - began
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")
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
    """Refused by its announced length, or as soon as there is too much of it; and the client can read the answer."""
    part = b'{"prompt": "' + b"a" * 100_000
    content = part * 40 if declared else (part for _ in range(40))
    began = time.monotonic()
    with reciter.http(**{"content-type": "application/json"}) as client:
        answer = client.post(TEXT, content=content)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert answer.headers["connection"] == "close"
    assert time.monotonic() - began < 2
    assert reciter.get("/health").status_code == 200


def test_a_body_that_only_claims_to_be_too_large(reciter: Running) -> None:
    """Nothing of it needs to come; the connection is closed soon."""
    with reciter.connect() as sock:
        head = f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        sock.sendall(f"{head}Content-Length: 100000000\r\n\r\n".encode())
        began, parts = time.monotonic(), []
        while part := sock.recv(4096):
            parts.append(part)
        assert b"".join(parts).startswith(b"HTTP/1.1 413")
        assert 0.8 < time.monotonic() - began < 3  # not at once: a client that is still sending might not see why


def test_a_body_as_large_as_may_be(reciter: Running) -> None:
    body = json.dumps(text()).encode()
    assert reciter.post(TEXT, body + b" " * (2_000_000 - len(body))).status_code == 200
    assert reciter.post(TEXT, body + b" " * (2_000_001 - len(body))).status_code == 413


def test_a_model_without_a_chat_template_says_so(reciter: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reciter.served.requests is not None
    monkeypatch.setattr(reciter.served.requests, "template", None)
    answer = reciter.post(CHAT, chat())
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "D008")
    assert "no chat template" in answer.json()["error"]["message"]
    assert reciter.served.capabilities() == ["complete"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = (
    *("prompt", "messages", "max_tokens", "n", "stop", "temperature", "top_p", "top_k", "min_p", "seed", "logprobs"),
    *("top_logprobs", "echo", "stream", "stream_options", "response_format", "presence_penalty", "logit_bias"),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from([CHAT, TEXT]), field=st.sampled_from(FIELDS), value=JSON)
def test_whatever_a_field_holds_the_answer_is_in_order(reciter: Running, path: str, field: str, value: Any) -> None:
    base = chat() if path == CHAT else text()
    answer = reciter.post(path, json.dumps(base | {field: value}).encode("utf-8", "surrogatepass"))
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
