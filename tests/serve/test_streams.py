"""Clients that come in crowds, leave early, or take their time: the server stays as it was."""

from __future__ import annotations

import asyncio
import json
import random
import re
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from headway.api import Bundle
from tests.serve.conftest import KEY, Running, recite, running, until

BODY = {"model": "reciter", "prompt": "a", "max_tokens": 300, "temperature": 0}


def request(body: dict[str, Any], more: str = "") -> bytes:
    raw = json.dumps(body)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n{more}"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n{raw}".encode()


def slowly(server: Running, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.005) -> Callable[[], int]:
    """Make each round of the engine take a while; returns a function that counts rounds."""
    engine = server.served.engine
    assert engine is not None
    rounds, step = [0], engine.step

    def slow() -> bool:
        time.sleep(seconds)
        busy = step()
        rounds[0] += busy
        return busy

    monkeypatch.setattr(engine, "step", slow)
    return lambda: rounds[0]


# --- leaving


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_who_leaves_stops_the_work(reciter: Running, monkeypatch: pytest.MonkeyPatch, stream: bool, n: int) -> None:
    rounds = slowly(reciter, monkeypatch)
    cancelled = reciter.context.metrics.cancelled._value.get()
    with reciter.connect() as sock:
        sock.sendall(request(BODY | {"stream": stream, "n": n}))
        assert until(lambda: reciter.busy() == n)
    before = rounds()
    assert reciter.idle()
    assert rounds() - before < 90  # of 300
    assert until(lambda: reciter.logged[-1].get("gone") is True)
    assert reciter.logged[-1]["status"] == (200 if stream else 499)
    assert reciter.context.metrics.cancelled._value.get() == cancelled + n


def half_closed(server: Running, *requests: bytes) -> bytes:
    """What the server answers to a client that has closed its side after its requests."""
    with server.connect() as sock:
        sock.sendall(b"".join(requests))
        sock.shutdown(socket.SHUT_WR)
        parts = []
        while part := sock.recv(65536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seconds", [0.0, 0.03])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_who_closes_its_own_side_is_answered(
    reciter: Running, monkeypatch: pytest.MonkeyPatch, stream: bool, seconds: float, version: str
) -> None:
    """At once, and after longer than it takes to find out that the client is still there."""
    slowly(reciter, monkeypatch, seconds)
    whole = request(BODY | {"stream": stream, "max_tokens": 40}).replace(b"HTTP/1.1", f"HTTP/{version}".encode(), 1)
    received = half_closed(reciter, whole)
    words = received.split(b"HTTP/1.1 200 ")[0]
    assert set(words.split(b"\r\n\r\n")) <= {b"", b"HTTP/1.1 100 Continue"}
    assert not words or version == "1.1"
    text = "".join(
        json.loads(part)["choices"][0]["text"] for part in re.findall(rb"\{.*\}", received.partition(b"200 OK")[2])
    )
    assert text == recite("a", 40)
    assert reciter.idle()


def test_requests_of_every_kind_from_who_closes_its_own_side(reciter: Running) -> None:
    head = f"Host: localhost\r\nAuthorization: Bearer {KEY}\r\n"
    chat = json.dumps({"model": "reciter", "messages": [{"role": "user", "content": "a"}], "max_tokens": 3})
    kind = f"Content-Type: application/json\r\nContent-Length: {len(chat)}\r\n"
    received = half_closed(reciter, f"POST /v1/chat/completions HTTP/1.1\r\n{head}{kind}\r\n{chat}".encode())
    assert b'"content":"abc"' in received
    models = f"GET /v1/models HTTP/1.1\r\n{head}\r\n".encode()
    assert half_closed(reciter, models, request(BODY), models).count(b"HTTP/1.1 200 OK") == 3
    assert half_closed(reciter, request(BODY)[:-5]) == b""  # which is no whole request
    assert half_closed(reciter, request(BODY | {"n": 0})).startswith(b"HTTP/1.1 400")
    assert reciter.idle()
    assert until(lambda: not reciter.server.server_state.connections)


@pytest.mark.parametrize("after", [0.0, 0.3])
def test_who_closes_its_own_side_and_then_leaves(
    reciter: Running, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    monkeypatch.setattr("headway.serve.server.PROBES", (0.04, 0.4))
    rounds = slowly(reciter, monkeypatch)
    with reciter.connect() as sock:
        sock.sendall(request(BODY | {"max_tokens": 400}))
        sock.shutdown(socket.SHUT_WR)
        assert until(lambda: reciter.busy() == 1)
        time.sleep(after)
        assert reciter.busy() == 1
    before = rounds()
    assert reciter.idle()
    assert rounds() - before < 60  # of 400
    assert until(lambda: reciter.logged[-1].get("gone") is True)


def test_who_closes_its_own_side_does_not_wait_for_ever(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle, KEY, eof_seconds=0.3) as server:
        slowly(server, monkeypatch, 0.02)
        began = time.monotonic()
        assert b"200 OK" not in half_closed(server, request(BODY))
        assert time.monotonic() - began < 2
        assert server.idle()


def test_who_leaves_the_queue_is_not_written_for(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle, KEY, slots=1) as server:
        slowly(server, monkeypatch)
        with server.connect() as first:
            first.sendall(request(BODY | {"stream": True}))
            assert until(lambda: server.served.engine.stats().running == 1)  # type: ignore[union-attr]
            with server.connect() as second:
                second.sendall(request(BODY))
                assert until(lambda: server.served.engine.stats().waiting == 1)  # type: ignore[union-attr]
            assert until(lambda: server.served.engine.stats().waiting == 0)  # type: ignore[union-attr]
            assert server.served.engine.stats().running == 1  # type: ignore[union-attr]
        assert server.idle()


def test_who_leaves_while_a_body_is_read(reciter: Running) -> None:
    with reciter.connect() as sock:
        sock.sendall(request(BODY)[:-10])
        assert until(lambda: reciter.context.open == 1)
    assert reciter.idle()


# --- crowds


async def visit(server: Running, number: int, chance: random.Random) -> str:
    """One streaming client; every second one leaves at some time. What became of it."""
    reader, writer = await asyncio.open_connection(*server.address)
    try:
        sent = request(BODY | {"stream": True, "max_tokens": chance.randint(1, 40), "prompt": "abc"})
        if number % 2:
            cut = chance.random()
            if cut < 0.2:
                writer.write(sent[: chance.randint(1, len(sent) - 1)])
                await writer.drain()
                return "left while sending"
            writer.write(sent)
            await writer.drain()
            if cut < 0.6:
                await asyncio.sleep(chance.random() * 0.2)
                return "left while waiting"
            await reader.read(chance.randint(1, 900))
            return "left while reading"
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status != 200:
            assert b"retry-after: 1" in head
            return str(status)
        body = await reader.readuntil(b"0\r\n\r\n")
        assert body.count(b"data: [DONE]") == 1
        return "200"
    finally:
        writer.close()
        await writer.wait_closed()


async def crowd(server: Running, count: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    seeds = [random.Random(chance.random()) for _ in range(count)]
    found = await asyncio.gather(*(visit(server, i, seeds[i]) for i in range(count)), return_exceptions=True)
    unexpected = [outcome for outcome in found if isinstance(outcome, BaseException)]
    assert all(isinstance(error, ConnectionError) for error in unexpected), unexpected
    assert len(unexpected) <= count // 2  # only those who leave may find the door closed first
    return Counter(outcome for outcome in found if isinstance(outcome, str))


def check_crowd(server: Running, count: int) -> None:
    outcome = asyncio.run(crowd(server, count, seed=count))
    assert outcome["200"] + outcome["429"] == (count + 1) // 2, outcome
    assert outcome["200"] >= 8
    assert server.idle(seconds=10 if count > 100 else 3)
    assert server.served.engine.cache.taken == set()  # type: ignore[union-attr]
    assert not [line for line in server.logged if line["status"] >= 500]
    assert not server.served.failure()
    assert server.post("/v1/completions", BODY | {"max_tokens": 4}).json()["choices"][0]["text"] == recite("a", 4)


def test_a_crowd_of_which_half_leaves(bundle: Bundle) -> None:
    with running(bundle, KEY, queue=32) as server:
        check_crowd(server, 60)


@pytest.mark.slow
def test_a_thousand_of_which_half_leave(bundle: Bundle) -> None:
    with running(bundle, KEY) as server:
        sizes = []
        for _ in range(3):
            check_crowd(server, 1000)
            sizes.append(resident())
        assert sizes[2] <= 1.05 * sizes[0], sizes
        assert until(lambda: len(server.server.server_state.connections) <= 1)
        assert threading.active_count() < 20


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_health_is_quick_while_much_is_read(reciter: Running) -> None:
    """Large bodies are parsed and tokenized elsewhere."""
    done = threading.Event()
    large = [b'{"model": "reciter", "prompt": "' + b"a" * 1_900_000 + b'"}', b"[" * 1_900_000]

    def burden(number: int) -> None:
        while not done.is_set():
            assert reciter.post("/v1/completions", large[number % 2]).status_code == 400

    threads = [threading.Thread(target=burden, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    times = []
    with reciter.http() as client:
        for _ in range(30):
            began = time.monotonic()
            assert client.get("/health").status_code == 200
            times.append(time.monotonic() - began)
    done.set()
    for thread in threads:
        thread.join()
    assert sorted(times)[len(times) // 2] < 0.1, times
    assert max(times) < 1, times


# --- taking one's time


@pytest.fixture(scope="module")
def impatient(bundle: Bundle) -> Iterator[Running]:
    times = {"header_seconds": 0.4, "body_seconds": 0.4, "stall_seconds": 0.6, "idle_seconds": 0.4}
    with running(bundle, KEY, **times) as server:
        yield server


def trickle(sock: socket.socket, data: bytes, seconds: float) -> bytes:
    """Send a byte now and then; what has come back when the other side has closed."""
    end, received = time.monotonic() + seconds, b""
    sock.settimeout(0.05)
    for byte in data:
        assert time.monotonic() < end, "the connection is still open"
        try:
            sock.sendall(bytes([byte]))
            part = sock.recv(4096)
        except TimeoutError:
            continue
        except ConnectionError:
            return received
        if not part:
            return received
        received += part
    raise AssertionError("the connection is still open")


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: 1\r\n" * 99, b""),
        (b"G" * 999, b""),
        (request(BODY, "X-A: 1\r\n" * 50), b""),
    ],
)
def test_headers_that_trickle_in(impatient: Running, data: bytes, answer: bytes) -> None:
    with impatient.connect() as sock:
        assert trickle(sock, data, 3) == answer


def test_a_connection_that_says_nothing(impatient: Running) -> None:
    with impatient.connect() as sock:
        sock.settimeout(3)
        assert sock.recv(10) == b""


def test_a_second_request_that_trickles_in(impatient: Running) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    with impatient.connect() as sock:
        sock.sendall(head + b"\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        trickle(sock, head + b"X-A: 1\r\n" * 99, 3)


def test_a_body_that_trickles_in(impatient: Running) -> None:
    raw = request(BODY | {"user": "x" * 999})
    head, _, body = raw.partition(b"\r\n\r\n")
    with impatient.connect() as sock:
        sock.sendall(head + b"\r\n\r\n")
        received = trickle(sock, body, 4)
    assert received.startswith(b"HTTP/1.1 408")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"
    assert impatient.idle()


@pytest.mark.parametrize("path", ["/v1/completions", "/nothing"])
def test_a_body_that_trickles_in_after_the_answer(impatient: Running, path: str) -> None:
    """Refused for want of a key, or answered without being read: who goes on sending does not hold the connection."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n".encode()
    with impatient.connect() as sock:
        sock.sendall(head)
        received = trickle(sock, b"x" * 999, 4)
    assert received.startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_does_not_read(impatient: Running, stream: bool) -> None:
    """It is cut off when nothing of its answer has been taken for a while, even where all of it has been written."""
    impatient.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.connect(impatient.address)
        sock.sendall(request(BODY | {"stream": stream, "logprobs": 20}))
        assert until(lambda: impatient.busy() == 1)
        assert until(lambda: not impatient.server.server_state.connections, 10)
        assert impatient.idle()
        sock.settimeout(2)
        received = b""
        with suppress(ConnectionResetError):
            while part := sock.recv(65536):
                received += part
        assert received.startswith(b"HTTP/1.1 200")
        assert len(received) < 100_000  # of more than 300,000


def test_honest_clients_are_not_in_the_way_of_slow_ones(impatient: Running) -> None:
    """A stream that lasts longer than every limit goes on, as long as somebody reads it."""
    slow = [impatient.connect() for _ in range(50)]
    for sock in slow:
        sock.sendall(b"GET /health HTTP/1.1\r\nX-Slow")
    with pytest.MonkeyPatch.context() as patch:
        slowly(impatient, patch, 0.03)
        body = BODY | {"stream": True, "max_tokens": 60}
        with impatient.http() as client, client.stream("POST", "/v1/completions", json=body) as answer:
            assert "".join(answer.iter_text()).count("data: ") == 61
    assert until(lambda: len(impatient.server.server_state.connections) == 0, 3)
    for sock in slow:
        sock.close()


# --- the end


@pytest.mark.parametrize("stream", [True, False])
def test_what_does_not_finish_in_time_is_told(bundle: Bundle, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    with running(bundle, KEY, drain_seconds=0.5, slots=1) as server:
        slowly(server, monkeypatch, 0.02)
        found: list[Any] = []
        bodies = [BODY | {"stream": stream}] * 2  # one that is written, one that waits
        threads = [threading.Thread(target=lambda b=b: found.append(server.post("/v1/completions", b))) for b in bodies]
        for thread in threads:
            thread.start()
        assert until(lambda: server.busy() == 2)
        began = time.monotonic()
        server.server.drain()
        for thread in threads:
            thread.join(10)
        assert 0.5 <= time.monotonic() - began < 2
        for answer in found:
            last = answer.text.split("\n\n")[-2].removeprefix("data: ") if stream else answer.text
            assert answer.status_code == (200 if stream else 503)
            assert json.loads(last)["error"]["code"] == "stopping"
            assert "[DONE]" not in answer.text
        assert until(lambda: server.server.should_exit)
        assert server.idle()


def test_an_end_that_nothing_delays(bundle: Bundle) -> None:
    with running(bundle, KEY) as server:
        server.server.drain()
        assert until(lambda: server.server.should_exit, 2)
