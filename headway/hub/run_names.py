"""Runs by name: `last`, a name or the beginning of one, a folder; and a step of a run (`RUN@STEP`). No torch here."""

from __future__ import annotations

import fcntl
import logging
import os
import re
from functools import cache
from pathlib import Path

from headway.config.recipe import RUNS
from headway.errors import NotFoundError, nearest
from headway.hub.checkpoint import MANIFEST, STEP, SUFFIX, checkpoints_of, run_steps, step_folders
from headway.jsonfile import show

LOCK = "run.lock"
"""The file in a run's folder `run` that its trainer locks."""
LAST, BEST = "last", "best"
SHOWN = 5
"""The most names or steps that an error lists."""
START = "start one: headway train tiny"


def run_folders(out: Path) -> list[Path]:
    """The folders of the runs in a folder, oldest first."""
    try:
        inside = (path for path in out.iterdir() if ".partial-" not in path.name)
        return sorted((path for path in inside if (path / "run").is_dir()), key=_age)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NotFoundError("F001", f"{show(out)}: cannot be read: {error.strerror or error}") from None


def resolve_run(name: str, out: Path) -> Path:
    """The folder of a run, by path, by `last`, by its name or by the beginning of its name."""
    if (found := named_run(name, out) or run_beginning(name, out)) is not None:
        return found
    names = [path.name for path in run_folders(out)]
    if (checkpoint := named_checkpoint(name, out)) is not None:
        run = name.rpartition("@")[0]
        hint = f"name the run: {show(run)}; run, eval, export, check and serve take {show(name)}"
        raise NotFoundError("F001", f"{show(name)} is the model of step {step_of(checkpoint)}, not a run", hint)
    if os.path.isdir(place := os.path.expanduser(name)):
        if inside := run_folders(Path(place)):
            hint = f"name one of them: {_listed([str(path) for path in inside])}"
            raise NotFoundError("F001", f"{show(name)} is a folder of runs, not a run", hint)
        hint = f"runs are in {show(out)}: {_listed(names)}" if names else START
        raise NotFoundError("F001", f"{show(name)} is not a run: it has no folder `run`", hint)
    hint = f"there are: {_listed(names)}" if names else START
    raise NotFoundError("F001", f"no run {show(name)} in {show(out)}{nearest(name, [LAST, *names])}", hint)


def named_run(name: str, out: Path) -> Path | None:
    """A run by path, by `last` or by its full name; None if there is none. `last` without runs is an error."""
    if name == LAST:
        if not (known := [path for path in run_folders(out) if (path / "run" / "recipe.toml").exists()]):
            raise NotFoundError("F001", f"`last` is the newest run, and there are no runs in {show(out)}", START)
        return known[-1]
    if not name or "\0" in name:
        return None
    places = [Path(os.path.expanduser(name)), *([] if "/" in name else [out / name])]
    return next((place for place in places if os.path.isdir(place / "run")), None)


def run_beginning(name: str, out: Path) -> Path | None:
    """The only run whose name begins so; None if there is none, an error if there are several."""
    matching = [path for path in run_folders(out) if name and path.name.startswith(name)]
    if len(matching) > 1:
        what = f"{len(matching)} runs begin with {show(name)}"
        raise NotFoundError("F001", what, f"give the full name: {_listed([path.name for path in matching])}")
    return matching[0] if matching else None


def named_checkpoint(name: str, out: Path = Path(RUNS)) -> Path | None:
    """The checkpoint that `RUN@STEP` or `RUN@best` names; None if the part before @ is not a run."""
    head, at, step = name.rpartition("@")
    if not at or not head or (run := named_run(head, out) or run_beginning(head, out)) is None:
        return None
    paths = step_folders(checkpoints_of(run))
    if step == BEST:
        return _best(run, paths)
    if re.fullmatch(r"[0-9]{1,18}", step) and (found := [path for path in paths if step_of(path) == int(step)]):
        return found[0]
    what = f"{show(run)} has no checkpoint of step {show(step)}"
    raise NotFoundError("F001", what, f"there are: {steps_listed(run)}" if paths else "it has none yet")


def _best(run: Path, paths: list[Path]) -> Path:
    """The newest checkpoint, which also holds the best weights if the run keeps them."""
    if paths and (paths[0] / f"{BEST}{SUFFIX}").exists():
        return paths[0]
    what = f"{show(run)} has no best weights" + (": it does not keep them" if paths else ", nor any other yet")
    hint = f"train with train.keep_best=true, or take a step: {steps_listed(run)}"
    raise NotFoundError("F001", what, hint if paths else "")


def steps_listed(run: Path) -> str:
    """The steps that can stand after @, newest last."""
    return ", ".join(f"@{step}" for step in run_steps(run)[-SHOWN:])


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name[5:])


def is_checkpoint(place: Path) -> bool:
    """Whether a folder is a checkpoint of a run."""
    return bool(STEP.fullmatch(place.name)) and (place / MANIFEST).is_file()


def run_of(place: Path) -> Path:
    """The run that a checkpoint belongs to; any other folder is returned as it is."""
    if not is_checkpoint(place):
        return place
    return (place if len(place.parts) > 3 else place.absolute()).parents[2]


def is_unfinished(place: Path) -> bool:
    """Whether a folder is a run without a model: stopped, diverged, or still training."""
    return not has_model(place) and (place / "run" / "recipe.toml").is_file()


def has_model(place: Path) -> bool:
    """Whether a folder has a model of its own, or an adapter."""
    return any((place / name).is_file() for name in ("config.json", "adapter.json"))


def is_running(folder: Path) -> bool:
    """Whether a trainer holds the run's lock; the system releases the lock when the process ends."""
    try:
        handle = os.open(folder / "run" / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)
    return False


def unfinished_note(run: Path, step: int) -> str:
    """Which weights stand in for those of a run that did not finish."""
    state = "is still training" if is_running(run) else "did not finish"
    return f"{show(run)} {state}: using its last checkpoint, of step {step}"


@cache
def note(text: str) -> None:
    """Say once on stderr which weights are used, or are not."""
    logging.getLogger("headway").warning("%s", text)


def _listed(names: list[str]) -> str:
    return ", ".join(show(name) for name in names[::-1][:SHOWN])


def _age(folder: Path) -> tuple[float, str]:
    """The sort key of runs: when the recipe was written; then the name."""
    for path in (folder / "run" / "recipe.toml", folder / "run", folder):
        try:
            return path.stat().st_mtime, folder.name
        except OSError:
            continue
    return 0.0, folder.name
