"""Clients that come in crowds, disconnect early, or are slow: the server stays as it was."""

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
from tests.serve.conftest import KEY, Running, http, in_threads, recite, refusal, running, status, until


def request(**more: Any) -> bytes:
    """A completion request of 300 tokens, unless `more` says otherwise."""
    body = {"model": "reciter", "prompt": "a", "max_tokens": 300, "temperature": 0}
    return http("POST /v1/completions", body | more)


def slowly(server: Running, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.005) -> Callable[[], int]:
    """Make each step of the engine take a while; returns a function that counts steps."""
    engine = server.served.engine
    assert engine is not None
    steps, step = [0], engine.step

    def slow() -> bool:
        time.sleep(seconds)
        busy = step()
        steps[0] += busy
        return busy

    monkeypatch.setattr(engine, "step", slow)
    return lambda: steps[0]


# --- clients that disconnect


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_a_disconnect_stops_the_work(reciter: Running, monkeypatch: pytest.MonkeyPatch, stream: bool, n: int) -> None:
    steps = slowly(reciter, monkeypatch)
    cancelled = reciter.context.metrics.cancelled._value.get()
    with reciter.connect() as sock:
        sock.sendall(request(stream=stream, n=n))
        assert until(lambda: reciter.busy() == n)
    before = steps()
    assert reciter.idle()
    assert steps() - before < 90  # of 300
    assert until(lambda: reciter.logged[-1].get("gone") is True)
    assert reciter.logged[-1]["status"] == (200 if stream else 499)
    assert reciter.context.metrics.cancelled._value.get() == cancelled + n


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seconds", [0.0, 0.03])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_client_that_shut_down_its_sending_side_gets_its_response(
    reciter: Running, monkeypatch: pytest.MonkeyPatch, stream: bool, seconds: float, version: str
) -> None:
    """At once, and after a time in which it is probed."""
    slowly(reciter, monkeypatch, seconds)
    data = request(stream=stream, max_tokens=40).replace(b"HTTP/1.1", f"HTTP/{version}".encode(), 1)
    received = reciter.raw(data, half_close=True)
    probes = received.split(b"HTTP/1.1 200 ")[0]
    assert set(probes.split(b"\r\n\r\n")) <= {b"", b"HTTP/1.1 100 Continue"}
    assert not probes or version == "1.1"
    parts = re.findall(rb"\{.*\}", received.partition(b"200 OK")[2])
    assert "".join(json.loads(part)["choices"][0]["text"] for part in parts) == recite("a", 40)
    assert reciter.idle()


def test_requests_of_every_kind_before_a_half_close(reciter: Running) -> None:
    chat = {"model": "reciter", "messages": [{"role": "user", "content": "a"}], "max_tokens": 3}
    assert b'"content":"abc"' in reciter.raw(http("POST /v1/chat/completions", chat), half_close=True)
    models = http("GET /v1/models")
    assert reciter.raw(models + request() + models, half_close=True).count(b"HTTP/1.1 200 OK") == 3
    assert reciter.raw(request()[:-5], half_close=True) == b""  # an incomplete request
    assert status(reciter.raw(request(n=0), half_close=True)) == 400
    assert reciter.idle()
    assert until(lambda: not reciter.server.server_state.connections)


@pytest.mark.parametrize("after", [0.0, 0.3])
def test_a_half_close_and_then_a_disconnect(reciter: Running, monkeypatch: pytest.MonkeyPatch, after: float) -> None:
    monkeypatch.setattr("headway.serve.server.PROBES", (0.04, 0.4))
    steps = slowly(reciter, monkeypatch)
    with reciter.connect() as sock:
        sock.sendall(request(max_tokens=400))
        sock.shutdown(socket.SHUT_WR)
        assert until(lambda: reciter.busy() == 1)
        time.sleep(after)
        assert reciter.busy() == 1
    before = steps()
    assert reciter.idle()
    assert steps() - before < 60  # of 400
    assert until(lambda: reciter.logged[-1].get("gone") is True)


def test_after_a_half_close_the_wait_has_a_limit(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle, KEY, eof_seconds=0.3) as server:
        slowly(server, monkeypatch, 0.02)
        began = time.monotonic()
        assert b"200 OK" not in server.raw(request(), half_close=True)
        assert time.monotonic() - began < 2
        assert server.idle()


def test_a_disconnect_leaves_the_queue(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(bundle, KEY, slots=1) as server:
        slowly(server, monkeypatch)
        engine = server.served.engine
        assert engine is not None
        with server.connect() as first:
            first.sendall(request(stream=True))
            assert until(lambda: engine.stats().running == 1)
            with server.connect() as second:
                second.sendall(request())
                assert until(lambda: engine.stats().waiting == 1)
            assert until(lambda: engine.stats().waiting == 0)
            assert engine.stats().running == 1
        assert server.idle()


def test_a_disconnect_while_the_body_arrives(reciter: Running) -> None:
    with reciter.connect() as sock:
        sock.sendall(request()[:-10])
        assert until(lambda: reciter.context.open == 1)
    assert reciter.idle()


# --- crowds


async def client(server: Running, number: int, chance: random.Random) -> str:
    """Stream a completion, and return what became of it. Every second client disconnects at some time."""
    reader, writer = await asyncio.open_connection(*server.address)
    try:
        sent = request(stream=True, max_tokens=chance.randint(1, 40), prompt="abc")
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
        if status(head) != 200:
            assert b"retry-after: 1" in head
            return str(status(head))
        body = await reader.readuntil(b"0\r\n\r\n")
        assert body.count(b"data: [DONE]") == 1
        return "200"
    finally:
        writer.close()
        await writer.wait_closed()


async def crowd(server: Running, count: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    seeds = [random.Random(chance.random()) for _ in range(count)]
    found = await asyncio.gather(*(client(server, i, seeds[i]) for i in range(count)), return_exceptions=True)
    unexpected = [outcome for outcome in found if isinstance(outcome, BaseException)]
    assert all(isinstance(error, ConnectionError) for error in unexpected), unexpected
    assert len(unexpected) <= count // 2  # only clients that disconnect may find the connection closed
    return Counter(outcome for outcome in found if isinstance(outcome, str))


def check_crowd(server: Running, count: int) -> None:
    outcome = asyncio.run(crowd(server, count, seed=count))
    assert outcome["200"] + outcome["429"] == (count + 1) // 2, outcome
    assert outcome["200"] >= 8
    assert server.idle(seconds=10 if count > 100 else 3)
    assert server.served.engine.stats().used == 0  # type: ignore[union-attr]
    assert not [line for line in server.logged if line["status"] >= 500]
    assert not server.served.failure()
    assert server.works()


def test_a_crowd_of_which_half_disconnects(bundle: Bundle) -> None:
    with running(bundle, KEY, queue=32) as server:
        check_crowd(server, 60)


@pytest.mark.slow
def test_a_thousand_of_which_half_disconnect(bundle: Bundle) -> None:
    with running(bundle, KEY) as server:
        sizes = []
        for _ in range(3):
            check_crowd(server, 1000)
            with open("/proc/self/statm", encoding="ascii") as file:
                sizes.append(int(file.read().split()[1]) * resource.getpagesize())
        assert sizes[2] <= 1.05 * sizes[0], sizes
        assert until(lambda: len(server.server.server_state.connections) <= 1)
        assert threading.active_count() < 20


def test_health_is_quick_while_large_bodies_are_parsed(reciter: Running) -> None:
    """They are parsed and tokenized in threads."""
    done = threading.Event()
    large = [b'{"model": "reciter", "prompt": "' + b"a" * 1_900_000 + b'"}', b"[" * 1_900_000]

    def work(number: int) -> list[float]:
        if number == 4:
            return measure()
        while not done.is_set():
            assert reciter.post("/v1/completions", large[number % 2]).status_code == 400
        return []

    def measure() -> list[float]:
        times = []
        with reciter.http() as own:
            for _ in range(30):
                began = time.monotonic()
                assert own.get("/health").status_code == 200
                times.append(time.monotonic() - began)
        done.set()
        return times

    times = sorted(seconds for found in in_threads(work, range(5)) for seconds in found)
    assert len(times) == 30 and times[15] < 0.1 and times[-1] < 1, times


# --- slow clients


@pytest.fixture(scope="module")
def impatient(bundle: Bundle) -> Iterator[Running]:
    times = {"header_seconds": 0.4, "body_seconds": 0.4, "stall_seconds": 0.6, "idle_seconds": 0.4}
    with running(bundle, KEY, **times) as server:
        yield server


def trickle(sock: socket.socket, data: bytes, seconds: float) -> bytes:
    """Send a byte now and then; return what has come back when the server closes the connection."""
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


HEALTH = http("GET /health", key=None).removesuffix(b"\r\n")
LATE_HEAD, _, LATE_BODY = request(user="x" * 999).partition(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        (b"", HEALTH + b"X-A: 1\r\n" * 99, None),
        (b"", b"G" * 999, None),
        (b"", http("POST /v1/completions", {}, headers="X-A: 1\r\n" * 50), None),
        (HEALTH + b"\r\n", HEALTH + b"X-A: 1\r\n" * 99, 200),  # a second request on a connection
        (LATE_HEAD + b"\r\n\r\n", LATE_BODY, 408),
        # refused for want of a key: a client that goes on sending does not keep the connection open
        (http("POST /v1/completions", headers="Content-Length: 9999\r\n", key=None), b"x" * 999, 401),
        (http("POST /nothing", headers="Content-Length: 9999\r\n", key=None), b"x" * 999, 401),
    ],
)
def test_a_request_that_trickles_in(impatient: Running, first: bytes, then: bytes, expected: int | None) -> None:
    with impatient.connect() as sock:
        sock.sendall(first)
        received = trickle(sock, then, 4)
    assert received == b"" if expected is None else status(received) == expected
    assert expected != 408 or refusal(received) == (408, "request_timeout")
    assert impatient.idle()


def test_a_connection_without_a_request(impatient: Running) -> None:
    with impatient.connect() as sock:
        sock.settimeout(3)
        assert sock.recv(10) == b""


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_does_not_read(impatient: Running, stream: bool) -> None:
    """It is cut off when it has read nothing for a while, even where the whole response has been written."""
    impatient.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.connect(impatient.address)
        sock.sendall(request(stream=stream, logprobs=20))
        assert until(lambda: impatient.busy() == 1)
        assert until(lambda: not impatient.server.server_state.connections, 10)
        assert impatient.idle()
        sock.settimeout(2)
        received = b""
        with suppress(ConnectionResetError):
            while part := sock.recv(65536):
                received += part
        assert status(received) == 200
        assert len(received) < 100_000  # of more than 300,000


def test_slow_clients_do_not_disturb_others(impatient: Running) -> None:
    """A stream that lasts longer than every limit goes on, as long as its client reads it."""
    slow = [impatient.connect() for _ in range(50)]
    for sock in slow:
        sock.sendall(b"GET /health HTTP/1.1\r\nX-Slow")
    with pytest.MonkeyPatch.context() as patch:
        slowly(impatient, patch, 0.03)
        assert impatient.complete(stream=True, max_tokens=60).text.count("data: ") == 61
    assert until(lambda: len(impatient.server.server_state.connections) == 0, 3)
    for sock in slow:
        sock.close()


# --- shutdown


@pytest.mark.parametrize("stream", [True, False])
def test_requests_that_do_not_finish_in_time_get_an_error(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    with running(bundle, KEY, drain_seconds=0.5, slots=1) as server:
        slowly(server, monkeypatch, 0.02)

        def work(number: int) -> Any:
            if number < 2:  # one that has a slot, one that waits
                return server.complete(stream=stream, max_tokens=300)
            assert until(lambda: server.busy() == 2)
            began.append(time.monotonic())
            server.server.drain()
            return None

        began: list[float] = []
        answers = [answer for answer in in_threads(work, range(3)) if answer is not None]
        assert 0.5 <= time.monotonic() - began[0] < 2
        assert len(answers) == 2
        for answer in answers:
            last = answer.text.split("\n\n")[-2].removeprefix("data: ") if stream else answer.text
            assert answer.status_code == (200 if stream else 503)
            assert json.loads(last)["error"]["code"] == "stopping"
            assert "[DONE]" not in answer.text
        assert until(lambda: server.server.should_exit)
        assert server.idle()


def test_an_idle_server_stops_at_once(bundle: Bundle) -> None:
    with running(bundle, KEY) as server:
        server.server.drain()
        assert until(lambda: server.server.should_exit, 2)
