"""Memory that runs out, for real: in a process that may have two gigabytes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 2 << 30

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS is not enforced elsewhere"),
]


def headway(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headway", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
        capture_output=True,
        text=True,
        timeout=120,
    )


WIDE = ("model.depth=8", "model.width=512", "model.heads=8", "data.length=512", "train.steps=2")


def test_a_run_that_runs_out_of_memory_says_what_to_change(tmp_path: Path) -> None:
    done = headway("train", "tiny", *WIDE, "train.batch=16", cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    assert "error[M010]" in done.stderr and "train.accumulate=2" in done.stderr and "B000" not in done.stderr


def test_a_run_that_cannot_fit_is_refused_at_once(tmp_path: Path) -> None:
    done = headway("train", "tiny", *WIDE, "train.batch=64", cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    assert "error[M011]" in done.stderr and not list((tmp_path / "runs").iterdir())


def test_a_run_that_fits_is_not_refused(tmp_path: Path) -> None:
    small = ("model.depth=1", "model.width=16", "model.heads=2", "train.steps=2", "train.batch=2")
    done = headway("train", "tiny", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
