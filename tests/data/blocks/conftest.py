"""The slow twin of a survey by blocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.data.profile import scan
from headway.data.profile.survey import Survey, survey


@pytest.fixture
def by_rows(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Survey]:
    """A survey that reads every file row by row."""

    def slow(spec: str) -> Survey:
        with monkeypatch.context() as patch:
            patch.setattr(scan, "BLOCKS", {})
            return survey(spec)

    return slow
