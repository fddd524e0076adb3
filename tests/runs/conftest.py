"""Folders of runs with any recipe and log, without training."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

RECIPE = """task = "lm"
seed = 7
out = "runs"

[data]
train = ""
length = 64

[model]
depth = 2
dropout = 0.1

[train]
steps = 100
lr = 0.002
warmup = 10
clip = 1.0
"""
KINDS = (
    "start",
    "data",
    "step",
    "eval",
    "sample",
    "save",
    "spike",
    "nan",
    "restart",
    "best",
    "end",
    "test",
    "sink",
    "x",
)
"""Kinds of events, one of them unknown."""
KEYS = (
    "step", "time", "loss", "valid", "tokens", "seconds", "text", "action", "signal", "parameters", "where",
    "lr", "grad_norm", "share", "bits_per_byte", "vocab", "train", "documents", "bad_rows", "device", "world",
    "mfu", "name",
)  # fmt: skip
NOON = 1_800_000_000.0
HOSTILE = "</pre></script><script>alert(1)</script>\"'<img src=x onerror=alert(1)>&amp;{{7*7}}"


def event(kind: str, **facts: Any) -> dict[str, Any]:
    return {"event": kind, **facts}


def write_run(
    folder: Path, events: Iterable[dict[str, Any] | bytes] = (), *, recipe: str | None = RECIPE, weights: bool = True
) -> Path:
    """A run's folder; bytes go into the log as they are."""
    (folder / "run").mkdir(parents=True)
    if recipe is not None:
        (folder / "run" / "recipe.toml").write_text(recipe, encoding="utf-8")
    if weights:
        (folder / "model.safetensors").write_bytes(b"weights")
    lines = [
        line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in events
    ]
    (folder / "run" / "log.jsonl").write_bytes(b"".join(lines))
    return folder


def steps(first: int, last: int, *, loss: float = 2.0, norm: float = 0.5, rate: float = 100.0) -> list[dict[str, Any]]:
    """Step events with a loss that falls a little; ten tokens each, `rate` of them a second, one second apart."""
    return [
        event("step", time=NOON + n, step=n, tokens=10 * n, seconds=10 * n / rate, loss=loss + 1 / n, lr=0.002,
              grad_norm=norm, share=n / 100)
        for n in range(first, last + 1)
    ]  # fmt: skip


def finished(
    valid: Iterable[float] = (3.0, 2.5, 2.4, 2.39), between: Iterable[dict[str, Any]] = (), **end: Any
) -> list[dict[str, Any]]:
    """A run of a hundred steps with an evaluation after each equal part."""
    scores = list(valid)
    size = 100 // max(len(scores), 1)
    middle = steps(1, 100)
    for i, score in reversed(list(enumerate(scores, 1))):
        facts = {"time": NOON + i * size, "step": i * size}
        middle[i * size : i * size] = [
            event("eval", **facts, valid=score, bits_per_byte=score / 2),
            event("sample", **facts, text=f"text after {i * size}"),
            event("save", **facts),
        ]
    start = event(
        "start", time=NOON, step=0, parameters=1234, device="x86_64", version="0.1.0", torch="2.13", python="3.11"
    )
    return [start, *middle, *between, event("end", time=NOON + 100, step=100, signal=0, **end)]


def towards(
    goal: str, values: Iterable[float], valid: Iterable[float], *, rising: bool = True, test: float | None = None
) -> list[dict[str, Any]]:
    """A finished run of a task whose best evaluation goes by a figure of its own."""
    log = finished(valid)
    log[0] |= {"goal": goal, "rising": rising}
    for one, value in zip((e for e in log if e["event"] == "eval"), values, strict=True):
        one[goal] = value
        del one["bits_per_byte"]
    tested = [] if test is None else [event("test", step=100, **{"test": 0.7, goal: test})]
    return [*log[:-1], *tested, log[-1]]


class Page(HTMLParser):
    """What a browser would make of a page: its elements, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]
