"""`headway runs`: list, show, diff, report and prune; nothing is deleted that was not listed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headway.runs.prune import Leftover, remove
from headway.train.checkpoint import RunLock
from tests.cli.conftest import Done, Run
from tests.runs.conftest import NOON, RECIPE, event, finished, steps, towards, write_run

ROOT = Path(__file__).resolve().parents[2]
VERBS = ("list", "show", "diff", "report", "prune")


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """`headway runs`, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return partial(run, "runs")


def aged(folder: Path, seconds: float) -> Path:
    """As if nothing in it had changed for so long."""
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (time.time() - seconds,) * 2)
    return folder


def checkpoint(folder: Path, step: int, size: int = 1000) -> Path:
    path = folder / "run" / "checkpoints" / f"step-{step:08d}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"x" * size)
    (path / "manifest.json").write_text(json.dumps({"files": {"model.safetensors": {"size": size}}}))
    return path


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A finished, a stopped and a broken run, in that order."""
    out = tmp_path / "runs"
    aged(write_run(out / "tiny-0001", finished()), 300)
    other = RECIPE.replace("0.002", "0.004").replace("dropout = 0.1\n", "").replace("seed = 7", 'seed = 7\nextra = "x"')
    aged(write_run(out / "tiny-0002", [event("start", time=NOON, step=0), *steps(1, 40)], recipe=other), 200)
    aged(write_run(out / "bad-0001", recipe=None), 100)
    return out


# --- list ---------------------------------------------------------------------------------------


def test_the_list(run: Run, three: Path) -> None:
    done = run()
    assert done.code == 0
    head, *rows = done.out.splitlines()
    names = ["name", "status", "task", "steps", "model"]
    names += ["loss", "valid", "best", "bits/byte", "time", "size", "when"]
    assert head.split() == names
    assert [row.split()[:4] for row in rows] == [
        ["bad-0001", "broken", "lm", "0"],
        ["tiny-0002", "stopped", "lm", "40"],
        ["tiny-0001", "finished", "lm", "100"],
    ]
    assert re.fullmatch(
        r"tiny-0001 .* 2\.01\d +2\.390 +– +1\.195 +1 min 40 s +1\d\.?\d* kB +20\d\d-\d\d-\d\d \d\d:\d\d", rows[2]
    )
    assert len({len(line) for line in done.out.splitlines()}) == 1, "columns of equal width"
    assert done.err.splitlines() == [
        "bad-0001: no such file: run/recipe.toml",
        "next: headway runs show bad-0001   headway runs report bad-0001",
    ]
    assert run("list") == done
    assert run("list", "-q") == run("-q") == Done(0, done.out, "")
    moved = three.rename(three.with_name("elsewhere"))
    assert run("--out", moved).out == done.out
    assert f"show bad-0001 --out {moved}   " in run("list", "--out", moved).err


def test_the_list_as_json(run: Run, three: Path) -> None:
    done = run("list", "--json")
    rows = json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert [row["name"] for row in rows] == ["bad-0001", "tiny-0002", "tiny-0001"]
    assert rows[0]["problem"] == "no such file: run/recipe.toml"
    good = rows[2]
    assert (good["status"], good["steps"], good["valid"], good["seconds"]) == ("finished", 100, 2.39, 100.0)
    assert (good["parameters"], good["tokens_per_second"], good["started"]) == (1234.0, 100.0, NOON)
    assert json.loads(run("--json").out) == rows


def test_what_a_run_is_for_is_what_its_best_goes_by(run: Run, three: Path) -> None:
    write_run(three / "tag-0001", towards("f1", (0.5, 0.9, 0.8, 0.7), (3.0, 2.5, 2.4, 2.39)))
    row = next(line for line in run("list").out.splitlines() if line.startswith("tag-0001"))
    assert re.search(r" 2\.390 +f1 0\.900 +– ", row)
    facts = json.loads(run("show", "tag-0001", "--json").out)
    assert (facts["goal"], facts["best"], facts["valid"]) == ("f1", 0.9, 2.39)
    shown = run("show", "tag-0001").out
    assert re.search(
        r"validation loss, best +2\.390\n +validation loss, last +2\.390\n +best metric +f1 0\.900\n", shown
    )
    assert "best metric" not in run("show", "tiny-0001").out


def test_no_runs(run: Run) -> None:
    assert run() == Done(0, "", "no runs in runs. next: headway train tiny\n")
    assert run("--json", "-q") == Done(0, "[]\n", "")


def test_options_belong_behind_the_verb(run: Run, three: Path) -> None:
    done = run("--out", "x", "show", "last")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error[U001]: ") and "headway runs show" in done.err


def test_a_running_run_is_called_so(run: Run, three: Path) -> None:
    with RunLock(three / "tiny-0002" / "run"):
        assert "tiny-0002  running " in run().out
    assert "tiny-0002  stopped " in run().out


def test_names_cannot_move_the_cursor(run: Run, tmp_path: Path) -> None:
    sample = event("sample", step=3, text="a\x1b[2Jb\r\x07c\nd")
    write_run(tmp_path / "runs" / "x\x1b[31m\r\n\u202ey", [event("start", device="\x1b]0;t\x07"), *steps(1, 3), sample])
    for arguments in ([], ["show", "last"], ["report", "last"], ["diff", "last", "last"], ["prune", "--broken"]):
        done = run(*arguments)
        assert done.code == 0
        assert (
            not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.out.replace("report.html", ""))
            or "report" in arguments
        )
    assert "x·[31m···y" in run().out


# --- one and two --------------------------------------------------------------------------------


def test_show(run: Run, three: Path) -> None:
    done = run("show", "tiny-0001")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "tiny-0001  finished"
    for words in ("A language model of 1.23k parameters", "training loss          2.0", "validation loss, best  2.390",
                  "folder                 runs/tiny-0001", "  sample at step 100", "    text after 100"):  # fmt: skip
        assert any(line.strip().startswith(words.strip()) for line in lines), words
    chart = [line for line in lines if "┤" in line]
    assert len(chart) == 8 and len({len(line) for line in chart}) == 1
    assert done.err == "next: headway runs report tiny-0001\n"
    assert run("show", "bad").out.splitlines()[0] == "bad-0001  broken"
    assert "headway train --resume runs/tiny-0002" in run("show", "tiny-0002").out


def test_show_as_json(run: Run, three: Path) -> None:
    done = run("show", "tiny-0001", "--json")
    facts = json.loads(done.out)
    assert (facts["name"], facts["report"]["numbers"]["best_valid"], done.err) == ("tiny-0001", 2.39, "")


def test_a_run_that_is_not_there(run: Run, three: Path) -> None:
    for verb in (["show"], ["report"], ["diff", "last"]):
        done = run(*verb, "tiny-0003")
        assert (done.code, done.out) == (5, "")
        assert re.match(r'error\[F001\]: no run tiny-0003 in runs — did you mean "tiny-000[12]"\?\n', done.err)
    assert "2 runs begin with tiny" in run("show", "tiny").err


def test_diff_shows_only_what_differs(run: Run, three: Path) -> None:
    done = run("diff", "tiny-0001", "tiny-0002")
    assert (done.code, done.err) == (0, "")
    settings, _, numbers = done.out.partition("\n\n")
    head, *rows = settings.splitlines()
    assert head.split() == ["tiny-0001", "tiny-0002"]
    assert [row.split() for row in rows] == [
        ["model.dropout", "0.1", "–"],
        ["train.lr", "0.002", "0.004"],
        ["extra", "–", '"x"'],
    ]
    assert re.search(r"^steps +100 +40$", numbers, re.M) and re.search(r"^status +finished +stopped$", numbers, re.M)
    assert re.search(r"^validation loss, best +2.390 +–$", numbers, re.M)


def test_diff_as_json(run: Run, three: Path) -> None:
    found = json.loads(run("diff", "tiny-0001", "tiny-0002", "--json").out)
    assert found["runs"] == ["tiny-0001", "tiny-0002"]
    assert found["recipe"] == {"model.dropout": [0.1, None], "train.lr": [0.002, 0.004], "extra": [None, "x"]}
    assert found["numbers"]["steps"] == [100, 40] and found["numbers"]["valid"] == [2.39, None]


def test_a_run_does_not_differ_from_itself(run: Run, three: Path) -> None:
    done = run("diff", "tiny-0001", "runs/tiny-0001")
    assert done.err == "the recipes are the same\n" and "train.lr" not in done.out


def test_report(run: Run, three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    done = run("report", "tiny-0001")
    path = Path("runs/tiny-0001/run/report.html")
    assert (done.code, done.out, opened) == (0, f"{path}\n", [])
    assert path.stat().st_size > 10_000
    assert re.fullmatch(r"\d+ kB; open it in a browser\n", done.err)
    found = json.loads(run("report", "tiny-0001", "--json", "--open", "yes").out)
    assert found == {"report": str(path), "facts": str(path.with_suffix(".json"))}
    assert opened == [path.resolve().as_uri()]
    assert run("report", "tiny-0001", "--open", "maybe").code == 2


# --- prune --------------------------------------------------------------------------------------


@pytest.fixture
def messy(three: Path) -> Path:
    """The three runs with all sorts of leftovers, old enough to go."""
    for step in (10, 20, 30):
        checkpoint(three / "tiny-0001", step)
        checkpoint(three / "tiny-0002", step)
    half = three / "tiny-0002" / "run" / "checkpoints" / "step-00000040.partial-0a1b"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"x" * 500)
    (three / "tiny-0001.partial-77").mkdir()
    (three / "tiny-0001.partial-77" / "model.safetensors").write_bytes(b"x" * 300)
    (three / "tiny-0001" / "README.md.partial-12").write_text("x" * 7)
    return aged(three, 7200)


def left(out: Path) -> set[str]:
    return {str(path.relative_to(out)) for path in out.rglob("*")}


def test_prune_shows_and_deletes_nothing(run: Run, messy: Path) -> None:
    before = left(messy)
    done = run("prune")
    rows = [line.split()[0].removeprefix("runs/") for line in done.out.splitlines()]
    assert sorted(rows) == [
        "tiny-0001.partial-77",
        "tiny-0001/README.md.partial-12",
        "tiny-0001/run/checkpoints/step-00000010",
        "tiny-0001/run/checkpoints/step-00000020",
        "tiny-0002/run/checkpoints/step-00000040.partial-0a1b",
    ]
    assert re.search(r"step-00000010 +1.05 kB  an older checkpoint of a finished run$", done.out, re.M)
    assert done.err.startswith("2.9 kB ") and done.err.endswith("next: headway runs prune --yes\n")
    assert left(messy) == before
    assert [row.split()[0] for row in run("prune", "-q").out.splitlines()] == [f"runs/{row}" for row in rows]
    assert "prune --yes --out" in run("prune", "--out", messy).err


def test_prune_with_yes_deletes_what_it_showed(run: Run, messy: Path) -> None:
    before = left(messy)
    shown = [line.split()[0] for line in run("prune").out.splitlines()]
    done = run("prune", "--yes")
    assert (done.code, done.err) == (0, "2.9 kB deleted\n")
    gone = {path for path in before - left(messy)}
    assert {path for path in gone if not any(path.startswith(f"{other}/") for other in gone)} == {
        path.removeprefix("runs/") for path in shown
    }
    assert left(messy) - before <= {f"tiny-000{n}/run/run.lock" for n in (1, 2)}
    assert run("prune", "--yes").err == "nothing to delete in runs\n"


def test_prune_as_json(run: Run, messy: Path) -> None:
    found = json.loads(run("prune", "--json").out)
    assert len(found["items"]) == 5 and not any(item["deleted"] for item in found["items"])
    assert found["bytes"] == sum(item["bytes"] for item in found["items"])
    done = run("prune", "--json", "--yes")
    assert all(item["deleted"] and not os.path.exists(item["path"]) for item in json.loads(done.out)["items"])


def test_prune_broken_takes_runs_that_cannot_go_on(run: Run, messy: Path) -> None:
    nan = [event("start"), *steps(1, 3), event("nan", step=3, action="stop")]
    aged(checkpoint(write_run(messy / "diverged-0001", nan), 1).parents[2], 7200)
    aged(write_run(messy / "empty-0001", [event("start"), *steps(1, 3)]), 7200)
    assert "bad-0001" not in run("prune").out
    rows = run("prune", "--broken").out
    assert re.search(r"^runs/bad-0001 .*broken: .*run/recipe.toml$", rows, re.M)
    assert re.search(r"^runs/diverged-0001 .*diverged: ", rows, re.M)
    assert re.search(r"^runs/empty-0001 .*stopped: ", rows, re.M)
    assert not re.search(r"^runs/tiny-000[12] ", rows, re.M), "a stopped run with a checkpoint can go on"
    assert run("prune", "--broken", "--yes").code == 0
    assert sorted(path.name for path in messy.iterdir()) == ["tiny-0001", "tiny-0002"]


def test_prune_never_touches_a_running_run(run: Run, messy: Path) -> None:
    before = left(messy)
    with RunLock(messy / "tiny-0001" / "run"), RunLock(messy / "bad-0001" / "run"):
        done = run("prune", "--broken", "--yes")
        assert "tiny-0001/" not in done.out and "bad-0001" not in done.out
    assert {path for path in before if path.startswith(("tiny-0001/", "bad-0001"))} <= left(messy)


def test_a_run_that_begins_while_it_is_cleared_away(run: Run, messy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.runs.prune.is_running", lambda folder: False)
    with RunLock(messy / "tiny-0001" / "run"):
        done = run("prune", "--yes")
    assert (done.code, done.err) == (0, "800 B deleted; 3 are in use and were kept\n")
    assert (messy / "tiny-0001" / "run" / "checkpoints" / "step-00000010").is_dir()
    assert not (messy / "tiny-0001.partial-77").exists()


def test_what_has_gone_by_itself_is_no_error(tmp_path: Path) -> None:
    assert remove([Leftover(path=tmp_path / "nowhere", reason="", size=1, run=None)]) == []


def test_what_may_still_be_in_the_making_is_left_alone(run: Run, three: Path) -> None:
    (three / "tiny-0009.partial-77").mkdir()
    (three / "starting-0001" / "run").mkdir(parents=True)
    (three / "starting-0001" / "run" / "recipe.toml").write_text(RECIPE)
    half = three / "tiny-0001" / "run" / "checkpoints" / "step-00000040.partial-0a1b"
    half.mkdir(parents=True)
    rows = run("prune", "--broken").out
    assert "0009.partial" not in rows and "starting" not in rows
    assert half.name in rows, "only the holder of the lock writes there"
    aged(three, 7200)
    rows = run("prune", "--broken").out
    assert "0009.partial" in rows and "starting" in rows


def test_the_newest_whole_checkpoint_stays(run: Run, three: Path) -> None:
    for step in (10, 20, 30):
        checkpoint(three / "tiny-0001", step)
    newest = three / "tiny-0001" / "run" / "checkpoints" / "step-00000030"
    (newest / "model.safetensors").write_bytes(b"x" * 999)
    assert re.findall(r"step-\d+", run("prune").out) == ["step-00000010"], "30 is damaged, so 20 is what there is"
    (newest / "manifest.json").write_text('{"files": {}}')
    assert re.findall(r"step-\d+", run("prune").out) == ["step-00000010"], "a list of nothing proves nothing"
    for path in newest.parent.glob("step-*"):
        (path / "manifest.json").write_text("{")
    assert run("prune").out == "", "none is whole: none is known to be needless"


def test_links_are_not_followed(run: Run, messy: Path, tmp_path: Path) -> None:
    (messy / "bad-0001").rename(tmp_path / "bad-real")
    (messy / "bad-0001").symlink_to(tmp_path / "bad-real")
    (tmp_path / "precious").mkdir()
    (messy / "x.partial-99").symlink_to(tmp_path / "precious")
    aged(tmp_path / "precious", 7200)
    os.utime(messy / "x.partial-99", (0, 0), follow_symlinks=False)
    (messy / "tiny-0001" / "run" / "checkpoints" / "step-00000005").symlink_to(tmp_path / "precious")
    run("prune", "--broken", "--yes")
    assert (tmp_path / "bad-real" / "run").is_dir() and (tmp_path / "precious").is_dir()
    assert (messy / "bad-0001").is_symlink() and (messy / "x.partial-99").is_symlink()
    assert (messy / "tiny-0001" / "run" / "checkpoints" / "step-00000005").is_symlink()


# --- help ---------------------------------------------------------------------------------------


def test_help_lists_the_verbs_with_examples(run: Run) -> None:
    done = run("-h")
    assert done.code == 0
    for verb in VERBS:
        assert re.search(rf"^  {verb} +[A-Z].*[^.]\.$", done.out, re.M), "a line that is not cut short"
        shown = run(verb, "--help").out.partition("Examples:")[2].splitlines()
        assert len([line for line in shown if line.strip().startswith(f"headway runs {verb}")]) >= 2


def test_the_examples_of_the_help_parse(run: Run, three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    for verb in VERBS:
        for line in run(verb, "-h").out.partition("Examples:")[2].split("\n"):
            if line.strip():
                assert run(*line.split()[2:]).code == 0, line


def test_looking_at_runs_is_quick() -> None:
    """No verb that only looks brings torch, and the help brings nothing heavy at all."""
    code = """if True:
        import sys
        from headway.cli import main
        assert not {"torch", "numpy", "pyarrow", "rich"} & set(sys.modules)
        for words in (["list"], ["prune"]):
            try:
                main(["runs", *words, "-q", "--out", "nowhere"])
            except SystemExit as done:
                assert done.code == 0
        assert "torch" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_value_of_toml_that_json_has_not(run: Run, tmp_path: Path) -> None:
    for name, day in (("a-1", "2026-01-02"), ("b-1", "2026-01-03")):
        write_run(tmp_path / "runs" / name, finished(), recipe=f"when = {day}\nx = nan\n")
    found: dict[str, Any] = json.loads(run("diff", "a-1", "b-1", "--json").out)
    assert found["recipe"] == {"when": ["2026-01-02", "2026-01-03"]}, "nan differs from nan for nobody but computers"
    assert "2026-01-03" in run("diff", "a-1", "b-1").out
