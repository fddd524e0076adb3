"""Optional copies of a run's log: TensorBoard, Weights & Biases, trackio. log.jsonl is always written.

An error in a sink never ends the run: the sink is dropped, and the log says so once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
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

    def __init__(self, package: Any, folder: Path, run_name: str, config: Mapping[str, Any], step: int) -> None:
        # A resumed run hides what was logged after the step that it continues from.
        self._writer = package.SummaryWriter(str(folder / "run" / "tensorboard"), purge_step=step or None)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandB:
    """A run of Weights & Biases: files under run/wandb, uploaded only if WANDB_MODE is set."""

    def __init__(self, package: Any, folder: Path, run_name: str, config: Mapping[str, Any], step: int) -> None:
        mode = {} if os.environ.get("WANDB_MODE") else {"mode": "offline"}
        project, place = os.environ.get("WANDB_PROJECT") or PROJECT, str(folder / "run")
        self._run = package.init(project=project, name=run_name, dir=place, config=dict(config), **mode)
        self._run.define_metric("*", step_metric="step")  # wandb's own counter cannot go back after a resume

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "step": step})

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """A run of trackio, in its local store."""

    def __init__(self, package: Any, folder: Path, run_name: str, config: Mapping[str, Any], step: int) -> None:
        self._package = package
        self._package.init(project=PROJECT, name=run_name, config=dict(config))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._package.log(dict(values), step=step)

    def close(self) -> None:
        self._package.finish()


TRACKERS: dict[str, tuple[str, Callable[[Any, Path, str, Mapping[str, Any], int], Tracker]]] = {
    "tensorboard": ("torch.utils.tensorboard", TensorBoard),
    "wandb": ("wandb", WandB),
    "trackio": ("trackio", Trackio),
}
"""Name → its module, and the class that opens it."""


class Sink:
    """A tracker that opens at the first event, and whose errors do not reach the run."""

    def __init__(self, name: str, open_tracker: Callable[[int], Tracker], log: Path) -> None:
        self.name, self.problem = name, ""
        """`problem` says why the sink was dropped; empty while it works."""
        self._open, self._log = open_tracker, log
        self._tracker: Tracker | None = None

    def write(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Pass on the numbers of an event that belongs to a step."""
        step, values = facts.get("step"), scalars(kind, facts)
        if self.problem or not values or not isinstance(step, int):
            return
        try:
            if self._tracker is None:
                self._tracker = self._open(step)
            self._tracker.write(step, values)
        except Exception as error:
            self._drop(step, error)

    def close(self) -> None:
        if self._tracker is not None and not self.problem:
            try:
                self._tracker.close()
            except Exception as error:
                self._drop(None, error)

    def _drop(self, step: int | None, error: Exception) -> None:
        self.problem = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if self._tracker is not None:
            with suppress(Exception):
                self._tracker.close()
        with suppress(OSError, HeadwayError):
            log = Log(self._log)
            log.write("sink", step=step, name=self.name, problem=self.problem)
            log.close()


def open_sinks(names: Sequence[str], folder: Path, run_name: str, config: Mapping[str, Any]) -> list[Sink]:
    """The sinks of a recipe. One that is unknown or not installed is an error; one that fails later is dropped."""
    sinks = []
    for name in dict.fromkeys(names):
        if name not in TRACKERS:
            what = f"train.sinks: there is no sink {name!r}{nearest(name, TRACKERS)}"
            raise ConfigError("C003", what, f"the sinks are {', '.join(TRACKERS)}")
        module, tracker = TRACKERS[name]
        try:
            package = import_module(module)
        except ImportError:
            raise NotFoundError("F003", f"{name} is not installed", f"pip install {name}") from None
        opened = partial(tracker, package, folder, run_name, config)
        sinks.append(Sink(name, opened, folder / "run" / "log.jsonl"))
    return sinks


def scalars(kind: str, facts: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an event, by `kind/name`."""
    return {
        f"{kind}/{name}": float(value)
        for name, value in facts.items()
        if name not in ("step", "time") and isinstance(value, Real) and not isinstance(value, bool)
    }
