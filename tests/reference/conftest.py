"""The reference of headway's own tasks, whatever package other tests have installed."""

from __future__ import annotations

import pytest

from headway.tasks import registry


@pytest.fixture(autouse=True)
def own_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_found", lambda: dict(registry.BUILT_IN))
