"""Failures inside the server: the clients concerned get an error without internals, and others notice nothing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headway.api import Bundle
from headway.errors import ConfigError, DamagedError, DataError, MemoryOrDiskError
from headway.model.model import Model
from headway.serve import predict
from tests.generate.twin import Twin
from tests.serve.conftest import KEY, Running, http, in_threads, recite, refusal, running, until


class Panic(BaseException):
    """Libraries written in Rust raise such an error, which is no Exception."""


def failing(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ZeroDivisionError("at /home/secret/model.py:7"), 500, "B000"),
        (DamagedError("X001", "/home/secret/tokenizer.json is broken"), 500, "X001"),
        (MemoryOrDiskError("M001", "no memory for /home/secret"), 503, "M001"),
        (RuntimeError("CUDA out of memory, says /home/secret"), 503, "M010"),
    ],
)
def test_an_unexpected_error(
    reciter: Running, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    monkeypatch.setattr(reciter.served.requests, "build", failing(error))
    answer = reciter.complete()
    assert refusal(answer) == (status, code)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"] in answer.json()["error"]["message"]
    for word in ("secret", "Traceback", ".py", "ZeroDivision"):
        assert word not in answer.text
    reason = reciter.line(answer)["reason"]
    assert "secret" in reason and "Traceback" in reason
    assert reciter.idle()


def test_an_error_in_the_routes_themselves(reciter: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reciter.served, "card", failing(KeyError("/home/secret")))
    answer = reciter.get("/v1/models")
    assert refusal(answer) == (500, "B000")
    assert "secret" not in answer.text


def last_event(answer: Any) -> Any:
    """The last event of a stream that an error ended."""
    return json.loads(answer.text.split("\n\n")[-2].removeprefix("data: "))


def break_model(server: Running, patch: pytest.MonkeyPatch, when: Any) -> None:
    """Let the model fail in every step for which `when` is true."""
    model = server.served.model
    step = model.step

    def broken(*arguments: Any, **named: Any) -> Any:
        if when():
            raise RuntimeError("device failure at 0x7f00 in /home/secret")
        return step(*arguments, **named)

    patch.setattr(model, "step", broken)


def test_a_model_that_fails(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle, KEY) as server, monkeypatch.context() as patch:
        broken = threading.Event()
        break_model(server, patch, broken.is_set)
        assert server.get("/health").json() == {"status": "ok"}
        broken.set()
        answer = server.complete()
        assert refusal(answer) == (500, "B000") and "secret" not in answer.text
        answer = server.complete(stream=True)
        assert last_event(answer)["error"]["type"] == "server_error"
        assert "[DONE]" not in answer.text
        assert "device failure" in server.line(answer)["reason"]
        server.complete()
        health = server.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "failed")
        assert "RuntimeError" in health.json()["reason"] and "secret" not in health.text
        broken.clear()
        assert server.works()
        assert server.get("/health").status_code == 200
        assert server.idle()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(DataError("D001", "no such pattern"), 400, "D001"), (KeyError("secret"), 500, "B000")],
)
def test_an_error_of_one_sequence(
    reciter: Running, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    """The client sees the message of a `HeadwayError`, and of no other error."""
    monkeypatch.setattr("headway.generate.engine.sequence.Sequence.take", failing(error))
    answer = reciter.complete()
    assert refusal(answer) == (status, code) and "secret" not in answer.text
    assert last_event(reciter.complete(stream=True))["error"]["code"] == code


def test_a_stream_that_fails_midway(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle, KEY) as server, monkeypatch.context() as patch:
        passes = iter(range(10**9))
        break_model(server, patch, lambda: next(passes) > 5)
        answer = server.complete(stream=True)
        events = answer.text.split("\n\n")[:-1]
        read = [json.loads(event.removeprefix("data: ")) for event in events]
        assert "".join(event["choices"][0]["text"] for event in read[:-1]) == recite("a", 6)
        assert read[-1]["error"]["code"] == "B000"
        assert server.line(answer)["new_tokens"] == 6
        assert server.idle()


def test_an_engine_that_has_ended(bundle: Bundle) -> None:
    with running(bundle, KEY) as server:
        assert server.served.engine is not None
        server.served.engine.close()
        assert refusal(server.complete()) == (503, "stopping")
        assert until(lambda: server.get("/health").status_code == 503)
        assert server.get("/health").json()["status"] == "failed"


def test_a_client_sees_that_a_response_was_cut_off(reciter: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is too late for a status, the connection closes before the end of the response."""

    async def half(_: Any) -> Any:
        yield b"data: half"
        raise ZeroDivisionError

    monkeypatch.setattr("headway.serve.responses.GenerationResponse.stream", half)
    body = {"model": "reciter", "prompt": "a", "stream": True}
    received = reciter.raw(http("POST /v1/completions", body))
    assert b"data: half" in received and not received.endswith(b"0\r\n\r\n")
    assert until(lambda: reciter.logged[-1].get("cut") is True)
    assert reciter.idle()


# --- faults of the engine, without kernels and with them (here a slow twin replaces the kernels)


@pytest.fixture(params=["plain", "fast"])
def served(request: pytest.FixtureRequest, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    if request.param == "fast":
        monkeypatch.setattr("headway.generate.engine.engine.accelerates", lambda model, rows: True)
        monkeypatch.setattr("headway.generate.engine.engine.make_decoder", Twin)
    hangs = "hangs" in request.node.name  # in other tests, a busy machine must not count as a step that hangs
    with running(bundle, KEY, slots=4, step_seconds=0.5 if hangs else 30) as server:
        yield server


FAULTS = [RuntimeError("x"), AssertionError("x"), MemoryError("x"), KeyError("x"), OSError(5, "CUDA"), Panic("x")]
WITHOUT_KERNELS = pytest.mark.filterwarnings("ignore:fast decoding failed")
PLACES = {
    "step": "headway.model.model.Model.step",
    "choosing": "headway.generate.sampling.sampler.Sampler.sample",
    "detokenizer": "headway.generate.detokenize.TextStream.push",
    "slots": "headway.generate.engine.slot_cache.SlotCache.take",
}


@WITHOUT_KERNELS
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
def test_a_fault_of_any_type_in_any_place(
    served: Running, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException
) -> None:
    """Every client gets an error, /health reports three faults, and the server works again without the fault."""
    with monkeypatch.context() as patch:
        patch.setattr(PLACES[place], failing(error))
        for _ in range(3):
            told = (503, "M010") if isinstance(error, MemoryError) else (500, "B000")
            assert refusal(served.complete(temperature=1)) == told
        health = served.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "failed")
        faults = next(line for line in served.get("/metrics").text.splitlines() if line.startswith("headway_engine_f"))
        assert float(faults.split()[1]) >= 3
        assert type(error).__name__ in health.json()["reason"] and "x" not in health.json()["reason"].split()
    assert served.works()
    assert served.get("/health").status_code == 200
    assert served.idle()


@WITHOUT_KERNELS
@pytest.mark.parametrize("error", [RuntimeError("x"), ConfigError("C005", "too hard"), KeyError("x")])
def test_a_mask_that_fails_ends_one_sequence(
    served: Running, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    calls = iter(range(10**9))

    def third(self: Any, row: int) -> Any:
        if next(calls) == 2:
            raise error
        return None

    monkeypatch.setattr("headway.generate.grammar.grammar.Grammar.allowed", third)
    monkeypatch.setattr("headway.generate.grammar.grammar.Grammar.accept", lambda *_: None)
    bodies = [{"response_format": {"type": "json_object"}}, {}, {"prompt": "c"}]
    found = in_threads(lambda body: (body, served.complete(**body)), bodies)
    assert len(found) == 3
    for body, answer in found:
        if "response_format" in body:
            assert answer.status_code == (400 if isinstance(error, ConfigError) else 500)
        else:
            assert answer.json()["choices"][0]["text"] == recite(body.get("prompt", "a"), 40)
    assert served.get("/health").status_code == 200
    assert served.idle()


@WITHOUT_KERNELS
def test_a_step_that_hangs(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """/health reports it, open and new requests get an error, and the server works again once the step ends."""
    go_on, inner = threading.Event(), Model.step

    def hang(*arguments: Any, **named: Any) -> Any:
        go_on.wait(20)
        return inner(*arguments, **named)

    monkeypatch.setattr(Model, "step", hang)

    def work(number: int) -> Any:
        if number < 6:  # some have a slot, some wait
            return number, served.complete(stream=number == 1)
        assert until(lambda: served.get("/health").status_code == 503, 4)
        assert time.monotonic() - began < 2.5
        assert "0.5 s" in served.get("/health").json()["reason"]
        return None

    began = time.monotonic()
    found = [each for each in in_threads(work, range(7)) if each is not None]
    assert len(found) == 6
    for number, answer in found:
        assert last_event(answer)["error"]["code"] == "stuck" if number == 1 else refusal(answer) == (503, "stuck")
    assert refusal(served.complete()) == (503, "stuck")
    assert served.get("/metrics").status_code == 200
    go_on.set()
    assert until(lambda: served.get("/health").status_code == 200)
    assert served.works()
    assert served.idle()


def test_a_slow_model_neither_hangs_nor_counts_as_stuck(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Model.step
    monkeypatch.setattr(Model, "step", lambda *a, **k: (time.sleep(0.03), inner(*a, **k))[1])
    assert served.works()
    assert served.get("/health").status_code == 200


@pytest.mark.parametrize("path", ["/v1/run", "/v1/embeddings"])
def test_a_task_that_hangs(encoder: Bundle, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The same for models that do not generate."""
    go_on, inner = threading.Event(), predict._predict

    def hang(*arguments: Any) -> Any:
        go_on.wait(20)
        return inner(*arguments)

    monkeypatch.setattr(predict, "_predict", hang)
    body = {"model": "encoder", "input": "good film"}
    with running(encoder, KEY, step_seconds=0.5) as server:
        began = time.monotonic()
        found = in_threads(lambda _: server.post(path, body), range(3))
        assert [refusal(answer) for answer in found] == [(503, "stuck")] * 3
        assert time.monotonic() - began < 4
        assert server.get("/health").status_code == 503
        go_on.set()
        assert until(lambda: server.get("/health").status_code == 200)
        assert server.post(path, body).status_code == 200
        assert server.idle()
