"""When something breaks inside: whoever is concerned is told, nobody else notices, and no insides are shown."""

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
from tests.generate.twin import Twin
from tests.serve.conftest import KEY, Running, recite, running, until

BODY = {"model": "reciter", "prompt": "a", "max_tokens": 40, "temperature": 0}


class Panic(BaseException):
    """As libraries written in Rust have it, and no Exception."""


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
def test_an_error_nobody_foresaw(
    reciter: Running, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    monkeypatch.setattr(reciter.served.requests, "build", failing(error))
    answer = reciter.post("/v1/completions", BODY, **{"x-request-id": f"find-me-{code}"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/json"
    assert f"find-me-{code}" in answer.json()["error"]["message"]
    for word in ("secret", "Traceback", ".py", "ZeroDivision"):
        assert word not in answer.text
    line = reciter.line(answer)
    assert "secret" in line["reason"]
    assert "Traceback" in line["reason"]
    assert reciter.idle()


def test_an_error_in_the_routes_themselves(reciter: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reciter.served, "card", failing(KeyError("/home/secret")))
    answer = reciter.get("/v1/models")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "B000")
    assert "secret" not in answer.text


def break_model(server: Running, patch: pytest.MonkeyPatch, when: Any) -> None:
    """The model fails in every pass for which `when` is true."""
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
        answer = server.post("/v1/completions", BODY)
        assert answer.status_code == 500
        assert answer.headers["x-request-id"] in answer.json()["error"]["message"]
        assert "secret" not in answer.text
        answer = server.post("/v1/completions", BODY | {"stream": True})
        events = answer.text.split("\n\n")
        assert json.loads(events[-2].removeprefix("data: "))["error"]["type"] == "server_error"
        assert "[DONE]" not in str(events)
        assert "device failure" in server.line(answer)["reason"]
        server.post("/v1/completions", BODY)
        health = server.get("/health")
        reason = "3 passes failed one after another, the last with RuntimeError"
        assert (health.status_code, health.json()) == (503, {"status": "failed", "reason": reason})
        broken.clear()
        assert server.post("/v1/completions", BODY).json()["choices"][0]["text"] == recite("a", 40)
        assert server.get("/health").status_code == 200
        assert server.idle()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(DataError("D001", "no such pattern"), 400, "D001"), (KeyError("secret"), 500, "B000")],
)
def test_an_error_of_one_text(
    reciter: Running, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    """What headway itself says of it is told; what Python says is not."""
    monkeypatch.setattr("headway.generate.engine.sequence.Sequence.take", failing(error))
    answer = reciter.post("/v1/completions", BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert "secret" not in answer.text
    last = reciter.post("/v1/completions", BODY | {"stream": True}).text.split("\n\n")[-2]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == code


def test_a_stream_that_fails_midway(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle, KEY) as server, monkeypatch.context() as patch:
        passes = iter(range(10**9))
        break_model(server, patch, lambda: next(passes) > 5)
        answer = server.post("/v1/completions", BODY | {"stream": True})
        events = answer.text.split("\n\n")[:-1]
        read = [json.loads(event.removeprefix("data: ")) for event in events]
        assert "".join(event["choices"][0]["text"] for event in read[:-1]) == recite("a", 6)
        assert read[-1]["error"]["code"] == "B000"
        assert server.line(answer)["new_tokens"] == 6
        assert server.idle()


def test_an_engine_that_is_gone(bundle: Bundle) -> None:
    with running(bundle, KEY) as server:
        assert server.served.engine is not None
        server.served.engine.close()
        answer = server.post("/v1/completions", BODY)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")
        assert until(lambda: server.get("/health").status_code == 503)
        assert server.get("/health").json() == {"status": "failed", "reason": "the engine does not run"}


def test_an_answer_that_breaks_off_is_seen_to_be_broken(reciter: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is too late for a status, the connection is closed before the end of the answer."""

    async def half(_: Any) -> Any:
        yield b"data: half"
        raise ZeroDivisionError

    monkeypatch.setattr("headway.serve.responses.GenerationResponse.stream", half)
    with reciter.connect() as sock:
        raw = json.dumps(BODY | {"stream": True})
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        sock.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n{raw}".encode())
        parts = []
        while part := sock.recv(4096):
            parts.append(part)
    assert b"data: half" in b"".join(parts)
    assert not b"".join(parts).endswith(b"0\r\n\r\n")
    assert until(lambda: reciter.logged[-1].get("cut") is True)
    assert reciter.idle()


# --- faults of the engine, with kernels (of which a slow twin stands in here) and without


@pytest.fixture(params=["plain", "fast"])
def served(request: pytest.FixtureRequest, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    if request.param == "fast":
        monkeypatch.setattr("headway.generate.engine.engine.accelerates", lambda model, rows: True)
        monkeypatch.setattr("headway.generate.engine.engine.make_decoder", Twin)
    hangs = "hangs" in request.node.name  # elsewhere a machine that is busy must not count as one that hangs
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
    """Everybody is told, health says so after three, and all is well once the fault is gone."""
    with monkeypatch.context() as patch:
        patch.setattr(PLACES[place], failing(error))
        for _ in range(3):
            answer = served.post("/v1/completions", BODY | {"temperature": 1})
            told = (503, "M010") if isinstance(error, MemoryError) else (500, "B000")
            assert (answer.status_code, answer.json()["error"]["code"]) == told
        health = served.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "failed")
        faults = next(line for line in served.get("/metrics").text.splitlines() if line.startswith("headway_engine_f"))
        assert float(faults.split()[1]) >= 3
        assert type(error).__name__ in health.json()["reason"] and "x" not in health.json()["reason"].split()
    assert served.post("/v1/completions", BODY).json()["choices"][0]["text"] == recite("a", 40)
    assert served.get("/health").status_code == 200
    assert served.idle()


@WITHOUT_KERNELS
@pytest.mark.parametrize("error", [RuntimeError("x"), ConfigError("C005", "too hard"), KeyError("x")])
def test_a_mask_that_fails_is_the_affair_of_one_text(
    served: Running, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    calls = iter(range(10**9))

    def third(self: Any, row: int) -> Any:
        if next(calls) == 2:
            raise error
        return None

    monkeypatch.setattr("headway.generate.grammar.grammar.Grammar.allowed", third)
    monkeypatch.setattr("headway.generate.grammar.grammar.Grammar.accept", lambda *_: None)
    found: list[Any] = []
    bodies = [BODY | {"response_format": {"type": "json_object"}}, BODY, BODY | {"prompt": "c"}]
    post = lambda body: found.append((body, served.post("/v1/completions", body)))  # noqa: E731
    threads = [threading.Thread(target=post, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for body, answer in found:
        if "response_format" in body:
            assert answer.status_code == (400 if isinstance(error, ConfigError) else 500)
        else:
            assert answer.json()["choices"][0]["text"] == recite(body["prompt"], 40)
    assert served.get("/health").status_code == 200
    assert served.idle()


@WITHOUT_KERNELS
def test_a_step_that_hangs(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Health says so soon, who waits is told, who comes is refused; and all is well when the step ends after all."""
    go_on, inner = threading.Event(), Model.step

    def hang(*arguments: Any, **named: Any) -> Any:
        go_on.wait(20)
        return inner(*arguments, **named)

    monkeypatch.setattr(Model, "step", hang)
    found: list[Any] = []
    bodies = [BODY, BODY | {"stream": True}, *[BODY] * 4]  # some are in slots, some wait
    post = lambda body: found.append((body, served.post("/v1/completions", body)))  # noqa: E731
    threads = [threading.Thread(target=post, args=(body,)) for body in bodies]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    assert until(lambda: served.get("/health").status_code == 503, 4)
    assert time.monotonic() - began < 2.5
    assert "0.5 s" in served.get("/health").json()["reason"]
    for thread in threads:
        thread.join(5)
    for body, answer in found:
        text = answer.text.split("\n\n")[-2].removeprefix("data: ") if "stream" in body else answer.text
        assert json.loads(text)["error"]["code"] == "stuck"
    assert len(found) == len(bodies)
    refused = served.post("/v1/completions", BODY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stuck")
    assert served.get("/metrics").status_code == 200
    go_on.set()
    assert until(lambda: served.get("/health").status_code == 200)
    assert served.post("/v1/completions", BODY).json()["choices"][0]["text"] == recite("a", 40)
    assert served.idle()


def test_a_slow_model_neither_hangs_nor_counts_as_stuck(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Model.step
    monkeypatch.setattr(Model, "step", lambda *a, **k: (time.sleep(0.03), inner(*a, **k))[1])
    assert served.post("/v1/completions", BODY).json()["choices"][0]["text"] == recite("a", 40)
    assert served.get("/health").status_code == 200
