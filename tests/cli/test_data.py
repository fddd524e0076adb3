"""`headway data`: a screen of facts on stdout, the next command on stderr, every mistake with its place."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from headway.data.chat_template.template import TOKEN_TEMPLATE, TURN_TOKENS
from headway.data.images.png import png
from headway.data.sounds.wav import wav_bytes
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from tests.cli.conftest import Done, Run


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """`headway data`, beside some files."""
    monkeypatch.chdir(tmp_path)
    rows = [f'{{"text": "word{i} and more", "label": {i % 2}}}' for i in range(30)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "valid.jsonl").write_text("\n".join(rows[:3]) + "\n")
    (tmp_path / "bad.jsonl").write_text("\n".join([*rows, *["nope"] * 25]) + "\n")
    (tmp_path / "my pairs.tsv").write_text("Why?\tBecause it is so\nHow?\tLike this one\n")
    (tmp_path / "series.csv").write_text("when,n\n2020-01-01,5\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "word.conll").write_text("Anna B-PER\nslept O\n\nin O\nOslo B-LOC\n\nit O\nrained O\n")
    (tmp_path / "words.jsonl").write_text('{"tokens": ["Anna", "slept"], "ner_tags": ["B-PER", "O"]}\n')
    asked = {"id": "1", "question": "Who?", "answers": [{"text": "Anna", "answer_start": 0}]}
    articles = {"data": [{"paragraphs": [{"context": "Anna slept.", "qas": [asked]}]}]}
    (tmp_path / "asked.json").write_text(json.dumps(articles))
    (tmp_path / "talk.jsonl").write_text('{"instruction": "Say yes.", "output": "Yes."}\n')
    (tmp_path / "two.csv").write_text("en,de\nThe dog,Der Hund\n")
    (tmp_path / "alike.csv").write_text("anchor,positive\nA dog,That dog\n")
    kinds = [f"{'AB'[i % 2]}\t{'pqr'[i % 3]}\tWhat is the number {i} ?\n" for i in range(30)]
    (tmp_path / "kinds.tsv").write_text("".join(kinds))

    return partial(run, "data")


def refused(done: Done, exit_code: int, code: str) -> str:
    assert (done.code, done.out) == (exit_code, ""), done
    assert done.err.startswith(f"error[{code}]: ")
    assert "Traceback" not in done.err
    assert max(map(len, done.err.splitlines())) <= 300
    return done.err


def test_facts_on_stdout_and_the_next_command_on_stderr(run: Run) -> None:
    done = run("train.jsonl")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[:2] == ["train.jsonl: 1 file, 0.00 MB, jsonl", "30 rows, 2 columns: the text is text"]
    assert "labels      label: 0 50.0%, 1 50.0%" in lines
    assert "bad lines   0" in lines
    assert len(lines) <= 30
    assert not set("\x1b\r") & set(done.out + done.err)
    assert done.err == "next: headway train classify data.train=train.jsonl\n"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["train.jsonl", "valid.jsonl"], "headway train classify data.train=train.jsonl data.valid=valid.jsonl"),
        (["*a*d.jsonl"], "headway train classify 'data.train=*a*d.jsonl' data.bad_rows=skip"),
        (["*.jsonl"], "headway data '*.jsonl' --bad"),
        (["bad.jsonl"], "headway train classify data.train=bad.jsonl data.bad_rows=skip"),
        (["my pairs.tsv"], "headway train lm 'data.train=my pairs.tsv'"),
        (["my pairs.tsv", "--column", "column1"], "headway train lm 'data.train=my pairs.tsv' data.text=column1"),
        (["train.jsonl", "--column", "text"], "headway train classify data.train=train.jsonl"),
        (["word.conll"], "headway train tag data.train=word.conll"),
        (["words.jsonl"], "headway train tag data.train=words.jsonl"),
        (["asked.json"], "headway train answer data.train=asked.json"),
        (["talk.jsonl"], "headway train chat data.train=talk.jsonl"),
        (["two.csv"], "headway train translate data.train=two.csv"),
        (["alike.csv"], "headway train embed data.train=alike.csv"),
        (["kinds.tsv"], "headway train classify data.train=kinds.tsv data.text=column3 data.label=column1"),
    ],
)
def test_the_next_command_works_as_it_stands(run: Run, arguments: list[str], command: str) -> None:
    done = run(*arguments)
    assert done.code == 0
    assert done.err.splitlines()[-1] == f"next: {command}"
    assert shlex.split(command)[0] == "headway"


def test_tables_of_nodes_and_edges_are_a_graph(run: Run) -> None:
    Path("papers").mkdir()
    Path("papers/nodes.csv").write_text("id,label\np,a\nq,b\n")
    Path("papers/edges.csv").write_text("source,target\np,q\n")
    assert run("papers").err == "next: headway train graph data.train=papers\n"


def test_sounds_with_texts_and_images_with_sounds(run: Run) -> None:
    Path("a.wav").write_bytes(wav_bytes(np.sin(np.arange(900, dtype=np.float32)), 16_000))
    Path("a.png").write_bytes(png(np.zeros((8, 8), np.uint8)))
    Path("talks.csv").write_text("path,text\na.wav,hello\n")
    Path("both.csv").write_text("image,sound,label\na.png,a.wav,x\na.png,a.wav,y\n")
    assert run("talks.csv").err == "next: headway train transcribe data.train=talks.csv\n"
    assert run("both.csv").err.startswith("next: headway train fusion data.train=both.csv   headway data")


def test_what_comes_next_is_what_the_file_is_for(run: Run) -> None:
    assert run("empty.txt").err == ""
    assert run("series.csv").err == "next: headway train forecast data.train=series.csv\n"
    Path("latin.csv").write_bytes(b"text,label\ncaf\xe9,1\n")
    assert run("latin.csv").err == "next: headway data latin.csv --encoding cp1252\n"
    many = "\n".join(["text,label", *["a"] * 9])
    Path("many.csv").write_text(many)
    assert run("many.csv").err == "next: headway data many.csv --bad\n" and run("many.csv", "--bad").err == ""


def test_rows_that_the_task_cannot_use_are_bad(run: Run) -> None:
    lines = [f"text {i},{'ab'[i % 2]}" for i in range(20)]
    Path("some.csv").write_text("\n".join(["text,label", *lines, "more,", ",b"]))
    out = run("some.csv").out
    assert (
        "bad lines   2 for classify\n            some.csv:23: column" in out and "some.csv:22: the label: empty" in out
    )
    assert run("some.csv", "--bad").out.count("\n") == 2


def test_a_task_that_could_not_read_all_files_is_not_recommended(run: Run) -> None:
    """The second file has other columns: training would stop there."""
    Path("c").mkdir()
    Path("c/a.csv").write_text("dialogue,summary\n" + "a long talk about dogs,dogs\n" * 3)
    Path("c/b.csv").write_text("dialogue,summary1,summary2\n" + "a long talk about cats,cats,a cat\n" * 3)
    assert run("c/a.csv").err == "next: headway train summarize data.train=c/a.csv\n"
    assert run("c").err == "next: headway train lm data.train=c\n"


def test_two_parallel_files(run: Run, tmp_path: Path) -> None:
    """Twenty pairs: one is there twice, one has equal sides, one is far apart, one side of one is empty."""
    source = [f"the dog number {i} runs home" for i in range(20)]
    target = [f"der Hund Nummer {i} läuft heim" for i in range(20)]
    source[3], target[3] = source[2], target[2]
    target[5], target[7], target[9] = source[5], "ja", ""
    Path("a.en").write_text("\n".join(source) + "\n")
    Path("a.de").write_text("\n".join(target) + "\n", encoding="cp1252")
    assert "a.de:1: not UTF-8" in run("a.en,a.de").out
    done = run("a.en,a.de", "--encoding", "cp1252", "--json")
    found = json.loads(done.out)
    names = ("files", "source_lines", "target_lines", "pairs", "far", "same", "duplicates", "bad")
    assert [found[name] for name in names] == [2, 20, 20, 19, 1, 1, 1, 1]
    assert found["bad_lines"] == ["a.de:10: empty, but the line of the other file is not"]
    assert found["samples"][0] == [source[0], target[0]]
    assert found["lengths"]["source words"]["total"] == 19 * 6
    command = "headway train translate data.train=a.en,a.de data.encoding=cp1252 data.bad_rows=skip"
    assert done.err.splitlines()[-1] == f"next: {command}"
    shown = run("a.en,a.de", "--encoding", "cp1252").out
    assert f"  {source[0]}\n  {target[0]}\n" in shown
    Path("a.en").write_text("\n".join(source[:-2]) + "\n")
    done = run("a.en,a.de", "--encoding", "cp1252")
    assert "18 lines and 20 lines" in done.out and "next:" not in done.err
    refused(run("a.en,a.de", "--column", "x"), 2, "U001")
    refused(run("a.en,gone.de"), 5, "F001")


def test_questions_with_choices_are_for_eval(run: Run) -> None:
    quiz = {"question": "What is it?", "choices": ["a dog", "a cat"], "answer": 1}
    Path("quiz.jsonl").write_text((json.dumps(quiz) + "\n") * 4)
    Path("quiz.csv").write_text("question,A,B,C,answer\nWho is it?,me,you,she,B\nWhere is it?,here,there,no,A\n")
    for name in ("quiz.jsonl", "quiz.csv"):
        assert run(name).err == f"next: headway eval MODEL {name} task=choices\n"


def test_what_a_folder_has_besides_data_is_named(run: Run) -> None:
    Path("c").mkdir()
    for name in ("a.txt", "b.pdf", "c.docx"):
        Path("c", name).write_text("some words in a line\n")
    done = run("c")
    assert "2 files left out" in done.out and "b.pdf, c.docx" in done.out
    assert json.loads(run("c", "--json").out)["skipped"] == ["b.pdf", "c.docx"]


def test_an_encoding_goes_on_to_the_next_command(run: Run) -> None:
    Path("latin.csv").write_bytes(b"text,label\n" + b"".join(b"caf\xe9 %d,%d\n" % (i, i % 2) for i in range(9)))
    done = run("latin.csv", "--encoding", "cp1252")
    assert done.err.splitlines()[-1] == "next: headway train classify data.train=latin.csv data.encoding=cp1252"
    assert "café 0" in done.out
    refused(run("latin.csv", "--encoding", "cp99999"), 3, "C003")


def test_overlap_is_shown(run: Run) -> None:
    out = run("train.jsonl", "valid.jsonl").out
    assert "overlap     3 (100.0%) of 3 rows of valid.jsonl are in this set" in out
    assert "0 (0.0%) of 3 rows share 13 words in a row with it; 3 have fewer words" in out


def test_bad_lists_every_bad_line_and_nothing_else(run: Run) -> None:
    done = run("bad.jsonl", "--bad")
    lines = done.out.splitlines()
    assert len(lines) == 25
    assert [line.split(": ")[0] for line in lines] == [f"bad.jsonl:{i}" for i in range(31, 56)]
    short = run("bad.jsonl").out
    assert "bad lines   25 (--bad lists them all)" in short
    assert short.count("bad.jsonl:") == 1 + 4
    assert run("train.jsonl", "--bad").out == ""


def test_json_is_one_document(run: Run) -> None:
    done = run("bad.jsonl", "valid.jsonl", "--json")
    assert done.out.count("\n") == 1
    found = json.loads(done.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert (found["rows"], found["bad"], len(found["bad_lines"])) == (30, 25, 20)
    assert found["overlap"] == {
        "valid": "valid.jsonl", "texts": 3, "equal": 3, "sharing": 0, "long_enough": 0, "bad": 0
    }  # fmt: skip
    assert done.err.startswith("next: ")
    assert len(json.loads(run("bad.jsonl", "--json", "--bad").out)["bad_lines"]) == 25


def test_quiet_is_quiet(run: Run) -> None:
    done = run("train.jsonl", "-q")
    assert (done.code, done.err) == (0, "")
    assert done.out == run("train.jsonl").out
    assert refused(run("absent.txt", "-q"), 5, "F001")


def test_tokens_are_counted(run: Run, tmp_path: Path) -> None:
    train_tokenizer("bytes", [""]).save(tmp_path / "model")
    out = run("train.jsonl", "--tokenizer", "model").out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if re.match("bytes|tokens", line)}
    assert rows["tokens"] == rows["bytes"]
    refused(run("train.jsonl", "--tokenizer", "absent"), 5, "F001")


def test_mistakes_are_named(run: Run, tmp_path: Path) -> None:
    assert 'no such file: trian.jsonl — did you mean "train.jsonl"?' in refused(run("trian.jsonl"), 5, "F001")
    assert 'no such file: vald.jsonl — did you mean "valid.jsonl"?' in refused(
        run("train.jsonl", "vald.jsonl"), 5, "F001"
    )
    assert 'did you mean "text"?' in refused(run("train.jsonl", "--column", "txt"), 4, "D004")
    (tmp_path / "x.csv").write_bytes("a,b\nc,d".encode("utf-16-le"))
    assert "x.csv line 1, byte 1: UTF-16-LE text" in refused(run("x.csv"), 4, "D003")
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    assert "x.parquet is damaged" in refused(run("x.parquet"), 4, "D006")
    assert "FILE" in refused(run(), 2, "U001")


def test_the_help_shows_examples_that_parse(run: Run) -> None:
    """Each gets past the parser: what fails then is that the data is not there."""
    done = run("--help")
    examples = [line.strip() for line in done.out.partition("Examples:")[2].splitlines() if line.strip()]
    assert len(examples) >= 3
    for line in examples:
        verb, *arguments = shlex.split(line)[1:]
        assert verb == "data"
        error = run(*arguments).err
        assert re.match(r"error\[(F001|N001)\]", error), error


def test_nothing_heavy_is_imported_to_parse() -> None:
    code = (
        "import sys, headway.cli; print([m for m in ('torch', 'numpy', 'pyarrow', 'tokenizers') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_looking_at_data_does_not_wait_for_torch() -> None:
    code = "import sys, headway.data.profile.survey; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    """Conversations beside a tokenizer for them."""
    rows = [{"question": "Hi\nthere", "answer": "Yes"}, {"question": "x", "answer": "y" * 500}, {"text": "none"}]
    (tmp_path / "talks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = train_tokenizer("bytes", [], special=TURN_TOKENS)
    Tokenizer(made.backend, {"eos_token": "<|end|>", "chat_template": TOKEN_TEMPLATE}).save(tmp_path / "model")
    return tmp_path / "talks.jsonl"


def test_conversations_as_tokens_with_the_answers_marked(
    run: Run, talks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    done = run(talks, "--chat", "model")
    assert done.code == 0
    facts, first, second = done.out.split("\n\n")
    assert facts.splitlines() == [
        "2 conversations, 4 messages, 520 tokens",
        "505 tokens of answers (97.1%) count in the loss",
        "tokens per conversation: median 505, 90 % have at most 505, the longest 505",
        f'1 bad rows, the first: {talks}:3: no conversation in a row with "text" (known: messages, conversations, '
        "prompt + response, prompt + completion, question + answer, instruction + output)",
    ]
    assert first == "<|user|>│H│i│\\n\nt│h│e│r│e│<|end|>│<|assistant|>⟦Y│e│s│<|end|>⟧"
    assert second.endswith("y⟧ … 105 more\n") and second.count("y") == 400 - 4
    assert done.err.endswith(f"next: headway train instruct data.train={talks} model.from=model\n")


def test_conversations_in_colours(run: Run, talks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    first = run(talks, "--chat", "model").out.split("\n\n")[1]
    assert "\x1b[2m<|user|>│H│i│" in first and "<|assistant|>\x1b[0m\x1b[1;32mY│e│s│<|end|>\x1b[0m" in first


def test_conversations_for_machines(run: Run, talks: Path) -> None:
    found = json.loads(run(talks, "--chat", "model", "--json").out)
    assert (found["conversations"], found["tokens"], found["answer_tokens"], found["longest"]) == (2, 520, 505, 505)
    assert found["bad_rows"] == 1 and len(found["bad"]) == 1
    tokens = found["examples"][0]
    assert [token["text"] for token in tokens if token["answer"]] == ["Y", "e", "s", "<|end|>"]
    assert len(found["examples"][1]) == 505


def test_bad_conversations_are_listed(run: Run, talks: Path) -> None:
    assert run(talks, "--chat", "model", "--bad").out.startswith(f"{talks}:3: no conversation")
    assert run(talks, "--chat", "model", "--bad").out.count("\n") == 1


def test_conversations_of_half_characters_are_shown_as_the_vocabulary_has_them(run: Run, talks: Path) -> None:
    talks.write_text(json.dumps({"question": "é", "answer": "a"}))
    assert "<|user|>│Ã│©│<|end|>" in run(talks, "--chat", "model").out


def test_what_does_not_go_with_conversations(run: Run, talks: Path) -> None:
    assert "--column does not go with --chat" in refused(run(talks, "--chat", "model", "--column", "a"), 2, "U001")
    assert "VALID does not go with --chat" in refused(run(talks, talks, "--chat", "model"), 2, "U001")
    assert "nothing could end an answer" in refused(run(talks, "--chat", "bytes"), 3, "C004")
