"""Many connections with large bodies that no route takes: they cost little memory and do not disturb others."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.serve.conftest import KEY, Running, http

CROWD = """
import asyncio, json, sys
host, port, count, size, head, chunked = json.loads(sys.argv[1])
part = b"x" * 50_000
piece = b"%x\\r\\n%s\\r\\n" % (len(part), part) if chunked else part

async def push(lines):
    reader, writer = await asyncio.open_connection(host, port)
    line = asyncio.ensure_future(reader.readline())
    try:
        writer.write(head.encode())
        for _ in range(size // len(part)):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    try:
        lines.append((await line).decode()[:12])
    except ConnectionError:
        lines.append("reset")
    await asyncio.sleep(0.3)
    writer.close()

async def crowd():
    lines = []
    await asyncio.wait_for(asyncio.gather(*(push(lines) for _ in range(count))), 30)
    print(json.dumps(lines))

asyncio.run(crowd())
"""
"""Runs in a process of its own, whose memory is not counted; prints the first line of each response."""


class Peak(threading.Thread):
    """Measures the most memory of this process while the block runs, in megabytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.first = self.most = self._now()
        self.done = threading.Event()

    def _now(self) -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

    def run(self) -> None:
        while not self.done.wait(0.005):
            self.most = max(self.most, self._now())

    def __enter__(self) -> Peak:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.join()


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("head", "key", "expected"),
    [
        ("GET /health", False, {"413"}),
        ("POST /health", False, {"405"}),
        ("GET /nowhere", False, {"401"}),
        ("POST /v1/completions", False, {"401"}),
        ("GET /v1/models", True, {"413", "429"}),
        ("POST /v1/nowhere", True, {"404", "429"}),
    ],
)
def test_bodies_that_no_route_takes(reciter: Running, head: str, key: bool, expected: set[str], chunked: bool) -> None:
    framing = "Transfer-Encoding: chunked\r\n" if chunked else "Content-Length: 2000000\r\n"
    text = http(head, headers=framing, key=KEY if key else None).decode()
    crowd = json.dumps([*reciter.address, 300, 2_000_000, text, chunked])
    with Peak() as peak, subprocess.Popen([sys.executable, "-c", CROWD, crowd], stdout=subprocess.PIPE) as sending:
        while sending.poll() is None:
            began = time.monotonic()
            assert reciter.works()
            assert time.monotonic() - began < 3
        assert sending.stdout is not None
        lines = json.loads(sending.stdout.read())
    assert len(lines) == 300
    assert {line.split()[-1] for line in lines} <= expected
    assert peak.most - peak.first < 50
    assert reciter.idle()
