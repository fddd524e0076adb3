"""Settings of `headway run` that no model takes are refused before one is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.cli.run import predict as reading
from headway.cli.run.args import check_args, generation_overrides, generation_settings, split_text
from headway.config.presets import gpt2
from headway.config.recipe import DataConfig
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import HeadwayError, NotFoundError
from headway.hub.folder import save_model
from headway.model.model import Transformer
from headway.tasks.recipe import Recipe, with_settings
from headway.tasks.registry import task_names
from tests.cli.conftest import Run

ABSENT = "the loader was called"


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
    ("words", "code", "said"),
    [
        (["a", "temprature=1"], 3, 'did you mean "temperature"'),
        (["a", "temperature=hot"], 3, "temperature = 'hot' should be a number"),
        (["a", "top_p=7"], 3, "top_p = 7.0 is outside"),
        (["a", "seed=x"], 3, "seed = 'x'"),
        (["temperature=hot"], 3, "temperature = 'hot'"),
        (["--chat", "tempo=1"], 3, "unknown setting tempo"),
        (["--chat", "top_k=-1"], 3, "top_k = -1"),
        (["a", "--tokens", "-5"], 3, "max_tokens = -5"),
        (["a", "--beam", "-1"], 3, "width = -1"),
        (["a", "--beam", "2", "temperature=1"], 3, "unknown setting temperature"),
        (["a", "--beam", "2", "groups=x"], 3, "groups = 'x'"),
        (["a", "top=0"], 2, "top=0"),
        (["a", "nbest=2"], 3, 'did you mean "n_best"'),
        (["a", "n_best=all"], 2, "n_best=all"),
        (["a", "task=clasify"], 2, 'did you mean "classify"'),
        (["task=clasify", "a"], 2, 'did you mean "classify"'),
        (["a", "data.lenght=3"], 3, 'did you mean "length"'),
        (["a", "data.bad_rows=skipp"], 3, "data.bad_rows = 'skipp'"),
        (["a", "data=file.txt"], 2, "data is a group of settings"),
        (["a", "seq2seq.beam=0"], 3, "seq2seq.beam = 0"),
        (["--score"], 2, "--score wants a text"),
        (["--file", "x.txt", "abc", "top_k=1"], 2, "--file does not go with a text"),
        (["--file", "x.txt", "colour=red"], 3, "unknown setting colour"),
        (["--file", "x.txt", "--score", "data.txt=x"], 3, "data.txt"),
    ],
)
def test_what_is_wrong_for_every_model(run: Run, loads: list[str], words: list[str], code: int, said: str) -> None:
    done = run("run", "some/model", *words)
    assert done.code == code and said in done.err and "Traceback" not in done.err, done
    assert loads == [] and done.out == ""


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


def writes(words: list[str], beam: int) -> None:
    generation_settings(generation_overrides(split_text(words, beam, chat=False)[1], 10, None, beam), beam)


def reads(words: list[str], beam: int) -> None:
    texts, settings, _ = reading.split_args(words)
    assert texts or words
    own = {name: value for name, value in settings.items() if name not in ("task", "top", "n_best")}
    for name in ("top", "n_best"):
        if name in settings and (type(settings[name]) is not int or settings[name] < 1):
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


def refused(what: Any, words: Sequence[str], beam: int) -> bool:
    try:
        what(words, beam)
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
    """Slow twin: what is refused beforehand is refused by models that write and by models that read."""
    early = refused(lambda w, b: check_args(split_text(w, b, chat=False)[1], 10, None, b), words, beam)
    assert not early or (refused(writes, words, beam) and refused(reads, words, beam))


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
    assert split_text(words, beam, chat=chat) == (text, settings)


def test_settings_without_a_text(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Transformer(gpt2(1, 16, 2, vocab=256, length=32))
    folder = save_model(model, tmp_path / "m", train_tokenizer("bytes", []))
    plain = run("run", folder, "", "temperature=0", "--tokens", "5", "-q", "--device", "cpu")
    assert plain.code == 0 and plain.out
    for more in ([], ["task=lm"]):
        assert run("run", folder, "temperature=0", *more, "--tokens", "5", "-q", "--device", "cpu") == plain
