"""`headway compare`: runs made once, tables, files, mistakes found first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run

SMALL = ("data.length=16", "train.batch=4", "train.steps=4", "train.eval_every=2", "train.sample_every=9")
TINY = (*SMALL, "model.depth=1", "model.width=16", "model.heads=2")


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 30, encoding="utf-8")
    return "data.train=text.txt"


def folders() -> list[str]:
    return sorted(path.parent.name for path in Path("runs").glob("*/*/run"))


def test_finished_runs_are_not_trained_again(run: Run, text: str) -> None:
    words = ("compare", "tiny", "model.kind=gru,transformer", text, *TINY)
    done = run(*words)
    assert done.code == 0, done.err
    assert folders() == ["tiny-0001", "tiny-0002"]
    lines = done.out.splitlines()
    assert lines[0].split()[:2] == ["model.kind", "valid"] and [line.split()[0] for line in lines[1:3]] == [
        "gru",
        "transformer",
    ]
    place = Path("runs/compare-tiny-kind")
    assert "<svg" in (place / "compare.html").read_text(encoding="utf-8")
    first = json.loads((place / "compare.json").read_text(encoding="utf-8"))
    assert first["seeds"] == [1337] and len({r["name"] for v in first["variants"] for r in v["runs"]}) == 2

    again = run(*words, "seeds=2", "--json")
    assert again.code == 0, again.err
    assert again.err.count(", finished") == 2 and len(folders()) == 4
    found = json.loads(again.out)
    values = found["variants"][0]["figures"]["valid"]["values"]
    assert values[:1] == first["variants"][0]["figures"]["valid"]["values"] and len(set(values)) == 2
    other = run(*words, "train.lr=0.01", "--quiet")  # another recipe: none of the runs are of it
    assert other.code == 0 and len(folders()) == 6 and not other.err


def test_what_a_run_finds_in_its_data_makes_it_no_other(run: Run, text: str) -> None:
    pairs = "".join(f"the dog {i}.\tder Hund {i}.\n" for i in range(30))
    Path("pairs.tsv").write_text("source\ttarget\n" + pairs, encoding="utf-8")
    more = ("data.vocab=300", "seq2seq.eval_texts=0", "model.width=16", "model.heads=2")
    words = ("compare", "translate", "seeds=1,2", "data.train=pairs.tsv", *SMALL, *more)
    assert run(*words).code == 0
    again = run(*words)
    assert again.err.count(", finished") == 2 and len(folders()) == 2


def test_too_many_frozen_blocks_are_found_first(run: Run, text: str) -> None:
    assert run("train", "tiny", text, *TINY, "out=base").code == 0
    done = run("compare", "tiny", text, *SMALL, "model.from=base/tiny-0001", "model.freeze=0,9")
    assert done.code == 3 and "model.freeze = 9, but the model has 1 block" in done.err and not folders()


def test_a_stopped_run_goes_on(run: Run, text: str) -> None:
    words = ("compare", "tiny", "seeds=1,2", text, *TINY)
    assert run(*words).code == 0
    place = Path("runs/compare-tiny/tiny-0002")
    log = place / "run" / "log.jsonl"
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if json.loads(line)["event"] != "end"]
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    again = run(*words)
    assert again.code == 0, again.err
    assert "tiny-0002, resumed" in again.err
    assert folders() == ["tiny-0001", "tiny-0002"]


def test_a_run_that_diverges_is_a_result(run: Run, text: str) -> None:
    done = run("compare", "tiny", "train.lr=0.001,1e30", text, *TINY, "train.warmup=1", "train.clip=0")
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines() if line]
    assert rows[1][-1] == "1" and rows[2][-3:] == ["0", "of", "1"]
    assert "error[T001]" in done.err
    page = Path("runs/compare-tiny-lr/compare.html")
    links = re.findall(r'href="([^"]+)"', page.read_text(encoding="utf-8"))
    assert links == ["tiny-0001/run/report.html", "tiny-0002/run/report.html"]
    assert all((page.parent / link).is_file() for link in links)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("model.kind=gru",), 2, "nothing to compare"),
        (("model.kind=gru,gruu",), 3, "gruu"),
        (("model.nrom=dyt,rmsnorm",), 3, 'did you mean "model.norm"'),
        (("lr=1e-3,1e-4", "model.depth=1,2"), 3, "train.lr=1e-3,1e-4\n"),
        (("learning_rate=1e-3,1e-4,1e-5",), 3, "train.lr=1e-3,1e-4,1e-5\n"),
        (("lr+model.norm=1e-3+dyt,1e-4+rmsnorm",), 3, "train.lr"),
        (("model.depth=1,2", "gpus=2"), 3, "one process"),
    ],
)
def test_mistakes_are_found_before_anything_is_trained(
    run: Run, text: str, words: tuple[str, ...], code: int, said: str
) -> None:
    done = run("compare", "tiny", text, *words)
    assert done.code == code and said in done.err and not Path("runs").exists()


def test_a_finished_run_is_left_alone(run: Run, text: str) -> None:
    assert run("train", "tiny", text, *TINY).code == 0
    folder = Path("runs/tiny-0001")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    done = run("train", "--resume", "last")
    assert (done.code, done.out) == (0, "") and "tiny-0001 has finished its 4 steps" in done.err
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert run("train", "--resume", "last").code == 0 and (folder / "model.safetensors").exists()
