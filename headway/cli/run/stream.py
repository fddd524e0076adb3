"""Inputs of `headway run` from files and pipes, and the results of a model that generates for them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from io import UnsupportedOperation
from typing import TYPE_CHECKING, Any, BinaryIO

from headway.api.results import open_results
from headway.errors import counted
from headway.progress import bar, is_shown

if TYPE_CHECKING:
    from pathlib import Path

    from headway.config.recipe import DataConfig
    from headway.data.files.rows import BadRows
    from headway.tasks.base import Task
    from headway.tasks.inputs import Item
    from headway.tasks.recipe import Recipe

Say = Callable[..., None]
BATCH_SIZE = 32
"""Prompts of a file that are generated for in one batch."""


def source_windows(
    task: Task, source: str, data: DataConfig, bad: BadRows, size: int = 0, **how: Any
) -> Iterator[tuple[list[Item], bool]]:
    """Inputs of a file or of stdin (-), some at a time; and whether results need the file's name."""
    from headway.data.datasets.raw import raw_files
    from headway.tasks import inputs

    if source == "-":
        for window in inputs.live_windows(task.inputs(_stdin(), data, bad, **how), size or inputs.WINDOW):
            yield window, False
        return
    files = raw_files(source) if data.raw else task.files(source)
    total = len(files) if len(files) > 1 and task.takes != "text" else _count_lines(files) if is_shown() else None
    with bar("predicting", total, "rows") as tick:
        for window in inputs.windows(task.inputs(source, data, bad, **how), size or inputs.WINDOW):
            yield window, len(files) > 1
            tick(len(window))


def _count_lines(files: Sequence[Path]) -> int | None:
    """About as many rows as the files have; None if lines do not tell."""
    from headway.data.files.locate import file_format

    if not all(
        file_format(path) in (("text", False), ("csv", False), ("tsv", False), ("jsonl", False)) for path in files
    ):
        return None
    count = 0
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                count += chunk.count(b"\n")
    return count


def _stdin() -> BinaryIO:
    """A duplicate of stdin: at exit Python closes its own and aborts if a thread still waits for a line of it."""
    try:
        return open(os.dup(sys.stdin.fileno()), "rb")
    except UnsupportedOperation:  # stdin is not a file
        return sys.stdin.buffer


def stdin_is_piped() -> bool:
    """Whether stdin is a pipe or a file."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (UnsupportedOperation, OSError, ValueError, AttributeError):  # closed, or not a file
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def check_some(done: int, bad: BadRows, source: str) -> None:
    """No result at all is an error."""
    if not done:
        raise bad.no_rows("stdin" if source == "-" else source, "texts")


def print_count(done: int, bad: BadRows, out: str, say: Say) -> None:
    """Report how many inputs were answered."""
    say(counted(done, "results") + (f" in {out}" if out else ""))
    report_bad_rows(bad, say)


def report_bad_rows(bad: BadRows, say: Say) -> None:
    if bad.count:
        say("\n".join([f"{counted(bad.count, 'rows')} skipped:", *bad.first]))


def generate_file(
    bundle: Any, task: Task, source: str, out: str, recipe: Recipe, sampling: Any, say: Say, *, firm: bool, score: bool
) -> None:
    """The continuation, or the log-probability, of each text of a file or a pipe."""
    from headway.data.files.lines import read_as
    from headway.data.files.rows import BadRows
    from headway.tasks.inputs import located
    from headway.tasks.predictor import RunOptions, predict_good

    predictor = task.load_predictor()(bundle, recipe, RunOptions(score=score, sampling=sampling))
    bad, done = BadRows(recipe.data.bad_rows), 0
    with read_as(recipe.data.encoding), open_results(out) as write:
        for window, files in source_windows(task, source, recipe.data, bad, BATCH_SIZE, firm=firm):
            for good, found in predict_good(predictor, window, bad):
                write(located(task, good, found, files=files))
                done += len(good)
        check_some(done, bad, source)
    print_count(done, bad, out, say)
