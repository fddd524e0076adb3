"""What was tried, as pasted: the command, the lines of Python, and the body of the request to a server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.cli.app import app
from headway.serve.schemas import ChatRequest, CompletionRequest, RunRequest, validate
from headway.studio.play.copies import Tried
from headway.tasks.registry import get_task
from tests.studio.conftest import RunningStudio

HARD = "It's \"odd\" -- $HOME `date` 50 % \\n"
SETTINGS = {"max_tokens": 4, "seed": 1}


def tried(studio: RunningStudio, **body: Any) -> dict[str, str]:
    answer = studio.client.post("/api/playground/copies", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, str] = answer.json()
    return found


def shell(command: str, folder: Path) -> str:
    """Run lines in a shell in which `headway` is this one."""
    (folder / "headway").write_text(f'#!/bin/sh\nexec {sys.executable} -m headway "$@"\n')
    (folder / "headway").chmod(0o755)
    root = Path(__file__).parents[3]
    done = subprocess.run(
        ["bash", "-c", f'export PATH="{folder}:$PATH" PYTHONPATH="{root}"\n{command}'],
        capture_output=True, text=True, cwd=folder, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(code: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run lines of Python here: a new process would import torch again."""
    compiled = compile(code, "pasted", "exec")
    __builtins__["exec"](compiled, {}) if isinstance(__builtins__, dict) else None
    return capsys.readouterr().out


def body_of(curl: str) -> dict[str, Any]:
    """The body of a request, as the shell would hand it to curl."""
    line = next(line for line in curl.splitlines() if line.startswith("curl"))
    done = subprocess.run(["bash", "-c", f'curl() {{ printf %s "${{@: -1}}"; }}; {line}'], capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
