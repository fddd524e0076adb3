"""`headway inspect`: pictures, JSON and pages; questions that do not go together."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from headway.config.presets import gpt2
from headway.data.tokenizers.train import train_tokenizer
from headway.hub.folder import save_model
from headway.model.model import Transformer
from tests.cli.conftest import Run


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "inspect")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return save_model(
        Transformer(gpt2(2, 32, 4, vocab=256, length=64)),
        tmp_path_factory.mktemp("inspect") / "model",
        train_tokenizer("bytes", ["abc"]),
    )


def test_a_picture_and_what_to_do_next(run: Run, folder: Path) -> None:
    done = run(folder, "To be", "--quiet")
    assert (done.code, done.err) == (0, "")
    for part in ("5 tokens", "next token", "decoder attention", "logit lens"):
        assert part in done.out
    assert run(folder, "To be").err.strip() == f"next: headway inspect {folder} 'To be' --html x.html"


def test_the_json_has_everything(run: Run, folder: Path) -> None:
    found = json.loads(run(folder, "To be", "--json").out)
    decoder = found["kinds"]["decoder"]
    assert len(decoder["maps"]) == 2 and len(decoder["head_stats"]) == 8
    assert set(found) >= {"predictions", "lens", "probabilities"}


def test_a_page(run: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "inside.html"
    done = run(folder, "To be", "--html", path, "--why")
    assert done.code == 0 and done.err.strip().endswith(f"{path} written: open it in a browser")
    assert "What speaks for" in path.read_text()


def test_changes_and_questions(run: Run, folder: Path) -> None:
    assert "with 2 changes" in run(folder, "To be", "--ablate", "0.1", "--scale", "1.ffn=0.5").out
    steered = run(folder, "To be", "--steer", "aa|bb", "--away", "cc", "--layer", "1")
    assert "with 1 change" in steered.out
    assert "what speaks for" in run(folder, "To be", "--why").out
    assert "layer × head" in run(folder, "To be", "--patch", "To me").out
    assert json.loads(run(folder, "To be", "--word", "be", "--beside", "be me", "--json").out)["word"] == "be"


def test_the_weights_without_an_input(run: Run, folder: Path) -> None:
    done = run(folder)
    assert "2 layers, 32 wide, 4 heads of 8" in done.out and "positions:" in done.out
    assert done.err.strip().startswith("next: headway inspect")
    assert set(json.loads(run(folder, "--json").out)) >= {"parts", "positions", "parameters"}
    assert "nearest to a" in run(folder, "--near", "a").out
    assert "3 words" in run(folder, "--map", "a,b,c").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--why"], "--why needs an input"),
        (["--html", "x.html"], "--html needs an input"),
        (["To", "--near", "a"], "--near and --map look at the weights"),
        (["To", "--why", "--patch", "Ta"], "--why and --patch are two questions"),
        (["To", "--why", "--ablate", "0"], "--why looks at the model as it is"),
        (["To", "--word", "To"], "--word needs --beside"),
        (["To", "--steer", "a"], "--steer needs --away and --layer"),
        (["To", "--scale", "0"], "--scale 0: a part, = and a number"),
        (["To", "--scale", "0=x"], "--scale 0=x: a part, = and a number"),
    ],
)
def test_questions_that_do_not_go_together(run: Run, folder: Path, words: list[str], message: str) -> None:
    done = run(folder, *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([""], "the text is empty"),
        (["To", "--layer", "5"], "no layer 5: the model has 2"),
        (["To", "--kind", "cross"], "no attention 'cross'"),
        (["To", "--ablate", "x"], "names no part of a model"),
        (["To", "--word", "no", "--beside", "To"], "the word 'no' is not in"),
    ],
)
def test_bad_input(run: Run, folder: Path, words: list[str], message: str) -> None:
    done = run(folder, *words)
    assert (done.code, done.out) == (4, "")
    assert message in done.err
