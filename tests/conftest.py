"""What every test gets: one seed, a fixed number of torch threads, no network."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import os
import random
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import hypothesis
import pytest

# Read by huggingface_hub and tokenizers when they are imported, so set before any test module is.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

THREADS = os.environ.get("HEADWAY_TEST_THREADS")
"""torch threads per test process; unset leaves torch's choice."""
if THREADS:
    os.environ["OMP_NUM_THREADS"] = THREADS  # for the processes that tests start

SERVER = [name for name in ("fastapi", "httpx", "openai", "uvicorn") if find_spec(name) is None]
collect_ignore = ["serve"] if SERVER else []
"""A machine for GPU tests may lack the packages of the server; its tests then stay out, and the header says so."""

hypothesis.settings.register_profile("headway", deadline=None)
hypothesis.settings.register_profile("headway-ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("headway-ci" if os.environ.get("CI") else "headway")


def pytest_report_header() -> str | None:
    return f"tests/serve is left out: no {', '.join(SERVER)} here" if SERVER else None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes by the name of their argument: a gzip file holds the second it was made in, and every process that runs
    tests must give a test the same name."""
    return argname if isinstance(val, bytes) else None


class TorchRandom:
    """torch's generator in the form hypothesis manages: every example then starts from the same seed."""

    def seed(self, seed: int) -> None:
        sys.modules["torch"].manual_seed(seed)

    def getstate(self) -> Any:
        return sys.modules["torch"].get_rng_state()

    def setstate(self, state: Any) -> None:
        sys.modules["torch"].set_rng_state(state)


_torch_random: list[TorchRandom] = []  # hypothesis keeps a weak reference only


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Token caches of tests are their own, and gone with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Start each test from the same random state; torch is seeded where something has imported it."""
    random.seed(0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
        if THREADS:
            torch.set_num_threads(int(THREADS))
        if not _torch_random:
            # A new list: hypothesis asks the garbage collector who holds the object, and headway's command line may
            # have frozen all lists there were.
            globals()["_torch_random"] = [TorchRandom()]
            hypothesis.register_random(_torch_random[0])


def is_local(host: object) -> bool:
    """Whether a host, as sockets take it, is this machine; an empty one is an address to listen on."""
    if isinstance(host, bytes):
        host = host.decode()
    if host in (None, "", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(str(host))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def guarded(call: Callable[..., Any], host: Callable[..., object]) -> Callable[..., Any]:
    """`call`, refused unless the host among its arguments is this machine.

    pytest.fail is no Exception: code that treats a lost connection as normal cannot swallow it.
    """

    def guard(*args: Any, **kwargs: Any) -> Any:
        if not is_local(target := host(*args, **kwargs)):
            pytest.fail(f"tests need no network, and this one reached for {target!r}")
        return call(*args, **kwargs)

    return guard


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Refuse every host but this machine; of the session, so that it holds for fixtures of any scope."""

    def peer(sock: socket.socket, *args: Any) -> object:
        internet = sock.family in (socket.AF_INET, socket.AF_INET6)
        return args[-1][0] if internet else None  # the address comes last: sendto(data[, flags], address)

    def name(host: object = None, *_: Any, **__: Any) -> object:
        return host

    with pytest.MonkeyPatch.context() as patch:
        for method in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, method, guarded(getattr(socket.socket, method), peer))
        patch.setattr(socket, "getaddrinfo", guarded(socket.getaddrinfo, name))
        yield


@pytest.fixture
def runs_in_process(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The runs of a comparison in this process, which saves their start; returns the commands, as they come."""
    from headway.cli import main
    from headway.runs.process import EXIT_FILE, PART, Ended

    commands: list[list[str]] = []

    def call(words: Sequence[str]) -> Ended:
        left, output = tmp_path_factory.mktemp("exit") / "exit", io.StringIO()
        commands.append(list(words))
        monkeypatch.setenv(EXIT_FILE, str(left))
        monkeypatch.setenv(PART, "1")
        with contextlib.redirect_stdout(output), pytest.raises(SystemExit) as caught:
            main(list(words))
        monkeypatch.delenv(EXIT_FILE)
        monkeypatch.delenv(PART)
        told = left.read_text(encoding="utf-8") if left.exists() else ""
        assert isinstance(caught.value.code, int)
        return Ended(caught.value.code, told.partition("\n")[2].strip(), output.getvalue())

    monkeypatch.setattr("headway.runs.queue.run_command", call)
    return commands
