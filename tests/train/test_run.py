"""A run from recipe to folder: what it leaves behind, and that stopping it anywhere changes nothing."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headway.errors import ConfigError, DataError, NotFoundError
from headway.hub.folder import load_model
from headway.tasks.recipe import load_recipe
from headway.tasks.registry import task_names
from headway.train.log.events import read_log
from headway.train.run import Run, last_folder, resume, start, train

SMALL = [
    *("model.depth=1", "model.width=16", "model.heads=2", "model.dropout=0.1", "data.length=16", "train.batch=4"),
    *("train.steps=24", "train.eval_every=12", "train.sample_every=12", "train.save_every=5", "train.warmup=4"),
]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog, é 漢 🙂\n" * 30, encoding="utf-8")
    return path


def small(tmp_path: Path, text: Path, *more: str) -> Run:
    name, recipe = load_recipe("tiny", [*SMALL, f"data.train={text}", f"out={tmp_path / 'runs'}", *more])
    return start(name, recipe)


def nothing(kind: str, **facts: Any) -> None:
    pass


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def losses(folder: Path) -> list[float]:
    return [e["loss"] for e in read_log(folder / "run" / "log.jsonl") if e["event"] == "step"]


def test_a_finished_run_is_a_folder_others_open(tmp_path: Path, text: Path) -> None:
    import transformers

    run = train(small(tmp_path, text), nothing)
    folder = run.folder
    assert folder.name == "tiny-0001"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert type(model).__name__ == "GPT2LMHeadModel"
    assert tokenizer.decode(tokenizer("fox é 漢")["input_ids"]) == "fox é 漢"
    kinds = [e["event"] for e in read_log(folder / "run" / "log.jsonl")]
    assert kinds[0] == "start" and kinds[-1] == "end"
    assert kinds.count("step") == 24 and kinds.count("eval") == 2 and kinds.count("sample") == 2
    assert (folder / "run" / "recipe.toml").exists()
    assert last_folder(tmp_path / "runs") == folder
    assert small(tmp_path, text).folder.name == "tiny-0002"


@pytest.mark.parametrize("stop", [1, 5, 13])
def test_stopped_and_resumed_is_the_same_run(stop: int, tmp_path: Path, text: Path) -> None:
    straight = train(small(tmp_path, text), nothing)
    run = small(tmp_path, text)

    def interrupt(kind: str, **facts: Any) -> None:
        if kind == "step" and facts["step"] == stop:
            run.loop.stop_signal = signal.SIGTERM

    train(run, interrupt)
    assert run.loop.progress.step == stop
    assert not (run.folder / "model.safetensors").exists()
    again = train(resume(run.folder, lambda path, why: pytest.fail(why)), nothing)
    assert losses(again.folder) == losses(straight.folder)
    assert weights(again.folder) == weights(straight.folder)


def test_accumulation_is_part_of_the_promise(tmp_path: Path, text: Path) -> None:
    runs = [train(small(tmp_path, text, f"train.accumulate={n}", "model.dropout=0.0"), nothing) for n in (1, 2)]
    a, b = (losses(run.folder) for run in runs)
    assert a == pytest.approx(b, rel=1e-4)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, text: Path, number: int, code: int) -> None:
    arguments = [sys.executable, "-m", "headway", "train", "tiny", *SMALL, f"data.train={text}", "train.steps=100000"]
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


def test_a_run_without_a_model_says_how_to_get_one(tmp_path: Path, text: Path) -> None:
    run = small(tmp_path, text)
    with pytest.raises(NotFoundError, match=r"has not come to its end: it has no model yet") as error:
        load_model(run.folder)
    assert error.value.hint == f"go on with it: headway train --resume {run.folder}"


def test_a_run_that_cannot_start_leaves_no_folder(tmp_path: Path, text: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no such file"):
        small(tmp_path, tmp_path / "missing.txt")
    with pytest.raises(ConfigError, match=r"d_model = 15"):
        small(tmp_path, text, "model.width=15")
    assert list((tmp_path / "runs").iterdir()) == []


def test_mistakes_are_named(tmp_path: Path, text: Path) -> None:
    with pytest.raises(NotFoundError, match=r'did you mean "tiny"'):
        load_recipe("tinny")
    with pytest.raises(ConfigError, match=r'unknown setting .train\.stepz.* — did you mean "steps"'):
        load_recipe("tiny", ["train.stepz=5"])
    with pytest.raises(ConfigError, match="give one, not steps and minutes"):
        load_recipe("tiny", ["train.steps=5", "train.minutes=1"])
    with pytest.raises(ConfigError, match=r"train\.batch = 5 is not divided by train\.accumulate = 2"):
        load_recipe("tiny", ["train.batch=5", "train.accumulate=2"])
    with pytest.raises(NotFoundError, match="no runs"):
        last_folder(tmp_path / "none")
    assert load_recipe("tiny", ["train.minutes=2"])[1].train.steps is None


@pytest.mark.parametrize(
    "word",
    [
        *("train.steps=0", "train.steps=-5", "train.minutes=0", "train.epochs=-1", "train.batch=-1", "train.lr=-0.1"),
        *("train.warmup=-1", "train.unfreeze=-1", "train.ema=1", "model.freeze=-1", "model.lora=-2", "model.depth=0"),
        *(
            "model.dropout=1",
            "data.vocab=-1",
            "data.noise=1",
            "classify.r_drop=-1",
            "answer.n_best=0",
            "seq2seq.beam=0",
        ),
    ],
)
def test_numbers_that_mean_nothing_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=rf"{word.replace('=', ' = ')}(\.0)? should be (at least|above) "):
        task = word.partition(".")[0]
        load_recipe("tiny", [word, *([f"task={task}"] if task in task_names() else [])])


@pytest.mark.parametrize(
    "word",
    ["model.depth=2", "model.width=8", "model.dropout=0.1", "model.norm=dyt", "data.tokenizer=bpe", "data.vocab=9"],
)
def test_what_a_trained_model_decides_is_not_to_be_said(word: str) -> None:
    with pytest.raises(ConfigError, match=rf"{word.split('=')[0]} is for a new model: ./m has a (shape|vocabulary)"):
        load_recipe("classify", ["model.from=./m", word])
    assert load_recipe("classify", [word])
    assert load_recipe("classify", ["model.from=./m", "model.freeze=2", "model.lora=4", "data.length=9"])


def test_what_is_frozen_has_learned_something() -> None:
    with pytest.raises(ConfigError, match=r"model\.freeze needs a pretrained model"):
        load_recipe("classify", ["model.freeze=1"])


def test_a_word_is_not_blamed_on_a_line_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^error\[C002\]: train\.batch = 'x' should be a whole number"):
        load_recipe("tiny", ["train.batch=x"])
    with pytest.raises(ConfigError, match=r"^error\[C014\]: unknown setting 'train\.batsh' —"):
        load_recipe("tiny", ["train.batsh=1"])
    path = tmp_path / "own.toml"
    path.write_text("[train]\nsteps = 1\nbatch = 'x'\n")
    with pytest.raises(ConfigError, match=r"train\.batch = 'x' \(line 3\)"):
        load_recipe(str(path), ["train.lr=1"])


def test_lists_need_no_brackets() -> None:
    recipe = load_recipe("tiny", ["model.lora_targets=qkv,up", "train.sinks=tensorboard"])[1]
    assert (recipe.model.lora_targets, recipe.train.sinks) == (("qkv", "up"), ("tensorboard",))


@pytest.mark.parametrize("task", ["lm", "chat", "mlm", "classify", "tag", "answer", "embed", "translate"])
def test_a_test_file_that_is_not_there_costs_no_training(task: str, tmp_path: Path) -> None:
    name, recipe = load_recipe(task, [f"data.test={tmp_path / 'none.jsonl'}", f"out={tmp_path}", "train.steps=1"])
    with pytest.raises(NotFoundError, match=r"none\.jsonl"):
        start(name, recipe)
    assert not list(tmp_path.iterdir())


def test_neither_does_one_that_cannot_be_used(tmp_path: Path) -> None:
    for part, labels in (("train", "ab"), ("test", "ac")):
        rows = "".join(f"some text {i},{labels[i % 2]}\n" for i in range(40))
        (tmp_path / f"{part}.csv").write_text("text,label\n" + rows)
    words = [f"data.{part}={tmp_path}/{part}.csv" for part in ("train", "test")]
    name, recipe = load_recipe("classify", [*words, f"out={tmp_path / 'runs'}", "train.steps=1", "model.depth=1"])
    with pytest.raises(DataError, match=r"test\.csv line 3: label 'c' is unknown"):
        start(name, recipe)


def test_bad_rows_of_the_test_are_counted(tmp_path: Path) -> None:
    for part, labels in (("train", "ab"), ("test", "abab")):
        rows = "".join(f"some text {i},{label}\n" for i, label in enumerate(labels * 10))
        (tmp_path / f"{part}.csv").write_text("text,label\n" + rows + ("other,c\n,a\n" if part == "test" else ""))
    words = [f"data.{part}={tmp_path}/{part}.csv" for part in ("train", "test")]
    more = ["train.steps=1", "model.depth=1", "data.bad_rows=skip", f"out={tmp_path}"]
    events: list[tuple[str, dict[str, Any]]] = []
    train(start(*load_recipe("classify", [*words, *more])), lambda kind, **facts: events.append((kind, facts)))
    (data,) = [facts for kind, facts in events if kind == "data"]
    assert (data["bad_rows"], data["bad_tests"]) == (0, 2)


def test_a_model_is_saved_before_it_is_tested(tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small(tmp_path, text, f"data.test={text}")
    monkeypatch.setattr(type(run.task), "test", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(run, nothing)
    assert (run.folder / "model.safetensors").exists()
