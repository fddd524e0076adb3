"""`headway run` with an untrained language model: sampling, beam search, scores, conversations."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

from headway.cli import main
from headway.config.presets import gpt2
from headway.data.tokenizers.train import train_tokenizer
from headway.hub.folder import save_model
from headway.model.model import Transformer

CHATML = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    tokenizer = train_tokenizer("bytes", ["abc"])
    tokenizer.config["chat_template"] = CHATML
    return save_model(
        Transformer(gpt2(2, 16, 2, vocab=256, length=128)), tmp_path_factory.mktemp("run") / "model", tokenizer
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft for the other one."""
    torch.manual_seed(1)
    model = Transformer(gpt2(1, 8, 2, vocab=256, length=64))
    return save_model(model, tmp_path_factory.mktemp("draft") / "model", train_tokenizer("bytes", ["abc"]))


def run(*words: str | Path, given: str = "", **env: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; none of the streams is a terminal."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in env.items():
            patch.setenv(name, value)
        patch.setattr("sys.stdin", io.StringIO(given))
        with pytest.raises(SystemExit) as end:
            main(["run", *map(str, words)])
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


def test_the_same_seed_writes_the_same(folder: Path, tmp_path: Path) -> None:
    words = [folder, "abc", "--tokens", "12", "--seed", "3", "temperature=0.9", "top_k=40", "-q"]
    trace = tmp_path / "trace.json"
    first, again = run(*words), run(*words, "--trace-file", trace)
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


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("abc", "more"), 2, "U001"),
        (("--score", ""), 4, "D001"),
        (("abc", "--tokens", "1", "--trace-file", "/nowhere/x.json"), 5, "F007"),
    ],
)
def test_mistakes_are_named(folder: Path, words: tuple[str, ...], code: int, error: str) -> None:
    done = run(folder, *words)
    assert done[0] == code and f"error[{error}]" in done[2] and "Traceback" not in done[2], done


def test_a_draft_changes_nothing_but_the_messages(folder: Path, small: Path, tmp_path: Path) -> None:
    words = [folder, "abc", "--tokens", "12", "--seed", "3"]
    alone, helped = run(*words), run(*words, "--draft", small)
    assert helped[0] == 0 and helped[1] == alone[1] and "accepted" not in alone[2]
    found = re.search(r"(\d+) of (\d+) draft tokens accepted \((\d+)%\): 12 tokens in (\d+) passes", helped[2])
    assert found and 12 - int(found[1]) == int(found[4])
    same = run(folder, "abc", "--tokens", "11", "--seed", "3", "--draft", folder)
    assert same[0] == 0 and "8 of 8 draft tokens accepted (100%): 11 tokens in 3 passes" in same[2]
    other = save_model(
        Transformer(gpt2(1, 8, 2, vocab=300)), tmp_path / "other", train_tokenizer("bpe", ["ab ab ab"], 258)
    )
    code, out, err = run(folder, "abc", "--draft", other)
    assert code == 4 and "D001" in err and not out


def test_a_text_comes_from_stdin(folder: Path) -> None:
    words = ["--tokens", "5", "--seed", "3", "-q"]
    assert run(folder, "-", *words, given="abc\n") == run(folder, "abc", *words)
    assert run(folder, "--score", "-", "-q", given="abcd\n") == run(folder, "--score", "abcd", "-q")


def test_patterns_hold(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("llguidance")
    code, out, err = run(folder, "abc", "--regex", "[x-z]{5}", "-q")
    assert code == 0 and re.fullmatch(r"abc[x-z]{5}\n", out), err
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    (tmp_path / "s.json").write_text(json.dumps(schema))
    for given in (json.dumps(schema), str(tmp_path / "s.json")):
        code, out, err = run(folder, "abc", "--schema", given, "-q")
        assert code == 0 and json.loads(out.removeprefix("abc"))["n"] in (1, 2), err
    code, out, err = run(folder, "--chat", "--regex", "[x-z]{3}", "-q", given="one\ntwo\n")
    assert code == 0 and re.fullmatch(r"[x-z]{3}\n[x-z]{3}\n", out), err


def test_a_pattern_that_is_too_hard(folder: Path) -> None:
    """An error within seconds, where compiling it would take minutes and gigabytes."""
    pytest.importorskip("llguidance")
    rules = {"type": "string", "allOf": [{"pattern": f"(.*{c}.*{c}.*)"} for c in "abcdefghijklmnopqrst"]}
    code, out, err = run(folder, "abc", "--schema", json.dumps(rules), "-q")
    assert code == 3 and err.startswith("error[C005]: ") and not out


def test_alternatives_are_shown(folder: Path) -> None:
    words = [folder, "abc", "--tokens", "4", "--seed", "3", "-q"]
    plain, traced = run(*words)[1], run(*words, "--trace")[1]
    assert traced.startswith(plain)
    lines = traced[len(plain) :].splitlines()
    assert [int(line.split()[0]) for line in lines] == [0, 1, 2, 3]
    assert all(line.count("%") == 6 for line in lines)
    code, out, err = run(folder, "abc", "--beam", "2", "--tokens", "3", "n_best=2", "--trace", "-q")
    assert code == 0 and out.count("■") >= 2 and out.startswith(("├─", "└─")), err
    assert out.endswith(run(folder, "abc", "--beam", "2", "--tokens", "3", "n_best=2", "-q")[1])


def test_colours_only_where_wanted(folder: Path) -> None:
    words = [folder, "abc", "--tokens", "8", "--seed", "3"]
    plain = run(*words)[1]
    piped, forced = run(*words, "--colour"), run(*words, "--colour", FORCE_COLOR="1")
    assert piped[1] == plain and "\x1b" not in piped[2]
    assert "\x1b[38;5;" in forced[1] and re.sub(r"\x1b\[[0-9;]*m", "", forced[1]) == plain
    assert "probability" in forced[2]
    assert run(*words, FORCE_COLOR="1")[1] == plain


def test_without_a_template_there_is_no_conversation(small: Path) -> None:
    """Said before anything is read, not after the first message was typed."""
    code, out, err = run(small, "--chat", given="")
    assert code == 4 and "D008" in err and not out


def test_a_conversation_has_commands(folder: Path, tmp_path: Path) -> None:
    kept, words = tmp_path / "talk.jsonl", [folder, "--chat", "--tokens", "5", "--seed", "1"]
    given = f"hello\n/save {kept}\n/clear\nhello\n/save\n/save {tmp_path}\n/nope\n/quit\nnever read\n"
    code, out, err = run(*words, given=given)
    assert code == 0, err
    messages = json.loads(kept.read_text())["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant"] and messages[0]["content"] == "hello"
    first = run(*words, given="hello\n")[1]
    assert out == 2 * first  # nothing is left of the first conversation
    assert f"2 messages in {kept}" in err and "/save needs" in err and "F007" in err and "/nope is not" in err
    assert run(*words, given="hello\n/etc/x is a path\n")[1] != first
