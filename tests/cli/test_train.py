"""`headway train`: resuming with changed settings or data, and exit codes."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.cli.train import _tries
from headway.runs.process import EXIT_FILE
from headway.tasks.recipe import load_recipe
from tests.cli.conftest import Run

TINY = (
    *("model.depth=1", "model.width=16", "model.heads=2", "data.length=16", "train.batch=4", "train.steps=4"),
    *("train.warmup=0", "train.eval_every=4", "train.sample_every=4", "train.save_every=2"),
)


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    return path


def test_a_run_goes_on_for_longer_and_says_what_changed(run: Run, text: Path) -> None:
    assert run("train", "tiny", *TINY, f"data.train={text}").code == 0
    done = run("train", "--resume", "last", "train.steps=6")
    assert done.code == 0 and "train.steps 4 → 6" in done.err
    refused = run("train", "--resume", "last", "train.batch=8")
    assert refused.code == 3 and "error[C040]" in refused.err and "train.batch 4 → 8" in refused.err
    assert run("train", "--resume", "last", "train.stepz=8").code == 3


def test_changed_data_end_with_the_code_of_data(run: Run, text: Path) -> None:
    assert run("train", "tiny", *TINY, f"data.train={text}").code == 0
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 41)
    refused = run("train", "--resume", "last", "train.steps=6")
    assert refused.code == 4 and "error[D020]" in refused.err
    assert run("train", "--resume", "last", "train.steps=6", "--accept-changed-data").code == 0


def test_what_was_held_out_of_other_data_is_not_evaluated_on(run: Run, text: Path, tmp_path: Path) -> None:
    """Cut anew, it would hold text that the run has learned from."""
    rows = "text,label\n" + "".join(f"a text of words {i},{'good' if i % 2 else 'bad'}\n" for i in range(40))
    table = tmp_path / "rows.csv"
    table.write_text(rows)
    words = ("data.tokenizer=bytes", "data.vocab=0")
    assert run("train", "tiny", *TINY, f"data.train={text}").code == 0
    assert run("train", "classify", *TINY, *words, f"data.train={table}").code == 0
    for name, path in (("tiny-0001", text), ("classify-0001", table)):
        assert run("eval", f"runs/{name}").code == 0
        path.write_text(path.read_text() + path.read_text().splitlines()[-1] + "\n")
        refused = run("eval", f"runs/{name}")
        assert refused.code == 4 and "error[D020]" in refused.err
        assert run("eval", f"runs/{name}", path).code == 0


def test_runs_on_other_data_are_not_compared(run: Run, text: Path) -> None:
    words = ("compare", "tiny", "model.norm=layernorm,rmsnorm", *TINY, f"data.train={text}")
    assert run(*words).code == 0
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 41)
    done = run(*words)
    assert done.code == 0 and done.err.count("data have changed") == 2
    assert len(list(Path("runs").glob("*/tiny-*"))) == 4
    assert run(*words).err.count(", finished") == 2


def test_changed_data_are_accepted_only_where_there_are_some(run: Run) -> None:
    done = run("train", "tiny", "--accept-changed-data")
    assert done.code == 2 and "error[U001]" in done.err


@pytest.mark.parametrize("words", [("eval", "runs/tiny-0001"), ("run", "runs/tiny-0001", "the"), ("check", "tiny")])
def test_memory_that_runs_out_in_any_verb_is_no_bug(
    run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headway import api

    def hungry(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000 bytes.")

    monkeypatch.setattr(api, "load", hungry)
    done = run(*words)
    assert done.code == 7 and "error[M010]" in done.err and "8.0 GB" in done.err


def test_a_full_disk_under_a_file_nobody_thought_of_is_no_bug(
    run: Run, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headway.train import run as runs

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "runs/x/run/recipe.toml")

    monkeypatch.setattr(runs, "_write_recipe", full)
    done = run("train", "tiny", *TINY, f"data.train={text}")
    assert done.code == 7 and "error[M002]" in done.err


def test_the_first_process_that_fails_gives_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.cli.app import _leave_code

    path = tmp_path / "exit"
    monkeypatch.setenv(EXIT_FILE, str(path))
    monkeypatch.setenv("RANK", "1")
    _leave_code(0)
    assert not path.exists()
    _leave_code(7, "error[M010]: memory ran out")
    monkeypatch.setenv("RANK", "0")
    _leave_code(143)
    assert path.read_text() == "7\nerror[M010]: memory ran out"


def test_an_encoding_is_followed_by_every_verb(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Umlauts of a Windows file reach the tokenizer, the evaluation and the results; the run remembers the setting."""
    monkeypatch.chdir(tmp_path)
    lines = [f"Übel {i};schlecht" if i % 2 else f"Schön {i};gut" for i in range(20)]
    Path("alt.csv").write_text("Meinung;Urteil\n" + "\n".join(lines), encoding="cp1252")
    words = ("data.train=alt.csv", "train.steps=1", "data.tokenizer=words", "-q")
    stopped = run("train", "classify", *words)
    assert stopped.code == 4 and "data.encoding=cp1252" in stopped.err
    assert run("train", "classify", *words, "data.encoding=cp1252").code == 0
    assert "Übel" in Path("runs/classify-0001/tokenizer.json").read_text()
    assert run("eval", "last", "alt.csv", "-q").code == 0
    (first, *_) = run("run", "last", "--file", "alt.csv", "-q").out.splitlines()
    assert json.loads(first)["text"] == "Schön 0"
    assert run("run", "last", "--file", "alt.csv", "data.encoding=utf-8", "-q").code == 4


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("train", "classify", "my reviews.csv"), "C001", "'data.train=my reviews.csv'"),
        (("train", "classify", "."), "C001", "data.train=."),
        (("train", "classify", "epochs"), "C001", "train.lr=1e-3"),
        (("train", "classify", "data=absent.csv"), "F001", "absent.csv"),
        (("train", "classify", "model=./absent"), "F001", "absent"),
        (("classify",), "U001", "headway train classify"),
        (("runs", "show"), "U001", "headway runs show --help"),
        (("run", "tiny", "The", "tokens=20"), "C014", "--tokens 20"),
        (("run", "tiny", "The", "out=b.csv"), "C014", "--out b.csv"),
        (("run", "tiny", "Hello", "score=true"), "C014", "write --score\n"),
        (("run", "tiny", "Hello", "trace_file=x"), "C014", "--trace-file x"),
    ],
)
def test_what_is_typed_a_little_wrong_is_answered_with_the_right_words(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: str, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    assert f"error[{code}]" in done.err and named in done.err and "\nerror" not in done.err, done.err


def ended_run(recipe: str, *words: str, tries: tuple[str, ...] = ()) -> Any:
    task = SimpleNamespace(tries=list(tries))
    return SimpleNamespace(recipe=load_recipe(recipe, words)[1], folder=Path(f"runs/{recipe}-0001"), task=task)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (ended_run("tiny"), '"The import statement"'),
        (ended_run("tiny", "data.train=book.txt", tries=("Call me",)), "'Call me'"),
        (ended_run("filetypes"), "--file runs/filetypes-0001/config.json"),
        (ended_run("sound-bytes"), ""),
        (ended_run("sound-bytes", "data.train=sound.raw", tries=("\x00\xff",)), ""),
    ],
)
def test_what_to_type_after_a_run(run: Any, words: str) -> None:
    assert _tries(run) == words
