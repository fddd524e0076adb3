"""`headway serve` as a process: the commands that it prints work as pasted, and it stops cleanly."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from headway.cli import main
from headway.serve.auth import read_keys
from headway.serve.limits import Limits
from tests.serve.conftest import PLAIN, recite, refusal, until

ROOT = Path(__file__).resolve().parent.parent.parent


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call `headway serve` in this process; it ends before a server starts."""
    for name in ("HEADWAY_DEBUG", "HEADWAY_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str | Path) -> Done:
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            main(["serve", *map(str, arguments)])
        assert isinstance(caught.value.code, int)
        return Done(caught.value.code, *capfd.readouterr())

    return call


class Process:
    """`headway serve` in a process of its own. A thread reads its stderr."""

    def __init__(self, *arguments: str | Path, before: str = "", **environment: str) -> None:
        """`before` is Python code that runs first."""
        code = f"{before}\nfrom headway.cli import main\nmain()"
        start = ["-c", code] if before else ["-m", "headway"]
        words = [sys.executable, *start, "serve", *map(str, arguments), "--port", "0", "--device", "cpu"]
        self.process = subprocess.Popen(
            words, cwd=ROOT, env=os.environ | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.said: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        assert until(lambda: bool(self.url) or self.process.poll() is not None, 60), self.said
        assert self.url, self.said

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))

    @property
    def url(self) -> str:
        return next((found[1] for line in self.said if (found := re.search(r" on (http://\S+)/v1 ", line))), "")

    def shell(self, line: str, **environment: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, timeout=60, cwd=ROOT, env=os.environ | environment
        )
        assert done.returncode == 0, done
        return done.stdout

    def line(self, start: str) -> str:
        return next(line.strip() for line in self.said if line.strip().startswith(start))

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@contextmanager
def serving(*arguments: str | Path, before: str = "", **environment: str) -> Iterator[Process]:
    made = Process(*arguments, before=before, **environment)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait()
        made.reader.join()
        for pipe in (made.process.stdout, made.process.stderr):
            assert pipe is not None
            pipe.close()


# --- errors before the server starts


def test_limits_are_printed(run: Run) -> None:
    done = run("--print-limits")
    assert (done.code, done.err) == (0, "")
    rows = {line.split()[0]: line.split()[1] for line in done.out.splitlines()}
    assert rows["body_bytes"] == "2,000,000"
    assert (rows["header_seconds"], rows["n"], rows["json_depth"]) == ("10", "8", "64")
    assert rows.keys() == {row[0] for row in Limits().table()}
    assert rows["slots"] == "auto" and json.loads(run("--print-limits", "--json").out)["slots"] is None
    values = json.loads(run("--print-limits", "--json", "slots=3", "drain_seconds=0.5").out)
    assert (values["slots"], values["drain_seconds"], values["queue"]) == (3, 0.5, 64)
    assert json.loads(run("any-model", "slots=3", "--print-limits", "--json").out) == values | {"drain_seconds": 20.0}


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["slot=3"], "C014", "slots"),
        (["slots=0"], "C003", "slots"),
        (["slots=many"], "C002", "slots"),
        (["body_seconds=nan"], "C003", "body_seconds"),
        (["context=-1"], "C003", "context"),
        (["--host", "0.0.0.0", "--port", "0"], "C004", "HEADWAY_API_KEY"),
        (["--host", "::", "--port", "0"], "C004", "HEADWAY_API_KEY"),
        *((["--key", key], "C003", "key") for key in ("", " ", "two words", "clé", "tab\t")),
        (["--key-file", "{tmp}/empty"], "C003", "--key-file"),
        (["--key-file", "{tmp}/odd"], "C003", "--key-file"),
        (["--key-file", "{tmp}/absent"], "F001", "--key-file"),
        (["--port", "{taken}"], "C003", "--port"),
    ],
)
def test_a_wrong_argument(run: Run, tmp_path: Path, words: list[str], code: str, named: str) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("no-such-model", *(word.format(tmp=tmp_path, taken=taken.getsockname()[1]) for word in words))
    assert (done.code, done.out) == (5 if code == "F001" else 3, "")
    assert done.err.startswith(f"error[{code}]: ") and named in done.err
    assert run("no-such-model", "--port", "70000").code == 2


def test_with_a_key_any_address_is_fine(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next error is about the model."""
    (tmp_path / "keys").write_text("one\n\ntwo\n")
    words = ("no-such-model", "--host", "0.0.0.0", "--port", "0")
    for more in (("--key", "k"), ("--key-file", tmp_path / "keys")):
        assert run(*words, *more).code == 5
    monkeypatch.setenv("HEADWAY_API_KEY", "k")
    assert run(*words).code == 5


def test_keys(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one\n\n two \r\n")
    assert read_keys([], None, {}) == []
    assert read_keys([], None, {"HEADWAY_API_KEY": ""}) == []
    assert read_keys([], None, {"HEADWAY_API_KEY": "env"}) == ["env"]
    assert read_keys(["a", "b"], None, {"HEADWAY_API_KEY": "env"}) == ["a", "b"]
    assert read_keys(["a"], tmp_path / "keys", {}) == ["a", "one", "two"]


@pytest.mark.parametrize("known", [True, False])
def test_a_host_of_another_machine(run: Run, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    def look_up(*_: Any, **__: Any) -> Any:
        if known:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("192.0.2.1", 0))]  # reserved for documentation
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    done = run("last", "--host", "elsewhere.example", "--key", "k")
    assert (done.code, done.err[:12]) == (3, "error[C003]:")
    assert "--host" in done.err and "--port" not in done.err


@pytest.mark.parametrize(("word", "code"), [("context=513", 3), ("slots=1000000000000", 7)])
def test_more_than_the_model_or_the_memory_allows(run: Run, folder: Path, word: str, code: int) -> None:
    """The error names the settings of the command line."""
    done = run(folder, word, "--port", "0", "--device", "cpu")
    assert done.code == code and "context" in done.err
    assert "512" in done.err if code == 3 else "slots" in done.err


def test_kernels_are_compiled_for_all_slots(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    monkeypatch.setattr("headway.generate.accel.dispatch.compile_kernels", lambda model, count: rows.append(count))
    monkeypatch.setattr("headway.serve.server.serve", lambda *_, **__: signal.SIGTERM)
    for words in ((), ("slots=3",)):
        assert run(folder, *words, "--port", "0", "--device", "cpu").code == 143
    assert rows == [8, 3]


def test_a_missing_package(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import util

    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *more: None if name == "uvicorn" else find(name, *more))
    done = run("last")
    assert (done.code, done.err[:12]) == (5, "error[F003]:")
    assert "uvicorn" in done.err and "pip install 'headway[serve]'" in done.err


# --- a server


def ask(tokens: int, **more: Any) -> dict[str, Any]:
    return {"model": "reciter", "prompt": "a", "max_tokens": tokens, "temperature": 0} | more


def test_a_server_from_start_to_stop(folder: Path) -> None:
    """The command that it prints works as pasted. After a signal, streams go on and new requests get an error."""
    with serving(folder, "drain_seconds=30", HEADWAY_API_KEY="k") as server:
        assert "/v1 (chat, complete), up to 8 " in server.line("reciter on")
        line = server.line("curl ") + " -sS --noproxy '*'"
        assert json.loads(server.shell(line, HEADWAY_API_KEY="k"))["choices"][0]["message"]["role"] == "assistant"
        assert json.loads(server.shell(line, HEADWAY_API_KEY="x"))["error"]["code"] == "invalid_api_key"
        assert until(lambda: any("POST /v1/chat/completions 200" in said for said in server.said))
        headers = {"authorization": "Bearer k"}
        with httpx.Client(base_url=server.url, headers=headers, **PLAIN) as client:
            assert str(folder.parent) not in client.get("/v1/models").text
            body = ask(400, stream=True, n=4, logprobs=20)
            with client.stream("POST", "/v1/completions", json=body) as answer:
                parts = answer.iter_text()
                text = next(parts)
                server.process.send_signal(signal.SIGTERM)
                assert until(lambda: client.get("/health").status_code == 503)
                assert client.get("/health").json() == {"status": "stopping"}
                refused = client.post("/v1/completions", json=ask(1))
                assert refusal(refused) == (503, "stopping")
                assert refused.headers["retry-after"] == "1"
                text += "".join(parts)
        assert len([line for line in server.said if line.startswith("stopping: ") and "30 s" in line]) == 1
        assert text.endswith("data: [DONE]\n\n")
        events = [json.loads(event[6:]) for event in text.split("\n\n")[:-2]]
        first = "".join(e["choices"][0]["text"] for e in events if e["choices"][0]["index"] == 0)
        assert first == recite("a", 400)
        assert server.process.wait(10) == 143
        assert until(lambda: server.said.count("stopped") == 1)
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""


@pytest.mark.slow
def test_the_printed_python_works_as_pasted(folder: Path) -> None:
    with serving(folder, "slots=2") as server:
        start = next(i for i, line in enumerate(server.said) if "python:" in line)
        code = "\n".join(line.strip().removeprefix("python: ") for line in server.said[start : start + 3])
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert "ChatCompletion(" in done.stdout, done.stderr
        assert " 2 " in server.said[0]
        assert server.end(signal.SIGINT) == 130
        server.reader.join(10)
        assert server.said.count("stopped") == 1 and "stopping" not in "\n".join(server.said)


@pytest.mark.slow
def test_the_printed_command_takes_keys_from_their_file(folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "my keys"
    keys.write_text("first-key-x1\nsecond-key-x2\n")
    with serving(folder, "--key-file", keys, "--name", "mine", "--json") as server:
        answer = json.loads(server.shell(server.line("curl ") + " -sS --noproxy '*'"))
        assert answer["model"] == "mine"
        for key, status in (("second-key-x2", 200), ("third-key", 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert httpx.get(f"{server.url}/v1/models", headers=headers, **PLAIN).status_code == status
        assert server.end() == 143
        said = "\n".join(server.said)
        assert "key-x1" not in said and "key-x2" not in said and "third-key" not in said
        logged = [json.loads(line) for line in server.said if line.startswith("{")]
        assert [line["status"] for line in logged] == [200, 200, 401]


@pytest.mark.slow
def test_a_signal_while_schemas_are_compiled(folder: Path) -> None:
    """Nothing keeps the process from ending, and every client gets a response."""
    rules = {"type": "string", "allOf": [{"pattern": f"(.*{c}.*{c}.*)"} for c in "abcdefghijklmnopqrst"]}
    found: list[int] = []

    def post(number: int) -> None:
        held = {"type": "json_schema", "json_schema": {"name": "x", "schema": rules | {"description": str(number)}}}
        body = ask(5, response_format=held)
        found.append(httpx.post(f"{server.url}/v1/completions", json=body, **PLAIN).status_code)

    with serving(folder, "drain_seconds=1") as server:
        threads = [threading.Thread(target=post, args=(i,)) for i in range(12)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        began = time.monotonic()
        assert server.end() == 143
        assert time.monotonic() - began < 5
        for thread in threads:
            thread.join()
    assert len(found) == 12 and set(found) <= {400, 503}


HANG = """
import threading
from headway.model.model import Model
Model.step = lambda *_, **__: threading.Event().wait()
"""


@pytest.mark.slow
def test_a_signal_while_a_step_hangs(folder: Path) -> None:
    """Python alone would wait for ever for the thread that hangs."""
    with serving(folder, "drain_seconds=1", "step_seconds=1", before=HANG) as server:
        answer = httpx.post(f"{server.url}/v1/completions", json=ask(5), **PLAIN)
        assert refusal(answer) == (503, "stuck")
        assert httpx.get(f"{server.url}/health", **PLAIN).status_code == 503
        began = time.monotonic()
        assert server.end() == 143
        assert time.monotonic() - began < 6


@pytest.mark.slow
def test_a_second_signal_stops_at_once(folder: Path) -> None:
    with serving(folder, "drain_seconds=60") as server:
        body = ask(500, stream=True, n=8, logprobs=20)
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, **PLAIN) as answer:
            next(answer.iter_text())
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
            began = time.monotonic()
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(10) == 130
            assert time.monotonic() - began < 2


@pytest.mark.slow
def test_an_idle_server_stops_soon(folder: Path) -> None:
    with serving(folder) as server, socket.create_connection(("127.0.0.1", int(server.url.rsplit(":")[-1]))):
        began = time.monotonic()
        assert server.end() == 143
        assert time.monotonic() - began < 10  # of drain_seconds = 20
