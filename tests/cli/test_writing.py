"""`headway run`: drawing, searching, scoring, talking; on a tiny model that knows nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headway.data.vocabulary import train_tokenizer
from headway.hub.folder import save_model
from headway.model.model import Model
from headway.presets import gpt2

ROOT = Path(__file__).resolve().parents[2]
CHATML = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    tokenizer = train_tokenizer("bytes", ["abc"])
    tokenizer.config["chat_template"] = CHATML
    return save_model(Model(gpt2(2, 16, 2, vocab=256, length=128)), tmp_path_factory.mktemp("run") / "model", tokenizer)


def run(*words: str | Path, given: str = "") -> tuple[int, str, str]:
    command = [sys.executable, "-m", "headway", "run", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, input=given.encode(), env=env, capture_output=True, timeout=120)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode()


def test_the_same_seed_writes_the_same(folder: Path, tmp_path: Path) -> None:
    words = [folder, "abc", "--tokens", "12", "--seed", "3", "temperature=0.9", "top_k=40", "-q"]
    trace = tmp_path / "trace.json"
    first, again = run(*words), run(*words, "--trace", trace)
    assert first[0] == 0 and first[:2] == again[:2] and first[1].startswith("abc")
    steps = json.loads(trace.read_text())
    assert len(steps) == 12 and all(len(step["best"]) == 5 for step in steps)


def test_beams_come_best_first(folder: Path) -> None:
    code, out, err = run(folder, "abc", "--beam", "3", "--tokens", "4", "n_best=3", "-q")
    assert code == 0, err
    values = [float(line.split()[0]) for line in out.splitlines()]
    assert len(values) == 3 and values == sorted(values, reverse=True)


def test_texts_are_scored_and_spoken_to(folder: Path) -> None:
    code, out, err = run(folder, "--score", "abcd", "ab", "-q")
    assert code == 0 and [line.split()[-1] for line in out.splitlines()] == ["abcd", "ab"], err
    assert [line.split()[1] for line in out.splitlines()] == ["4", "2"]
    code, out, err = run(folder, "--chat", "top_k=0", "--tokens", "5", "--seed", "1", "-q", given="hello\nagain\n")
    assert code == 0 and out, err
    alone = run(folder, "<user>hello\n<assistant>", "--tokens", "5", "--seed", "1", "-q")[1]
    assert out.startswith(alone.removeprefix("<user>hello\n<assistant>").rstrip("\n"))


def test_mistakes_are_named(folder: Path) -> None:
    for words, code, what in (
        (("abc", "more"), 2, "U001"),
        (("abc", "temprature=1"), 3, 'did you mean "temperature"'),
        (("abc", "top_p=7"), 3, "C003"),
        (("--score", ""), 4, "D001"),
    ):
        done = run(folder, *words)
        assert done[0] == code and what in done[2] and "Traceback" not in done[2], done
