"""Sinks: each tracker gets the numbers in its own way, and none of them can hurt a run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headway.errors import ConfigError, NotFoundError
from headway.runs.events import read_events
from headway.train.log.events import Log
from headway.train.log.sinks import Sink, open_sinks, scalars

EVENTS = (
    ("start", {"step": 0, "parameters": 9, "folder": "runs/x"}),
    ("step", {"step": 1, "loss": 2.5, "lr": 0.1, "time": 5.0}),
    ("eval", {"step": 1, "valid": 2.25}),
    ("sample", {"step": 1, "text": "abc"}),
    ("data", {"tokens": 5}),
)


class Recorder:
    """Stands in for a package: remembers every call, and fails where it is told to."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.fails = fails

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, arguments, named))
            if name == self.fails:
                raise RuntimeError("out of order\nwith details")
            return self

        return call

    def named(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(arguments, named) for called, arguments, named in self.calls if called == name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path


def install(monkeypatch: pytest.MonkeyPatch, name: str, fails: str = "") -> Recorder:
    recorder = Recorder(fails)
    module: Any = ModuleType(name)
    for call in ("init", "log", "finish", "SummaryWriter"):
        setattr(module, call, getattr(recorder, call))
    monkeypatch.setitem(sys.modules, name, module)
    return recorder


def play(sinks: list[Sink]) -> None:
    for kind, facts in EVENTS:
        for sink in sinks:
            sink.write(kind, facts)
    for sink in sinks:
        sink.close()


def test_tensorboard(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, "torch.utils.tensorboard")
    play(open_sinks(["tensorboard"], folder, "x-0001", {"seed": 1}))
    assert recorder.named("SummaryWriter") == [((str(folder / "run" / "tensorboard"),), {"purge_step": None})]
    assert [arguments for arguments, _ in recorder.named("add_scalar")] == [
        ("start/parameters", 9.0, 0),
        ("step/loss", 2.5, 1),
        ("step/lr", 0.1, 1),
        ("eval/valid", 2.25, 1),
    ]
    assert recorder.calls[-1][0] == "close"


def test_tensorboard_hides_what_a_resumed_run_does_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, "torch.utils.tensorboard")
    (sink,) = open_sinks(["tensorboard"], folder, "x-0001", {})
    sink.write("restart", {"step": 40, "parameters": 9})
    assert recorder.named("SummaryWriter")[0][1] == {"purge_step": 40}


def test_tensorboard_closed_before_any_event(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, "torch.utils.tensorboard")
    (sink,) = open_sinks(["tensorboard"], folder, "x-0001", {})
    sink.close()
    assert (recorder.calls, sink.problem) == ([], "")


@pytest.mark.parametrize(
    ("env", "expected"),
    [({}, {"mode": "offline", "project": "headway"}), ({"WANDB_MODE": "online"}, {"project": "headway"}),
     ({"WANDB_PROJECT": "mine"}, {"mode": "offline", "project": "mine"}),
     ({"WANDB_API_KEY": "k"}, {"mode": "offline", "project": "headway"})],
)  # fmt: skip
def test_wandb_sends_nothing_unless_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], expected: dict[str, str]
) -> None:
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    recorder = install(monkeypatch, "wandb")
    play(open_sinks(["wandb"], folder, "x-0001", {"seed": 1}))
    ((_, named),) = recorder.named("init")
    assert named == {"name": "x-0001", "dir": str(folder / "run"), "config": {"seed": 1}, **expected}
    assert recorder.named("define_metric") == [(("*",), {"step_metric": "step"})]
    assert [arguments[0] for arguments, _ in recorder.named("log")] == [
        {"start/parameters": 9.0, "step": 0},
        {"step/loss": 2.5, "step/lr": 0.1, "step": 1},
        {"eval/valid": 2.25, "step": 1},
    ]
    assert recorder.calls[-1][0] == "finish"


def test_trackio(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, "trackio")
    play(open_sinks(["trackio"], folder, "x-0001", {"seed": 1}))
    assert recorder.named("init") == [((), {"project": "headway", "name": "x-0001", "config": {"seed": 1}})]
    assert recorder.named("log")[1] == (({"step/loss": 2.5, "step/lr": 0.1},), {"step": 1})
    assert recorder.calls[-1][0] == "finish"


# --- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb"), ("trackio", "trackio")]
)
def test_a_package_that_is_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotFoundError) as caught:
        open_sinks([name], folder, "x-0001", {})
    assert (caught.value.code, caught.value.hint) == ("F003", f"pip install {name}")


def test_nothing_is_opened_when_a_package_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, "trackio")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(NotFoundError):
        open_sinks(["trackio", "wandb"], folder, "x-0001", {})
    assert not recorder.calls


def test_a_name_nobody_knows(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r'C003.*"tensorboard"'):
        open_sinks(["tensorbord"], folder, "x-0001", {})


def test_a_name_given_twice_is_opened_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = install(monkeypatch, "trackio")
    play(open_sinks(["trackio", "trackio"], folder, "x-0001", {}))
    assert len(recorder.named("init")) == 1


@pytest.mark.parametrize(("fails", "step"), [("log", 0), ("init", 0), ("finish", None)])
def test_a_failure_is_told_once_and_hurts_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fails: str, step: int | None
) -> None:
    broken, sound = install(monkeypatch, "trackio", fails), install(monkeypatch, "wandb")
    log = Log(folder / "run" / "log.jsonl")
    log.write("start", step=0)
    sinks = open_sinks(["trackio", "wandb"], folder, "x-0001", {})
    play(sinks)
    log.write("end", step=1)
    log.close()
    first, told, last = read_events(folder / "run" / "log.jsonl")
    assert (first["event"], last["event"]) == ("start", "end")
    del told["time"]
    assert told == {"event": "sink", "step": step, "name": "trackio", "problem": "RuntimeError: out of order"}
    assert (sinks[0].problem, sinks[1].problem) == ("RuntimeError: out of order", "")
    assert len(broken.named(fails)) == (2 if fails == "finish" else 1), "nothing more is asked of it, but to close"
    assert len(sound.named("log")) == 3
    if fails == "log":
        assert broken.calls[-1][0] == "finish" and len(broken.named("finish")) == 1


def test_a_folder_that_is_gone_does_not_matter_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "trackio", "log")
    (sink,) = open_sinks(["trackio"], tmp_path / "nowhere", "x-0001", {})
    sink.write("step", {"step": 1, "loss": 2.0})
    assert sink.problem == "RuntimeError: out of order"


def test_an_interrupt_is_not_swallowed(folder: Path) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    tracker = SimpleNamespace(write=interrupt, close=lambda: None)
    sink = Sink("x", lambda step: tracker, folder / "run" / "log.jsonl")
    with pytest.raises(KeyboardInterrupt):
        sink.write("step", {"step": 1, "loss": 2.0})


def test_only_numbers_go_out() -> None:
    facts = {"step": 3, "time": 1.0, "loss": 2, "norm": np.float32(0.5), "n": np.int64(4), "ok": True, "text": "x",
             "none": None, "list": [1], "bad": float("nan")}  # fmt: skip
    found = scalars("step", facts)
    assert list(found) == ["step/loss", "step/norm", "step/n", "step/bad"]
    assert (found["step/loss"], found["step/norm"], found["step/n"]) == (2.0, 0.5, 4.0)
    assert all(type(value) is float for value in found.values())


@pytest.mark.slow
def test_the_real_tensorboard(folder: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sinks = open_sinks(["tensorboard"], folder, "x-0001", {})
    play(sinks)
    assert sinks[0].problem == ""
    read = EventAccumulator(str(folder / "run" / "tensorboard"))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("step/loss")] == [(1, 2.5)]
    assert set(read.Tags()["scalars"]) == {"start/parameters", "step/loss", "step/lr", "eval/valid"}
