"""Small runs for the tests of training: started, stopped after a step, trained to the end."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.runs.events import read_events
from headway.tasks.recipe import load_recipe
from headway.train.checkpoint import Snapshot
from headway.train.run import Run, start, train

SMALL = [
    *("model.depth=1", "model.width=16", "model.heads=2", "data.length=16", "train.batch=4", "train.steps=6"),
    *("train.eval_every=6", "train.sample_every=6", "train.save_every=3", "train.warmup=2"),
]
TEXT = "the quick brown fox jumps over the lazy dog, é 漢 🙂\n" * 30


def quiet(kind: str, **facts: Any) -> None:
    """A report that reports nothing."""


def never(path: Path, why: str) -> None:
    """For `load` and `resume`: no checkpoint may be skipped."""
    pytest.fail(f"{path} was skipped: {why}")


def begin(folder: Path, *words: str, recipe: str = "tiny") -> Run:
    """A run on folder/text.txt, in folder/runs, with words on top."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "text.txt").exists():
        (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    data = [f"data.train={folder / 'text.txt'}", f"out={folder / 'runs'}"]
    return start(*load_recipe(recipe, [*SMALL, *data, *words]))


def stop_after(run: Run, step: int) -> Run:
    """Train until a signal comes in a step."""

    def report(kind: str, **facts: Any) -> None:
        if kind == "step" and facts["step"] == step:
            run.loop.received_signal = signal.SIGTERM

    train(run, report)
    assert run.loop.progress.step == step
    return run


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The events of one kind in a run's log."""
    return [event for event in read_events(folder / "run" / "log.jsonl") if event["event"] == kind]


def losses(folder: Path) -> list[float]:
    return [event["loss"] for event in events(folder, "step")]


def same_snapshot(left: Snapshot | None, right: Snapshot) -> bool:
    """Equal to the bit: steps, states, names, dtypes, shapes and values."""

    def same(a: torch.Tensor, b: torch.Tensor) -> bool:
        as_bytes = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b)]
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*as_bytes)

    if (
        left is None
        or (left.step, left.state) != (right.step, right.state)
        or left.tensors.keys() != right.tensors.keys()
    ):
        return False
    pairs = [(left.tensors[stem], right.tensors[stem]) for stem in left.tensors]
    return all(a.keys() == b.keys() and all(same(a[name], b[name]) for name in a) for a, b in pairs)
