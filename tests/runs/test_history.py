"""Runs read back: what counts after a restart, what a damaged log still tells, and which run a name means."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import NotFoundError
from headway.hub.run_names import resolve_run
from headway.runs.events import EventLog, as_count, as_float, read_events, smooth, smoothing_window
from headway.runs.history import find_runs, read_run
from headway.train import checkpoint
from tests.runs.conftest import KEYS, KINDS, NOON, event, finished, steps, towards, write_run

ROOT = Path(__file__).resolve().parents[2]


def test_a_finished_run(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "tiny-0001", finished()))
    facts = run.facts
    assert (run.name, run.status, run.problem, run.task) == ("tiny-0001", "finished", "", "lm")
    assert run.steps["step"].tolist() == list(range(1, 101))
    assert run.steps["loss"][:2].tolist() == [3.0, 2.5]
    assert (facts.steps, facts.tokens, facts.train_seconds, facts.tokens_per_second) == (100, 1000.0, 10.0, 100.0)
    assert (facts.wall_seconds, facts.started, facts.parameters, facts.bad_lines) == (100.0, NOON, 1234.0, 0)
    assert facts.best_eval is run.evals[-1] and facts.last_eval is run.evals[-1]
    assert [e["step"] for e in run.evals] == [25, 50, 75, 100]
    assert [e["text"] for e in run.samples] == [f"text after {n}" for n in (25, 50, 75, 100)]
    assert [e["event"] for e in run.events] == ["start", *["save"] * 4, "end"]
    assert facts.size == sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
    assert (run.setting("train.lr"), run.setting("train.nothing"), run.setting("seed.x")) == (0.002, None, None)


def test_the_loss_at_the_end_is_that_of_the_smoothed_curve(tmp_path: Path) -> None:
    noisy = [event("step", step=n, loss=2.0 + (n % 2)) for n in range(1, 401)]
    run = read_run(write_run(tmp_path / "r", [event("start", step=0), *noisy]))
    assert run.facts.loss == pytest.approx(2.5, abs=0.1)


def test_a_model_that_grew_is_known_by_its_last_size(tmp_path: Path) -> None:
    log = [event("start", step=0, parameters=5), event("restart", step=0, parameters=6), event("restart", step=0)]
    assert read_run(write_run(tmp_path / "r", log)).facts.parameters == 6


def test_the_best_evaluation_is_the_one_that_the_run_went_by(tmp_path: Path) -> None:
    losses = (3.0, 2.5, 2.4, 2.39)
    run = read_run(write_run(tmp_path / "a", towards("accuracy", (0.5, 0.9, 0.9, 0.7), losses)))
    assert run.facts.primary_metric == "accuracy" and run.facts.best_eval is run.evals[1], "the first of equals"
    assert run.facts.lowest_eval is run.evals[3]
    falling = read_run(write_run(tmp_path / "b", towards("mse", (0.5, 0.9, 0.2, 0.7), losses, rising=False)))
    assert falling.facts.best_eval is falling.evals[2]
    log = towards("accuracy", (0.5, 0.9, 0.9, 0.7), losses)
    for one in log:
        one.pop("accuracy", None)
    without = read_run(write_run(tmp_path / "c", log))
    assert without.facts.primary_metric == "valid" and without.facts.best_eval is without.evals[3], (
        "no evaluation has it"
    )


def test_the_best_evaluation_is_the_lowest_not_the_last(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "r", finished([3.0, 2.0, 2.5, 2.2])))
    assert run.facts.best_eval is run.evals[1]
    assert run.facts.last_eval is run.evals[3]


# --- restarts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["start", "restart"])
def test_after_a_restart_the_later_lines_count(tmp_path: Path, kind: str) -> None:
    log = [
        event("start", time=NOON, step=0, parameters=5),
        *steps(1, 30),
        event("eval", step=20, valid=9.0),
        event("eval", step=30, valid=1.0),
        event("save", step=20),
        event("spike", step=29),
        event("best", step=30, valid=1.0),
        event("sample", step=30, text="old"),
        event(kind, time=NOON + 5000, step=20),
        *steps(21, 25, loss=7.0),
    ]
    run = read_run(write_run(tmp_path / "r", log))
    assert run.steps["step"].tolist() == list(range(1, 26))
    assert run.steps["loss"][20] == pytest.approx(7 + 1 / 21)
    assert [e["step"] for e in run.evals] == [20] and run.samples == []
    assert run.facts.best_eval == run.evals[0]
    assert [e["event"] for e in run.events] == ["start", "save", kind]
    assert (run.facts.parameters, run.sessions, run.status) == (5, 2, "stopped")


@pytest.mark.parametrize("kind", ["start", "restart"])
def test_a_restart_counts_before_its_first_step(tmp_path: Path, kind: str) -> None:
    run = read_run(write_run(tmp_path / "r", [*steps(1, 30), event("eval", step=30, valid=1.0), event(kind, step=20)]))
    assert (run.facts.steps, run.evals) == (20, [])


def test_a_rewind_without_a_word_is_seen_by_its_steps(tmp_path: Path) -> None:
    log = [
        *steps(1, 30),
        event("nan", step=30, action="rewind"),
        *steps(11, 12, loss=5.0),
        event("eval", step=12, valid=1),
    ]
    run = read_run(write_run(tmp_path / "r", [*log, event("eval", step=12, valid=2)]))
    assert run.steps["step"].tolist() == list(range(1, 13))
    assert len(run.events_of("nan")) == 1, "what happened stays in the record"
    assert [e["valid"] for e in run.evals] == [2]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.booleans()), max_size=6))
def test_restarts_equal_a_plain_replay(sessions: list[tuple[int, int, bool]]) -> None:
    """Slow twin: a dict from which everything after the point of a restart is dropped."""
    log, plain, mark = EventLog(), dict[int, float](), 0.0
    for back, more, said in sessions:
        at = min(back, max(plain, default=0))
        if said:
            log.add(event("restart", step=at))
            plain = {n: v for n, v in plain.items() if n <= at}
        for n in range(at + 1, at + 1 + more):
            mark += 1
            log.add(event("step", step=n, loss=mark))
            plain = {m: v for m, v in plain.items() if m < n} | {n: mark}
    columns = log.columns()
    assert columns["step"].tolist() == list(plain)
    assert columns["loss"].tolist() == list(plain.values())


def test_time_between_sessions_does_not_count(tmp_path: Path) -> None:
    log = [
        event("start", time=NOON, step=0), event("save", time=NOON + 10, step=1),
        event("restart", time=NOON + 9000, step=1), event("end", time=NOON + 9007, step=2, signal=0),
    ]  # fmt: skip
    assert read_run(write_run(tmp_path / "r", log)).facts.wall_seconds == 17


def test_a_clock_set_back_takes_no_time_away(tmp_path: Path) -> None:
    log = [
        event("start", time=NOON),
        event("save", time=NOON + 10),
        event("save", time=NOON - 90),
        event("x", time=NOON - 85),
    ]
    assert read_run(write_run(tmp_path / "r", log)).facts.wall_seconds == 15


def test_sessions_are_counted_once(tmp_path: Path) -> None:
    both = [event("start", step=0), event("start", step=5), event("restart", step=5), event("restart", step=9)]
    run = read_run(write_run(tmp_path / "r", [*both, event("start", step=0, device="b", torch="2")]))
    assert run.sessions == 4
    twice = write_run(tmp_path / "s", [event("start", device="a", python="3"), event("restart", device="b")])
    assert read_run(twice).session["device"] == "b"
    assert read_run(twice).session["python"] == "3"


# --- logs as they are found ---------------------------------------------------------------------


def test_half_a_last_line_is_left_out(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "r", [*steps(1, 3), b'{"event": "step", "step": 4, "lo']))
    assert run.steps["step"].tolist() == [1, 2, 3]
    assert (run.facts.bad_lines, run.status) == (1, "stopped")


def test_a_line_written_on_half_a_line_is_found(tmp_path: Path) -> None:
    torn = b'{"event": "step", "step": 4, "lo' + json.dumps(event("restart", step=2)).encode() + b"\n"
    run = read_run(write_run(tmp_path / "r", [*steps(1, 3), torn, *steps(3, 4, loss=8.0)]))
    assert run.steps["step"].tolist() == [1, 2, 3, 4]
    assert run.steps["loss"][2] == pytest.approx(8 + 1 / 3)
    assert run.sessions == 1


def test_characters_that_python_takes_for_line_ends_stay_in_their_line(tmp_path: Path) -> None:
    text = "a\u2028b\x85c\x1cd\x0be\rf"
    run = read_run(write_run(tmp_path / "r", [event("sample", step=1, text=text), *steps(1, 2)]))
    assert (run.samples[0]["text"], len(run.steps["step"]), run.facts.bad_lines) == (text, 2, 0)


@pytest.mark.parametrize(
    "line",
    [b"\n", b"null\n", b"[1]\n", b'"step"\n', b"{}\n", b'{"event": 3}\n', b"\xff\xfe\n", b"[" * 9000 + b"\n",
     b'{"event": "step", "step": ' + b"9" * 5000 + b"}\n", b'{"step": 1}\n'],
)  # fmt: skip
def test_a_line_that_is_no_event_is_passed_over(tmp_path: Path, line: bytes) -> None:
    run = read_run(write_run(tmp_path / "r", [*steps(1, 2), line, *steps(3, 4)]))
    assert run.steps["step"].tolist() == [1, 2, 3, 4]
    assert run.facts.bad_lines == 1


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.runs.events.LINE_LIMIT", 100)
    folder = write_run(tmp_path / "r", [b"x" * 1000 + b"\n", *steps(1, 1)])
    assert len(list(read_events(folder / "run" / "log.jsonl"))) > 10, "it is read in pieces"


def test_values_that_are_no_numbers_are_missing(tmp_path: Path) -> None:
    odd = [event("step", step=1, loss="2"), event("step", step=2, loss=True), event("step", step=3, loss=math.inf)]
    more = [event("step", step=4, loss=10**400), event("step", step=5), event("step", step=-1), event("step", loss=1.0)]
    more += [event("step", step=10**300, loss=1.0), event("step", step=6, loss=[1]), event("step", step=7, loss=7)]
    run = read_run(write_run(tmp_path / "r", odd + more))
    assert run.steps["step"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert np.isnan(run.steps["loss"][:6]).all() and run.steps["loss"][6] == 7
    assert (as_float(True), as_float("1"), as_float(math.nan), as_float(10**400), as_float(2)) == (
        None,
        None,
        None,
        None,
        2.0,
    )
    assert (as_count(3.0), as_count(-1), as_count(2**53), as_count(None)) == (3, None, None, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.builds(
    lambda kind, facts: {"event": kind, **facts},
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(KEYS), JSON | st.integers(0, 9), max_size=5),
)


@settings(max_examples=40)
@given(st.lists(EVENTS | st.binary(max_size=20), max_size=12))
def test_no_log_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, log: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("fuzz") / "run-0001"
    write_run(folder, [line + b"\n" if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in log])
    run = read_run(folder)
    assert run.status in ("finished", "stopped", "diverged", "broken")
    assert (np.diff(run.steps["step"]) > 0).all()


# --- status -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "status"),
    [
        (finished(), "finished"),
        ([event("start", step=0)], "stopped"),
        ([event("start", step=0), event("end", step=3, signal=15)], "stopped"),
        ([*finished(), event("restart", step=100)], "stopped"),
        ([event("start"), event("nan", step=3, action="stop")], "diverged"),
        ([event("start"), event("nan", step=3)], "diverged"),
        ([event("start"), event("nan", step=3, action="stop"), event("end", signal=0)], "diverged"),
        ([event("start"), event("nan", step=3, action="stop"), event("restart", step=0)], "stopped"),
        ([event("start"), event("nan", step=3, action="skip"), event("end", signal=0)], "finished"),
        ([], "broken"),
        ([b"rubbish\n"], "broken"),
    ],
)
def test_status(tmp_path: Path, log: list[Any], status: str) -> None:
    assert read_run(write_run(tmp_path / "r", log)).status == status
    if status != "finished":
        assert read_run(write_run(tmp_path / "s", log, weights=False)).status == status, "weights come at the end"


def test_broken_runs_say_why(tmp_path: Path) -> None:
    no_recipe = read_run(write_run(tmp_path / "a", finished(), recipe=None))
    assert (no_recipe.status, no_recipe.problem) == ("broken", "no such file: run/recipe.toml")
    bad_recipe = read_run(write_run(tmp_path / "b", finished(), recipe="task = "))
    assert bad_recipe.status == "broken" and "not valid TOML" in bad_recipe.problem
    no_weights = read_run(write_run(tmp_path / "c", finished(), weights=False))
    assert no_weights.status == "broken" and "no weights" in no_weights.problem
    (write_run(tmp_path / "d") / "run" / "log.jsonl").unlink()
    assert read_run(tmp_path / "d").problem == "no such file: run/log.jsonl"
    (tmp_path / "e" / "run" / "log.jsonl").mkdir(parents=True)
    (tmp_path / "e" / "run" / "recipe.toml").write_text("")
    assert "cannot be read" in read_run(tmp_path / "e").problem
    with pytest.raises(NotFoundError, match="F001"):
        read_run(tmp_path / "nowhere")


def test_a_held_lock_means_running(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", [event("start", step=0), *steps(1, 3)], recipe="broken =")
    with checkpoint.RunLock(folder / "run"):
        assert read_run(folder).status == "running"
        with pytest.raises(Exception, match="C030"), checkpoint.RunLock(folder / "run"):
            pass
    assert read_run(folder).status == "broken"
    with checkpoint.RunLock(folder / "run"):
        pass  # looking at a run leaves its lock free


# --- which runs there are -----------------------------------------------------------------------


def runs_at(out: Path, *names: str) -> None:
    for name in sorted(names):
        write_run(out / name, finished())
    for age, name in enumerate(names):
        os.utime(out / name / "run" / "recipe.toml", (NOON + age, NOON + age))


def test_runs_come_newest_first(tmp_path: Path) -> None:
    runs_at(tmp_path, "b-0001", "a-0001", "c-0001")
    (tmp_path / "not-a-run").mkdir()
    (tmp_path / "file").write_text("")
    write_run(tmp_path / "b-0002.partial-77", finished())
    assert [run.name for run in find_runs(tmp_path)] == ["c-0001", "a-0001", "b-0001"]
    assert resolve_run("last", tmp_path) == tmp_path / "c-0001"
    assert find_runs(tmp_path / "nowhere") == []


def test_a_damaged_run_is_listed_among_the_others(tmp_path: Path) -> None:
    runs_at(tmp_path, "good-0001")
    (tmp_path / "bad-0001" / "run").mkdir(parents=True)
    os.utime(tmp_path / "bad-0001" / "run", (NOON + 9, NOON + 9))
    assert {run.name: run.status for run in find_runs(tmp_path)} == {"good-0001": "finished", "bad-0001": "broken"}
    assert resolve_run("last", tmp_path).name == "good-0001", "a run without a recipe is nobody's last one"


def test_a_folder_that_cannot_be_listed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFoundError, match="cannot be read"):
        find_runs(tmp_path / "file")


def test_names_and_prefixes_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "runs"
    runs_at(out, "tiny-0001", "tiny-0002", "lm-0001", "lm-00010")
    monkeypatch.chdir(tmp_path)
    assert resolve_run("tiny-0001", Path("runs")) == Path("runs/tiny-0001")
    assert resolve_run("lm-0001", Path("runs")) == Path("runs/lm-0001"), "a whole name before a beginning"
    assert resolve_run("runs/tiny-0002", Path("elsewhere")) == Path("runs/tiny-0002")
    assert resolve_run(str(out / "lm-0001"), Path("runs")) == out / "lm-0001"
    with pytest.raises(NotFoundError, match="F001") as caught:
        resolve_run("tiny", out)
    assert caught.value.hint.endswith(": tiny-0002, tiny-0001")
    runs_at(out, "word-0001")
    assert resolve_run("wo", out) == out / "word-0001"


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("tiny-001", 'no run tiny-001 in runs — did you mean "tiny-0001"?', "there are: tiny-0001"),
        ("zzz", "no run zzz in runs", "there are: tiny-0001"),
        ("", "no run  in runs", "there are: tiny-0001"),
        ("\x1b[2J", "no run '\\x1b[2J' in runs", "there are: tiny-0001"),
    ],
)
def test_a_run_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str, hint: str
) -> None:
    runs_at(tmp_path / "runs", "tiny-0001")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError) as caught:
        resolve_run(name, Path("runs"))
    assert (caught.value.code, caught.value.message, caught.value.hint) == ("F001", message, hint)


def test_no_runs_at_all(tmp_path: Path) -> None:
    for name in ("last", "tiny"):
        with pytest.raises(NotFoundError) as caught:
            resolve_run(name, tmp_path)
        assert caught.value.hint == "start one: headway train tiny"


def test_reading_runs_does_not_bring_torch() -> None:
    import subprocess

    code = "import sys, headway.report.model_card, headway.runs.prune; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


# --- smoothing ----------------------------------------------------------------------------------


def slow_mean(values: list[float], window: int) -> list[float]:
    found = []
    for i in range(len(values)):
        near = [v for v in values[max(0, i - (window - 1) // 2) : i + window // 2 + 1] if math.isfinite(v)]
        found.append(sum(near) / len(near) if near else math.nan)
    return found


@given(st.lists(st.floats(-100, 100) | st.just(math.nan), max_size=40), st.integers(1, 12))
def test_smoothing_equals_the_mean_of_a_mean(values: list[float], window: int) -> None:
    first = window // 2 + 1
    expected = slow_mean(slow_mean(values, first), window - first + 1)
    assert smooth(np.array(values, dtype=np.float64), window).tolist() == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_how_much_is_smoothed() -> None:
    assert [smoothing_window(n) for n in (0, 10, 79, 80, 4000)] == [1, 1, 1, 2, 100]
    values = np.array([1.0, 5.0, 2.0])
    assert smooth(values).tolist() == values.tolist(), "a short curve stays as it is"
