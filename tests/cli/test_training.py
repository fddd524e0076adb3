"""`headway train`: what goes on with a run, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

TINY = (
    *("model.depth=1", "model.width=16", "model.heads=2", "data.length=16", "train.batch=4", "train.steps=4"),
    *("train.warmup=0", "train.eval_every=4", "train.sample_every=4", "train.save_every=2"),
)


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    return path


def test_a_run_goes_on_for_longer_and_says_what_changed(run: Run, text: Path) -> None:
    assert run("train", "tiny", *TINY, f"data.train={text}").code == 0
    done = run("train", "--resume", "last", "train.steps=6")
    assert done.code == 0 and "train.steps 4 → 6" in done.err
    refused = run("train", "--resume", "last", "train.batch=8")
    assert refused.code == 3 and "error[C040]" in refused.err and "train.batch 4 → 8" in refused.err
    assert run("train", "--resume", "last", "train.stepz=8").code == 3


def test_changed_data_end_with_the_code_of_data(run: Run, text: Path) -> None:
    assert run("train", "tiny", *TINY, f"data.train={text}").code == 0
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 41)
    refused = run("train", "--resume", "last", "train.steps=6")
    assert refused.code == 4 and "error[D020]" in refused.err
    assert run("train", "--resume", "last", "train.steps=6", "--accept-changed-data").code == 0


def test_changed_data_are_accepted_only_where_there_are_some(run: Run) -> None:
    done = run("train", "tiny", "--accept-changed-data")
    assert done.code == 2 and "error[U001]" in done.err
