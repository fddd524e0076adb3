"""`headway compare`: runs made once, tables, files, mistakes found first."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from headway.runs.process import run_command
from headway.runs.shipped import command_words
from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("runs_in_process")

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
    words = command_words("finetuning", ["model.from=base/tiny-0001"])
    assert "model.freeze+model.lora+train.unfreeze=0+0+0,1+0+0,0+8+0,0+0+20" in words  # it has one block
    assert "model.from=base/tiny-0001" in words
    done = run("compare", "tiny", text, *SMALL, "model.from=base/tiny-0001", "model.freeze=0,9")
    assert done.code == 3 and "variant 9: model.freeze = 9, but the model has 1 block" in done.err and not folders()


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
    assert rows[1][-1] == "1" and rows[2][-5:] == ["0", "of", "1", "(1", "diverged)"]
    assert "error[T001]" in done.err and "1e30, seed 1337: diverged: " in done.out
    assert "again: headway train tiny" in done.out
    page = Path("runs/compare-tiny-lr/compare.html")
    links = re.findall(r'href="([^"]+)"', page.read_text(encoding="utf-8"))
    assert links == ["tiny-0001/run/report.html", "tiny-0002/run/report.html"]
    assert all((page.parent / link).is_file() for link in links)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("model.kind=gru",), 2, "nothing to compare"),
        (("model.kind=gru,gruu",), 3, "variant gruu: model.kind"),
        (("model.depth=1,2", "train.stesp=3"), 3, "error[C014]: unknown setting 'train.stesp'"),
        (("model.heads=4,5",), 3, "variant 5: d_model = 128 conflicts with n_heads = 5"),
        (("model.kind=lstm,transformer", "model.attention=dot"), 3, "variant transformer: model.attention = dot"),
        (("data.length=64,9999999",), 4, "variant 9999999: "),
        (("recipe=tiny,rnn",), 2, "give one recipe"),
        (("model.width=16,32", "equal=params"), 3, "equal=params chooses model.width, which is varied"),
        (("model.depth=1,2", "equal=time"), 3, "equal=time needs train.minutes, not train.steps"),
        (("model.depth=1,2", "equal=flops", "train.minutes=1"), 3, "equal=flops needs a budget in steps"),
        (("model.heads=4,32", "model.kind=gru,transformer", "equal=params"), 3, "equal=params: no width"),
        (("model.depth=1,2", "against=3"), 2, "against=3 is no variant"),
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


def test_equal_terms_stand_in_the_table(run: Run, text: str) -> None:
    done = run("compare", "tiny", "model.kind=transformer,gru", "equal=params", text, *TINY, "seeds=1,2")
    assert done.code == 0, done.err
    first, second = re.findall(r"^  (?:transformer|gru): ([\d,]+) parameters", done.out, re.MULTILINE)
    assert abs(int(second.replace(",", "")) / int(first.replace(",", "")) - 1) < 0.05
    found = json.loads(Path("runs/compare-tiny-kind-params/compare.json").read_text(encoding="utf-8"))
    sizes = [variant["parameters"] for variant in found["variants"]]
    assert abs(sizes[1] / sizes[0] - 1) < 0.05 and "width" in found["variants"][1]["terms"]
    assert "model.width" in found["differences"]
    seeds = [json.loads(line)["seed"] for line in re.findall(r'\{[^{}]*"status"[^{}]*\}', json.dumps(found))]
    assert seeds == [1, 2, 1, 2]
    again = run("compare", "tiny", "model.kind=transformer,gru", "equal=params", text, *TINY, "seeds=1,2")
    assert again.err.count(", finished") == 4


def test_recipes_side_by_side(run: Run, text: str, runs_in_process: list[list[str]]) -> None:
    done = run("compare", "recipe=tiny,rnn", text, *SMALL, "model.depth=1", "model.width=16", "--json")
    assert done.code == 0, done.err
    assert [each[1] for each in runs_in_process] == ["tiny", "rnn"]
    found = json.loads(done.out)
    assert [v["name"] for v in found["variants"]] == ["tiny", "rnn"]
    assert found["differences"]["model.kind"] == ["transformer", "lstm"]


def test_seeds_take_turns_and_a_failure_leaves_the_rest(
    run: Run, text: str, runs_in_process: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of four runs fails: the table is honest, the page is there after each run, and again repeats it."""
    import headway.runs.queue as queue

    inner, pages = queue.run_command, []

    def failing(words: list[str]) -> object:
        pages.append(Path("runs/compare-tiny-norm/compare.html").read_text(encoding="utf-8"))
        return inner([*words, "train.clip=x"] if len(pages) == 2 else words)

    monkeypatch.setattr(queue, "run_command", failing)
    words = ("compare", "tiny", "model.norm=layernorm,dyt", "seeds=1,2", text, *TINY)
    done = run(*words)
    assert done.code == 1, done.err
    asked = [[word for word in each if word.startswith(("model.norm", "seed="))] for each in runs_in_process]
    assert asked == [[f"model.norm={norm}", f"seed={seed}"] for seed in (1, 2) for norm in ("layernorm", "dyt")]
    assert "1 of 2 (1 failed)" in done.out and "dyt, seed 1: error[C002]: train.clip" in done.out
    assert re.search(r"again: headway train tiny .*model.norm=dyt .*seed=1 out=runs/compare-tiny-norm", done.out)
    assert "4 runs are still to come" in pages[0] and "3 runs are still to come" in pages[1]
    csv = Path("runs/compare-tiny-norm/compare.csv").read_text(encoding="utf-8").splitlines()
    assert csv[0].startswith("variant,model.norm,seed,status,run,valid,") and len(csv) == 5
    assert [line.split(",")[3] for line in csv[1:]] == ["finished", "finished", "failed", "finished"]
    again = run(*words)
    assert again.code == 0 and again.err.count(", finished") == 3 and len(runs_in_process) == 5
    assert "run 4 of 4: dyt, seed 1" in again.err


def test_lengths_are_measured_once(run: Run, text: str, runs_in_process: list[list[str]]) -> None:
    words = ("compare", "tiny", "model.positions=learned,none", "lengths=8,64", text, *TINY)
    done = run(*words)
    assert done.code == 0, done.err
    table = done.out[done.out.index("perplexity by length") :].splitlines()
    assert table[0].split()[-2:] == ["8", "64"]
    assert re.fullmatch(r"learned +[\d.]+ +–", table[1]) and re.fullmatch(r"none +[\d.]+ +[\d.]+", table[2])
    kept = json.loads(Path("runs/compare-tiny-positions/tiny-0001/run/lengths.json").read_text(encoding="utf-8"))
    assert kept["64"] == "the model knows 16 positions"
    before = len(runs_in_process)
    assert run(*words).code == 0 and len(runs_in_process) == before


def test_the_list_of_comparisons(run: Run) -> None:
    done = run("compare", "--list")
    assert done.code == 0 and re.search(r"^norms +Norms: .* 9 runs of \d+ steps$", done.out, re.MULTILINE)
    assert {each["name"] for each in json.loads(run("compare", "--list", "--json").out)} >= {"norms"}
    near = run("compare", "nroms", "seeds=2")
    assert near.code == 5 and 'no recipe or comparison nroms — did you mean "norms"?' in near.err
    nothing = run("compare")
    assert nothing.code == 2 and "give a recipe" in nothing.err


def test_a_shipped_comparison(run: Run, text: str) -> None:
    """Its own words, replaced by those of the command; its title and what it shows on the page."""
    done = run("compare", "norms", text, *TINY, "seeds=1,2", "model.norm=rmsnorm,dyt")
    assert done.code == 0, done.err
    page = Path("runs/compare-norms/compare.html").read_text(encoding="utf-8")
    assert "Dynamic Tanh" in page and "layernorm" not in page[page.index("<body>") :] and len(folders()) == 4


@pytest.mark.slow
def test_a_killed_run_leaves_the_others_going_and_ctrl_c_saves(
    run: Run, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In processes of their own: kill -9 in the first run, then Ctrl-C in the second; again finishes both."""
    import headway.runs.process as process
    import headway.runs.queue as queue

    shots: list[tuple[int, int]] = []

    class Watched(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: object, **more: object) -> None:
            super().__init__(*args, **more)  # type: ignore[call-overload]
            mine = len(shots)
            shots.append((0, 0))
            if mine < 2:
                threading.Thread(target=self.shoot, args=(mine,), daemon=True).start()

        def shoot(self, mine: int) -> None:
            log = Path(f"runs/compare-tiny-norm/tiny-000{mine + 1}/run/log.jsonl")
            while not log.exists() or log.read_text(encoding="utf-8").count('"step"') < 5:
                time.sleep(0.05)
            os.kill(self.pid if mine == 0 else os.getpid(), signal.SIGKILL if mine == 0 else signal.SIGINT)

    monkeypatch.setattr(queue, "run_command", run_command)
    monkeypatch.setattr(process.subprocess, "Popen", Watched)
    words = ("compare", "tiny", "model.norm=layernorm,dyt", text, *TINY, "train.steps=600", "train.eval_every=300")
    done = run(*words)
    assert done.code == 130 and "killed (signal 9)" in done.err and "the same command resumes" in done.err
    found = json.loads(Path("runs/compare-tiny-norm/compare.json").read_text(encoding="utf-8"))
    assert [v["runs"][0]["status"] for v in found["variants"]] == ["failed", "stopped"]
    again = run(*words)
    assert again.code == 0, again.err
    first, second = re.findall(r"run \d of 2.*: (\w+), seed 1337: \S+, resumed", again.err)
    assert (first, second) == ("dyt", "layernorm")  # what died comes last
    assert folders() == ["tiny-0001", "tiny-0002"]
