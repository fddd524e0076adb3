"""Optional copies of a run's log: TensorBoard, Weights & Biases, trackio. log.jsonl is always written.

An error in a sink never ends the run: the sink is dropped, and the log says so once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any, Protocol

from headway.errors import ConfigError, HeadwayError, NotFoundError, nearest
from headway.train.log.events import Log

PROJECT = "headway"
"""The project that runs belong to, unless the environment names another."""


class Tracker(Protocol):
    """What a sink needs of a tracker; both methods may raise anything."""

    def write(self, step: int, values: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    """Event files under run/tensorboard, for `tensorboard --logdir runs`."""

    def __init__(self, folder: Path, run_name: str, config: Mapping[str, Any]) -> None:
        self._make = _package("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self._folder = str(folder / "run" / "tensorboard")
        self._writer: Any = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is None:  # the first step is known only now: a resumed run hides what was logged after it
            self._writer = self._make(self._folder, purge_step=step or None)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WandB:
    """A run of Weights & Biases: files under run/wandb, uploaded only if WANDB_MODE is set."""

    def __init__(self, folder: Path, run_name: str, config: Mapping[str, Any]) -> None:
        mode = {} if os.environ.get("WANDB_MODE") else {"mode": "offline"}
        project = os.environ.get("WANDB_PROJECT") or PROJECT
        package, place = _package("wandb"), str(folder / "run")
        self._run = package.init(project=project, name=run_name, dir=place, config=dict(config), **mode)
        self._run.define_metric("*", step_metric="step")  # wandb's own counter cannot go back after a resume

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "step": step})

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """A run of trackio, in its local store."""

    def __init__(self, folder: Path, run_name: str, config: Mapping[str, Any]) -> None:
        self._package = _package("trackio")
        self._package.init(project=PROJECT, name=run_name, config=dict(config))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._package.log(dict(values), step=step)

    def close(self) -> None:
        self._package.finish()


TRACKERS: dict[str, Callable[[Path, str, Mapping[str, Any]], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "trackio": Trackio,
}


class Sink:
    """A tracker whose errors do not reach the run."""

    def __init__(self, name: str, tracker: Tracker, log: Path) -> None:
        self.name, self.problem = name, ""
        """`problem` says why the sink was dropped; empty while it works."""
        self._tracker, self._log = tracker, log

    def write(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Pass on the numbers of an event that belongs to a step."""
        step, values = facts.get("step"), scalars(kind, facts)
        if self.problem or not values or not isinstance(step, int):
            return
        try:
            self._tracker.write(step, values)
        except Exception as error:
            self._drop(step, error)

    def close(self) -> None:
        if not self.problem:
            try:
                self._tracker.close()
            except Exception as error:
                self._drop(None, error)

    def _drop(self, step: int | None, error: Exception) -> None:
        self.problem = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        with suppress(Exception):
            self._tracker.close()
        with suppress(OSError, HeadwayError):
            log = Log(self._log)
            log.write("sink", step=step, name=self.name, problem=self.problem)
            log.close()


def open_sinks(names: Sequence[str], folder: Path, run_name: str, config: Mapping[str, Any]) -> list[Sink]:
    """Open a recipe's sinks. An unknown or missing one is an error; one that fails to start is dropped."""
    for name in names:
        if name not in TRACKERS:
            what = f"train.sinks: there is no sink {name!r}{nearest(name, TRACKERS)}"
            raise ConfigError("C003", what, f"the sinks are {', '.join(TRACKERS)}")
    opened: list[Sink] = []
    for name in dict.fromkeys(names):
        try:
            tracker = TRACKERS[name](folder, run_name, config)
        except NotFoundError:
            for sink in opened:
                sink.close()
            raise
        except Exception as error:
            tracker = _Failed(error)
        opened.append(Sink(name, tracker, folder / "run" / "log.jsonl"))
    return opened


class _Failed:
    """A tracker that failed to start: the first event reports why."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def write(self, step: int, values: Mapping[str, float]) -> None:
        raise self._error

    def close(self) -> None:
        pass


def scalars(kind: str, facts: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an event, by `kind/name`."""
    return {
        f"{kind}/{name}": float(value)
        for name, value in facts.items()
        if name not in ("step", "time") and isinstance(value, Real) and not isinstance(value, bool)
    }


def _package(module: str, install: str = "") -> Any:
    install = install or module
    try:
        return import_module(module)
    except ImportError:
        raise NotFoundError("F003", f"{install} is not installed", f"pip install {install}") from None
