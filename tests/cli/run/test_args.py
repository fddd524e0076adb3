"""Settings of `headway run` that no model takes are refused before one is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.cli.run.args import RunArgs
from headway.config.presets import gpt2
from headway.config.recipe import DataConfig
from headway.config.toml import build
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import HeadwayError, NotFoundError
from headway.generate.beam.search import Beam
from headway.generate.sampling.sampler import Sampling
from headway.hub.folder import save_model
from headway.model.model import Transformer
from headway.tasks.recipe import Recipe, with_settings
from headway.tasks.registry import task_names
from tests.cli.conftest import Run

ABSENT = "the loader was called"
EXIT = {"U": 2, "C": 3, "F": 5}
"""The exit code by the first letter of an error's code."""


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were asked for; there is none."""
    asked: list[str] = []

    def load(name: str, **_: Any) -> Any:
        asked.append(name)
        raise NotFoundError("F001", ABSENT)

    monkeypatch.setattr("headway.api.load", load)
    return asked


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["a", "temprature=1"], "C014", "temperature"),
        (["a", "temperature=hot"], "C002", "temperature"),
        (["a", "top_p=7"], "C003", "top_p"),
        (["a", "seed=x"], "C002", "seed"),
        (["temperature=hot"], "C002", "temperature"),
        (["--chat", "tempo=1"], "C014", "tempo"),
        (["--chat", "top_k=-1"], "C003", "top_k"),
        (["a", "--tokens", "-5"], "C003", "max_tokens"),
        (["a", "--beam", "-1"], "C003", "width"),
        (["a", "--beam", "2", "temperature=1"], "C014", "temperature"),
        (["a", "--beam", "2", "groups=x"], "C002", "groups"),
        (["a", "top=0"], "U001", "top=0"),
        (["a", "nbest=2"], "C014", "n_best"),
        (["a", "n_best=all"], "U001", "n_best=all"),
        (["a", "task=clasify"], "U001", "classify"),
        (["task=clasify", "a"], "U001", "classify"),
        (["a", "data.lenght=3"], "C014", "length"),
        (["a", "data.bad_rows=skipp"], "C003", "data.bad_rows"),
        (["a", "data=file.txt"], "U001", "data=file.txt"),
        (["a", "seq2seq.beam=0"], "C003", "seq2seq.beam"),
        (["--score"], "U001", "--score"),
        (["--file", "x.txt", "abc", "top_k=1"], "U001", "--file"),
        (["--file", "x.txt", "colour=red"], "C014", "colour"),
        (["--file", "x.txt", "--score", "data.txt=x"], "C014", "data.txt"),
        (["abc", "--beam", "2", "--draft", "x"], "U001", "--draft"),
        (["--score", "abc", "--trace"], "U001", "--trace"),
        (["abc", "--regex", "a", "--schema", "{}"], "U001", "--regex"),
        (["abc", "--schema", "{nope"], "C001", "--schema"),
        (["abc", "--schema", "absent.json"], "F001", "absent.json"),
    ],
)
def test_what_is_wrong_for_every_model(run: Run, loads: list[str], words: list[str], code: str, named: str) -> None:
    done = run("run", "some/model", *words)
    assert done.err.startswith(f"error[{code}]: ") and named in done.err and "Traceback" not in done.err, done
    assert loads == [] and done.out == "" and done.code == EXIT[code[0]]


@pytest.mark.parametrize(
    "words",
    [
        ["a", "temperature=0.5", "stop_strings=x"],
        ["--chat", "top_k=3"],
        ["a", "top=3", "task=classify"],
        ["a", "b", "pair=x"],
        ["a", "more"],
        ["x=1"],
        ["a", "b = c", "d=e f"],
        ["a", "data.overlap=500"],
        ["a", "--beam", "2", "n_best=3"],
        ["--score", "a=b", "c=d"],
        ["--file", "-", "data.text=body", "temperature=0"],
    ],
)
def test_what_some_model_takes(run: Run, loads: list[str], words: list[str]) -> None:
    done = run("run", "some/model", *words)
    assert done.code == 5 and ABSENT in done.err and loads == ["some/model"]


def generates(args: RunArgs) -> None:
    build(Beam if args.beam else Sampling, args.overrides)


def predicts(args: RunArgs) -> None:
    assert args.texts or args.args
    own = {name: value for name, value in args.settings.items() if name not in ("task", "top", "n_best")}
    for name in ("top", "n_best"):
        if name in args.settings and (type(args.settings[name]) is not int or args.settings[name] < 1):
            raise NotFoundError("F001", name)
    for length in (16, 1000):
        task = next((name for name in own if name in task_names()), "classify")
        try:
            with_settings(Recipe(task=task, data=DataConfig(length=length)), own)
        except HeadwayError as error:
            wrong = error
        else:
            return
    raise wrong


def refused(use: Callable[[RunArgs], None], args: RunArgs) -> bool:
    try:
        use(args)
    except HeadwayError:
        return True
    return False


WORDS = st.sampled_from([
    "a", "two words", "x=1", "temperature=0", "temperature=x", "top_k=2", "top=2", "top=x", "n_best=2", "n_best=9",
    "n_best=x", "data.length=5", "data.overlap=20", "data.length=x", "data.lenght=5", "data.overlap=-1", "a=b c", "=",
    "seq2seq.beam=2", "seq2seq.beam=x", "pair=a", "pair=", "stop_strings=b", "stop_strings=b c", "groups=1", "seed=1.5",
    "embed.pool=first", "embed.pool=last", "tag.x=1", "a.b.c=1", "early=true",
])  # fmt: skip


@given(st.lists(WORDS, max_size=4), st.sampled_from([0, 2, 4]))
def test_nothing_is_refused_that_a_model_takes(words: list[str], beam: int) -> None:
    """Slow twin: what is refused before loading is refused by models that generate and by models that predict."""
    args = RunArgs(args=tuple(words), tokens=10, beam=beam)
    assert not refused(RunArgs.check, args) or (refused(generates, args) and refused(predicts, args))


@pytest.mark.parametrize(
    ("words", "beam", "chat", "text", "settings"),
    [
        ([], 0, False, "", []),
        (["a", "b=1"], 0, False, "a", ["b=1"]),
        (["top_k=1", "b=1"], 0, False, "", ["top_k=1", "b=1"]),
        (["top_k=1 is a line"], 0, False, "top_k=1 is a line", []),
        (["top_k=1"], 2, False, "top_k=1", []),
        (["groups=1"], 2, False, "", ["groups=1"]),
        (["x=1"], 0, False, "x=1", []),
        (["x=1"], 0, True, "", ["x=1"]),
        (["x=1 is what?"], 0, True, "x=1 is what?", []),
        (["stop_strings=the end"], 0, True, "", ["stop_strings=the end"]),
        (["=", "-"], 0, True, "=", ["-"]),
    ],
)
def test_a_text_may_be_left_out(words: list[str], beam: int, chat: bool, text: str, settings: list[str]) -> None:
    args = RunArgs(args=tuple(words), beam=beam, chat=chat)
    assert args._prompt_and_settings == (text, settings)


def test_settings_without_a_text(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Transformer(gpt2(1, 16, 2, vocab=256, length=32))
    folder = save_model(model, tmp_path / "m", train_tokenizer("bytes", []))
    plain = run("run", folder, "", "temperature=0", "--tokens", "5", "-q", "--device", "cpu")
    assert plain.code == 0 and plain.out
    for more in ([], ["task=lm"]):
        assert run("run", folder, "temperature=0", *more, "--tokens", "5", "-q", "--device", "cpu") == plain
