"""The report: it stands alone, hides nothing, runs nothing that a log brings, and says what the numbers say."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import MemoryOrDiskError
from headway.report.charts import Scale
from headway.report.curves import MARKS, event_steps
from headway.report.page import script_text
from headway.report.report import gather, json_value, render, shown_evals, shown_samples, write_report
from headway.runs.history import History, read_run
from tests.runs.conftest import HOSTILE, KEYS, KINDS, NOON, Page, event, finished, steps, towards, write_run

LIMIT = 2_000_000


def read(tmp_path: Path, log: list[Any], **more: Any) -> History:
    return read_run(write_run(tmp_path / "run-0001", log, **more))


def page_of(run: History) -> Page:
    return Page(render(run, gather(run)))


# --- the page -----------------------------------------------------------------------------------


def test_it_writes_a_page_and_its_facts(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "tiny-0001", finished(mfu=0.41, peak_memory=3e9, flops=1e15))
    path = write_report(folder)
    assert path == folder / "run" / "report.html"
    assert sorted(p.name for p in path.parent.iterdir()) == ["log.jsonl", "recipe.toml", "report.html", "report.json"]
    facts = json.loads((folder / "run" / "report.json").read_text())
    page = Page(path.read_text(encoding="utf-8"))
    assert not page.open, "every element is closed"
    assert facts["format"] == 1
    assert facts["evaluations"][0] == {"step": 25, "valid": 3.0, "bits_per_byte": 1.5}
    assert facts["numbers"]["best_valid"] == 2.39 and facts["cost"]["mfu"] == 0.41
    assert facts["recipe"]["train"]["lr"] == 0.002
    for words in (
        "tiny-0001", "finished", *facts["verdict"], "2.390", "1.23k", "41 %", "3 GB", "1e+15", "text after 25",
        "headway train run/recipe.toml", "seed", "headway 0.1.0, torch 2.13, Python 3.11", "same run", "clip = 1.0",
        *(s["advice"] for s in facts["suggestions"]), *(s["reason"] for s in facts["suggestions"]),
    ):  # fmt: skip
        assert words in page.text, words


def test_the_star_goes_to_the_evaluation_that_the_task_wants(tmp_path: Path) -> None:
    run = read(tmp_path, towards("accuracy", (0.5, 0.91, 0.8, 0.7), (3.0, 2.5, 2.4, 2.39), test=0.875))
    facts = gather(run)
    numbers = facts["numbers"]
    assert (numbers["goal"], numbers["best"], numbers["best_step"], numbers["best_valid"]) == (
        "accuracy",
        0.91,
        50,
        2.5,
    )
    text = render(run, facts)
    (starred,) = re.findall(r'<tr class="best"><th scope="row">(\d+)</th>.*?★ best', text)
    assert starred == "50"
    assert event_steps(run, Scale(0, 101))["best"] == [50]
    tiles = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)", text))
    assert (tiles["Best accuracy"], tiles["Validation loss"], tiles["Test accuracy"]) == ("0.910", "2.500", "0.875")
    plain = dict(
        re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)", render(run := read(tmp_path / "b", finished()), gather(run)))
    )
    assert plain["Best validation loss"] == "2.390" and not {"Validation loss", "Test validation loss"} & plain.keys()


def test_the_name_of_a_goal_is_text(tmp_path: Path) -> None:
    run = read(tmp_path, towards(NAME, (0.5, 0.91, 0.8, 0.7), (3.0, 2.5, 2.4, 2.39)))
    text = render(run, gather(run))
    assert "<script>alert" not in text and "Best &lt;script&gt;alert(1)" in text and not Page(text).open


def test_it_is_rebuilt_in_place(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", finished())
    first = write_report(folder).read_text()
    size = "on disk"  # the report itself is part of the folder
    assert re.sub(rf"{size}.*?</dd>", "", write_report(folder).read_text()) == re.sub(rf"{size}.*?</dd>", "", first)


def test_it_asks_the_network_for_nothing(tmp_path: Path) -> None:
    run = read(tmp_path, finished())
    text = render(run, gather(run))
    page = Page(text)
    assert "://" not in text and "@import" not in text and "url(" not in text
    for _, attrs in page.elements:
        assert not {"src", "href", "srcset", "action", "data", "poster", "style-src"} & attrs.keys()
        assert not any(name.startswith("on") for name in attrs)
    policy = next(attrs["content"] for attrs in page.of("meta") if attrs.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(script_text().encode()).digest()).decode()
    assert policy is not None and policy.startswith("default-src 'none'; ") and f"'sha256-{digest}'" in policy
    assert f'<script type="module">{script_text()}</script>' in text, (
        "the policy is of the script as it stands in the page"
    )


def test_every_chart_can_be_read_without_seeing_it(tmp_path: Path) -> None:
    page = page_of(read(tmp_path, finished()))
    charts = [attrs for attrs in page.of("svg") if attrs.get("role") == "img"]
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert len(charts) == 6, "loss and gradient on two scales, learning rate and throughput on one"
    for attrs in charts:
        assert all(name in ids for name in str(attrs["aria-labelledby"]).split())
    for name in ("Loss", "Learning rate", "Gradient norm", "Tokens per second"):
        assert f"{name} as a table" in page.text
    assert len(page.of("details")) == 5 and len(page.of("table")) == 5
    assert {attrs["lang"] for attrs in page.of("html")} == {"en"}
    assert [attrs.get("checked", "no") for attrs in page.of("input")] == [None, "no"]


NAME = "<script>alert(1)<img src=x onerror=alert(1)>"


def hostile_run(folder: Path) -> Path:
    """The same words in every place that a stranger's log or recipe can put them."""
    quoted = json.dumps(HOSTILE)
    top = f"task = {quoted}\nseed = {quoted}\n{quoted} = 1\n"
    recipe = f"{top}[data]\ntrain = {quoted}\nvalid = {quoted}\n[train]\nclip = 1.0\n"
    places = dict.fromkeys(("device", "version", "torch", "python", "world", "folder"), HOSTILE)
    facts = dict.fromkeys(("train", "valid", "fingerprint"), HOSTILE)
    log = [
        event("start", step=0, time=NOON, parameters=HOSTILE, **places),
        event("data", **facts, documents=3, bad_rows=1),
        *steps(1, 50),
        event("eval", step=50, valid=2.0, **{HOSTILE: 1.5}),
        event("sample", step=50, text=HOSTILE),
        event("spike", step=20, loss=HOSTILE),
        event("nan", step=20, where=HOSTILE, action=HOSTILE),
        event("sink", name=HOSTILE, problem=HOSTILE),
        event(HOSTILE, step=1),
        event("end", step=50, signal=0, mfu=HOSTILE),
    ]
    return write_run(folder, log, recipe=recipe)


@pytest.mark.parametrize("status", ["finished", "stopped"])
def test_nothing_a_log_says_becomes_part_of_the_page(tmp_path: Path, status: str) -> None:
    folder = hostile_run(tmp_path / NAME)
    if status == "stopped":  # then the folder is named in a command to type
        log = folder / "run" / "log.jsonl"
        log.write_text(log.read_text().replace('"signal": 0', '"signal": 15'))
    text = write_report(folder).read_text(encoding="utf-8")
    page = Page(text)
    assert status in page.text
    assert [attrs.get("type") for attrs in page.of("script")] == ["application/json", "module"]
    assert page.of("img") == [] and not page.open
    assert all(not name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert page.text.count(HOSTILE) >= 12, "it is shown as it was written"
    assert NAME in page.text
    series = re.search(r'id="series">(.*?)</script>', text, re.S)
    assert series is not None and json.loads(series[1])["series"]


def test_half_a_character_does_not_stop_the_report(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", [*steps(1, 3), b'{"event": "sample", "step": 3, "text": "a\\ud800b"}\n'])
    assert "a?b" in write_report(folder).read_text(encoding="utf-8")


def test_a_report_of_nearly_nothing(tmp_path: Path) -> None:
    for i, log in enumerate(([], [event("start")], steps(1, 1), [event("step", step=0, loss=1.0)], [event("eval")])):
        page = Page(write_report(write_run(tmp_path / f"r-{i}", log)).read_text())
        assert not page.open and "Reproduce" in page.text
        assert "Peak memory" not in page.text, "what is not known is not shown"
    broken = write_run(tmp_path / "broken", recipe=None, weights=False)
    assert "Its folder is damaged: no such file: run/recipe.toml." in Page(write_report(broken).read_text()).text


ANYTHING = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.lists(st.integers(), max_size=2)
)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(KINDS), st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9) | ANYTHING, max_size=6)
        ),
        max_size=14,
    )
)
def test_no_log_breaks_the_report(
    tmp_path_factory: pytest.TempPathFactory, log: list[tuple[str, dict[str, Any]]]
) -> None:
    lines = [json.dumps({"event": kind, **facts}).encode() + b"\n" for kind, facts in log]
    path = write_report(write_run(tmp_path_factory.mktemp("fuzz") / "r-1", lines))
    page = Page(path.read_text(encoding="utf-8"))
    assert not page.open and len(page.of("script")) in (1, 2)
    json.loads((path.parent / "report.json").read_text(), parse_constant=lambda word: pytest.fail(word))


def long_run(tmp_path: Path, length: int) -> History:
    """A finished run of so many steps, with an evaluation, a sample and a checkpoint every fifty."""
    run = read(tmp_path, finished())
    rng, at = np.random.default_rng(0), np.arange(1, length + 1, dtype=np.float64)
    seconds = 0.3 * at + rng.random(length) / 10
    columns = {"step": at, "tokens": 8192 * at, "seconds": seconds, "loss": rng.random(length),
               "lr": rng.random(length), "grad_norm": rng.random(length) * 1e6, "share": at / length}  # fmt: skip
    every = range(50, length + 1, 50)
    evals = [event("eval", step=n, valid=float(rng.random()), **{f"metric{i}": 0.5 for i in range(20)}) for n in every]
    samples = [event("sample", step=n, text="word " * 2000) for n in every]
    events = [event(kind, step=n) for n in every for kind in ("save", "spike", "nan", "restart")]
    facts = replace(run.facts, steps=length, best_eval=evals[9], last_eval=evals[-1])
    return replace(run, steps=columns, evals=evals, samples=samples, events=[*run.events, *events], facts=facts)


@pytest.mark.parametrize("length", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_long_run_stays_a_small_file(tmp_path: Path, length: int) -> None:
    run = long_run(tmp_path, length)
    text = render(run, gather(run))
    assert 100_000 < len(text.encode()) < LIMIT / 3, "bounded by the number of points drawn, not of steps"
    page = Page(text)
    assert not page.open
    assert f"{len(run.evals) - 61:,} of {len(run.evals):,} rows" in page.text
    assert len(page.of("tr")) < 250
    assert "metric6" in page.text and "metric7" not in page.text
    signs = [attrs for attrs in page.of("span") if str(attrs.get("class")).startswith("mark ")]
    assert 4 * MARKS - 8 <= len(signs) <= 4 * (MARKS + 1) + 1


def test_a_disk_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "r", finished())
    before = write_report(folder).read_text()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(MemoryOrDiskError, match="No space left"):
        write_report(folder)
    assert (folder / "run" / "report.html").read_text() == before
    assert not list(folder.rglob("*.partial-*"))


def test_plain_values_only() -> None:
    odd = {"a": math.nan, 3: [math.inf, None, True, 2, "x" * 5000], "p": Path("x"), "t": (1.5,)}
    made = json_value(odd)
    assert made == {"a": None, "3": [None, None, True, 2, "x" * 1500 + "…"], "p": "x", "t": [1.5]}


# --- what is shown ------------------------------------------------------------------------------


def test_samples_of_the_beginning_the_quarter_the_half_and_the_end(tmp_path: Path) -> None:
    log = [*steps(1, 100), *(event("sample", step=n, text=str(n)) for n in range(0, 101, 5))]
    assert [e["step"] for e in shown_samples(read(tmp_path, log))] == [0, 25, 50, 100]
    few = read_run(write_run(tmp_path / "few", [*steps(1, 100), event("sample", step=90, text="x")]))
    assert [e["step"] for e in shown_samples(few)] == [90]
    unnumbered = read_run(write_run(tmp_path / "odd", [event("sample", text="a"), event("sample", text="b")]))
    assert [e["text"] for e in shown_samples(unnumbered)] == ["b"]


def test_evaluations_left_out_are_never_the_first_the_last_or_the_best(tmp_path: Path) -> None:
    log = [*steps(1, 500), *(event("eval", step=n, valid=abs(n - 333) + 1) for n in range(1, 501))]
    shown = [e["step"] for e in shown_evals(read(tmp_path, log))]
    assert shown[0] == 1 and shown[-1] == 500 and 333 in shown and shown == sorted(shown)
    assert 60 <= len(shown) <= 61


def test_events_are_marked_where_they_happened(tmp_path: Path) -> None:
    more = [event("spike", step=40), event("nan", step=60, action="skip"), event("best", step=75, valid=2.4)]
    run = read(tmp_path, finished(between=more))
    assert event_steps(run, Scale(0, 101)) == {"save": [25, 50, 75, 100], "best": [100], "spike": [40], "nan": [60]}
    assert event_steps(run, Scale(0, 60)) == {"save": [25, 50], "spike": [40], "nan": [60]}, "within the picture"
    page = page_of(run)
    titles = [attrs["title"] for attrs in page.of("span") if "title" in attrs]
    assert {"spike, step 40", "NaN, step 60", "best, step 100", "saved, step 25"} <= set(titles)
    assert "resumed" not in page.text
    rules = [attrs["class"] for attrs in page.of("path") if str(attrs.get("class")).startswith("rule")]
    assert rules.count("rule spike") == 6 and "rule save" not in rules, "in every drawing, but not for each save"


def test_a_value_missing_here_and_there(tmp_path: Path) -> None:
    log = finished()
    for row in log[10:20]:
        row.pop("lr", None)
    run = read(tmp_path, [*log, b"half a li"])
    assert '"panel": "lr", "name": "learning rate", "x": [1, 2, ' in render(run, gather(run))
    assert ", null, " in render(run, gather(run))
    assert "1 line of the log could not be read." in page_of(run).text


def test_a_test_score_is_among_the_numbers(tmp_path: Path) -> None:
    run = read(tmp_path, finished(between=[event("test", step=100, test=2.345, bits_per_byte=1.678)]))
    assert (gather(run)["numbers"]["test_loss"], gather(run)["numbers"]["test_bits_per_byte"]) == (2.345, 1.678)
    assert "2.345" in page_of(run).text and "1.678 bits per byte" in page_of(run).text


@pytest.mark.parametrize(("device", "gpu"), [("x86_64", False), ("NVIDIA H200", True), ("cuda:0", True), (None, False)])
def test_the_line_on_determinism_is_honest(tmp_path: Path, device: str | None, gpu: bool) -> None:
    run = read(tmp_path, [event("start", device=device), *steps(1, 2)])
    assert ("GPU" in gather(run)["reproduce"]["determinism"]) is gpu
