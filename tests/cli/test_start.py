"""The start of the program: what happens before the verbs are imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headway import __main__ as start
from headway.cli.app import VERBS


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was called, with the command line and the library left out."""
    called: list[str] = []
    monkeypatch.setattr("headway.cli.main", lambda: called.append("main"))
    monkeypatch.setattr(start, "load_torch_library", lambda: called.append("library"))
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    return called


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("run tiny Once", True),
        ("eval tiny book.txt", True),
        ("data run", False),
        ("run --help", False),
        ("run tiny -h", False),
        ("run", False),
        ("--help", False),
        ("", False),
    ],
)
def test_the_library_is_loaded_early_for_verbs_that_need_it(
    line: str, library: bool, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["headway", *line.split()])
    start.main()
    assert started == (["library", "main"] if library else ["main"])


def test_verbs_that_need_torch_exist() -> None:
    assert {*start.TORCH_VERBS} < {*VERBS}


@pytest.mark.parametrize(
    ("given", "spin"),
    [({}, start.SPIN), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_waiting_threads_sleep_soon_unless_the_user_says_otherwise(
    given: dict[str, str], spin: str | None, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["headway", "--help"])
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    start.main()
    assert os.environ.get("GOMP_SPINCOUNT") == spin


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_library_is_there_before_torch_is_imported() -> None:
    script = """
import sys, threading
from pathlib import Path
from headway.__main__ import load_torch_library
load_torch_library()
for thread in threading.enumerate()[1:]:
    thread.join()
print("libtorch_cpu" in Path("/proc/self/maps").read_text(), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
