"""The page at `/`: it says what is served, its lines work as pasted, and nothing on it can run or phone home."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from headway.api import Bundle
from headway.serve.page.page import STATIC
from tests.serve.conftest import KEY, PLAIN, Running, http, running, status

OPEN = {"authorization": ""}


@pytest.fixture(scope="module")
def keyless(bundle: Bundle) -> Iterator[Running]:
    with running(bundle) as made:
        yield made


class Elements(HTMLParser):
    """Tags with their attributes, and the text of every pre."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.pres: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "pre":
            self.pres.append("")

    def handle_data(self, data: str) -> None:
        if self.inside == "pre":
            self.pres[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


def get(server: Running, path: str = "/", **headers: str) -> httpx.Response:
    with httpx.Client(base_url=server.url, **PLAIN) as client:
        return client.get(path, headers=headers)


def test_what_it_says(keyless: Running) -> None:
    answer = get(keyless)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for part in ("reciter", "/v1/chat/completions", "/v1/completions", 'href="/health"', 'href="/v1/models"', "queue"):
        assert part in answer.text


def test_nothing_comes_from_elsewhere(keyless: Running) -> None:
    answer = get(keyless)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    page = Elements(answer.text)
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        for name in ("src", "href"):
            assert name not in attributes or str(attributes[name]).startswith("/")
        assert tag != "script" or attributes.keys() == {"src", "defer"}
    for path in STATIC:
        found = get(keyless, path)
        assert found.status_code == 200 and not re.search(r"url\(|https?://(?!www\.w3\.org/)", found.text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|eval\(|document\.write|localStorage", get(keyless, "/page.js").text
    )


def test_its_lines_work_as_pasted(keyless: Running) -> None:
    lines = [text for text in Elements(get(keyless).text).pres if text]
    assert len(lines) == 4
    for text in lines:
        command = ["bash", "-c", text] if text.startswith("curl") else [sys.executable, "-c", text]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin"})
        assert "finish_reason" in done.stdout, done.stderr


def test_the_lines_of_a_task(encoder: Bundle) -> None:
    with running(encoder) as server:
        lines = Elements(get(server).text).pres
        (python,) = [text for text in lines if "/v1/run" in text and "urllib" in text and "classify" in text]
        done = subprocess.run([sys.executable, "-c", python], capture_output=True, text=True, timeout=60)
        assert json.loads(done.stdout)["data"][0]["label"] in ("bad", "fair", "good")


def test_with_a_key(reciter: Running) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}):
        locked = get(reciter, **headers)
        assert locked.status_code == 200 and "reciter" not in locked.text and "data-locked" in locked.text
    shown = get(reciter, authorization=f"Bearer {KEY}")
    assert "reciter" in shown.text and "data-locked" not in shown.text and KEY not in shown.text
    assert "$HEADWAY_API_KEY" in shown.text


def test_a_name_is_never_markup(bundle: Bundle) -> None:
    name = "\"><script>alert(1)</script>'&"
    with running(replace(bundle, name=name, folder=None)) as server:
        answer = get(server)
    assert "<script>alert" not in answer.text and html.escape("<script>alert") in answer.text
    facts = next(a["data-facts"] for tag, a in Elements(answer.text).tags if tag == "main")
    assert json.loads(facts or "")["model"] == name


def test_a_host_is_not_trusted(keyless: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyless.context, "hosts", frozenset())
    raw = http("GET /", key=None, headers="Connection: close\r\n").replace(b"localhost", b"a;reboot")
    answer = keyless.raw(raw)
    assert status(answer) == 200 and b"reboot" not in answer


def test_the_files_are_in_the_package() -> None:
    import tomllib

    settings = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    assert "serve/page/files/*" in settings["tool"]["setuptools"]["package-data"]["headway"]
