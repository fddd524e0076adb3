"""A studio over a few small runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headway
from tests.studio.conftest import RunningStudio, run_studio

SMALL: dict[str, Any] = {
    "train": {"steps": 3, "batch": 4, "eval_every": 3, "warmup": 0, "compile": False},
    "model": {"depth": 1, "width": 32, "heads": 2},
}
XSS = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model, one that chats, classifiers of texts and of images; and the first under a name that is HTML."""
    out = tmp_path_factory.mktemp("studio") / "runs"
    headway.train("tiny", SMALL, length=32, sample_every=9, out=str(out), quiet=True)
    headway.train("images", SMALL, {"data.size": 16, "model.patch": 8}, out=str(out), quiet=True)
    headway.train("classify", SMALL, out=str(out), quiet=True)
    headway.train("chat", SMALL, out=str(out), quiet=True)
    shutil.copytree(out / "tiny-0001", out / XSS)
    return out


@pytest.fixture(scope="session")
def playing(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    yield from run_studio(runs, tmp_path_factory.mktemp("state"))


def events(studio: RunningStudio, **body: Any) -> list[dict[str, Any]]:
    """The events of a generation."""
    with studio.client.stream("POST", "/api/playground/generate", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        return [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
