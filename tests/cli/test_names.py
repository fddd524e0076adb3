"""Names of models and runs: the same in every verb; what is missing is named, and is no network error."""

from __future__ import annotations

import errno
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.checks.equivalence.result import MEANINGS
from headway.checks.equivalence.suite import _ModelChecks
from headway.config.presets import preset
from headway.errors import NetworkError, counted
from headway.hub import download, run_names
from headway.model.model import Transformer
from headway.runs.history import read_run
from headway.train.run import train
from tests.cli.conftest import Run
from tests.train.conftest import begin, quiet, stop_after


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs: tiny-0001 finished, tiny-0002 stopped at step 4 of 6."""
    place = tmp_path_factory.mktemp("home")
    train(begin(place), quiet)
    stop_after(begin(place), 4)
    return place


@pytest.fixture(autouse=True)
def inside(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    run_names.note.cache_clear()


@pytest.mark.parametrize("name", ["last", "tiny-0002", "runs/tiny-0002", "last@4", "tiny-0002@3", "tiny-0001@6"])
@pytest.mark.parametrize(
    "words",
    [
        ("run", "MODEL", "the", "--tokens", "2"),
        ("run", "MODEL", "--score", "the dog"),
        ("eval", "MODEL", "text.txt", "--length", "8", "--json"),
        ("get", "MODEL", "--json"),
        ("tokens", "MODEL", "the dog", "--json"),
        ("run", "tiny-0001", "the", "--tokens", "2", "--draft", "MODEL"),
    ],
    ids=["run", "score", "eval", "get", "tokens", "draft"],
)
def test_a_run_by_any_name(run: Run, caplog: pytest.LogCaptureFixture, name: str, words: tuple[str, ...]) -> None:
    done = run(*(name if word == "MODEL" else word for word in words))
    assert done.code == 0, done.err
    assert done.out.strip()
    used = "using its last checkpoint, of step 4" in caplog.text
    assert used == (name in ("last", "tiny-0002", "runs/tiny-0002") and words[0] != "tokens")


@pytest.mark.parametrize("words", [("run", "last", "the", "--tokens", "2"), ("eval", "last", "text.txt")])
def test_quiet_says_nothing_of_weights(run: Run, caplog: pytest.LogCaptureFixture, words: tuple[str, ...]) -> None:
    done = run(*words, "-q")
    assert (done.code, done.err, caplog.text) == (0, "", "")
    run_names.note.cache_clear()
    assert run(*words).code == 0 and "step 4" in caplog.text  # the next command says it again


def test_an_export_says_what_it_is(run: Run, tmp_path: Path) -> None:
    for name, step in (("last", "step 4"), ("last@3", "step 3"), ("tiny-0001", "")):
        folder = tmp_path / name
        assert run("export", name, folder).code == 0
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert ("weights of a checkpoint" in card and step in card) == bool(step)
        assert run("run", folder, "the", "--tokens", "2").code == 0


def test_the_list_says_which_weights_there_are(run: Run) -> None:
    found = {row["name"]: row for row in json.loads(run("runs", "--json").out)}
    assert (found["tiny-0001"]["final"], found["tiny-0001"]["checkpoints"]) == (True, [3, 6])
    assert (found["tiny-0002"]["final"], found["tiny-0002"]["checkpoints"]) == (False, [3, 4])
    head, *rows = (line.split() for line in run("runs").out.splitlines())
    assert [row[head.index("model")] for row in rows] == ["@4", "final"]


def test_pruning_one_run(run: Run) -> None:
    assert "step-00000003" in run("runs", "prune", "tiny-0001").out
    assert run("runs", "prune", "last").out == ""


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("run", "tiny-003", "x"), "F001", "tiny-000"),
        (("run", "tiny", "x"), "F001", "tiny-0002, tiny-0001"),
        (("run", "last@9", "x"), "F001", "@3, @4"),
        (("run", "./runs/tiny-0003", "x"), "F001", "tiny-000"),
        (("run", "runs/tiny-0003", "x"), "F001", "hf://runs/tiny-0003"),
        (("run", "/nowhere/at/all", "x"), "F001", "/nowhere/at/all"),
        (("run", "models/small.gguf", "x"), "F001", "small.gguf"),
        (("run", "text.txt", "x"), "F001", "is a file"),
        (("run", "runs", "x"), "F002", "tiny-0002"),
        (("eval", "last", "absent.csv"), "F001", "absent.csv"),
        (("eval", "text.txt"), "F001", "a model comes first"),
        (("check", "lats"), "F001", '"last"'),
        (("runs", "show", "lst"), "F001", '"last"'),
        (("get", "last@x"), "F001", "@3, @4"),
        (("tokens", "last@9", "x"), "F001", "@3, @4"),
        (("train", "--resume", "runs"), "F001", "runs/tiny-0002, runs/tiny-0001"),
        (("train", "--resume", "tiny-0003"), "F001", "tiny-000"),
        (("runs", "show", "tiny-0003"), "F001", "tiny-000"),
        (("runs", "report", "runs"), "F001", "runs/tiny-0002"),
        (("runs", "prune", "nope"), "F001", "nope"),
        (("runs", "show", "last@4"), "F001", "name the run: last;"),
        (("runs", "diff", "tiny-0001@6", "last"), "F001", "name the run: tiny-0001;"),
        (("runs", "report", "last@9"), "F001", "@3, @4"),
        (("train", "--resume", "last@4"), "F001", "name the run: last;"),
    ],
)
def test_what_is_not_there(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: str, named: str
) -> None:
    monkeypatch.setattr(download, "fetch", lambda *_: pytest.fail("a local name went to the hub"))
    done = run(*words)
    assert done.code == 5 and f"error[{code}]" in done.err and named in done.err, done.err


def test_no_runs_at_all(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("eval", "last", "absent.csv")
    assert done.code == 5 and "no runs in runs" in done.err and "headway train" in done.err


def test_the_hub_offline_says_that_nothing_local_has_the_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> Path:
        raise NetworkError("N001", "org/name could not be fetched", "connect")

    monkeypatch.setattr(download, "fetch", lost)
    done = run("run", "org/name", "x")
    assert done.code == 6 and "N001" in done.err and "no folder and no run" in done.err


def test_a_folder_that_is_read_only(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A signal of the system, whatever was being written: the path and the reason, and not a full disk."""

    def refuse(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    done = run("export", "tiny-0001", tmp_path / "out")
    assert done.code == 5 and "error[F007]" in done.err and "read-only" in done.err and str(tmp_path) in done.err
    monkeypatch.setattr(Path, "write_bytes", refuse)
    done = run("runs", "report", "tiny-0001")
    assert done.code == 5 and "error[F007]" in done.err and "report" in done.err


def test_a_blank_in_a_text_for_a_model_that_fills_none(run: Run) -> None:
    for text in ("the [MASK] dog", "the ___ dog", "<mask>"):
        assert "headway train mlm" in run("run", "tiny-0001", text, "--tokens", "1").err
    assert "mlm" not in run("run", "tiny-0001", "the _ dog", "--tokens", "1").err


def test_a_file_that_is_given_as_a_text(run: Run) -> None:
    done = run("run", "tiny-0001", "text.txt", "--tokens", "1")
    assert done.code == 0 and "--file text.txt" in done.err and "--chat" not in done.err
    assert "--file" not in run("run", "tiny-0001", "--file", "text.txt", "--tokens", "1").err


def test_settings_of_a_beam_search_without_one(run: Run) -> None:
    done = run("run", "tiny-0001", "the", "n_best=3")
    assert done.code == 3 and "error[C004]" in done.err and "--beam" in done.err
    assert "■" in run("run", "tiny-0001", "the", "--beam", "2", "--tokens", "2", "--trace").err


@torch.no_grad()
def test_every_check_is_explained() -> None:
    checks = _ModelChecks(Transformer(preset("gpt2-tiny")), None, 0)
    assert {"compiled = eager", *checks.table()} <= MEANINGS.keys()


def test_more_gpus_than_there_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.cli import train as verb

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    done = run("train", "tiny", "gpus=3")
    assert done.code == 3 and "error[C004]" in done.err and "gpus=2" in done.err
    told: list[str] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    verb._check_gpus(2, told.append)
    assert "no GPU" in told[0] and "gpus=2" in told[0]


def test_a_signal_with_the_last_step_ends_a_finished_run(tmp_path: Path) -> None:
    run = stop_after(begin(tmp_path), 6)
    assert run.loop.stop_signal == 0
    assert read_run(run.folder).status == "finished"


def test_a_signal_while_the_model_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.train import result

    real = result._write_model

    def late(*args: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        real(*args)

    monkeypatch.setattr(result, "_write_model", late)
    folder = train(begin(tmp_path), quiet).folder
    assert read_run(folder).status == "finished"


def test_one_of_a_thing() -> None:
    told = [counted(n, nouns) for nouns in ("rows", "processes", "batches", "boxes") for n in (1, 2000)]
    assert told[::2] == ["1 row", "1 process", "1 batch", "1 box"] and told[1] == "2,000 rows"
