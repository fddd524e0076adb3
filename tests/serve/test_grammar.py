"""Responses that follow a JSON schema, whatever the model would generate without it."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.api import Bundle
from tests.serve.conftest import KEY, Running, in_threads, recite, refusal, running, until

HELLO = [{"role": "user", "content": "Hello"}]
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["kind", "age"],
    "additionalProperties": False,
}


def held(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "animal", "strict": True, "schema": schema}}


def ask(server: Running, **more: Any) -> Any:
    body = {"model": "reciter", "messages": HELLO, "max_tokens": 100, "temperature": 2, "seed": 3}
    return server.post("/v1/chat/completions", body | more)


def check(text: str) -> None:
    found = json.loads(text)
    assert found.keys() == {"kind", "age"}
    assert found["kind"] in ("cat", "dog") and 1 <= found["age"] <= 9


@pytest.mark.parametrize("temperature", [0, 1, 2])
def test_a_response_follows_its_schema(reciter: Running, temperature: float) -> None:
    answer = ask(reciter, temperature=temperature, n=3, response_format=held(SCHEMA)).json()
    for choice in answer["choices"]:
        check(choice["message"]["content"])
        assert choice["finish_reason"] == "stop"


def test_in_a_stream_with_the_official_client(reciter: Running) -> None:
    chunks = reciter.client().chat.completions.create(  # type: ignore[call-overload]
        model="reciter", messages=HELLO, stream=True, seed=1, logprobs=True, response_format=held(SCHEMA)
    )
    check("".join(chunk.choices[0].delta.content or "" for chunk in chunks))


def test_any_object(reciter: Running) -> None:
    answer = ask(reciter, temperature=0, max_tokens=40, response_format={"type": "json_object"}).json()
    assert answer["choices"][0]["message"]["content"].startswith("{")
    plain = ask(reciter, temperature=0, max_tokens=4, response_format={"type": "text"}).json()
    assert plain["choices"][0]["message"]["content"] == "abcd"


def test_completions_follow_a_schema_too(reciter: Running) -> None:
    body = {"model": "reciter", "prompt": ["a", "b"], "max_tokens": 60, "response_format": held(SCHEMA)}
    for choice in reciter.post("/v1/completions", body).json()["choices"]:
        check(choice["text"])


def test_other_sequences_of_a_batch_are_free(bundle: Bundle) -> None:
    """Sequences with and without a grammar are in the same step."""
    with running(bundle, KEY) as server:
        bodies = [{"response_format": held(SCHEMA), "n": 4}, {"temperature": 0, "max_tokens": 100}]
        found = in_threads(lambda body: (body, ask(server, **body).json()), bodies)
        assert len(found) == 2
        for body, answer in found:
            for choice in answer["choices"]:
                if "n" in body:
                    check(choice["message"]["content"])
                else:
                    assert choice["message"]["content"] == recite("\n", 100)


@pytest.mark.parametrize(
    ("response_format", "code", "param"),
    [
        *((held(schema), "C003", None) for schema in ({"type": "nonsense"}, {"$ref": "http://10.0.0.1/x.json"})),
        (held({"type": "string", "pattern": "(?=x)"}), "C003", None),
        (held({"enum": ["x" * 40_000]}), "C003", "response_format.json_schema"),
        *((held(schema), "C002", "response_format.json_schema.schema") for schema in (None, [1])),
        ({"type": "json_schema"}, "C004", "response_format.json_schema"),
    ],
)
def test_a_wrong_schema(reciter: Running, response_format: Any, code: str, param: str | None) -> None:
    answer = ask(reciter, response_format=response_format)
    assert refusal(answer) == (400, code), answer.text
    assert answer.json()["error"]["param"] == param
    assert reciter.idle()


def test_a_schema_is_measured_in_bytes(reciter: Running) -> None:
    """Not in JSON's escapes: they take six letters for each of these characters of two or three bytes."""
    limit = reciter.context.limits.schema_bytes
    for letter, size in (("é", 2), ("東", 3)):
        assert ask(reciter, response_format=held({"enum": [letter * (limit // 6 + 9)]})).status_code == 200
        answer = ask(reciter, response_format=held({"enum": [letter * (limit // size)]}))
        assert refusal(answer) == (400, "C003")
        assert answer.json()["error"]["param"] == "response_format.json_schema"
    answer = ask(reciter, response_format=held({"enum": ["\ud800"]}))  # UTF-8 cannot encode it
    assert refusal(answer) == (400, "C001")


def test_a_pattern_that_turns_out_too_hard_breaks_nothing(reciter: Running) -> None:
    """The grammar gives up during generation: that request fails, and the server works as before."""
    hard = {"type": "string", "pattern": "^(a|aa|aaa|aaaa)*b(a?){500}(a){500}$"}
    for _ in range(4):
        assert ask(reciter, response_format=held(hard)).status_code in (200, 400, 500)
    assert reciter.get("/health").status_code == 200
    assert ask(reciter, temperature=0, max_tokens=4).json()["choices"][0]["message"]["content"] == "abcd"
    assert reciter.idle()


LETTERS = "abcdefghijklmnopqrst"
ENDLESS: dict[str, Any] = {"type": "string", "allOf": [{"pattern": f"(.*{c}.*{c}.*)"} for c in LETTERS]}
"""A kilobyte that takes minutes and gigabytes to compile without bounds."""


def endless(number: int) -> dict[str, Any]:
    """A variant of it, which the server has not compiled before."""
    return held(ENDLESS | {"description": str(number)})


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20


def test_a_schema_that_takes_too_long_does_not_disturb_others(bundle: Bundle) -> None:
    with running(bundle, KEY) as server:
        before, pauses, compiled = resident(), list[float](), list[int]()

        def work(number: int) -> Any:
            began = time.monotonic()
            if number < 6:
                answer = ask(server, response_format=endless(number))
                compiled.append(number)
                return *refusal(answer), time.monotonic() - began < 8
            while len(compiled) < 6:
                began = time.monotonic()
                plain = ask(server, temperature=0, max_tokens=4).json()
                assert plain["choices"][0]["message"]["content"] == "abcd"
                assert server.get("/health").status_code == 200
                pauses.append(time.monotonic() - began)
            return None

        found = [each for each in in_threads(work, range(7)) if each is not None]
        assert found == [(400, "C005", True)] * 6
        assert max(pauses) < 1
        assert resident() - before < 64
        check(ask(server, response_format=held(SCHEMA)).json()["choices"][0]["message"]["content"])
        assert server.idle()


def test_more_schemas_than_may_wait(bundle: Bundle) -> None:
    with running(bundle, KEY, grammars=1) as server:
        first = threading.Thread(target=ask, args=(server,), kwargs={"response_format": endless(10)})
        first.start()
        assert until(lambda: server.context.open == 1)
        answer = ask(server, response_format=endless(11))
        assert refusal(answer) == (429, "rate_limit_exceeded")
        assert answer.headers["retry-after"] == "1"
        first.join()


def test_a_disconnect_ends_the_compilation(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.generate.grammar.client.SECONDS", 60.0)
    monkeypatch.setattr("headway.generate.grammar.client.WALL_SECONDS", 60.0)
    monkeypatch.setattr("headway.generate.grammar.client.ROOM", 1 << 30)
    body = {"model": "reciter", "prompt": "a", "response_format": endless(20)}
    with running(bundle, KEY) as server:
        ask(server, max_tokens=4, response_format=held(SCHEMA))  # starts the process
        assert server.served.grammars is not None
        trial = server.served.grammars._patterns.trial
        child = trial.child
        assert child is not None
        with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=server.url, trust_env=False) as client:
            client.post("/v1/completions", json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=0.5)
        assert until(lambda: child.poll() is not None, 1)
        assert server.idle()
        check(ask(server, response_format=held(SCHEMA)).json()["choices"][0]["message"]["content"])
