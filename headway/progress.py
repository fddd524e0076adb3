"""Progress: one moving line on stderr with bar, rate and time left; and the messages of a training run.

Nothing moves before DELAY seconds have passed. On a terminal the line is redrawn, in a notebook it is an output that is
updated, elsewhere it is a line a minute. There is none with --quiet, with HEADWAY_PROGRESS=0, in worker processes, or
where it is `hidden`. Work inside `collected` shows its bars elsewhere. Nothing is written to stdout.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, TypeVar

from headway.errors import counted

T = TypeVar("T")

DELAY = 2.0
"""Seconds before a line appears: a shorter wait needs no explanation."""
EVERY = 0.2
"""Seconds between two drawings of the line."""
MINUTE = 60.0
"""Seconds between two lines where none can be redrawn."""
WINDOW = 75
"""Drawings over which a rate is measured."""
WIDTH = 20
"""Characters of a bar."""
TIMES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


class Bar:
    """Work that is under way: how much of it is done, out of how much, since when."""

    def __init__(self, label: str, total: int | None, unit: str) -> None:
        self.label, self.total, self.unit = label, total or None, unit
        self.shown = False
        self.done, self.start = 0, time.monotonic()
        self.seen: deque[tuple[float, int]] = deque([(self.start, 0)], maxlen=WINDOW)
        """When how much was done, at the last drawings."""

    def tick(self, count: int = 1) -> None:
        self.done += count

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "done": self.done, "total": self.total, "unit": self.unit}

    def line(self, now: float, moving: bool) -> str:
        """The bar as text; `moving` draws it too, and measures the rate over the last drawings only."""
        (then, before), start = self.seen[0], (self.start, 0)
        self.seen.append((now, self.done))
        begin, already = (then, before) if moving and self.done > before else start
        rate = (self.done - already) / max(now - begin, 1e-9)
        if not self.done:
            return f"{self.label}  {human_time(now - self.start)}"
        if self.total is None:
            return f"{self.label}  {_amount(self.done, self.unit)}  {_amount(rate, '', self.unit)}/s"
        share = min(1.0, self.done / self.total)
        left = f"{human_time((self.total - self.done) / rate)} left" if self.done < self.total else ""
        drawn = f"{_drawn(share)} {share:4.0%}" if moving else f"{share:.0%}"
        of = f"{_amount(self.done, '', self.unit)}/{_amount(self.total, self.unit)}"
        return "  ".join(part for part in (self.label, drawn, of, f"{_amount(rate, '', self.unit)}/s", left) if part)

    @property
    def summary(self) -> str:
        """The bar in few words, beside others."""
        of = f"/{self.total:,}" if self.total and self.unit != "bytes" else ""
        return f"{self.label} {self.done + 1:,}{of}" if of else self.label


class _Screen:
    """The one moving line of this process, whoever has something to show on it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.bars: list[Bar] = []
        self.hidden = 0
        """How many callers want no line now."""
        self.quiet = False
        self.status = ""
        """What comes first on the line: the state of a training run."""
        self.drawn = ""
        """The line that is on the terminal now."""
        self.last = 0.0
        """When a line was last drawn, or printed where none can be redrawn."""
        self.output: tuple[int, Any] | None = None
        """The output that shows the line in a notebook, and the number of its cell: a cell has one."""
        self.thread: threading.Thread | None = None

    @property
    def on(self) -> bool:
        return not (self.quiet or self.hidden or _is_worker() or os.environ.get("HEADWAY_PROGRESS") == "0")

    def add(self, bar: Bar) -> None:
        with self.lock:
            self.bars.append(bar)
            if self.thread is None:
                self.last = max(self.last, bar.start)
                self.thread = threading.Thread(target=self._watch, name="progress", daemon=True)
                self.thread.start()

    def remove(self, bar: Bar) -> None:
        with self.lock:
            if bar in self.bars:
                self.bars.remove(bar)
            if bar.shown:
                self.clear()  # what is printed next begins on an empty line

    def _watch(self) -> None:
        """Draw while there are bars: work that takes long in one call cannot draw itself."""
        while True:
            time.sleep(EVERY)
            with self.lock:
                if not self.bars:
                    self.thread = None
                    return
                self.draw()

    def draw(self) -> None:
        """Show the status and the bars that are old enough, if it is time."""
        now, moving = time.monotonic(), _moves()
        if not self.on or now - self.last < (EVERY * 0.9 if moving else MINUTE):
            return
        shown = [bar for bar in self.bars if now - bar.start >= DELAY]
        for bar in shown:
            bar.shown = True
        short = len(shown) if self.status else max(0, len(shown) - 1)  # a line has room for one bar in full
        parts = [bar.summary for bar in shown[:short]] + [bar.line(now, moving) for bar in shown[short:]]
        if line := "  ".join(part for part in (self.status, " · ".join(parts)) if part):
            self.last = now
            self._put(line, moving)

    def _put(self, line: str, moving: bool) -> None:
        if not moving:
            print(line, file=sys.stderr, flush=True)
            return
        if _in_notebook():
            self._update(line)
            return
        self.drawn = line[: shutil.get_terminal_size().columns - 1]
        print(f"\r{self.drawn}\x1b[K", end="", file=sys.stderr, flush=True)

    def _update(self, line: str) -> None:
        data, cell = {"text/plain": line}, getattr(_shell(), "execution_count", 0)
        if self.output is None or self.output[0] != cell:
            self.output = cell, import_module("IPython.display").display(data, raw=True, display_id=True)
        else:
            self.output[1].update(data, raw=True)

    def clear(self) -> None:
        """Take the moving line away."""
        if self.drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.drawn = ""
        if self.output is not None:
            self._update("")


_SCREEN = _Screen()


def _is_worker() -> bool:
    """Whether this process works for another one, which shows the progress."""
    process = sys.modules.get("multiprocessing.process")  # a process that it has started has imported it
    parent = getattr(process, "parent_process", lambda: None)  # another thread may be importing it just now
    return os.environ.get("RANK", "0") != "0" or parent() is not None


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return getattr(_shell(), "kernel", None) is not None


def _shell() -> Any:
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def _moves() -> bool:
    return sys.stderr.isatty() or _in_notebook()


def _forget() -> None:
    """A forked process has no thread that draws, and the lock may have been held."""
    global _SCREEN
    _SCREEN = _Screen()
    _SCREEN.hidden = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _drawn(share: float) -> str:
    full, empty = ("━", "─") if "utf" in (sys.stderr.encoding or "").lower() or _in_notebook() else ("#", ".")
    return full * round(WIDTH * share) + empty * (WIDTH - round(WIDTH * share))


def _amount(count: float, unit: str, scale: str = "") -> str:
    """A count with its unit: 1,234 rows, 12.3 MB; small rates with a digit more."""
    if "bytes" in (unit, scale):
        return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
    number = f"{count:,.0f}" if count >= 10 or count == int(count) else f"{count:.2g}"
    return f"{number} {unit}" if unit else number


def human_time(seconds: float) -> str:
    """Seconds as people say them: 45 s, 12 min, 2 h 10 min."""
    seconds = max(0, round(seconds))
    big = next((i for i, (size, _) in enumerate(TIMES) if seconds >= size), len(TIMES) - 1)
    size, name = TIMES[big]
    rest = (seconds % size) // TIMES[big + 1][0] if big < 2 else 0
    return f"{seconds // size} {name}" + (f" {rest} {TIMES[big + 1][1]}" if rest else "")


def printable(text: Any) -> str:
    """On one line, without control characters that act on a terminal."""
    return "".join(letter if letter.isprintable() else "·" for letter in str(text))


class Collected:
    """The bars of work that somebody else shows, a page for one. Setting `stop` ends the work at its next tick."""

    def __init__(self) -> None:
        self.bars: list[Bar] = []
        self.stop = False


class Stopped(BaseException):
    """Work that nobody waits for any more. No handler of errors may take it for one."""


_COLLECTED: ContextVar[Collected | None] = ContextVar("collected", default=None)


@contextmanager
def collected(into: Collected) -> Iterator[None]:
    """Bars of this thread go to `into`, and not to the terminal."""
    token = _COLLECTED.set(into)
    try:
        yield
    finally:
        _COLLECTED.reset(token)


@contextmanager
def _bar_of(into: Collected, work: Bar) -> Iterator[Callable[[int], None]]:
    def tick(count: int = 1) -> None:
        work.tick(count)
        if into.stop:
            raise Stopped

    into.bars.append(work)
    try:
        yield tick
    finally:
        into.bars.remove(work)


@contextmanager
def bar(label: str, total: int | None = None, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Show work that may take long; the function that it gives counts what is done.

    Without a total, count and rate are shown; without counts, the time. The unit "bytes" is shown in MB. Whoever prints
    to stdout meanwhile does it `hidden`.
    """
    work = Bar(label, total, unit)
    if (into := _COLLECTED.get()) is not None:
        with _bar_of(into, work) as tick:
            yield tick
        return
    if not _SCREEN.on:
        yield work.tick
        return
    _SCREEN.add(work)
    try:
        yield work.tick
    finally:
        _SCREEN.remove(work)


def track(items: Iterable[T], label: str, total: int | None = None, unit: str = "") -> Generator[T, None, None]:
    """The items, with a bar that counts them; `total` is needed if they have no length."""
    total = len(items) if total is None and isinstance(items, Sized) else total
    with bar(label, total, unit) as tick:
        for item in items:
            yield item
            tick(1)


def say(text: str, end: str = "\n") -> None:
    """Print a message to stderr, above the moving line."""
    with _SCREEN.lock:
        _SCREEN.clear()
        print(text, end=end, file=sys.stderr, flush=True)
        _SCREEN.last = time.monotonic() if end == "\n" and not _moves() else _SCREEN.last


def show_status(text: str) -> None:
    """Show the state of a run on the moving line; empty takes it away."""
    with _SCREEN.lock:
        _SCREEN.status = text
        if text:
            _SCREEN.draw()
        else:
            _SCREEN.clear()


def set_quiet(quiet: bool) -> None:
    """Whether --quiet was given: no moving line from now on."""
    _SCREEN.quiet = quiet


def progress_printer(quiet: bool) -> Callable[..., None]:
    """A function that prints progress messages to stderr; with `quiet` it prints none, and no bar moves either."""
    set_quiet(quiet)
    return (lambda text: None) if quiet else say


def is_shown() -> bool:
    """Whether a moving line may be shown now, here; bars of other libraries follow it."""
    return _SCREEN.on and _moves()


@contextmanager
def hidden() -> Iterator[None]:
    """No moving line meanwhile: for whatever prints to stdout, which may be the same terminal."""
    with _SCREEN.lock:
        _SCREEN.hidden += 1
        _SCREEN.clear()
    try:
        yield
    finally:
        _SCREEN.hidden -= 1


DATA_NOTES = {
    "bad_rows": "bad rows skipped",
    "bad_tests": "bad rows of the test data skipped",
    "shortened": "shortened by their first turns",
    "cut": "truncated",
    "left_out": "too long, skipped",
}
"""Counts in the log's data event → how they are printed."""


class TimeLeft:
    """How long a run still takes, by the clock: its steps, and the evaluations and checkpoints between them."""

    def __init__(self) -> None:
        self.clock = self.seconds = self.share = 0.0
        """Of the last step: when it ended, the seconds of all steps, the share of the budget."""
        self.first: tuple[float, float] | None = None
        """Seconds and share after the first step, which compiles and is no measure of the others."""
        self.between = self.between_share = 0.0
        """Seconds between steps, and the share of the budget at which they were last spent."""

    def after_step(self, now: float, seconds: float, share: float) -> float | None:
        """Seconds that are left after a step; None as long as they are not known."""
        if self.first is None:
            self.first = seconds, share
        else:
            gap = (now - self.clock) - (seconds - self.seconds)
            if gap > 0.1 * (seconds - self.seconds):  # an evaluation or a checkpoint, and no noise
                self.between, self.between_share = self.between + gap, self.share
        self.clock, self.seconds, self.share = now, seconds, share
        begin, at = self.first
        if share <= at:
            return None
        between = self.between / (self.between_share - at) if self.between_share > at else 0.0
        return (1 - min(share, 1.0)) * ((seconds - begin) / (share - at) + between)


class Display:
    """Prints a run's events to stderr; with `quiet` nothing, and no bar of the run moves either."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        set_quiet(quiet)
        self.loss = float("nan")
        self.left = TimeLeft()

    def report(self, kind: str, **facts: Any) -> None:
        if not self.quiet and (show := getattr(self, f"_{kind}", None)):
            show(**facts)

    def _start(self, parameters: int, trained: int, folder: str, world: int, **_: Any) -> None:
        where = f" in {world} processes" if world > 1 else ""
        some = f", {trained / 1e6:.2f}M of them trained" if trained < parameters else ""
        say(f"{folder}: {parameters / 1e6:.2f}M parameters{some}{where}")

    def _chosen(self, line: str, **_: Any) -> None:
        say(line)

    def _restart(self, step: int, folder: str, **_: Any) -> None:
        say(f"{folder}: resumed at step {step:,}")

    def _data(self, tokens: int, valid_tokens: int, documents: int = 1, vocab: int = 0, **facts: Any) -> None:
        texts = f"{documents:,} documents, " if documents > 1 else ""
        words = f", vocabulary {vocab:,}" if vocab else ""
        lost = {said: facts[name] for name, said in DATA_NOTES.items() if facts.get(name)}
        notes = "".join(f", {n:,} {said if n > 1 else said.replace('rows', 'row')}" for said, n in lost.items())
        read = f"{counted(tokens, 'training tokens')}, {counted(valid_tokens, 'validation tokens')}"
        say(f"{texts}{read}{words}{notes}")
        for note in facts.get("notes", ()):
            say(f"note: {note}")

    def _step(self, step: int, loss: float, tokens: int, seconds: float, share: float, **_: Any) -> None:
        self.loss = loss if self.loss != self.loss else 0.95 * self.loss + 0.05 * loss
        left = self.left.after_step(time.monotonic(), seconds, share)
        rate = f"{tokens / max(seconds, 1e-9):,.0f} tokens/s" + (f"  {human_time(left)} left" if left else "")
        show_status(f"step {step:,}  loss {_decimals(self.loss)}  {rate}")

    def _estimate(self, seconds: float, steps: int, step_seconds: float, memory: int, **_: Any) -> None:
        each = f"{step_seconds:.1f} s" if step_seconds >= 0.1 else f"{1e3 * step_seconds:.0f} ms"
        pace = f"{steps:,} steps of {each}, {memory / 1e9:.1f} GB of memory"
        say(f"about {human_time(seconds)} on this machine ({pace}); Ctrl-C saves")

    def _spike(self, step: int, loss: float, usual: float, **_: Any) -> None:
        say(f"step {step:,}  loss {_decimals(loss)}: a spike above the mean of {_decimals(usual)}")

    def _nan(self, step: int, action: str, where: str = "", **_: Any) -> None:
        say(f"step {step:,}  not finite: {action}{f' ({where})' if where else ''}")

    def _test(self, step: int, **metrics: float) -> None:
        say(_metrics(metrics))

    def _sink(self, problem: str, **_: Any) -> None:
        say(f"a log sink failed and is dropped: {problem}")

    def _eval(self, step: int, **metrics: float) -> None:
        say(f"step {step:,}  loss {_decimals(self.loss)}  {_metrics(metrics)}")

    def _sample(self, text: str, **_: Any) -> None:
        dim, plain = ("\x1b[2m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
        for line in _whole([line for line in text.splitlines() if line.strip()]):
            say(f"  {dim}{printable(line.expandtabs())[:100]}{plain}")

    def _kept(self, step: int, best: int, early: int, **_: Any) -> None:
        why = f"no improvement in {counted(early, 'evaluations')}, stopped at step {step:,}; " if early else ""
        if why or best != step:
            say(f"{why}kept the best weights, of step {best:,}")

    def _end(self, step: int, seconds: float, mfu: float | None = None, **_: Any) -> None:
        use = f", {mfu:.0%} of the device's peak" if mfu else ""
        show_status("")
        say(f"{counted(step, 'steps')} in {seconds:.0f} s{use}")


def _whole(lines: list[str], room: int = 6) -> list[str]:
    """As many lines as fit, without an example that would be incomplete."""
    if len(lines) <= room:
        return lines
    begins = [i for i, line in enumerate(lines) if not line.startswith((" ", "→"))]
    return lines[: max((i for i in begins if 0 < i <= room), default=room)]


def _metrics(metrics: dict[str, float]) -> str:
    """Metrics with their names on one line."""
    return "  ".join(f"{name.replace('_', ' ')} {_decimals(value)}" for name, value in metrics.items())


def _decimals(value: float) -> str:
    """Three decimals, or two digits of a value that three would hide."""
    return f"{value:.1e}" if 0 < abs(value) < 0.0005 else f"{value:.3f}"
