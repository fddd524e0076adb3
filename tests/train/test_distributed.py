"""Two processes train as one does: the same samples, the same losses, checkpoints that either goes on with.

Run as a script, this file is what torchrun starts: `python test_distributed.py FOLDER STOP begin|resume`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.config.shape import decoder_config
from headway.data.batching.token_store import TokenStore
from headway.data.tokenizers.train import train_tokenizer
from headway.model.model import Transformer
from headway.runs.events import read_events
from headway.tasks.lm.training import LanguageModelTraining
from headway.tasks.recipe import Recipe, load_recipe
from headway.train.checkpoint import load
from headway.train.distributed import World, close_distributed, init_distributed, torchrun_line
from headway.train.loop import Loop
from headway.train.optim.optimizer import make_optimizer
from headway.train.run import Run, resume, start, train
from tests.train.conftest import never, quiet

TOKENIZER = train_tokenizer("bytes", [])

pytestmark = pytest.mark.dist

ROOT = Path(__file__).resolve().parents[2]
STEPS = 12
SMALL = [
    *("model.depth=2", "model.width=32", "model.heads=2", "data.length=16", "train.batch=5", "train.ema=0.9"),
    *(f"train.steps={STEPS}", "train.eval_every=6", "train.sample_every=12", "train.save_every=4", "train.warmup=4"),
]


def begin(out: Path) -> Run:
    """A batch of five: two processes get three samples and two."""
    return start(*load_recipe("tiny", [*SMALL, f"out={out}", f"data.train={out.parent / 'text.txt'}"]))


def until(run: Run, stop: int) -> Run:
    """Train; before step `stop`, if not 0, the last process alone is asked to stop, and all have to notice."""

    step = run.loop.step
    last = run.loop.world.rank == run.loop.world.size - 1

    def asked_to_stop() -> dict[str, float]:
        if last and run.loop.progress.step + 1 == stop:
            run.loop.received_signal = signal.SIGTERM
        return step()

    run.loop.step = asked_to_stop  # type: ignore[method-assign]
    return train(run, quiet)


def together(out: Path, stop: int) -> None:
    """Two processes, through torchrun."""
    line = torchrun_line(2, [])
    how = "resume" if (out / "tiny-0001").exists() else "begin"  # asked there, one might see what the other has begun
    line = [*line[: line.index("-m", 2)], __file__, str(out), str(stop), how]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[:3000]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def alone(out: Path, stop: int) -> None:
    folder = out / "tiny-0001"
    until(resume(folder, never) if folder.exists() else begin(out), stop)


def losses(out: Path) -> list[float]:
    events = list(read_events(out / "tiny-0001" / "run" / "log.jsonl"))
    return [e["loss"] for e in events if e["event"] == "step"] + [e["valid"] for e in events if e["event"] == "eval"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    words = np.random.default_rng(0).choice(["in ", "the ", "beginning\n", "was ", "word, "], 400)
    (folder / "text.txt").write_text("".join(words), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def straight(text: Path) -> list[float]:
    alone(text / "straight", 0)
    return losses(text / "straight")


@pytest.mark.parametrize("order", [(alone, together), pytest.param((together, alone), marks=pytest.mark.slow)])
def test_a_run_goes_on_with_another_number_of_processes(order: Any, text: Path, straight: list[float]) -> None:
    out = text / order[0].__name__
    order[0](out, 6)
    assert load(out / "tiny-0001" / "run" / "checkpoints", skipped=never).step == 6  # type: ignore[union-attr]
    order[1](out, 0)
    assert losses(out) == pytest.approx(straight, rel=1e-5)
    assert (out / "tiny-0001" / "model.safetensors").exists()


@pytest.mark.slow
def test_several_processes_refuse_changed_data_as_one_does(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("in the beginning was the word\n" * 60)
    alone(tmp_path / "runs", 6)
    (tmp_path / "text.txt").write_text("in the beginning was the word\n" * 61)
    line = [sys.executable, "-m", "headway", "train", "--resume", str(tmp_path / "runs" / "tiny-0001"), "gpus=2"]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 4 and done.stderr.count("error[D020]") == 1, done.stderr[-2000:]
    line.append("--accept-changed-data")
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_the_stream_is_that_of_one_process(workers: int) -> None:
    ids = np.arange(2000) % 30
    store = TokenStore(ids, np.array([0, len(ids)]), len(ids), None)
    config = TrainConfig(steps=40, batch=10, accumulate=2)
    seen: dict[int, list[list[int]]] = {}
    for size in (1, 2, 3, 4):
        seen[size] = [[] for _ in range(30)]
        for rank in range(size):
            task = LanguageModelTraining(Recipe(seed=1, data=DataConfig(length=16)), TOKENIZER, store, store)
            model = Transformer(decoder_config(ShapeConfig(depth=1, width=16, heads=2), 30, 16))
            world = World(rank, size, torch.device("cpu"))
            loop = Loop(model, task, make_optimizer(model, config, 16), config, task.plan(10), world, workers)
            for step in range(30):
                for batch, used in loop._next_batches():
                    assert batch.tensors[0] is not None and used
                    seen[size][step] += batch.tensors[0].flatten().tolist()
            loop.close()
    assert seen[1] == seen[2] == seen[3] == seen[4]
    assert len(seen[1][0]) == 160 and seen[1][0] != seen[1][1]


@pytest.mark.slow
def test_one_killed_process_ends_the_job(text: Path) -> None:
    """Within 30 seconds, and the last checkpoint is good."""
    out = text / "killed"
    line = [*torchrun_line(2, ["train", "tiny", *SMALL, f"out={out}", f"data.train={text / 'text.txt'}"])]
    line += ["train.steps=1000000", "train.save_every=5"]
    job = subprocess.Popen(line, env=environment(), stderr=subprocess.PIPE, text=True)
    log = out / "tiny-0001" / "run" / "log.jsonl"
    end = time.time() + 120
    while time.time() < end and not (log.exists() and '"save"' in log.read_text()):
        time.sleep(0.1)
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    began = time.time()
    os.kill(int(children[-1]), signal.SIGKILL)
    _, talk = job.communicate(timeout=60)
    assert time.time() - began < 30
    assert job.returncode != 0
    found = load(out / "tiny-0001" / "run" / "checkpoints", skipped=never)
    assert found is not None and found.step >= 5, talk
    run = resume(out / "tiny-0001", never)
    assert run.loop.progress.step == found.step


if __name__ == "__main__":
    torch.set_num_threads(1)
    init_distributed()
    where = Path(sys.argv[1])
    going_on = sys.argv[3] == "resume"
    until(resume(where / "tiny-0001", lambda path, why: None) if going_on else begin(where), int(sys.argv[2]))
    close_distributed()
