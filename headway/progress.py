"""Progress messages of a training run: a moving line on a terminal, and lines that stay."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

from headway.errors import counted

DATA_NOTES = {
    "bad_rows": "bad rows skipped",
    "bad_tests": "bad rows of the test data skipped",
    "shortened": "shortened by their first turns",
    "cut": "truncated",
    "left_out": "too long, skipped",
}
"""Counts in the log's data event → how they are printed."""


class Display:
    """Prints a run's events to stderr."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.live = quiet, sys.stderr.isatty()
        self.drawn = 0.0
        self.loss = float("nan")

    def report(self, kind: str, **facts: Any) -> None:
        if not self.quiet and (show := getattr(self, f"_{kind}", None)):
            show(**facts)

    def _start(self, parameters: int, trained: int, folder: str, world: int, **_: Any) -> None:
        where = f" in {world} processes" if world > 1 else ""
        some = f", {trained / 1e6:.2f}M of them trained" if trained < parameters else ""
        self._say(f"{folder}: {parameters / 1e6:.2f}M parameters{some}{where}")

    def _chosen(self, line: str, **_: Any) -> None:
        self._say(line)

    def _restart(self, step: int, folder: str, **_: Any) -> None:
        self._say(f"{folder}: resumed at step {step:,}")

    def _data(self, tokens: int, valid_tokens: int, documents: int = 1, vocab: int = 0, **facts: Any) -> None:
        texts = f"{documents:,} documents, " if documents > 1 else ""
        words = f", vocabulary {vocab:,}" if vocab else ""
        lost = {said: facts[name] for name, said in DATA_NOTES.items() if facts.get(name)}
        notes = "".join(f", {n:,} {said if n > 1 else said.replace('rows', 'row')}" for said, n in lost.items())
        read = f"{counted(tokens, 'training tokens')}, {counted(valid_tokens, 'validation tokens')}"
        self._say(f"{texts}{read}{words}{notes}")

    def _step(self, step: int, loss: float, tokens: int, seconds: float, share: float, **_: Any) -> None:
        self.loss = loss if self.loss != self.loss else 0.95 * self.loss + 0.05 * loss
        if not self.live or time.perf_counter() - self.drawn < 0.2:
            return
        self.drawn = time.perf_counter()
        left = seconds * (1 / share - 1) if share > 0 else 0.0
        line = f"step {step:,}  loss {self.loss:.3f}  {tokens / max(seconds, 1e-9):,.0f} tokens/s  {left:.0f} s left"
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{line[:width]:{width}}", end="", file=sys.stderr, flush=True)

    def _spike(self, step: int, loss: float, usual: float, **_: Any) -> None:
        self._say(f"step {step:,}  loss {loss:.3f}: a spike above the mean of {usual:.3f}")

    def _nan(self, step: int, action: str, where: str = "", **_: Any) -> None:
        self._say(f"step {step:,}  not finite: {action}{f' ({where})' if where else ''}")

    def _test(self, step: int, **metrics: float) -> None:
        self._say(_metrics(metrics))

    def _sink(self, problem: str, **_: Any) -> None:
        self._say(f"a log sink failed and is dropped: {problem}")

    def _eval(self, step: int, **metrics: float) -> None:
        self._say(f"step {step:,}  loss {self.loss:.3f}  {_metrics(metrics)}")

    def _sample(self, text: str, **_: Any) -> None:
        dim, plain = ("\x1b[2m", "\x1b[0m") if self.live else ("", "")
        for line in _whole(text.strip().splitlines()):
            self._say(f"  {dim}{line[:100]}{plain}")

    def _kept(self, step: int, best: int, early: int, **_: Any) -> None:
        why = f"no improvement in {counted(early, 'evaluations')}, stopped at step {step:,}; " if early else ""
        if why or best != step:
            self._say(f"{why}kept the best weights, of step {best:,}")

    def _end(self, step: int, seconds: float, mfu: float | None = None, **_: Any) -> None:
        use = f", {mfu:.0%} of the device's peak" if mfu else ""
        self._say(f"{counted(step, 'steps')} in {seconds:.0f} s{use}")

    def _say(self, text: str) -> None:
        clear = f"\r{' ' * (shutil.get_terminal_size().columns - 1)}\r" if self.live else ""
        print(clear + text, file=sys.stderr, flush=True)


def _whole(lines: list[str], room: int = 6) -> list[str]:
    """As many lines as fit, without an example that would be incomplete."""
    if len(lines) <= room:
        return lines
    begins = [i for i, line in enumerate(lines) if not line.startswith((" ", "→"))]
    return lines[: max((i for i in begins if 0 < i <= room), default=room)]


def _metrics(metrics: dict[str, float]) -> str:
    """Metrics with their names on one line."""
    return "  ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in metrics.items())
