"""Inputs of `headway run` from files and pipes, and results as JSON lines."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from io import UnsupportedOperation
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from headway.config.recipe import DataConfig
    from headway.data.files.rows import BadRows
    from headway.tasks.inputs import Columns, TaskInput

Say = Callable[..., None]
BATCH_SIZE = 32
"""Prompts of a file that are generated for in one batch."""


def source_windows(
    source: str, columns: Columns, bad: BadRows, size: int = 0
) -> Iterator[tuple[list[TaskInput], bool]]:
    """Windows of inputs from a file or stdin, and whether results need the file's name (there are several files)."""
    from headway.data.files.locate import find_files
    from headway.tasks import inputs

    if source == "-":
        pipe = inputs.read_pipe(_stdin(), columns, bad)
        for window in inputs.pipe_windows(pipe, size or inputs.WINDOW):
            yield window, False
        return
    files = len(find_files(source)) > 1
    for window in inputs.windows(inputs.read_inputs(source, columns, bad), size or inputs.WINDOW):
        yield window, files


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


def print_results(good: Sequence[TaskInput], found: Sequence[Any], *, files: bool, pairs: bool = False) -> None:
    from headway.tasks.inputs import located

    for row in located(good, found, files=files, pairs=pairs):
        print(json.dumps(row, ensure_ascii=False))
    sys.stdout.flush()


def print_count(done: int, bad: BadRows, source: str, say: Say) -> None:
    """Report how many inputs were answered; none at all is an error."""
    if not done:
        raise bad.no_rows("stdin" if source == "-" else source, "texts")
    say(f"{done:,} {'result' if done == 1 else 'results'}")
    report_bad_rows(bad, say)


def report_bad_rows(bad: BadRows, say: Say) -> None:
    if bad.count:
        say("\n".join([f"{bad.count:,} {'row' if bad.count == 1 else 'rows'} skipped:", *bad.first]))


def generate_file(bundle: Any, source: str, data: DataConfig, values: Any, say: Say, *, score: bool) -> None:
    """Continue each prompt of a file, or score each text."""
    from headway.data.files.rows import BadRows
    from headway.tasks.inputs import Columns
    from headway.tasks.predictions import predict_good

    def predict(inputs: Sequence[TaskInput]) -> list[dict[str, Any]]:
        texts = [item.text for item in inputs]
        if not score:
            return [{"new": new} for new in bundle.generate(texts, values)]
        return [
            {"log_probability": s.log_probability, "tokens": s.tokens, "perplexity": s.perplexity}
            for s in bundle.score(texts)
        ]

    bad, done = BadRows(data.bad_rows), 0
    for window, files in source_windows(source, Columns(text=data.text), bad, BATCH_SIZE):
        for good, found in predict_good(predict, window, bad):
            print_results(good, found, files=files)
            done += len(good)
    print_count(done, bad, source, say)
