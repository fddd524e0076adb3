"""Trouble while training, seen from outside: what was saved stays, and the exit code says what happened."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main
from headway.runs.events import read_events
from headway.train.checkpoint import load
from headway.train.run import Run, resume, train
from tests.train.conftest import SMALL, begin, never, quiet, stop_after

Called = Callable[..., tuple[int, str]]

ROOT = Path(__file__).resolve().parents[2]
LONGER = ["train.steps=24", "train.eval_every=12", "train.sample_every=24", "train.save_every=5", "train.keep=3"]


def headway(*words: str, cwd: Path, limit: int = 0) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own; `limit` is the size at which its files are full."""

    def full() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "headway", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = full if limit else None
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, preexec_fn=start)


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Called:
    """Exit code and stderr of a command in this process, which is as good where nothing is to be apart."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main(list(words))
        return int(end.value.code or 0), capfd.readouterr().err

    return call


def stopped(tmp_path: Path, at: int) -> Run:
    """A run that was stopped after a step; 0 trains it to the end."""
    run = begin(tmp_path, *LONGER)
    return stop_after(run, at) if at else train(run, quiet)


def losses(folder: Path) -> dict[int, float]:
    return {e["step"]: e["loss"] for e in read_events(folder / "run" / "log.jsonl") if e["event"] == "step"}


def test_a_corrupt_checkpoint_is_skipped(tmp_path: Path, called: Called) -> None:
    straight = stopped(tmp_path, 0)
    run = stopped(tmp_path, 13)
    newest = run.checkpoints / "step-00000013" / "model.safetensors"
    raw = bytearray(newest.read_bytes())
    raw[-5] ^= 1
    newest.write_bytes(raw)
    code, talk = called("train", "--resume", "last")
    assert code == 0, talk
    assert "step-00000013" in talk and "SHA-256" in talk
    assert losses(run.folder) == losses(straight.folder)


def test_no_sound_checkpoint_is_left(tmp_path: Path, called: Called) -> None:
    run = stopped(tmp_path, 7)
    for path in run.checkpoints.glob("step-*/manifest.json"):
        path.write_text("{}")
    code, talk = called("train", "--resume", str(run.folder))
    assert code == 9, talk
    assert "error[X001]" in talk and "Traceback" not in talk


def test_a_full_disk_ends_the_run_and_keeps_what_was_saved(tmp_path: Path, called: Called) -> None:
    """Files are full at a size that the first checkpoints fit into and the log, growing, at last does not."""
    run = stopped(tmp_path, 10)
    before = load(run.checkpoints, skipped=never)
    assert before is not None
    size = max(path.stat().st_size for path in run.checkpoints.glob("*/*"))
    done = headway("train", "--resume", "last", cwd=tmp_path, limit=size - 1)
    assert done.returncode == 7, done.stderr
    assert "error[M002]" in done.stderr and "Traceback" not in done.stderr
    after = load(run.checkpoints, skipped=never)
    assert after is not None and after.step == before.step
    code, talk = called("train", "--resume", "last", "-q")
    assert code == 0, talk


def test_a_folder_that_cannot_be_written(tmp_path: Path, called: Called) -> None:
    (tmp_path / "file").write_text("in the way")
    code, talk = called("train", "tiny", *SMALL, f"out={tmp_path / 'file'}")
    assert code == 5, talk
    assert "error[F007]" in talk and "Traceback" not in talk


def test_rewinding_goes_back_and_halves_the_rate(tmp_path: Path) -> None:
    run = begin(tmp_path, *LONGER, "train.on_nan=rewind")
    loss, broken = run.loop.compute.loss, [12]

    def bad(model: Any, *tensors: Any) -> Any:
        value = loss(model, *tensors)
        if run.loop.progress.step in broken:
            broken.clear()
            return value * float("nan")
        return value

    run.loop.compute.loss = bad
    seen: list[tuple[str, dict[str, Any]]] = []
    train(run, lambda kind, **facts: seen.append((kind, facts)))
    nan = next(facts for kind, facts in seen if kind == "nan")
    assert nan["action"] == "rewind" and "first gradient" in nan["where"]
    steps = [facts["step"] for kind, facts in seen if kind == "step"]
    assert steps == [*range(1, 13), *range(11, 25)]
    assert run.loop.progress.scale == 0.5
    rates = [facts["lr"] for kind, facts in seen if kind == "step"]
    assert rates[12] == pytest.approx(rates[10] / 2)
    assert load(run.checkpoints, skipped=never).state["progress"]["scale"] == 0.5  # type: ignore[union-attr]


def test_a_diverged_run_stops(tmp_path: Path, called: Called) -> None:
    words = [*SMALL, *LONGER, "train.lr=1e30", "train.clip=0", "train.warmup=1"]
    code, talk = called("train", "tiny", *words)
    assert code == 8, talk
    assert "error[T001]" in talk
    folder = tmp_path / "runs" / "tiny-0001"
    assert [e["action"] for e in read_events(folder / "run" / "log.jsonl") if e["event"] == "nan"] == ["stop"]
    assert load(folder / "run" / "checkpoints", skipped=never) is None


def test_two_trainers_in_one_folder(tmp_path: Path) -> None:
    run = stopped(tmp_path, 5)
    first = resume(run.folder, never)
    codes = []

    def watch(kind: str, **facts: Any) -> None:
        if kind == "step" and facts["step"] == 7:
            done = headway("train", "--resume", str(run.folder), cwd=tmp_path)
            codes.append((done.returncode, "error[C030]" in done.stderr))

    train(first, watch)
    assert codes == [(3, True)]
