"""`headway run`, `headway eval` and a server with a model that turns texts into others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headway.data.tokenizers.tokenizer import load_tokenizer
from headway.tasks.recipe import load_recipe
from headway.train.run import start, train
from tests.cli.conftest import Run

WORDS = ["model.depth=1", "model.width=16", "model.heads=2", "data.vocab=300", "train.steps=3", "train.batch=8",
         "train.warmup=1", "seq2seq.eval_texts=2", "seq2seq.max_new_tokens=8", "train.eval_every=3"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.tasks.seq2seq.training.GENERATED", 60)
        return train(start(*load_recipe("translate", [*WORDS, f"out={out}"])), lambda kind, **facts: None).folder


def test_a_text_on_the_command_line(folder: Path, run: Run) -> None:
    plain = run("run", folder, "A dog sees the king.", "-q")
    assert plain.code == 0 and len(plain.out.splitlines()) == 1
    best = run("run", folder, "A dog sees the king.", "n_best=3", "--beam", "2", "-q").out.splitlines()
    assert len(best) == 3 and all(float(line.split()[0]) <= 0 for line in best)
    one = json.loads(run("run", folder, "A dog.", "--json", "-q").out)
    assert one.keys() == {"text", "new", "score"} and one["text"] == "A dog."
    wide = json.loads(run("run", folder, "A dog.", "--json", "seq2seq.beam=1", "-q").out)
    assert wide["score"] != one["score"] or wide["new"] == one["new"]


def test_alignments_are_shown(folder: Path, run: Run) -> None:
    lines = run("run", folder, "A dog sees the king.", "--align", "-q").out.splitlines()
    assert lines[0] == "A dog sees the king." and len(lines) == 2 + len(lines[1].split())
    for line, word in zip(lines[2:], lines[1].split(), strict=True):
        assert line.split()[0] == word and line.split()[-1] in lines[0].split() and "%" in line
    found = json.loads(run("run", folder, "A dog.", "--align", "--json", "-q").out)
    assert found["alignment"]["text"] == ["A", "dog."] and found["alignment"]["new"] == found["new"].split()


def test_files_and_pipes(folder: Path, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("A dog sees the king.\n\nThe cat likes it.\n")
    rows = [json.loads(line) for line in run("run", folder, "--file", path, "--beam", "3", "-q").out.splitlines()]
    assert [(row["line"], row["text"]) for row in rows] == [(1, "A dog sees the king."), (3, "The cat likes it.")]
    alone = json.loads(run("run", folder, "A dog sees the king.", "--beam", "3", "--json", "-q").out)
    assert rows[0]["new"] == alone["new"] and rows[0]["score"] == pytest.approx(alone["score"], abs=1e-4)


@pytest.mark.parametrize(("words", "said"), [
    (["a", "--chat"], "--chat is for models that continue a text"), (["a", "n_best=0"], "n_best=0"), ([], "no input"),
    (["a", "--score"], "--score does not go with sequence to sequence"), (["a", "pair=b"], "pair"),
])  # fmt: skip
def test_what_does_not_go_together(folder: Path, run: Run, words: list[str], said: str) -> None:
    done = run("run", folder, *words)
    assert done.code == 2 and said in done.err


def test_an_evaluation_against_itself(folder: Path, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("source\ttarget\n" + "A dog sees it.\tUn kova noris.\nThe cat is here.\tSa felma noris.\n" * 4)
    done = run("eval", folder, path, "--against", folder, "-q")
    assert done.code == 0, done.err
    assert "tok:13a" in done.out and "bleu" in done.out and "no significant difference" in done.out
    found = json.loads(run("eval", folder, path, "--json", "-q").out)
    assert found["task"] == "seq2seq" and found["examples"] == 8 and "bleu" in found["figures"]


def test_a_prefix_says_what_to_do(folder: Path, run: Run) -> None:
    """As for T5: a setting of any use of a model, put before each text and counted with it."""
    words = ["--json", "-q", "seq2seq.split=never"]
    told = json.loads(run("run", folder, "A dog.", "seq2seq.prefix=the king: ", *words).out)
    plain = json.loads(run("run", folder, "the king: A dog.", *words).out)
    assert (told["new"], told["score"]) == (plain["new"], plain["score"]) and told["text"] == "A dog."
    assert told["score"] != json.loads(run("run", folder, "A dog.", *words).out)["score"]


def test_two_vocabularies(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train, run, align, evaluate: what is written is of the other language, whatever ids it has."""
    monkeypatch.setattr("headway.tasks.seq2seq.training.GENERATED", 60)
    words = [*WORDS, "data.tokenizer=words", "data.vocab=0", "seq2seq.vocabulary=separate", f"out={tmp_path}"]
    done = run("train", "translate", *words, "-q")
    assert done.code == 0, done.err
    (place,) = tmp_path.glob("translate-*")
    found = json.loads(run("run", place, "A dog sees the king.", "--align", "n_best=2", "--json", "-q").out)
    assert len(found["best"]) == 2 and found["alignment"]["new"] == found["new"].split()
    reads = load_tokenizer(place)
    known, other = (
        {word for i in range(side.vocab_size) for word in re.findall(r"\w+", side.decode([i]))}
        for side in (reads.target, reads)
    )
    said = {word for row in found["best"] for word in re.findall(r"\w+", row["new"])}
    assert said and said <= known and not said <= other
    path = tmp_path / "pairs.tsv"
    path.write_text("source\ttarget\n" + "A dog sees it.\tUn kova noris.\n" * 3)
    assert run("eval", place, path, "-q").code == 0
