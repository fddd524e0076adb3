"""The moving line of whatever takes long, and the messages of a training run."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headway import progress
from headway.progress import Bar, Display, TimeLeft, bar, hidden, human_time, say, show_status, track
from headway.train.log.cost import LONG_RUN, Estimate


class Terminal(io.StringIO):
    """A terminal that remembers what was written, and can say what is to be seen."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        return seen(self.getvalue())


def seen(written: str) -> list[str]:
    """The lines that a terminal shows after all this was written to it."""
    lines, at = [""], 0
    for part in written.replace("\x1b[K", "\0"):
        if part == "\n":
            lines, at = [*lines, ""], 0
        elif part == "\r":
            at = 0
        elif part == "\0":
            lines[-1] = lines[-1][:at]
        else:
            lines[-1], at = lines[-1][:at] + part + lines[-1][at + 1 :], at + 1
    return lines


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lines appear at once."""
    for name, value in (("DELAY", 0.0), ("EVERY", 0.01), ("_SCREEN", progress._Screen())):
        monkeypatch.setattr(progress, name, value)
    monkeypatch.delenv("HEADWAY_PROGRESS", raising=False)
    yield
    until(lambda: progress._SCREEN.thread is None)


@pytest.fixture
def terminal(quick: None, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    # pytest sets sys.stderr anew before the test itself begins
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=made, modules=sys.modules))
    return made


def until(true: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (59.6, "1 min"),
        (45, "45 s"),
        (119, "1 min"),
        (720, "12 min"),
        (7800, "2 h 10 min"),
        (7200, "2 h"),
        (90000, "1 d 1 h"),
        (86400, "1 d"),
        (-3, "0 s"),
    ],
)
def test_times_as_people_say_them(seconds: float, said: str) -> None:
    assert human_time(seconds) == said


@pytest.mark.parametrize(
    ("total", "unit", "done", "words"),
    [
        (200, "rows", 50, ["reading", " 25%", "50/200 rows", "5/s", "30 s left"]),
        (200, "rows", 200, ["100%", "200/200 rows", "20/s"]),
        (None, "rows", 1234, ["reading", "1,234 rows", "123/s"]),
        (None, "rows", 3, ["3 rows", "0.3/s"]),
        (None, "bytes", 25_000_000, ["25.0 MB", "2.5 MB/s"]),
        (10**9, "bytes", 5 * 10**8, ["50%", "500.0 MB/1.00 GB", "50.0 MB/s", "10 s left"]),
        (200, "rows", 0, ["reading  10 s"]),
        (0, "rows", 5, ["5 rows"]),
    ],
)
def test_what_a_bar_says(total: int | None, unit: str, done: int, words: list[str]) -> None:
    work = Bar("reading", total, unit)
    work.tick(done)
    for moving in (False, True):
        line = work.line(work.start + 10, moving)
        assert all(word.strip() in line for word in words), line
        assert ("━" in line or "#" in line) == (moving and bool(total and done))


def test_a_rate_is_that_of_the_last_drawings() -> None:
    work = Bar("reading", 1000, "rows")
    for second in range(2 * progress.WINDOW):
        work.tick(1 if second < 2 else 10)  # the beginning is slow
        line = work.line(work.start + second + 1, True)
    assert "10/s" in line


def test_the_line_moves_and_is_gone_at_the_end(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    for row in track(range(3), "reading", unit="rows"):
        until(lambda n=row: f"{n}/3 rows" in terminal.lines[-1] if n else "reading" in terminal.lines[-1])  # type: ignore[misc]
    assert terminal.lines == [""] and capsys.readouterr().out == ""


def test_work_that_never_counts_shows_the_time(terminal: Terminal) -> None:
    with bar("compiling"):
        until(lambda: "compiling  0 s" in terminal.lines[-1])


def test_nothing_is_shown_of_short_work(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 60.0)
    with bar("reading") as tick:
        tick(1)
        time.sleep(0.1)
    assert terminal.getvalue() == ""


def test_bars_inside_others_share_the_line(terminal: Terminal) -> None:
    with bar("comparing", 6, "runs") as outer:
        outer(1)
        with bar("evaluating", 100, "rows") as inner:
            inner(40)
            until(lambda: "40/100 rows" in terminal.lines[-1])
            assert "comparing 2/6 · evaluating" in terminal.lines[-1] and len(terminal.lines) == 1
        until(lambda: "1/6 runs" in terminal.lines[-1])
    assert terminal.lines == [""]


def test_a_long_line_is_cut_to_the_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    with bar("a label that is longer than a small terminal is wide"):
        until(lambda: terminal.lines[-1])
        assert terminal.lines == ["a label that is lon"]


def test_messages_stay_above_the_line(terminal: Terminal) -> None:
    with bar("reading"):
        until(lambda: terminal.lines[-1])
        say("a message")
        until(lambda: "reading" in terminal.lines[-1])
        assert terminal.lines[:-1] == ["a message"]
    assert terminal.lines == ["a message", ""]


def test_results_on_the_same_terminal_are_not_broken(terminal: Terminal) -> None:
    with bar("predicting") as tick:
        for row in range(3):
            until(lambda: "predicting" in terminal.lines[-1])
            with hidden():
                terminal.write(f"result {row}, ")
                time.sleep(0.05)
                terminal.write("whole\n")
            tick(1)
    assert terminal.lines == [*(f"result {row}, whole" for row in range(3)), ""]


@pytest.mark.parametrize("why", ["quiet", "environment", "rank", "hidden"])
def test_nothing_is_shown_where_none_is_wanted(why: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "environment":
        monkeypatch.setenv("HEADWAY_PROGRESS", "0")
    elif why == "rank":
        monkeypatch.setenv("RANK", "1")
    progress.set_quiet(why == "quiet")
    progress._SCREEN.hidden = int(why == "hidden")
    assert not progress.is_shown()
    for _ in track(range(2), "reading"):
        time.sleep(0.05)
    show_status("step 1")
    assert terminal.getvalue() == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_draws_nothing_and_does_not_hang(terminal: Terminal) -> None:
    with bar("reading"), progress._SCREEN.lock:  # a thread may hold the lock at the fork
        if not (child := os.fork()):
            with bar("inside"):
                time.sleep(0.05)
            os._exit(7 if "inside" in terminal.getvalue() else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_a_line_a_minute_where_none_can_move(
    quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "MINUTE", 0.05)
    with bar("reading", 100, "rows") as tick:
        tick(25)
        time.sleep(0.3)
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert 1 <= len(lines) <= 6 and said.out == ""
    assert all(line.startswith("reading  25%  25/100 rows") and "\r" not in line for line in lines)


def test_before_the_first_minute_there_is_no_line(quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    with bar("reading"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_a_notebook_has_an_output_that_is_updated(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Any:
        shown.append(f"new: {data['text/plain']}")
        return handle

    shell = SimpleNamespace(kernel=object(), execution_count=1)
    kernel = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", kernel)  # type: ignore[misc]
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))  # type: ignore[misc]
    with bar("reading", 10, "rows") as tick:
        tick(5)
        until(lambda: len(shown) > 2)
    assert shown[0].startswith("new: reading") and shown[-1] == "" and not any("new" in line for line in shown[1:])
    assert all("5/10 rows" in line for line in shown[1:-1])
    for cell in (1, 2):  # one output for each cell
        shell.execution_count, before = cell, len(shown)
        with bar("again"):
            until(lambda n=before: len(shown) > n)  # type: ignore[misc]
        assert shown[before].startswith("new: again" if cell == 2 else "again")


INTERRUPTED = """
import sys, time
from headway import progress
from headway.cli import app as cli
progress.DELAY, progress.EVERY = 0, 0.01

@cli.app.command()
def wait() -> None:
    with progress.bar("reading"):
        time.sleep(0.3)
        print("ready", flush=True)
        time.sleep(60)

cli.main(["wait"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no terminals of its own")
def test_an_interrupt_leaves_a_clean_terminal() -> None:
    import pty

    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stderr=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130
    written = b""
    while chunk := _read(ours):
        written += chunk
    os.close(ours)
    child.stdout.close()
    assert b"reading" in written
    assert seen(written.decode().replace("\r\n", "\n")) == ["stopped", ""]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other side has closed it
        return b""


@pytest.mark.parametrize("shown", [True, False])
def test_the_hubs_own_bars_agree(shown: bool, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars

    from headway.data.files.locate import hub_errors

    progress.set_quiet(not shown)
    with hub_errors("org/name", None):
        assert are_progress_bars_disabled() is not shown
        time.sleep(0.05)
    assert "org/name" not in terminal.getvalue()  # one line, not two
    enable_progress_bars()


# --- training


def test_time_left_counts_what_happens_between_steps() -> None:
    """100 steps of 1 s, an evaluation of 10 s after every 10; the first step compiles for 60 s."""
    left, clock, found = TimeLeft(), 60.0, list[float | None]()
    for step in range(1, 51):
        clock += 1.0 if step > 1 else 0.0
        found.append(left.after_step(clock, 59.0 + step, step / 100))
        clock += 10.0 if step % 10 == 0 else 0.0
    assert found[0] is None and found[5] == pytest.approx(94)  # no evaluation was seen yet
    assert found[-1] == pytest.approx(50 + 5 * 10, rel=0.1)


def test_the_state_of_a_run_is_on_the_line(terminal: Terminal) -> None:
    show = Display(False).report
    for step in (1, 2):
        show("step", step=step, loss=2.0, tokens=100 * step, seconds=1.0 * step, share=step / 1000)
        time.sleep(0.02)
    assert "step 2  loss 2.000  100 tokens/s" in terminal.lines[-1] and "16 min left" in terminal.lines[-1]
    with bar("evaluating", 4, "batches") as tick:
        tick(1)
        until(lambda: terminal.lines[-1].endswith("16 min left  evaluating 2/4"))
        assert terminal.lines[-1].startswith("step 2 ")
    show("end", step=2, seconds=2.0)
    assert terminal.lines == ["2 steps in 2 s", ""]


def test_a_long_run_is_estimated_once() -> None:
    estimate = Estimate()
    found = [estimate.after_step(step, 30.0 + 2.0 * step, step / 1200) for step in range(1, 20)]
    made = [each for each in found if each is not None]
    assert len(made) == 1 and found.index(made[0]) <= 5
    assert made[0]["seconds"] == pytest.approx(2400, rel=0.02)  # the first step took 30 s longer
    assert made[0]["step_seconds"] == pytest.approx(2.0) and made[0]["steps"] == pytest.approx(1200, rel=0.02)


def test_a_short_run_and_few_steps_are_not_estimated() -> None:
    short, few = Estimate(), Estimate()
    assert not any(short.after_step(step, step * LONG_RUN / 1000, step / 900) for step in range(1, 900))
    assert not any(few.after_step(step, 0.1 * step, step / 1e6) for step in range(1, 20))


def test_a_small_loss_is_not_hidden(capfd: pytest.CaptureFixture[str]) -> None:
    Display(False).report("test", step=1, test=0.00012, accuracy=0.9871, rate=0.0, gap=-0.0004)
    assert capfd.readouterr().err == "test 1.2e-04  accuracy 0.987  rate 0.000  gap -4.0e-04\n"


def test_an_estimate_as_it_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    Display(False).report("estimate", step=4, seconds=2400.0, steps=1200, step_seconds=2.0, memory=3_100_000_000)
    said = capfd.readouterr().err
    assert all(part in said for part in ("40 min", "1,200 steps of 2.0 s", "3.1 GB", "Ctrl-C"))
    Display(False).report("estimate", step=4, seconds=200.0, steps=10000, step_seconds=0.02, memory=1)
    assert "20 ms" in capfd.readouterr().err
    Display(True).report("estimate", step=4, seconds=200.0, steps=10000, step_seconds=0.02, memory=1)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([line for i in range(3) for line in (f"text {i}", "  → nothing", f"  in truth {i}")], 6),
        ([f"line {i}" for i in range(9)], 6),
        (["a", *["  more"] * 9], 6),
        (["a", "b"], 2),
    ],
)
def test_examples_are_shown_whole(lines: list[str], shown: int, capfd: pytest.CaptureFixture[str]) -> None:
    Display(False).report("sample", text="\n".join(lines))
    assert capfd.readouterr().err.splitlines() == [f"  {line}" for line in lines[:shown]]


def test_a_sample_is_text_only(capfd: pytest.CaptureFixture[str]) -> None:
    """A young model generates control characters, too."""
    Display(False).report("sample", text="a prompt\n→ \x1b[2Jb\u202eé漢\x07\r\n\n \n  \tc")
    assert capfd.readouterr().err == "  a prompt\n  → ·[2Jb·é漢·\n          c\n"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"step": 9, "best": 9, "early": 0}, []),
        ({"step": 30, "best": 20, "early": 0}, ["step 20"]),
        ({"step": 30, "best": 20, "early": 2}, ["2 evaluations", "step 30", "step 20"]),
    ],
)
def test_which_weights_are_kept(facts: dict[str, int], words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    Display(False).report("kept", **facts)
    said = capfd.readouterr().err
    assert all(word in said for word in words) and bool(said) == bool(words)


def test_rows_that_were_lost_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    show = Display(False).report
    show("data", tokens=1000, valid_tokens=10, bad_rows=0, shortened=0, cut=0, left_out=0)
    assert capfd.readouterr().err == "1,000 training tokens, 10 validation tokens\n"
    show("data", tokens=1000, valid_tokens=10, vocab=9, bad_rows=1, shortened=2000, cut=3, left_out=4)
    said = capfd.readouterr().err
    assert all(part in said for part in ("vocabulary 9", ", 1 bad row ", ", 2,000 short", ", 3 trunc", ", 4 too long"))
    show("data", tokens=1000, valid_tokens=10, notes=["a.csv: 1 gap", "a.csv: constant columns: x"])
    assert capfd.readouterr().err.splitlines()[1:] == ["note: a.csv: 1 gap", "note: a.csv: constant columns: x"]


def test_a_module_that_another_thread_is_importing_stops_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "multiprocessing.process", SimpleNamespace())  # what is seen halfway
    assert not progress._is_worker()


def test_a_process_of_a_pool_shows_nothing(quick: None) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(progress.is_shown) is False and pool.apply(progress._is_worker) is True
    assert not progress._is_worker()
