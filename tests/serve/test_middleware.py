"""Nobody passes without a key, by another name, or with more than there is room for."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from headway.api import Bundle
from headway.serve.auth import Keys, listen, loopback_names, url
from headway.serve.middleware import PUBLIC
from tests.serve.conftest import KEY, Running, running, until

BODY = {"model": "reciter", "prompt": "a", "max_tokens": 2, "temperature": 0}


@pytest.fixture(scope="module")
def keyless(bundle: Bundle) -> Iterator[Running]:
    with running(bundle) as made:
        yield made


def raw(server: Running, text: bytes | str, seconds: float = 10.0) -> bytes:
    """What the server answers to these bytes, up to the end of the connection."""
    with server.connect() as sock:
        sock.settimeout(seconds)
        sock.sendall(text.encode() if isinstance(text, str) else text)
        parts = []
        while part := sock.recv(65536):
            parts.append(part)
    return b"".join(parts)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def problem(answer: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert found.keys() == {"message", "type", "param", "code"}
    return found


def addresses(server: Running) -> list[tuple[str, str]]:
    """Every method and path that the app knows, and some it does not."""
    routes = [route for route in server.server.config.app.app.routes]  # type: ignore[union-attr]
    known = [
        (method, re.sub(r"\{.*?\}", "reciter", route.path)) for route in routes for method in sorted(route.methods)
    ]
    assert len(known) >= 9
    assert {route.path for route in routes if isinstance(route, APIRoute)} >= {"/health", "/metrics", "/v1/run"}
    strange = [
        "/",
        "/v1",
        "/docs",
        "/redoc",
        "/health/",
        "//health",
        "/health/../metrics",
        "/HEALTH",
        "/v1/models/health",
    ]
    return [*known, *(("GET", path) for path in strange), ("OPTIONS", "/v1/models"), ("DELETE", "/v1/models/reciter")]


# --- keys


@pytest.mark.parametrize(
    "headers",
    [
        "",
        "Authorization: Bearer wrong\r\n",
        f"Authorization: Bearer {KEY[:-1]}\r\n",
        f"Authorization: Bearer {KEY}x\r\n",
        f"Authorization: Bearer {KEY.upper()}\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: \r\n",
        "Authorization: Bearer\r\n",
        f"Authorization: {KEY}\r\n",
        f"Authorization: Basic {KEY}\r\n",
        f"Authorization: Bearer {KEY} {KEY}\r\n",
        f"Authorization: Bearer {KEY}, Bearer {KEY}\r\n",
        f"Authorization: Bearer {KEY}\r\nAuthorization: Bearer {KEY}\r\n",
        f"Authorization: Bearer wrong\r\nAuthorization: Bearer {KEY}\r\n",
        f"X-Api-Key: {KEY}\r\nCookie: key={KEY}\r\nProxy-Authorization: Bearer {KEY}\r\n",
        "query",
    ],
)
def test_every_address_but_health_needs_the_key(reciter: Running, headers: str) -> None:
    query = f"?key={KEY}&api_key={KEY}&access_token={KEY}" if headers == "query" else ""
    lines = "" if headers == "query" else headers
    tail = f" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n{lines}\r\n"
    for method, path in addresses(reciter):
        answer = raw(reciter, f"{method} {path}{query}{tail}")
        if path in PUBLIC:
            assert status(answer) == 200, (method, path)
        else:
            assert status(answer) == 401, (method, path)
            assert b"www-authenticate: Bearer" in answer
            assert method == "HEAD" or problem(answer)["code"] == "invalid_api_key"


def test_an_upgrade_to_another_protocol_needs_the_key_too(reciter: Running) -> None:
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n"
    assert status(raw(reciter, f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n")) == 401


def test_the_key_opens(reciter: Running) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        answer = reciter.get("/v1/models", authorization=f"{scheme} {KEY}")
        assert answer.status_code == 200
    assert reciter.get("/openapi.json").status_code == 200


def test_each_of_several_keys_opens() -> None:
    keys = Keys(["one", "two"])
    for given, fits in ((b"Bearer one", True), (b"Bearer two", True), (b"Bearer three", False), (b"Bearer ", False)):
        assert keys.accepts([(b"authorization", given)]) is fits
    assert not keys.accepts([])
    assert Keys([]).accepts([])


def test_every_key_is_compared_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long for a wrong key as for a right one: no comparison is left out, and each takes its full time."""
    import hmac

    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    keys = Keys(["one", "two", "three"])
    for given in (b"Bearer one", b"Bearer three", b"Bearer wrong", b"", b"Basic one"):
        compared.clear()
        keys.accepts([(b"authorization", given)])
        assert len(compared) == 3
        assert {len(side) for pair in compared for side in pair} == {32}


def test_the_key_is_in_no_answer_and_in_no_log(reciter: Running) -> None:
    reciter.post(f"/v1/completions?key={KEY}", {**BODY, "stop": KEY})
    answers = [
        reciter.post("/v1/completions", {"model": "reciter", "prompt": KEY, "n": 99}),
        reciter.post("/v1/completions", b'{"model": ' + KEY.encode()),
        reciter.get(f"/{KEY}", authorization=f"Bearer {KEY}x"),
    ]
    assert [answer.status_code for answer in answers] == [400, 400, 401]
    assert not any(KEY in answer.text + str(answer.headers) for answer in answers)
    shown = [{k: v for k, v in line.items() if k != "path"} for line in reciter.logged]
    assert KEY not in str(shown)
    assert not any("?" in line["path"] for line in reciter.logged)


# --- who may call


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ("Host: localhost\r\n", 200),
        ("Host: LOCALHOST:8000\r\n", 200),
        ("Host: 127.0.0.1:1\r\n", 200),
        ("Host: [::1]:8000\r\n", 200),
        ("Host: localhost\r\nOrigin: http://localhost:3000\r\n", 200),
        ("Host: localhost\r\nOrigin: https://127.0.0.1\r\n", 200),
        ("Host: evil.example\r\n", 403),
        ("Host: localhost.evil.example\r\n", 403),
        ("Host: evil.example@localhost\r\n", 403),
        ("Host: localhost@evil.example\r\n", 403),
        ("Host: localhost/evil\r\n", 403),
        ("Host: \r\n", 403),
        ("Host: 127.0.0.2\r\n", 403),
        ("Host: localhost\r\nOrigin: null\r\n", 403),
        ("Host: localhost\r\nOrigin: \r\n", 403),
        ("Host: localhost\r\nOrigin: http://evil.example\r\n", 403),
        ("Host: localhost\r\nOrigin: http://localhost.evil.example\r\n", 403),
        ("Host: localhost\r\nOrigin: http://localhost@evil.example\r\n", 403),
        ("Host: localhost\r\nOrigin: file://localhost\r\n", 403),
        ("Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n", 403),
    ],
)
def test_a_web_page_elsewhere_cannot_call_a_server_on_loopback(keyless: Running, headers: str, expected: int) -> None:
    for path in ("/v1/models", "/health", "/nothing"):
        answer = raw(keyless, f"GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n")
        assert status(answer) == (404 if path == "/nothing" and expected == 200 else expected)
        if expected == 403:
            assert problem(answer)["type"] == "permission_error"
        assert b"access-control" not in answer.lower()


def test_a_request_without_a_host(keyless: Running) -> None:
    """Only HTTP/1.0 allows it."""
    assert status(raw(keyless, "GET /v1/models HTTP/1.0\r\n\r\n")) == 403
    assert status(raw(keyless, "GET /v1/models HTTP/1.0\r\nHost: localhost\r\n\r\n")) == 200


def test_a_form_of_another_site_is_no_request(keyless: Running) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        answer = keyless.post("/v1/completions", BODY, **{"content-type": kind})
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, "not_json")
    for kind in ("application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json"):
        assert keyless.post("/v1/completions", BODY, **{"content-type": kind}).status_code == 200


def test_without_keys_everybody_on_this_machine_may_come(keyless: Running) -> None:
    answer = keyless.post("/v1/completions", BODY, authorization="Bearer whatever")
    assert answer.json()["choices"][0]["text"] == "bc"


# --- requests


def test_the_id_of_a_request(reciter: Running) -> None:
    given = reciter.get("/v1/models", **{"x-request-id": "my-id.7_A"})
    assert given.headers["x-request-id"] == "my-id.7_A"
    for strange in ("a b", "é", "x" * 65, "a/b", "<script>"):
        made = reciter.get("/v1/models", **{"x-request-id": strange.encode("latin-1")})  # type: ignore[arg-type]
        assert re.fullmatch(r"req_[0-9a-f]{24}", made.headers["x-request-id"])
    assert reciter.get("/nothing").headers["x-request-id"] != reciter.get("/nothing").headers["x-request-id"]
    assert reciter.get("/health", authorization="").headers["x-request-id"]
    assert any(line["id"] == "my-id.7_A" and line["status"] == 200 for line in reciter.logged)


def test_what_is_not_there(reciter: Running) -> None:
    for path in ("/", "/v2/models", "/v1/models/", "/v1/completions/", "/docs"):
        answer = reciter.get(path)
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] in ("no_route", "model_not_found")
    message = reciter.get("/v1").json()["error"]["message"]
    assert all(path in message for path in ("/v1/chat/completions", "/v1/completions", "/v1/models"))
    answer = reciter.get("/v1/completions")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["code"] == "no_route"


def test_every_answer_says_that_it_is_no_page(reciter: Running) -> None:
    for answer in (reciter.get("/health"), reciter.get("/nothing"), reciter.get("/v1/models", authorization="")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


HEAD = f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + "".join(f"X-{i}: 1\r\n" for i in range(99)) + "\r\n", 431),
        (HEAD + "".join(f"X-{i}: 1\r\n" for i in range(5000)) + "\r\n", 431),
        (HEAD + f"X-Long: {'y' * 16_384}\r\n\r\n", 431),
        (HEAD + f"X-Long: {'y' * 65_536}\r\n\r\n", 431),
        (HEAD + "X-Long: " + "y" * 1_000_000, 431),
        (HEAD.replace("/v1/models", "/v1/models?" + "q" * 20_000) + "\r\n", 431),
        ("GET /" + "a" * 100_000 + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        ("nonsense\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (HEAD + "Content-Length: -1\r\n\r\n", 400),
        (HEAD + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (HEAD + "X: a\x00b\r\n\r\n", 400),
        (HEAD + " folded: 1\r\nX :1\r\n\r\n", 400),
    ],
)
def test_heads_that_are_too_large_or_no_heads(reciter: Running, text: str, expected: int) -> None:
    began = time.monotonic()
    answer = raw(reciter, text.encode("latin-1"))
    assert status(answer) == expected
    assert problem(answer)["code"] == {431: "headers_too_large", 400: "bad_http"}[expected]
    assert time.monotonic() - began < 1
    assert reciter.get("/v1/models").status_code == 200


def test_a_head_within_the_limits(reciter: Running) -> None:
    text = HEAD + "Connection: close\r\n" + "".join(f"X-{i}: 1\r\n" for i in range(96)) + f"X: {'y' * 12_000}\r\n\r\n"
    assert status(raw(reciter, text)) == 200


def test_a_chunk_that_is_none_ends_the_connection(reciter: Running) -> None:
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
    answer = raw(
        reciter, head + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nnonsense\r\n"
    )
    assert status(answer) == 400
    assert reciter.idle()


def test_two_requests_at_once_on_a_connection(reciter: Running) -> None:
    text = HEAD + "\r\n" + HEAD + "Connection: close\r\n\r\n"
    assert raw(reciter, text).count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize(
    ("line", "key", "expected", "code"),
    [
        ("GET /health", False, 413, "request_too_large"),
        ("HEAD /health", False, 405, "no_route"),
        ("POST /health", False, 405, "no_route"),
        ("OPTIONS /v1/models", True, 405, "no_route"),
        ("DELETE /v1/models/reciter", True, 405, "no_route"),
        ("GET /v1/models/reciter", True, 413, "request_too_large"),
        ("GET /openapi.json", True, 413, "request_too_large"),
        ("PUT /v1/completions", True, 405, "no_route"),
        ("POST /nowhere", True, 404, "no_route"),
        ("POST /nowhere", False, 401, "invalid_api_key"),
        ("POST /v1/completions", False, 401, "invalid_api_key"),
    ],
)
@pytest.mark.parametrize("framing", ["Content-Length: 1900000", "Transfer-Encoding: chunked"])
def test_a_body_that_nobody_wants_is_not_waited_for(
    reciter: Running, line: str, key: bool, expected: int, code: str, framing: str
) -> None:
    """The answer comes while none of the body has; the connection is closed."""
    auth = f"Authorization: Bearer {KEY}\r\n" if key else ""
    began = time.monotonic()
    answer = raw(reciter, f"{line} HTTP/1.1\r\nHost: localhost\r\n{auth}{framing}\r\n\r\n")
    assert status(answer) == expected and b"connection: close" in answer
    assert line.startswith("HEAD") or problem(answer)["code"] == code
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("target", "key", "expected"),
    [
        ("http://{host}/health", False, 200),
        ("HTTP://{host}/health?a=b", False, 200),
        ("http://{host}/%68ealth", False, 200),
        ("http://{host}/v1/models", False, 401),
        ("http://{host}/v1/models", True, 200),
        ("http://{host}", True, 404),
        ("http://{host}?/health", False, 401),
        ("http:///health", False, 401),
        ("ftp://{host}/health", False, 401),
    ],
)
def test_an_address_instead_of_a_path(reciter: Running, target: str, key: bool, expected: int) -> None:
    """As clients speak to proxies; servers have to understand it as well (RFC 9112, 3.2.2)."""
    auth = f"Authorization: Bearer {KEY}\r\n" if key else ""
    host = "{}:{}".format(*reciter.address)
    head = f"GET {target.format(host=host)} HTTP/1.1\r\nHost: {host}\r\n{auth}Connection: close\r\n\r\n"
    assert status(raw(reciter, head)) == expected


def test_an_address_names_the_host(keyless: Running) -> None:
    """Not the Host header, which is to be passed over."""
    host = "{}:{}".format(*keyless.address)
    for named, header, expected in ((host, "elsewhere.example", 200), ("elsewhere.example", host, 403)):
        head = f"GET http://{named}/v1/models HTTP/1.1\r\nHost: {header}\r\nConnection: close\r\n\r\n"
        assert status(raw(keyless, head)) == expected


# --- what there is room for


def test_more_bytes_of_bodies_than_may_be(bundle: Bundle) -> None:
    with running(bundle, KEY, bodies_bytes=100_000) as server, server.connect() as first:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        first.sendall(f"{head}Content-Length: 100000\r\n\r\n".encode() + b" " * 99_000)
        assert until(lambda: server.context.bodies == 99_000)
        answer = server.post("/v1/completions", BODY | {"user": "x" * 2000})
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert server.post("/v1/completions", BODY).status_code == 200
        first.close()
        assert until(lambda: server.context.bodies == 0)
        assert server.post("/v1/completions", BODY | {"user": "x" * 2000}).status_code == 200


def test_more_requests_than_may_be_open(bundle: Bundle) -> None:
    with running(bundle, KEY, requests=1) as server, server.connect() as first:
        first.sendall(
            f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
            "Content-Type: application/json\r\nContent-Length: 9\r\n\r\n".encode()
        )  # its body never comes
        end = time.monotonic() + 5
        while not server.context.open and time.monotonic() < end:
            time.sleep(0.01)
        answer = server.get("/v1/models")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert server.get("/health").status_code == 200
        watched = server.get("/metrics")  # whoever watches wants to know just then
        assert watched.status_code == 200 and "headway_requests_open 1.0" in watched.text.splitlines()
        assert server.get("/metrics", authorization="").status_code == 401
        first.close()
        assert server.idle()
        assert server.get("/v1/models").status_code == 200


def test_more_texts_than_may_wait(bundle: Bundle) -> None:
    with running(bundle, KEY, slots=1, queue=2) as server:
        answer = server.post("/v1/completions", {**BODY, "n": 8, "max_tokens": 300})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"
        assert server.idle()  # all or none: those that found a place have given it back
        assert server.post("/v1/completions", BODY).status_code == 200


def test_more_connections_than_may_be_open(bundle: Bundle) -> None:
    with running(bundle, KEY, connections=3) as server:
        held = [server.connect() for _ in range(3)]
        time.sleep(0.1)
        answer = raw(server, "")
        assert (status(answer), problem(answer)["code"]) == (503, "too_many_connections")
        for sock in held:
            sock.close()
        time.sleep(0.2)
        assert server.get("/health").status_code == 200


def test_metrics(bundle: Bundle) -> None:
    with running(bundle, KEY) as server:
        server.post("/v1/completions", {**BODY, "prompt": "abc", "max_tokens": 5})
        server.get("/v1/models/x")
        server.get("/made/up/by/a/client")
        text = server.get("/metrics").text
        for line in (
            'headway_requests_total{route="/v1/completions",status="200"} 1.0',
            'headway_requests_total{route="/v1/models/{model:path}",status="404"} 1.0',
            'headway_requests_total{route="other",status="404"} 1.0',
            "headway_prompt_tokens_total 3.0",
            "headway_generation_tokens_total 5.0",
            "headway_time_to_first_token_seconds_count 1.0",
            "headway_inter_token_latency_seconds_count 4.0",
            "headway_requests_open 0.0",
            "headway_requests_running 0.0",
            "headway_cancelled_total 0.0",
        ):
            assert line in text.splitlines(), (line, text)
        assert "made" not in text


def test_addresses_and_names() -> None:
    """On IPv6 they are written with brackets, in an address and in the Host header alike."""
    with listen("127.0.0.1", 0) as sock:
        assert url(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"
        assert loopback_names(sock) == {"localhost", "127.0.0.1", "[::1]"}
    with listen("127.0.0.2", 0) as sock:
        assert loopback_names(sock) == {"localhost", "127.0.0.1", "[::1]", "127.0.0.2"}
    with listen("0.0.0.0", 0) as sock:
        assert url(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"
    if socket.has_ipv6:
        with listen("::1", 0) as sock:
            assert url(sock) == f"http://[::1]:{sock.getsockname()[1]}"
