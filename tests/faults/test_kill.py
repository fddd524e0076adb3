"""kill -9 at every stage of a save: at most that save is lost, and nothing corrupt is ever accepted.

Run as a script, this file is the nursery: it imports torch once and forks a trainer for each line it reads.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.train.checkpoint import STAGES, RunLock, Snapshot, load, save
from tests.train.conftest import never
from tests.train.conftest import same_snapshot as same

RETENTION = 2
DEFAULT, FULL = 2, 20
"""Kills at each stage; every second one comes from outside, up to 10 ms after the stage has begun."""


def example(step: int) -> Snapshot:
    noise = torch.Generator().manual_seed(step)
    model = {"a": torch.randn(100, 50, generator=noise), "b": torch.randn(7, generator=noise).bfloat16()}
    return Snapshot(step, {"model": model, "rng": {"state": noise.get_state()}}, {"tokens": 1000 * step})


def train(folder: Path, victim: dict[str, Any], alarm: int) -> None:
    """Save every step until the one to die in, at the given call of the given stage."""
    calls = 0

    def hook(stage: str) -> None:
        nonlocal calls
        calls += stage == victim["stage"] and step == victim["step"]
        if stage == victim["stage"] and step == victim["step"] and calls == victim["call"]:
            if victim["delay"] is None:
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(alarm, b".")

    with RunLock(folder):
        for step in range(1, victim["step"] + 1):
            save(folder, example(step), retention=RETENTION, stage=hook)
        signal.pause()


def nursery() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        victim = json.loads(line)
        bell, alarm = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                train(Path(victim["folder"]), victim, alarm)
            finally:
                os._exit(1)  # a trainer that fails must not come back as a second nursery
        os.close(alarm)
        if victim["delay"] is not None and os.read(bell, 1):
            time.sleep(victim["delay"])
            os.kill(pid, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        os.close(bell)


@pytest.fixture(scope="module")
def trainers() -> Iterator[subprocess.Popen[str]]:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process


def names(folder: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


def kill_and_resume(trainers: subprocess.Popen[str], folder: Path, stage: str, dice: random.Random, late: bool) -> None:
    step = dice.randint(1, 4)
    call = dice.randint(1, 2) if stage in ("write", "file-fsync") else 1
    delay = dice.random() ** 2 / 100 if late else None
    assert trainers.stdin and trainers.stdout
    victim = {"folder": str(folder), "stage": stage, "step": step, "call": call, "delay": delay}
    print(json.dumps(victim), file=trainers.stdin, flush=True)
    assert int(trainers.stdout.readline()) == -signal.SIGKILL

    with RunLock(folder):
        found = load(folder, skipped=never)
        last = found.step if found else 0
        before = STAGES.index(stage) <= STAGES.index("rename")
        assert last in ((step - 1, step) if late and before else (step - 1,) if before else (step,))
        assert found is None or same(found, example(last))
        if not late and stage != "snapshot" and before:
            assert len(names(folder, "*.partial-*")) == 1, "the kill came at another moment than it should"
        for next_step in (last + 1, last + 2):
            save(folder, example(next_step), retention=RETENTION)
            resumed = load(folder, skipped=never)
            assert resumed is not None and same(resumed, example(next_step))
    kept = [f"step-{number:08d}" for number in (last + 1, last + 2)]
    assert names(folder, "*") == ["latest.json", "run.lock", *kept]


def run_kills(trainers: subprocess.Popen[str], folder: Path, stage: str, kills: range) -> None:
    for number in kills:
        dice = random.Random(f"{stage} {number}")
        kill_and_resume(trainers, folder / str(number), stage, dice, late=number % 2 == 1)


@pytest.mark.parametrize("stage", STAGES)
def test_a_kill_costs_at_most_one_save(trainers: subprocess.Popen[str], tmp_path: Path, stage: str) -> None:
    run_kills(trainers, tmp_path, stage, range(DEFAULT))


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_twenty_kills_at_each_stage(trainers: subprocess.Popen[str], tmp_path: Path, stage: str) -> None:
    run_kills(trainers, tmp_path, stage, range(FULL))


if __name__ == "__main__":
    nursery()
