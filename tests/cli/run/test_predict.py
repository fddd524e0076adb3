"""`headway run` with models that predict: one untrained model for each task."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import headway.tasks.embedding.predict
from headway.api import load
from headway.config import presets
from headway.config.model import ClassifyHeadConfig, SpanHeadConfig, TagHeadConfig
from headway.data.files.readers import Row, read_file
from headway.data.tokenizers.train import train_tokenizer
from headway.hub.folder import save_model
from headway.model.model import Transformer
from tests.cli.conftest import Done, Run

WORDS = "anna lives in oslo and boris met a good film on a bad day where who rain"
TEXTS = ["a good film", "bad", "anna lives in oslo and boris met anna on a bad day", "rain", "who met boris"] * 3
HEADS: dict[str, dict[str, Any]] = {
    "classify": {"classify": ClassifyHeadConfig(labels=2, dense="tanh"), "labels": ("no", "yes")},
    "several": {"classify": ClassifyHeadConfig(labels=3, several=True), "labels": ("x", "y", "z")},
    "number": {"classify": ClassifyHeadConfig(labels=1), "labels": ("value",)},
    "tag": {"tag": TagHeadConfig(labels=3), "labels": ("O", "B-X", "I-X")},
    "answer": {"span": SpanHeadConfig()},
    "embed": {},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    tokenizer = train_tokenizer("wordpiece", [f"{WORDS} " * 9], 120)
    found, place = {}, tmp_path_factory.mktemp("reading")
    base = presets.bert(1, 16, 2, vocab=len(tokenizer), length=24)
    bare = replace(base, lm=None, nsp=None)
    for seed, (name, config) in enumerate([*((n, replace(bare, **h)) for n, h in HEADS.items()), ("mlm", base)]):
        torch.manual_seed(seed)
        model = Transformer(config)
        for parameter in model.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        found[name] = save_model(model, place / name, tokenizer)
    torch.manual_seed(0)
    found["lm"] = save_model(
        Transformer(presets.gpt2(1, 16, 2, vocab=256, length=64)), place / "lm", train_tokenizer("bytes", [])
    )
    return found


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    Path("story.txt").write_text("anna lives in oslo\nboris met anna on a bad day\n")
    Path("texts.txt").write_text("\n\n".join(TEXTS) + "\n")
    return partial(run, "run", "--device", "cpu")


def rows(done: Done) -> list[dict[str, Any]]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def piped(monkeypatch: pytest.MonkeyPatch, text: str | bytes) -> None:
    raw = text.encode() if isinstance(text, str) else text
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))


def close(one: Any, other: Any) -> bool:
    """Equal, but for the last digits of numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return bool(one == (pytest.approx(other, abs=3e-5, rel=1e-4) if isinstance(other, float) else other))


# --- what is shown


def test_labels(models: dict[str, Path], run: Run) -> None:
    bundle = load(models["classify"])
    done = run(models["classify"], "a good film", "bad", "-q")
    for line, text in zip(done.out.splitlines(), ("a good film", "bad"), strict=True):
        expected = bundle.classify(text)
        assert line.split() == [expected.label, f"{expected.probability:.1%}", *text.split()]
    (row,) = rows(run(models["classify"], "bad", "--json", "-q"))
    assert row["probabilities"] == pytest.approx(bundle.classify("bad").probabilities, abs=1e-5)
    (pair,) = rows(run(models["classify"], "bad", "pair=a = film", "--json", "-q"))
    assert pair["probabilities"] == pytest.approx(bundle.classify("bad", "a = film").probabilities, abs=1e-5)
    assert pair["probabilities"] != pytest.approx(row["probabilities"], abs=1e-4)
    both = rows(run(models["classify"], "bad", "rain", "pair=film", "pair=day", "--json", "-q"))
    assert both[1]["probabilities"] == pytest.approx(bundle.classify("rain", "day").probabilities, abs=1e-5)
    (long,) = rows(run(models["classify"], TEXTS[2], "--json", "-q"))
    assert long["probabilities"] == pytest.approx(bundle.classify(TEXTS[2]).probabilities, abs=1e-5)
    (short,) = rows(run(models["classify"], TEXTS[2], "--json", "-q", "data.length=4"))
    assert short["probabilities"] != pytest.approx(long["probabilities"], abs=1e-4)
    (several,) = rows(run(models["several"], "bad", "--json", "-q"))
    assert several["label"] == [name for name, p in several["probabilities"].items() if p > 0.5]
    assert re.match(r"(none|[xyz](, [xyz])*) +\d+\.\d%  bad\n", run(models["several"], "bad", "-q").out)
    assert float(run(models["number"], "bad", "-q").out.split()[0]) == pytest.approx(
        load(models["number"]).classify("bad").label, abs=1e-4
    )


def test_entities(models: dict[str, Path], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "anna lives in oslo and boris met a good film"
    (row,) = rows(run(models["tag"], text, "--json", "-q"))
    assert row["entities"] and all(text[e["start"] : e["end"]] == e["text"] for e in row["entities"])
    done = run(models["tag"], text, "-q")
    marked, *lines = done.out.splitlines()
    assert re.sub(r"\[X (.*?)\]", r"\1", marked) == text and marked.count("[X ") == len(row["entities"]) == len(lines)
    first = row["entities"][0]
    assert lines[0].split()[:2] == [f"{first['start']}–{first['end']}", "X"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    painted = run(models["tag"], text, "-q").out
    assert "[X" not in painted and re.sub(r"\x1b\[[\d;]*m", "", painted).splitlines()[0] == text


def test_answers(models: dict[str, Path], run: Run) -> None:
    context = Path("story.txt").read_text()
    (row,) = rows(run(models["answer"], "who met boris", "--context", "story.txt", "--json", "-q", "top=3"))
    expected = load(models["answer"]).answer("who met boris", context)[:3]
    assert [each["answer"] or "" for each in row["best"]] == [each.text for each in expected]
    assert all(each["answer"] in (None, context[each["start"] or 0 : each["end"] or 0]) for each in row["best"])
    done = run(models["answer"], "who met boris", "--context", "story.txt", "top=99", "-q")
    assert "no answer" in done.out and len(done.out.splitlines()) == 21
    refused = run(models["answer"], "who", "--context", "story.txt", "answer.no_answer=no", "top=99", "-q")
    assert "no answer" not in refused.out and len(refused.out.splitlines()) == 20


def test_blanks_and_scores(models: dict[str, Path], run: Run) -> None:
    text = "anna [MASK] in [MASK]"
    (row,) = rows(run(models["mlm"], text, "--json", "-q", "top=2"))
    assert [len(blank["choices"]) for blank in row["blanks"]] == [2, 2] and row["text"] == text
    best, first, _ = run(models["mlm"], text, "-q").out.splitlines()
    assert best == row["best"] and first.count("%") == 5
    score = run(models["mlm"], "--score", "anna lives", "rain", "-q").out.splitlines()
    assert [line.split()[-1] for line in score] == ["lives", "rain"] and score[0].split()[1] == "2"
    (row,) = rows(run(models["mlm"], "--score", "anna lives", "--json", "-q"))
    assert row["tokens"] == 2 and f"{row['perplexity']:.2f}" in score[0]


def test_vectors_and_the_nearest(models: dict[str, Path], run: Run) -> None:
    bundle = load(models["embed"])
    (row,) = rows(run(models["embed"], "a good film", "--json", "-q"))
    assert row["embedding"] == pytest.approx(bundle.embed("a good film").tolist(), abs=1e-5)
    assert run(models["embed"], "rain", "-q").out.startswith(f"16 numbers  {bundle.embed('rain')[0]:+.4f} ")
    Path("known.txt").write_text("rain\n\na good film\nbad\n")
    (row,) = rows(run(models["embed"], "--nearest", "known.txt", "bad", "--json", "top=2", "-q"))
    expected = bundle.nearest("bad", ["rain", "a good film", "bad"], 2)
    assert [near["text"] for near in row["nearest"]] == [near.text for near in expected]
    assert row["nearest"][0]["line"] == 4 and row["nearest"][0]["cosine"] == pytest.approx(1, abs=1e-5)
    done = run(models["classify"], "--nearest", "known.txt", "bad", "rain", "-q")  # any encoder has vectors
    assert done.out.splitlines()[1] == " 1.0000  line 4  bad" and done.out.splitlines()[5].endswith("line 1  rain")
    assert run(models["answer"], "--nearest", "known.txt", "bad", "-q").code == 0
    Path("asked.txt").write_text("bad\nrain\n")
    found = rows(run(models["embed"], "--nearest", "known.txt", "--file", "asked.txt", "--json", "-q", "top=1"))
    assert [(row["text"], row["nearest"][0]["text"]) for row in found] == [("bad", "bad"), ("rain", "rain")]
    assert rows(run(models["embed"], "--nearest", "known.txt", "--file", "asked.txt", "-q", "top=1")) == found
    assert [row["line"] for row in found] == [1, 2]


# --- files and pipes


@pytest.mark.parametrize("task", ["classify", "several", "number", "tag", "answer", "mlm", "embed", "score"])
def test_a_file_has_the_answers_of_its_texts_one_by_one(
    models: dict[str, Path], run: Run, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.setattr("headway.tasks.inputs.WINDOW", 7)
    texts = [f"{text} [MASK]" for text in TEXTS] if task == "mlm" else TEXTS
    Path("texts.txt").write_text("\n\n".join(texts) + "\n")
    more = {"answer": ["--context", "story.txt"], "score": ["--score"]}.get(task, [])
    words = [models["mlm" if task == "score" else task], *more, "-q"]
    found = rows(run(*words, "--file", "texts.txt"))
    assert [(row.pop("line"), row["text"]) for row in found] == [(1 + 2 * i, text) for i, text in enumerate(texts)]
    for text, row in list(zip(texts, found, strict=True))[:5]:
        assert close(row, rows(run(*words, text, "--json"))[0])
    piped(monkeypatch, "\n".join(texts))
    again = rows(run(*words, "-"))
    assert [row.pop("line") for row in again] == [*range(1, 16)] and close(again, found)


def test_rows_and_their_columns(models: dict[str, Path], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = load(models["classify"])
    Path("r.csv").write_text("id,body,note,label\n1,bad,x y,no\n2,a good film,z z,yes\n")
    found = rows(run(models["classify"], "--file", "r.csv", "data.text=body", "-q"))
    assert [(row["line"], row["text"]) for row in found] == [(2, "bad"), (3, "a good film")]
    assert found[1]["probabilities"] == pytest.approx(bundle.classify("a good film").probabilities, abs=1e-5)
    paired = rows(run(models["classify"], "--file", "r.csv", "data.text=body", "data.pair=note", "-q"))
    assert paired[0]["probabilities"] == pytest.approx(bundle.classify("bad", "x y").probabilities, abs=1e-5)
    Path("p.jsonl").write_text('{"premise": "bad", "hypothesis": "x y", "label": 1}\n')
    assert close(rows(run(models["classify"], "--file", "p.jsonl", "-q"))[0]["label"], paired[0]["label"])
    piped(monkeypatch, '{"premise": "bad", "hypothesis": "x y"}\n')
    assert close(rows(run(models["classify"], "-", "-q"))[0]["probabilities"], paired[0]["probabilities"])
    Path("q.jsonl").write_text('{"question": "who", "context": "boris met anna"}\n')
    (row,) = rows(run(models["answer"], "--file", "q.jsonl", "-q"))
    assert row["text"] == "who" and close(
        row["best"][0]["score"], load(models["answer"]).answer("who", "boris met anna")[0].score
    )
    Path("d").mkdir()
    for name in "ab":
        Path(f"d/{name}.txt").write_text("rain\n")
    assert [row["file"] for row in rows(run(models["embed"], "--file", "d", "-q"))] == ["d/a.txt", "d/b.txt"]


def test_a_model_of_bytes_reads_any_file(models: dict[str, Path], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures and recordings too, which are no texts; and a pipe."""
    Path("kinds").mkdir()
    for name, content in (("a.png", b"\x89PNG\r\n\x1a\n\xff\x00"), ("b.wav", b"RIFF\x24\x00\x00\x00WAVEfmt \x80")):
        Path("kinds", name).write_bytes(content)
    found = rows(run(models["classify"], "--file", "kinds", "data.raw=true"))
    assert [Path(row["file"]).name for row in found] == ["a.png", "b.wav"]
    piped(monkeypatch, b"RIFF\x24\x00\x00\x00WAVEfmt \x80")
    (row,) = rows(run(models["classify"], "-", "data.raw=true"))
    assert row["probabilities"] == found[1]["probabilities"]


def test_bad_rows_stop_or_are_counted(models: dict[str, Path], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("b.jsonl").write_text('{"text": "bad"}\n{"text": " "}\nnope\n{"text": 5}\n{"text": "rain"}\n')
    done = run(models["classify"], "--file", "b.jsonl")
    assert done.code == 4 and 'b.jsonl line 2, column "text": empty' in done.err and "bad_rows=skip" in done.err
    assert json.loads(done.out)["line"] == 1  # what came before is not lost
    done = run(models["classify"], "--file", "b.jsonl", "data.bad_rows=skip")
    assert [row["line"] for row in rows(done)] == [1, 5]
    assert re.search(r"^2 .*\n3 rows .*\nb.jsonl:2: ", done.err) and "b.jsonl:4: " in done.err
    lines = ["anna [MASK]", "no blank", f"{'rain ' * 30}[MASK]", "[MASK] met"]
    Path("m.txt").write_text("\n".join(lines))
    done = run(models["mlm"], "--file", "m.txt", "data.bad_rows=skip")
    assert [row["line"] for row in rows(done)] == [1, 4]
    assert (
        "m.txt:2: no [MASK] in 'no blank'" in done.err and "m.txt:3: " in done.err and "the model reads 24" in done.err
    )
    assert "m.txt line 2: no [MASK]" in run(models["mlm"], "--file", "m.txt").err
    piped(monkeypatch, b"rain\n\xff\xfe\nbad\n")
    done = run(models["embed"], "-")
    assert done.code == 4 and "D003" in done.err and "stdin line 2" in done.err and "headway data" not in done.err
    assert json.loads(done.out)["text"] == "rain"


def test_long_texts_are_cut_and_that_is_said(models: dict[str, Path], run: Run) -> None:
    long = "rain " * 40
    done = run(models["classify"], long)
    assert done.code == 0 and "1 of the texts is longer than 24 tokens" in done.err
    assert "longer" not in run(models["classify"], "rain").err
    Path("long.txt").write_text(f"{long}\nrain\n{long}\n")
    assert "2 of the texts are longer than 24 tokens" in run(models["embed"], "--file", "long.txt").err
    assert "longer" not in run(models["tag"], long).err  # read in windows


@pytest.mark.parametrize("words", [["-"], []])
def test_a_pipe_is_answered_line_by_line(words: list[str], models: dict[str, Path]) -> None:
    """The second line is only written after the answer to the first."""
    command = [sys.executable, "-m", "headway", "run", str(models["classify"]), *words, "-q", "--device", "cpu"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as child:
        assert child.stdin is not None and child.stdout is not None
        for number, text in enumerate(("rain", "a good film"), start=1):
            child.stdin.write(f"{text}\n")
            child.stdin.flush()
            row = json.loads(child.stdout.readline())
            assert (row["line"], row["text"]) == (number, text)
        child.stdin.close()
        assert child.wait(20) == 0


def test_a_text_that_cannot_be_used_ends_the_command_though_the_pipe_is_open(models: dict[str, Path]) -> None:
    """Found by the model, while a thread waits for the next line."""
    command = [sys.executable, "-m", "headway", "run", str(models["mlm"]), "-", "-q", "--device", "cpu"]
    env, pipe = {**os.environ, "OMP_NUM_THREADS": "1"}, subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as child:
        assert child.stdin is not None and child.stderr is not None
        child.stdin.write(b"no blank to fill\n")
        child.stdin.flush()
        said = child.stderr.read().decode()
        assert child.wait(60) == 4 and said.startswith("error[D001]: stdin line 1: ") and "Fatal" not in said, said


def test_models_that_write_read_files_too(models: dict[str, Path], run: Run) -> None:
    Path("t.txt").write_text("abc\nx\n")
    words = ["--tokens", "6", "--seed", "3", "-q"]
    found = rows(run(models["lm"], "--file", "t.txt", *words, "top_k=40"))
    for row, text in zip(found, ("abc", "x"), strict=True):
        assert run(models["lm"], text, *words, "top_k=40").out == f"{text}{row['new']}\n"
    scored = rows(run(models["lm"], "--score", "--file", "t.txt", "data.bad_rows=skip"))
    assert [row["tokens"] for row in scored] == [3, 1]
    assert run(models["lm"], "--file", "t.txt", "temprature=1").code == 3


# --- mistakes


@pytest.mark.parametrize(
    ("task", "words", "code", "named"),
    [
        ("classify", [], "U001", "text classification"),
        ("classify", [""], "D001", "text 1"),
        ("classify", ["a", "--beam", "2"], "U001", "--beam"),
        ("classify", ["a", "--score"], "U001", "--score"),
        ("classify", ["a", "--context", "story.txt"], "U001", "--context"),
        ("classify", ["a", "dta.text=x"], "C014", "data"),
        ("classify", ["a", "b", "c", "pair=x", "pair=y"], "U001", "pair="),
        ("classify", ["--file", "empty.txt"], "D002", "empty.txt"),
        ("classify", ["--file", "binary.txt"], "D007", "binary.txt line 1"),
        ("classify", ["--file", "absent.txt"], "F001", "absent.txt"),
        ("classify", ["a", "task=tag"], "D001", "labels"),
        ("tag", ["a", "pair=b"], "U001", "pair="),
        ("answer", ["who"], "U001", "--context"),
        ("answer", ["who", "--context", "absent.txt"], "F001", "absent.txt"),
        ("answer", ["--file", "story.txt"], "D004", "context"),
        ("mlm", ["no blank"], "D001", "[MASK]"),
        ("embed", ["--nearest", "story.txt"], "U001", "--nearest"),
        ("classify", ["a", "--seed", "1"], "U001", "--seed"),
        ("tag", ["a", "--tokens", "9"], "U001", "--tokens"),
        ("classify", ["a", "answer.no_answer=no"], "C004", "answer"),
        ("classify", ["a", "top=1"], "U001", "top"),
        ("embed", ["a", "--nearest", "empty.txt"], "D002", "empty.txt"),
        ("lm", ["a", "--nearest", "story.txt"], "D001", "encoder"),
        ("lm", ["a", "--json"], "U001", "--json"),
        ("lm", ["--file", "story.txt", "--beam", "2"], "U001", "--beam"),
        ("vit-tiny", ["a"], "F001", "no such file: a"),
    ],
)
def test_mistakes_are_named(
    models: dict[str, Path], run: Run, task: str, words: list[str], code: str, named: str
) -> None:
    Path("empty.txt").write_text("")
    Path("binary.txt").write_bytes(bytes(range(256)))
    done = run(models.get(task, task), *words)
    assert f"error[{code}]" in done.err and named in done.err and "Traceback" not in done.err, done
    assert done.code == {"U": 2, "C": 3, "D": 4, "F": 5}[code[0]]


# --- files of a task's own


def test_a_tagger_reads_what_taggers_are_trained_on(models: dict[str, Path], run: Run) -> None:
    sentences = [("anna", "lives", "in", "oslo"), ("boris", "met", "anna"), ("a", "bad-day", "rain")]
    Path("a.conll").write_text("\n\n".join("\n".join(f"{w} X O" for w in words) for words in sentences) + "\n")
    tagged = [{"tokens": words, "ner_tags": ["O"] * len(words)} for words in sentences]
    Path("a.jsonl").write_text("\n".join(map(json.dumps, tagged)))
    bundle = load(models["tag"])
    for name, lines in (("a.conll", [1, 6, 10]), ("a.jsonl", [1, 2, 3])):
        found = rows(run(models["tag"], "--file", name, "-q"))
        assert [(row["line"], row["text"]) for row in found] == list(zip(lines, map(" ".join, sentences), strict=True))
        for row, words in zip(found, sentences, strict=True):
            assert [e["text"] for e in row["entities"]] == [e.text for e in bundle.tag([words])[0]]
    one = rows(run(models["tag"], "--file", "story.txt", "-q"))
    assert [row["text"] for row in one] == Path("story.txt").read_text().splitlines()


def test_questions_of_a_squad_file_keep_their_ids(models: dict[str, Path], run: Run) -> None:
    asked = [{"id": f"q{i}", "question": "who met boris", "answers": []} for i in range(3)]
    data = {"data": [{"paragraphs": [{"context": "boris met anna on a bad day", "qas": asked}]}]}
    Path("a.json").write_text(json.dumps(data, indent=1))
    found = rows(run(models["answer"], "--file", "a.json", "-q"))
    assert [row["id"] for row in found] == ["q0", "q1", "q2"] and "pair" not in found[0]
    (alone,) = rows(run(models["answer"], "who met boris", "--context", "story.txt", "--json", "-q"))
    assert alone.keys() == found[0].keys() - {"id", "line", "answers"}


def test_other_columns_pass_through(models: dict[str, Path], run: Run) -> None:
    """Under their names; what the result needs itself is moved aside."""
    Path("a.csv").write_text("id,text,label,line\n7,good,x,first\n8,bad,y,second\n")
    found = rows(run(models["classify"], "--file", "a.csv", "-q"))
    assert [list(row)[:5] for row in found] == [["line", "id", "input_label", "input_line", "text"]] * 2
    values = [(row["line"], row["id"], row["input_label"], row["input_line"], row["text"]) for row in found]
    assert values == [(2, "7", "x", "first", "good"), (3, "8", "y", "second", "bad")]
    Path("a.jsonl").write_text('{"text": "good", "id": 7, "input_line": 1, "line": [2]}\n')
    (row,) = rows(run(models["classify"], "--file", "a.jsonl", "-q"))
    assert (row["line"], row["id"], row["input_line"], row["input_input_line"]) == (1, 7, 1, [2])


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv", "parquet"])
def test_results_in_a_file(models: dict[str, Path], run: Run, suffix: str) -> None:
    """The same rows as on stdout; an error leaves no file, and an old one as it was."""
    Path("a.csv").write_text("id,text\n" + "".join(f"{i},text {i}\n" for i in range(40)))
    plain = rows(run(models["classify"], "--file", "a.csv", "-q"))
    name = f"out.{suffix}"
    done = run(models["classify"], "--file", "a.csv", "--out", name)
    assert (done.code, done.out) == (0, "") and f"40 results in {name}" in done.err
    found = [row.values for row in read_file(Path(name)) if isinstance(row, Row)]
    texts = suffix in ("csv", "tsv")
    cells = [{key: json.dumps(v) if isinstance(v, dict) else str(v) for key, v in row.items()} for row in plain]
    assert found == (cells if texts else plain)
    Path("a.csv").write_text("id,text\n1,good\n2,\n")
    before = Path(name).read_bytes()
    assert run(models["classify"], "--file", "a.csv", "--out", name).code == 4
    assert Path(name).read_bytes() == before
    assert sorted(path.name for path in Path().iterdir() if "out" in path.name or path.name.startswith(".")) == [name]


def test_where_results_cannot_go_is_said_before_the_model_is_loaded(run: Run) -> None:
    Path("a.csv").write_text("text\ngood\n")
    for out, code in (("out.docx", 2), ("gone/out.csv", 5), (".", 2)):
        assert run("./no-model", "--file", "a.csv", "--out", out).code == code
    assert run("./no-model", "good", "--out", "out.csv").code == 2


def test_pairs_of_a_file_are_in_the_answers(models: dict[str, Path], run: Run) -> None:
    Path("a.csv").write_text("sentence1,sentence2\nbad,film\n")
    (found,) = rows(run(models["classify"], "--file", "a.csv", "-q"))
    (alone,) = rows(run(models["classify"], "bad", "pair=film", "--json", "-q"))
    assert found.pop("line") == 2 and close(found, alone) and found["pair"] == "film"


@pytest.mark.parametrize(
    ("piped_in", "words", "texts"),
    [
        ("\ufeff" + '{"text": "bad"}\n{"text": "rain"}\n', [], ["bad", "rain"]),
        ("\ufeffbad\nrain\n", [], ["bad", "rain"]),
        ('id,text\n1,bad\n2,"a, film"\n', [], ["bad", "a, film"]),
        ("\ufefftext\tn\nbad\t1\n", [], ["bad"]),
        ("n;body\n1;bad\n", ["data.text=body"], ["bad"]),
        ('"n","review"\n1,bad\n', [], ["bad"]),
        ("good, text\nbad\n", [], ["good, text", "bad"]),
        ("good,bad\nrain\n", [], ["good,bad", "rain"]),
    ],
)
def test_what_a_pipe_holds(
    piped_in: str, words: list[str], texts: list[str], models: dict[str, Path], run: Run, monkeypatch: Any
) -> None:
    piped(monkeypatch, piped_in)
    assert [row["text"] for row in rows(run(models["classify"], "-", "-q", *words))] == texts


def test_long_cells_come_through_a_pipe(models: dict[str, Path], run: Run, monkeypatch: Any) -> None:
    csv.field_size_limit(1 << 17)  # as Python has it
    piped(monkeypatch, f'id,text\n1,"{"a " * (1 << 17)}"\n2,bad\n')
    assert [row["line"] for row in rows(run(models["classify"], "-", "-q"))] == [2, 3]


def test_a_column_that_a_pipe_has_not(models: dict[str, Path], run: Run, monkeypatch: Any) -> None:
    piped(monkeypatch, "bad\nrain\n")
    done = run(models["classify"], "-", "data.text=body")
    assert done.code == 4 and "stdin has no column 'body' (data.text)" in done.err


def test_what_comes_before_a_bad_line_is_answered(models: dict[str, Path], run: Run, monkeypatch: Any) -> None:
    piped(monkeypatch, "a [MASK] film\nno blank\nrain [MASK]\n")
    done = run(models["mlm"], "-", "-q")
    assert done.code == 4 and "stdin line 2" in done.err
    assert [json.loads(line)["line"] for line in done.out.splitlines()] == [1]
    piped(monkeypatch, "a [MASK] film\nno blank\nrain [MASK]\n")
    assert [row["line"] for row in rows(run(models["mlm"], "-", "-q", "data.bad_rows=skip"))] == [1, 3]


def test_a_search_index_is_kept_and_used(models: dict[str, Path], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers; the texts are embedded once, unless the texts or the model are others."""
    texts = [f"{word} is here" for word in ("anna", "boris", "a bad day", "oslo")]
    Path("c.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    words = ("--nearest", "c.jsonl", "boris", "--json")
    plain = rows(run(models["embed"], *words, "-q"))
    first = run(models["embed"], *words, "--index", "c.index")
    assert rows(first) == plain and "4 texts in c.index" in first.err
    embedded: list[int] = []
    real = headway.tasks.embedding.predict.embed

    def counting(model: Any, tokenizer: Any, texts: Any, pool: str) -> Any:
        embedded.append(len(texts))
        return real(model, tokenizer, texts, pool)

    monkeypatch.setattr(headway.tasks.embedding.predict, "embed", counting)
    second = run(models["embed"], *words, "--index", "c.index")
    assert rows(second) == plain and "c.index" not in second.err
    assert embedded == [1]
    Path("c.jsonl").write_text(json.dumps({"text": "boris"}) + "\n")
    third = run(models["embed"], *words, "--index", "c.index")
    assert "c.index is of another model or other texts" in third.err and "1 texts in" not in third.err
    assert [found["text"] for found in rows(third)[0]["nearest"]] == ["boris"]
    assert "another model" in run(models["classify"], *words, "--index", "c.index").err


def test_what_is_no_search_index_is_left_alone(models: dict[str, Path], run: Run) -> None:
    Path("c.txt").write_text("anna\nboris\n")
    done = run(models["embed"], "--nearest", "c.txt", "anna", "--index", "c.txt")
    assert done.code == 9 and Path("c.txt").read_text() == "anna\nboris\n"
    weights = Path(models["embed"], "model.safetensors")
    before = weights.read_bytes()
    assert run(models["embed"], "--nearest", "c.txt", "anna", "--index", weights).code == 9
    assert weights.read_bytes() == before
    assert run(models["embed"], "anna", "--index", "c.index").code == 2
    assert run(models["embed"], "--nearest", "c.txt", "anna", "--index", "gone/c.index").code == 5


def test_an_index_in_python(models: dict[str, Path], run: Run) -> None:
    bundle, texts = load(str(models["embed"])), ["anna", "boris met anna", "a bad day"]
    index = bundle.search_index(texts)
    assert len(index) == 3
    assert index.search("boris", top=2) == bundle.nearest("boris", texts, k=2)
    Path("c.txt").write_text("\n".join(texts) + "\n")
    for _ in range(2):
        kept = bundle.search_index("c.txt", "c.index")
        assert kept.search("boris") == index.search("boris") and kept.lines.tolist() == [1, 2, 3]
    assert torch.equal(kept.vectors, index.vectors)
