"""`headway eval`: a text, or questions; what does not go together is said before a model is loaded."""

from __future__ import annotations

import json
from contextlib import chdir
from functools import partial
from pathlib import Path

import pytest
import torch

from headway.cli import main
from headway.config.presets import gpt2
from headway.data.tokenizers.train import train_tokenizer
from headway.hub.folder import save_model
from headway.model.model import Transformer
from tests.cli.conftest import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = Transformer(gpt2(1, 16, 2, vocab=256, length=128))
    return save_model(model, tmp_path_factory.mktemp("eval") / "model", train_tokenizer("bytes", ["abc"]))


@pytest.fixture
def quiz(tmp_path: Path) -> Path:
    rows = [{"question": f"say {i}", "choices": ["x", "yes", "z"], "answer": "B"} for i in range(6)]
    path = tmp_path / "quiz.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "eval")


def test_choices(folder: Path, quiz: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "rows.jsonl"
    words = (folder, quiz, "task=choices", "shots=2", "template={question}\\nA:", "--device", "cpu")
    code, text, err = run(*words, f"out={out}")
    assert code == 0 and text.startswith(f"4 questions of {quiz}; 2 examples before each; by log-probability per byte")
    assert "Wilson, 95 %" in text and "chance         0.3333" in text and f"4 rows in {out}" in err
    code, text, _ = run(folder, f"data={quiz}", *words[2:], "--json", "-q")
    result = json.loads(text)
    assert (code, result["n"], result["task"], result["model"]) == (0, 4, "choices", str(folder))
    assert result["rows"] == [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["line"] for row in result["rows"]] == [3, 4, 5, 6] and len(result["accuracy"]) == 3
    with quiz.open("a") as file:
        file.write('{"question": "q"}\n')
    code, text, err = run(*words)
    assert code == 4 and "D007" in err and f"{quiz} line 7" in err and "bad_rows=skip" in err
    code, text, err = run(*words, "bad_rows=skip")
    assert code == 0 and "1 left out" in text and f"left out: {quiz}:7" in err


def test_a_text(folder: Path, tmp_path: Path, run: Run) -> None:
    book = tmp_path / "book.txt"
    book.write_text("a text to score " * 40)
    words = (folder, "--device", "cpu", "--length", "32", "--overlap", "0", "--json", "-q")
    code, first, err = run(*words, book)
    assert code == 0, err
    plain = json.loads(first)
    assert plain["tokens"] > 500 and plain["data"] == str(book) and plain["model"] == str(folder)
    assert json.loads(run(*words, f"data={book}")[1]) == plain
    both = json.loads(run(*words, book, "--against", folder)[1])
    assert both["saves"] == [0.0, 0.0, 0.0] and both["theirs"]["loss"] == both["loss"] == plain["loss"]
    other = json.loads(run(*words, book, "--overlap", "16")[1])
    assert other["loss"] != plain["loss"]
    code, text, err = run(folder, book, "--device", "cpu")
    assert code == 0 and "perplexity" in text and "next: headway run" in err


def test_mistakes_come_before_the_model(quiz: Path, run: Run) -> None:
    for words, code, what in (
        ((quiz, "task=choises"), 3, 'did you mean "choices"'),
        ((quiz, "task=choices", "shot=2"), 3, 'did you mean "shots"'),
        ((quiz, "task=choices", "normalise=words"), 3, "C003"),
        (("task=choices",), 2, "which questions?"),
        ((quiz, quiz), 2, "U001"),
        ((quiz, f"data={quiz}"), 2, "U001"),
        ((quiz, "task=choices", "--against", "x"), 2, "--against is for a text"),
        ((quiz, "task=choices", "--overlap", "0"), 2, "--overlap is for a text"),
        ((quiz, "temprature=1"), 3, "unknown setting"),
    ):
        done = run("absent-model", *words)
        assert done[0] == code and what in done[2], done


def test_an_encoder_answers_nothing(quiz: Path, tmp_path: Path, run: Run) -> None:
    code, _, err = run("bert-tiny", quiz, "task=choices", "--device", "cpu")
    assert code == 4 and "D001" in err


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a chat run, and files of conversations in several forms."""
    place = tmp_path_factory.mktemp("talks")
    asked = [(f"what is {i} plus one ?", f"it is {i + 1} .") for i in range(30)]
    roles = [("user", "assistant"), ("human", "gpt")]
    rows = {
        "messages": [[{"role": r, "content": t} for r, t in zip(roles[0], each, strict=True)] for each in asked],
        "conversations": [[{"from": r, "value": t} for r, t in zip(roles[1], each, strict=True)] for each in asked],
    }
    for name, each in rows.items():
        (place / f"{name}.jsonl").write_text("".join(json.dumps({name: row}) + "\n" for row in each))
    (place / "pairs.csv").write_text("question,answer\n" + "".join(f"{a},{b}\n" for a, b in asked))
    (place / "text.csv").write_text("text,answer\n" + "".join(f"{a},{b}\n" for a, b in asked))
    small = ("model.depth=1", "model.width=16", "model.heads=2", "train.steps=2", "train.eval_every=2")
    with chdir(place), pytest.raises(SystemExit) as done:
        main(["train", "chat", "data.train=messages.jsonl", *small, "-q"])
    assert done.value.code == 0
    return place


@pytest.mark.parametrize("file", ["messages.jsonl", "conversations.jsonl", "pairs.csv"])
def test_a_chat_model_is_scored_on_conversations(
    talks: Path, run: Run, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(talks)
    done = run("last", file, "--json")
    assert done.code == 0 and "task=chat" in done.err
    found = json.loads(done.out)
    assert found == json.loads(run("last", file, "task=chat", "--json").out)
    assert found["task"] == "chat" and found["examples"] == 30 and "answered" in found["figures"]
    assert run("last", file, "data.encoding=utf-8", "--json").out == done.out
    against = json.loads(run("last", file, "--against", "chat-0001", "--json").out)
    assert against["gain"] == [0.0, 0.0, 0.0] and against["theirs"]["figures"] == found["figures"]


def test_other_data_of_a_chat_model_and_conversations_of_another(
    talks: Path, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(talks)
    for words in (("text.csv",), ("pairs.csv", "--column", "answer"), ("pairs.csv", "data.text=answer")):
        done = run("last", *words, "--json")
        assert done.code == 0 and "bits_per_byte" in json.loads(done.out) and "task=chat" not in done.err, words
    done = run(folder, "messages.jsonl")
    assert done.code == 4 and "error[D004]" in done.err and "task=chat" in done.err


def test_a_text_for_a_chat_model(
    talks: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(talks)
    for words, said in ((("what is 2 ?",), True), (("--score", "what is 2 ?"), False)):
        capfd.readouterr()
        with pytest.raises(SystemExit):
            main(["run", "last", *words])
        assert ("--chat" in capfd.readouterr().err) == said
