"""The middleware refuses requests without a key, under another host's name, or beyond a limit."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute

from headway.api import Bundle
from headway.serve.auth import Keys, listen, loopback_names, url
from headway.serve.middleware import PUBLIC
from tests.serve.conftest import KEY, Running, http, refusal, running, status, until


@pytest.fixture(scope="module")
def keyless(bundle: Bundle) -> Iterator[Running]:
    with running(bundle) as made:
        yield made


def routes(server: Running) -> list[tuple[str, str]]:
    """Every method and path that the app knows, and some that it does not know."""
    known = list(server.server.config.app.app.routes)  # type: ignore[union-attr]
    found = [(method, re.sub(r"\{.*?\}", "reciter", route.path)) for route in known for method in sorted(route.methods)]
    assert len(found) >= 9
    assert {route.path for route in known if isinstance(route, APIRoute)} >= {"/health", "/metrics", "/v1/run"}
    strange = (
        "/",
        "/v1",
        "/docs",
        "/redoc",
        "/health/",
        "//health",
        "/health/../metrics",
        "/HEALTH",
        "/v1/models/health",
    )
    return [*found, *(("GET", path) for path in strange), ("OPTIONS", "/v1/models"), ("DELETE", "/v1/models/reciter")]


# --- keys


@pytest.mark.parametrize(
    "headers",
    [
        "",
        "query",
        *(
            f"Authorization: {value}\r\n"
            for value in (
                *("Bearer wrong", f"Bearer {KEY[:-1]}", f"Bearer {KEY}x", f"Bearer {KEY.upper()}", "Bearer ", "Bearer"),
                *("", KEY, f"Basic {KEY}", f"Bearer {KEY} {KEY}", f"Bearer {KEY}, Bearer {KEY}"),
                *(f"Bearer {first}\r\nAuthorization: Bearer {KEY}" for first in (KEY, "wrong")),
            )
        ),
        f"X-Api-Key: {KEY}\r\nCookie: key={KEY}\r\nProxy-Authorization: Bearer {KEY}\r\n",
    ],
)
def test_every_path_but_health_needs_the_key(reciter: Running, headers: str) -> None:
    query = f"?key={KEY}&api_key={KEY}&access_token={KEY}" if headers == "query" else ""
    lines = f"Connection: close\r\nContent-Length: 0\r\n{headers.removeprefix('query')}"
    for method, path in routes(reciter):
        answer = reciter.raw(http(f"{method} {path}{query}", headers=lines, key=None))
        if path in PUBLIC:
            assert status(answer) == 200, (method, path)
        else:
            assert status(answer) == 401, (method, path)
            assert b"www-authenticate: Bearer" in answer
            assert method == "HEAD" or refusal(answer) == (401, "invalid_api_key")


def test_an_upgrade_to_another_protocol_needs_the_key_too(reciter: Running) -> None:
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n"
    assert status(reciter.raw(http("GET /v1/models", headers=upgrade, key=None))) == 401


def test_the_key_opens(reciter: Running) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert reciter.get("/v1/models", authorization=f"{scheme} {KEY}").status_code == 200
    assert reciter.get("/openapi.json").status_code == 200


def test_each_of_several_keys_opens() -> None:
    keys = Keys(["one", "two"])
    for given, accepted in ((b"one", True), (b"two", True), (b"three", False), (b"", False)):
        assert keys.accepts([(b"authorization", b"Bearer " + given)]) is accepted
    assert not keys.accepts([])
    assert Keys([]).accepts([])


def test_every_key_is_compared_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong key takes as long as a right one: no comparison is left out, and each is in constant time."""
    import hmac

    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    keys = Keys(["one", "two", "three"])
    for given in (b"Bearer one", b"Bearer three", b"Bearer wrong", b"", b"Basic one"):
        compared.clear()
        keys.accepts([(b"authorization", given)])
        assert len(compared) == 3
        assert {len(side) for pair in compared for side in pair} == {32}


def test_the_key_is_in_no_response_and_in_no_log(reciter: Running) -> None:
    reciter.complete(stop=KEY)
    reciter.post(f"/v1/completions?key={KEY}", {})
    answers = [
        reciter.complete(prompt=KEY, n=99),
        reciter.post("/v1/completions", b'{"model": ' + KEY.encode()),
        reciter.get(f"/{KEY}", authorization=f"Bearer {KEY}x"),
    ]
    assert [answer.status_code for answer in answers] == [400, 400, 401]
    assert not any(KEY in answer.text + str(answer.headers) for answer in answers)
    shown = [{k: v for k, v in line.items() if k != "path"} for line in reciter.logged]
    assert KEY not in str(shown)
    assert not any("?" in line["path"] for line in reciter.logged)


# --- hosts and origins


@pytest.mark.parametrize(
    ("expected", "headers"),
    [
        *((200, host) for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000")),
        *((200, f"localhost\r\nOrigin: {origin}") for origin in ("http://localhost:3000", "https://127.0.0.1")),
        *((403, host) for host in ("evil.example", "localhost.evil.example", "evil.example@localhost", "127.0.0.2")),
        *((403, host) for host in ("localhost@evil.example", "localhost/evil", "")),
        *((403, f"localhost\r\nOrigin: {origin}") for origin in ("null", "", "http://evil.example")),
        *((403, f"localhost\r\nOrigin: http://localhost{rest}") for rest in (".evil.example", "@evil.example")),
        (403, "localhost\r\nOrigin: file://localhost"),
        (403, "localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example"),
    ],
)
def test_a_web_page_elsewhere_cannot_call_a_server_on_loopback(keyless: Running, expected: int, headers: str) -> None:
    for path in ("/v1/models", "/health", "/nothing"):
        answer = keyless.raw(f"GET {path} HTTP/1.1\r\nConnection: close\r\nHost: {headers}\r\n\r\n")
        assert status(answer) == (404 if path == "/nothing" and expected == 200 else expected)
        assert expected == 200 or refusal(answer)[1] in ("wrong_host", "wrong_origin")
        assert b"access-control" not in answer.lower()


def test_a_request_without_a_host(keyless: Running) -> None:
    """Only HTTP/1.0 allows it."""
    assert status(keyless.raw("GET /v1/models HTTP/1.0\r\n\r\n")) == 403
    assert status(keyless.raw("GET /v1/models HTTP/1.0\r\nHost: localhost\r\n\r\n")) == 200


@pytest.mark.parametrize(
    ("kind", "accepted"),
    [
        *((kind, False) for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "")),
        *((kind, True) for kind in ("application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json")),
    ],
)
def test_a_web_form_is_refused(keyless: Running, kind: str, accepted: bool) -> None:
    body = {"model": "reciter", "prompt": "a", "max_tokens": 2, "temperature": 0}
    answer = keyless.post("/v1/completions", body, **{"content-type": kind})
    assert answer.status_code == 200 if accepted else refusal(answer) == (415, "not_json")


def test_without_keys_every_client_on_this_machine_may_call(keyless: Running) -> None:
    assert keyless.get("/v1/models", authorization="Bearer whatever").status_code == 200


@pytest.mark.parametrize(
    ("target", "key", "expected"),
    [
        ("http://{host}/health", None, 200),
        ("HTTP://{host}/health?a=b", None, 200),
        ("http://{host}/%68ealth", None, 200),
        ("http://{host}/v1/models", None, 401),
        ("http://{host}/v1/models", KEY, 200),
        ("http://{host}", KEY, 200),
        ("http://{host}?/health", None, 200),
        ("http://{host}/v1?/health", None, 401),
        ("http:///health", None, 401),
        ("ftp://{host}/health", None, 401),
    ],
)
def test_a_uri_instead_of_a_path(reciter: Running, target: str, key: str | None, expected: int) -> None:
    """Clients send it to proxies; servers have to accept it as well (RFC 9112, 3.2.2)."""
    target = target.format(host="{}:{}".format(*reciter.address))
    assert status(reciter.raw(http(f"GET {target}", headers="Connection: close\r\n", key=key))) == expected


def test_the_host_of_a_uri_replaces_the_host_header(keyless: Running) -> None:
    host = "{}:{}".format(*keyless.address)
    for named, header, expected in ((host, "elsewhere.example", 200), ("elsewhere.example", host, 403)):
        head = f"GET http://{named}/v1/models HTTP/1.1\r\nHost: {header}\r\nConnection: close\r\n\r\n"
        assert status(keyless.raw(head)) == expected


def test_host_names_and_urls() -> None:
    """IPv6 addresses have brackets, in a URL and in the Host header."""
    own = {"localhost", "127.0.0.1", "[::1]"}
    for host, shown, names in (
        ("127.0.0.1", "127.0.0.1", own),
        ("127.0.0.2", "127.0.0.2", own | {"127.0.0.2"}),
        ("0.0.0.0", "127.0.0.1", None),
        *([("::1", "[::1]", own)] if socket.has_ipv6 else []),
    ):
        with listen(host, 0) as sock:
            assert url(sock) == f"http://{shown}:{sock.getsockname()[1]}"
            assert names is None or loopback_names(sock) == names


# --- headers


def test_the_id_of_a_request(reciter: Running) -> None:
    given = reciter.get("/v1/models", **{"x-request-id": "my-id.7_A"})
    assert given.headers["x-request-id"] == "my-id.7_A"
    assert reciter.line(given)["status"] == 200
    for strange in ("a b", "é", "x" * 65, "a/b", "<script>"):
        made = reciter.get("/v1/models", **{"x-request-id": strange.encode("latin-1")})  # type: ignore[arg-type]
        assert re.fullmatch(r"req_[0-9a-f]{24}", made.headers["x-request-id"])
    assert reciter.get("/nothing").headers["x-request-id"] != reciter.get("/nothing").headers["x-request-id"]
    assert reciter.get("/health", authorization="").headers["x-request-id"]


def test_paths_and_methods_that_do_not_exist(reciter: Running) -> None:
    for path in ("/page", "/v2/models", "/v1/models/", "/v1/completions/", "/docs"):
        assert refusal(reciter.get(path)) in ((404, "no_route"), (404, "model_not_found"))
    message = reciter.get("/v1").json()["error"]["message"]
    assert all(path in message for path in ("/v1/chat/completions", "/v1/completions", "/v1/models"))
    answer = reciter.get("/v1/completions")
    assert (refusal(answer), answer.headers["allow"]) == ((405, "no_route"), "POST")


def test_headers_of_every_response(reciter: Running) -> None:
    for answer in (reciter.get("/health"), reciter.get("/nothing"), reciter.get("/v1/models", authorization="")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


HEAD = http("GET /v1/models").decode().removesuffix("\r\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((HEAD + "".join(f"X-{i}: 1\r\n" for i in range(count)) + "\r\n", 431) for count in (99, 5000)),
        *((HEAD + f"X-Long: {'y' * size}\r\n\r\n", 431) for size in (16_384, 65_536)),
        (HEAD + "X-Long: " + "y" * 1_000_000, 431),
        (HEAD.replace("/v1/models", "/v1/models?" + "q" * 20_000) + "\r\n", 431),
        ("GET /" + "a" * 100_000 + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        ("nonsense\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (HEAD + "Content-Length: -1\r\n\r\n", 400),
        (HEAD + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (HEAD + "X: a\x00b\r\n\r\n", 400),
        (HEAD + " folded: 1\r\nX :1\r\n\r\n", 400),
        (HEAD + "Connection: close\r\n" + "".join(f"X-{i}: 1\r\n" for i in range(96)) + "\r\n", 200),
        (HEAD + f"Connection: close\r\nX: {'y' * 14_000}\r\n\r\n", 200),
    ],
)
def test_headers_that_are_too_large_or_invalid(reciter: Running, text: str, expected: int) -> None:
    began = time.monotonic()
    answer = reciter.raw(text)
    assert status(answer) == expected
    assert expected == 200 or refusal(answer)[1] == {431: "headers_too_large", 400: "bad_http"}[expected]
    assert expected == 200 or time.monotonic() - began < 1
    assert reciter.get("/v1/models").status_code == 200


def test_an_invalid_chunk_ends_the_connection(reciter: Running) -> None:
    kind = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    assert status(reciter.raw(http("POST /v1/completions", headers=kind) + b"zz\r\nnonsense\r\n")) == 400
    assert reciter.idle()


def test_two_pipelined_requests(reciter: Running) -> None:
    text = HEAD + "\r\n" + HEAD + "Connection: close\r\n\r\n"
    assert reciter.raw(text).count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize(
    ("target", "key", "expected"),
    [
        ("GET /health", None, (413, "request_too_large")),
        ("HEAD /health", None, (405, "no_route")),
        ("POST /health", None, (405, "no_route")),
        ("OPTIONS /v1/models", KEY, (405, "no_route")),
        ("DELETE /v1/models/reciter", KEY, (405, "no_route")),
        ("GET /v1/models/reciter", KEY, (413, "request_too_large")),
        ("GET /openapi.json", KEY, (413, "request_too_large")),
        ("PUT /v1/completions", KEY, (405, "no_route")),
        ("POST /nowhere", KEY, (404, "no_route")),
        ("POST /nowhere", None, (401, "invalid_api_key")),
        ("POST /v1/completions", None, (401, "invalid_api_key")),
    ],
)
@pytest.mark.parametrize("framing", ["Content-Length: 1900000", "Transfer-Encoding: chunked"])
def test_a_body_that_no_route_takes_is_refused_unread(
    reciter: Running, target: str, key: str | None, expected: tuple[int, str], framing: str
) -> None:
    began = time.monotonic()
    answer = reciter.raw(http(target, headers=f"{framing}\r\n", key=key))
    assert status(answer) == expected[0] and b"connection: close" in answer
    assert target.startswith("HEAD") or refusal(answer) == expected
    assert time.monotonic() - began < 3


# --- limits


def test_more_bytes_of_bodies_than_allowed(bundle: Bundle) -> None:
    with running(bundle, KEY, bodies_bytes=100_000) as server, server.connect() as first:
        first.sendall(http("POST /v1/completions", headers="Content-Length: 100000\r\n") + b" " * 99_000)
        assert until(lambda: server.context.bodies == 99_000)
        assert refusal(server.complete(user="x" * 2000)) == (429, "rate_limit_exceeded")
        assert server.works()
        first.close()
        assert until(lambda: server.context.bodies == 0)
        assert server.complete(user="x" * 2000).status_code == 200


def test_more_open_requests_than_allowed(bundle: Bundle) -> None:
    with running(bundle, KEY, requests=1) as server, server.connect() as first:
        first.sendall(http("POST /v1/completions", headers="Content-Length: 9\r\n"))  # its body never comes
        assert until(lambda: server.context.open == 1)
        answer = server.get("/v1/models")
        assert (refusal(answer), answer.headers["retry-after"]) == ((429, "rate_limit_exceeded"), "1")
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert server.get("/health").status_code == 200
        metrics = server.get("/metrics")  # monitoring works all the same
        assert metrics.status_code == 200 and "headway_requests_open 1.0" in metrics.text.splitlines()
        assert server.get("/metrics", authorization="").status_code == 401
        first.close()
        assert server.idle()
        assert server.get("/v1/models").status_code == 200


def test_more_sequences_than_the_queue_holds(bundle: Bundle) -> None:
    with running(bundle, KEY, slots=1, queue=2) as server:
        answer = server.complete(n=8, max_tokens=300)
        assert (refusal(answer), answer.headers["retry-after"]) == ((429, "rate_limit_exceeded"), "1")
        assert server.idle()  # all or none: those that had a place gave it back
        assert server.works()


def test_more_connections_than_allowed(bundle: Bundle) -> None:
    with running(bundle, KEY, connections=3) as server:
        held = [server.connect() for _ in range(3)]
        assert until(lambda: len(server.server.server_state.connections) == 3)
        assert refusal(server.raw("")) == (503, "too_many_connections")
        for sock in held:
            sock.close()
        assert until(lambda: not server.server.server_state.connections)
        assert server.get("/health").status_code == 200


def test_metrics(bundle: Bundle) -> None:
    with running(bundle, KEY) as server:
        server.complete(prompt="abc", max_tokens=5)
        server.get("/v1/models/x")
        server.get("/made/up/by/a/client")
        text = server.get("/metrics").text
        for line in (
            'requests_total{route="/v1/completions",status="200"} 1.0',
            'requests_total{route="/v1/models/{model:path}",status="404"} 1.0',
            'requests_total{route="other",status="404"} 1.0',
            "prompt_tokens_total 3.0",
            "generation_tokens_total 5.0",
            "time_to_first_token_seconds_count 1.0",
            "inter_token_latency_seconds_count 4.0",
            "requests_open 0.0",
            "requests_running 0.0",
            "cancelled_total 0.0",
        ):
            assert f"headway_{line}" in text.splitlines(), (line, text)
        assert "made" not in text
