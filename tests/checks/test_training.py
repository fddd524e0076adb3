"""`headway check --training`: a correct recipe passes, and each check fails when its promise is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from headway.checks.training import check_training
from headway.tasks.lm.training import LanguageModelTraining
from headway.tasks.recipe import load_recipe
from headway.train import state
from headway.train.compute import Compute

SMALL = ["model.depth=1", "model.width=16", "model.heads=2", "model.dropout=0.1", "data.length=8", "train.batch=4"]


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "text.txt").write_text("the quick brown fox " * 40)
    return f"data.train={tmp_path / 'text.txt'}"


def failed(text: str, *words: str) -> set[str]:
    rows = list(check_training(*load_recipe("tiny", [*SMALL, text, *words])))
    assert len(rows) == 4
    return {row.name for row in rows if not row.ok}


@pytest.mark.parametrize("words", [(), ("train.optimizer=muon",), ("data.rows=pad", "train.batch_tokens=64")])
def test_a_recipe_that_is_right(text: str, words: tuple[str, ...]) -> None:
    assert failed(text, *words) == set()


def test_losses_divided_part_by_part_are_noticed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = LanguageModelTraining.loss
    monkeypatch.setattr(LanguageModelTraining, "loss", staticmethod(lambda m, x, y, k: right(m, x, y, k) / len(x)))
    assert failed(text) == {"accumulated = whole"}


def test_forgotten_state_is_noticed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_set_random_state", lambda states, world: None)
    assert failed(text) == {"resumed = straight"}


def test_batches_that_depend_on_who_makes_them_are_noticed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, calls = LanguageModelTraining.batch, []

    def drifting(self: LanguageModelTraining, samples: Any) -> Any:
        calls.append(1)
        return right(self, samples + len(calls))

    monkeypatch.setattr(LanguageModelTraining, "batch", drifting)
    assert "any workers = none" in failed(text)


def test_a_blind_eye_is_noticed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Compute.gradients
    monkeypatch.setattr(Compute, "gradients", lambda *a: tuple(0.0 for _ in right(*a)))
    assert failed(text) == {"NaN noticed at once"}
    assert torch.is_grad_enabled()
