"""A studio in a thread, a token, and a browser."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from _pytest.runner import runtestprotocol
from uvicorn import Config, Server

from headway.serve.auth import listen, loopback_names, url
from headway.studio.app import create_app
from headway.studio.context import Studio

TOKEN = "t" * 43


@dataclass
class RunningStudio:
    studio: Studio
    url: str
    client: httpx.Client
    """Sends the token."""

    @property
    def address(self) -> str:
        """What a person opens."""
        return self.at("/")

    def at(self, path: str) -> str:
        """The address of a page."""
        return f"{self.url}{path}{'&' if '?' in path else '?'}token={TOKEN}"


def until(told: Callable[[], object], seconds: float = 20) -> None:
    """Wait for something to come true."""
    end = time.monotonic() + seconds
    while not told():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def run_studio(runs: Path, state: Path) -> Iterator[RunningStudio]:
    studio = Studio(runs, TOKEN, state)
    with listen("127.0.0.1", 0) as sock:
        app = create_app(studio, loopback_names(sock))
        server = Server(Config(app, log_level="critical", ws="none", lifespan="off", timeout_graceful_shutdown=1))  # type: ignore[arg-type]
        thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        with httpx.Client(base_url=url(sock), headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
            yield RunningStudio(studio, url(sock), client)
        server.should_exit = True
        thread.join(20)
        studio.close()
        for job in studio.jobs.all():  # a training outlives the studio, but not its test
            if job.code is None:
                job.stop()
            job.process.wait(60)


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[RunningStudio]:
    """A studio over an empty folder of runs."""
    (tmp_path / "runs").mkdir()
    yield from run_studio(tmp_path / "runs", tmp_path / "state")


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A test in a browser whose wait was too short is run once more, as on a busy machine; any other failure counts."""
    if "browser" not in getattr(item, "fixturenames", ()):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    failed = [report for report in reports if report.failed]
    if failed and all("playwright._impl._errors.TimeoutError" in report.longreprtext for report in failed):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def chromium() -> str:
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or ""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium through Playwright, for one module: its event loop is in the way of tests that run one themselves.

    In CI it has to be there; elsewhere its absence skips the test.
    """
    if not chromium() and not os.environ.get("CI"):
        pytest.skip("no Chromium on this machine: apt-get install chromium, or set CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails its test for any error on its console."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    made, errors = context.new_page(), []
    made.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: errors.append(str(error)))
    yield made
    context.close()
    assert not errors, "\n".join(errors)
