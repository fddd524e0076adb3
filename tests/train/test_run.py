"""A run from recipe to folder: what it leaves behind, and that stopping it anywhere changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway.errors import ConfigError, DataError, NotFoundError
from headway.hub.checkpoint import sealed, verify
from headway.hub.folder import load_model
from headway.hub.run_names import resolve_run
from headway.runs.events import read_events
from headway.tasks.recipe import load_recipe
from headway.train.run import Run, resume, start, train
from tests.train.conftest import SMALL, TEXT, begin, events, losses, never, quiet, stop_after

ROOT = Path(__file__).resolve().parents[2]
LONGER = ["train.steps=24", "train.eval_every=12", "train.sample_every=12", "train.save_every=5", "model.dropout=0.1"]


def test_a_finished_run_is_a_folder_others_open(tmp_path: Path) -> None:
    import transformers

    folder = train(begin(tmp_path, *LONGER), quiet).folder
    assert folder.name == "tiny-0001"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert type(model).__name__ == "GPT2LMHeadModel"
    assert tokenizer.decode(tokenizer("fox é 漢")["input_ids"]) == "fox é 漢"
    kinds = [event["event"] for event in read_events(folder / "run" / "log.jsonl")]
    assert kinds[0] == "start" and kinds[-1] == "end"
    assert kinds.count("step") == 24 and kinds.count("eval") == 2 and kinds.count("sample") == 2
    assert (folder / "run" / "recipe.toml").exists()
    assert resolve_run("last", tmp_path / "runs") == folder
    assert begin(tmp_path).folder.name == "tiny-0002"


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        *((stop, []) for stop in (1, 5, 13)),
        (5, ["train.unfreeze=2"]),
        (5, ["train.layer_decay=0.7", "train.unfreeze=1", "train.optimizer=muon"]),
    ],
)
def test_stopped_and_resumed_is_the_same_run(stop: int, words: list[str], tmp_path: Path) -> None:
    straight = train(begin(tmp_path, *LONGER, *words), quiet)
    run = stop_after(begin(tmp_path, *LONGER, *words), stop)
    assert not (run.folder / "model.safetensors").exists()
    again = train(resume(run.folder, never), quiet)
    assert losses(again.folder) == losses(straight.folder)
    first, second = ((one.folder / "model.safetensors").read_bytes() for one in (straight, again))
    assert first == second


def test_accumulation_is_part_of_the_promise(tmp_path: Path) -> None:
    runs = [train(begin(tmp_path, *LONGER, f"train.accumulate={n}", "model.dropout=0"), quiet) for n in (1, 2)]
    a, b = (losses(run.folder) for run in runs)
    assert a == pytest.approx(b, rel=1e-4)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, number: int, code: int) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    arguments = [sys.executable, "-m", "headway", "train", "tiny", *SMALL, "data.train=text.txt", "train.steps=100000"]
    child = subprocess.Popen(
        arguments, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True
    )
    log = tmp_path / "runs" / "tiny-0001" / "run" / "log.jsonl"
    end = time.time() + 60
    while time.time() < end and not (log.exists() and '"step": 3' in log.read_text()):
        time.sleep(0.05)
    child.send_signal(number)
    _, talk = child.communicate(timeout=60)
    assert child.returncode == code, talk
    assert "headway train --resume" in talk.splitlines()[-1]
    assert list((log.parent / "checkpoints").glob("step-*"))


def test_a_run_without_a_model_says_how_to_get_one(tmp_path: Path) -> None:
    run = begin(tmp_path)
    with pytest.raises(NotFoundError) as error:
        load_model(run.folder)
    assert f"headway train --resume {run.folder}" in error.value.hint


def test_a_run_that_cannot_start_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="F001"):
        begin(tmp_path, f"data.train={tmp_path / 'missing.txt'}")
    with pytest.raises(ConfigError, match="d_model = 15"):
        begin(tmp_path, "model.width=15")
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("task", ["lm", "chat", "mlm", "classify", "tag", "answer", "embed", "translate"])
def test_a_missing_test_file_is_found_before_training(task: str, tmp_path: Path) -> None:
    name, recipe = load_recipe(task, [f"data.test={tmp_path / 'none.jsonl'}", f"out={tmp_path}", "train.steps=1"])
    with pytest.raises(NotFoundError, match=r"none\.jsonl"):
        start(name, recipe)
    assert not list(tmp_path.iterdir())


def classifier(tmp_path: Path, bad_rows: str) -> Run:
    """A run whose test file has two rows that cannot be used."""
    rows = "text,label\n" + "".join(f"some text {i},{'ab'[i % 2]}\n" for i in range(40))
    (tmp_path / "train.csv").write_text(rows)
    (tmp_path / "test.csv").write_text(rows + "other,c\n,a\n")
    words = [f"data.{part}={tmp_path}/{part}.csv" for part in ("train", "test")]
    more = ["train.steps=1", "model.depth=1", f"data.bad_rows={bad_rows}", f"out={tmp_path / 'runs'}"]
    return start(*load_recipe("classify", [*words, *more]))


def test_a_bad_test_file_is_found_before_training(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"D007.*test\.csv line 4[23]"):
        classifier(tmp_path, "stop")


def test_bad_rows_of_the_test_are_counted(tmp_path: Path) -> None:
    (data,) = events(train(classifier(tmp_path, "skip"), quiet).folder, "data")
    assert (data["bad_rows"], data["bad_tests"]) == (0, 2)


def test_a_model_is_saved_before_it_is_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(tmp_path, f"data.test={tmp_path / 'text.txt'}")
    monkeypatch.setattr(type(run.task), "test", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(run, quiet)
    assert (run.folder / "model.safetensors").exists()


def test_an_older_checkpoint_is_resumed(tmp_path: Path) -> None:
    """Its counters have old names."""
    run = stop_after(begin(tmp_path), 3)
    (path,) = run.checkpoints.glob("step-*")
    manifest = verify(path)
    progress = manifest["state"]["progress"]
    progress |= {"usual": progress.pop("loss_ema"), "stale": progress.pop("evals_since_best")}
    (path / "manifest.json").write_bytes(sealed(manifest))
    assert resume(run.folder, never).loop.progress == run.loop.progress
