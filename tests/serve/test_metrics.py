"""The request log: one line per request, whatever a client puts into its path."""

from __future__ import annotations

import json

import pytest

from headway.serve.metrics import LOGS

FACTS = {"id": "r1", "method": "GET", "path": "/a\n\x1b[31mb", "status": 404, "seconds": 0.25, "error": "no_route"}


def test_a_line_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    LOGS["lines"](FACTS)
    (line,) = capsys.readouterr().err.splitlines()
    assert line[8:] == r" GET '/a\n\x1b[31mb' 404 0.250s id=r1 error=no_route"
    LOGS["lines"](FACTS | {"reason": "Traceback …\n"})
    assert capsys.readouterr().err.splitlines()[1:] == ["Traceback …"]


def test_a_line_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    LOGS["json"](FACTS)
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert found.pop("time") > 0
    assert found == FACTS


def test_quiet_tells_only_what_went_wrong_here(capsys: pytest.CaptureFixture[str]) -> None:
    LOGS["quiet"](FACTS)
    assert capsys.readouterr().err == ""
    LOGS["quiet"](FACTS | {"reason": "Traceback …"})
    assert capsys.readouterr().err.endswith("Traceback …\n")
