"""The command line as tests call it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from headway.cli import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`headway` with these arguments, in this process; a file's own `run` puts the verb before them."""
    for name in ("HEADWAY_DEBUG", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str | Path) -> Done:
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        assert isinstance(caught.value.code, int)
        return Done(caught.value.code, *capfd.readouterr())

    return call
