"""Every page opens on a desk and on a phone, in light and dark, for everybody; no route falls over what it is sent."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI

from headway.errors import ConfigError
from headway.studio.app import create_app
from tests.runs.conftest import HOSTILE, event, finished, steps, write_run
from tests.studio.conftest import RunningStudio

PAGES = (
    "/runs", "/run/good-0001", "/run/nothing", "/compare", "/compare?run=good-0001&run=bad-0001", "/new", "/data",
    "/new?recipe=tiny", "/data?path=headway/comparisons/order.csv", "/playground", "/xray", "/tokens", "/learn",
    "/no-such-page",
)  # fmt: skip
LOOKS = ((1400, "light"), (390, "dark"))
ABSENT = re.compile("Failed to load resource: the server responded with a status of 404")
"""The browser says so by itself for a run that is not there."""
ODD: tuple[Any, ...] = (
    "", "..", "../../etc/passwd", "/etc/passwd", "%2e%2e%2f", "a\0b", "\ud800", HOSTILE, "x" * 5000, "é" * 300, "last",
    "good-0001", "-1", "nan", "inf", "1e999", "NULL", "[]", "{}", "true", "🙂", "\r\nX: y", "C:\\x", "~", "0", 0, -1,
    "https://example.org", 10**30, 1.5, float("1e300"), True, None, [], {}, [[]], {"a": {"b": [None]}}, ["x"] * 2000,
)  # fmt: skip
ROUNDS = 24


@pytest.fixture
def filled(studio: RunningStudio) -> RunningStudio:
    runs = studio.studio.runs
    write_run(runs / "good-0001", finished())
    write_run(runs / "bad-0001", [event("start", step=0), *steps(1, 60)], weights=False)
    write_run(runs / "<b>odd & 'quoted'", [], recipe="x = [")
    return studio


@pytest.fixture
def looks(browser: Any) -> Iterator[list[tuple[Any, list[str]]]]:
    """A page for each of LOOKS, with the errors on its console."""
    made = []
    for width, scheme in LOOKS:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page, errors = context.new_page(), list[str]()
        page.on("console", lambda told, errors=errors: errors.append(told.text) if told.type == "error" else None)
        page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
        made.append((page, errors))
    yield made
    for page, _ in made:
        page.context.close()


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_on_every_screen(filled: RunningStudio, looks: list[tuple[Any, list[str]]], path: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for (width, scheme), (page, errors) in zip(LOOKS, looks, strict=True):
        page.goto(filled.at(path))
        page.locator("#page > *").first.wait_for()
        page.wait_for_timeout(600)
        assert "token=" not in page.url
        wide = page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= width, f"{path} is {wide} wide on a screen of {width}"
        assert not [error for error in errors if not ABSENT.match(error)], f"{path} {width} {scheme}: {errors}"
        assert page.locator("h1, .empty, .problem").count(), f"{path} shows nothing"
        found = [each for each in Axe().run(page).response["violations"] if each["impact"] in ("serious", "critical")]
        told = [f"{each['id']}: {each['help']}: {node['html'][:160]}" for each in found for node in each["nodes"][:3]]
        assert not told, f"{path} {width} {scheme}:\n" + "\n".join(told)


def test_the_keyboard_reaches_the_navigation_and_the_page(filled: RunningStudio, page: Any) -> None:
    page.goto(filled.at("/runs"))
    page.wait_for_selector("tbody tr")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the page"
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                "() => document.activeElement.textContent || document.activeElement.getAttribute('aria-label')"
            )
        )
    assert {"Runs", "Learn", "name", "good-0001", "Compare good-0001", "Delete"} <= seen


# --- routes ---------------------------------------------------------------------------------------


def routes_of(studio: RunningStudio) -> dict[str, dict[str, Any]]:
    app = create_app(studio.studio, frozenset()).app
    assert isinstance(app, FastAPI)
    described: dict[str, Any] = app.openapi()
    return described


def body_of(schema: dict[str, Any], described: dict[str, Any], draw: random.Random) -> Any:
    """A body in the shape of its schema with odd values, or one without any shape."""
    if draw.random() < 0.2:
        return draw.choice(ODD)
    if "$ref" in schema:
        schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "properties" not in schema:
        return draw.choice(ODD)
    made = {name: draw.choice(ODD) for name in schema["properties"] if draw.random() < 0.85}
    return {**made, **({"extra": 1} if draw.random() < 0.1 else {})}


def query_of(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return quote(text.encode(errors="surrogatepass"), safe="")


def test_no_route_falls_over_what_it_is_sent(filled: RunningStudio, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object, **more: object) -> None:
        raise ConfigError("C030", "no command is started here")

    monkeypatch.setattr(filled.studio.jobs, "start", refuse)
    monkeypatch.setattr(filled.studio.models, "get", refuse)
    described, draw, asked = routes_of(filled), random.Random(7), 0
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            if not path.startswith("/api/"):
                continue
            for _ in range(ROUNDS):
                address = re.sub(r"\{(\w+)(:path)?\}", lambda _: query_of(draw.choice(ODD)) or "x", path)
                given = [each for each in told.get("parameters", []) if each["in"] == "query" and draw.random() < 0.8]
                query = "&".join(f"{each['name']}={query_of(draw.choice(ODD))}" for each in given)
                content = told.get("requestBody", {}).get("content", {})
                raw, headers = b"", {}
                if "multipart/form-data" in content:
                    raw, headers = (
                        b"--x\r\n\r\n" + draw.randbytes(60),
                        {"content-type": "multipart/form-data; boundary=x"},
                    )
                elif content:
                    body = body_of(next(iter(content.values())).get("schema", {}), described, draw)
                    raw = json.dumps(body).encode() if draw.random() < 0.9 else draw.randbytes(30)
                    headers = {"content-type": "application/json"}
                with filled.client.stream(
                    method.upper(), f"{address}?{query}", content=raw, headers=headers, timeout=20
                ) as answer:
                    why = f"{method} {address[:200]}?{query[:300]} {raw[:200]!r} → {answer.status_code}"
                    assert answer.status_code < 500 or answer.status_code == 502, why
                    if answer.status_code >= 400 and "json" in answer.headers.get("content-type", ""):
                        assert json.loads(answer.read())["error"]["message"], why
                asked += 1
    assert asked >= 10 * ROUNDS
    assert filled.client.get("/api/runs").status_code == 200, "it still answers"
