"""`headway tokens`: pieces, merges, JSON; control characters of a text do not reach the terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.cli.tokens import visible
from headway.data.tokenizers.train import train_tokenizer
from tests.cli.conftest import Done, Run

TEXTS = ["low lower lowest new newer newest wide wider widest the other there then " * 9]
HOSTILE = "a\x1b[31mred\x1b[0m\r\x07\x7f\x9b2J\u202eevil\u202c\u2066x\u2069\u2028\n\ufeff\\n"


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "tokens")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokenizers by kind, not to be changed."""
    root = tmp_path_factory.mktemp("tokens")
    for kind, size in {"chars": 0, "bpe": 275, "wordpiece": 40, "unigram": 275}.items():
        train_tokenizer(kind, TEXTS, size).save(root / kind)
    return root


def refused(done: Done, exit_code: int, code: str) -> str:
    assert (done.code, done.out) == (exit_code, ""), done
    assert done.err.startswith(f"error[{code}]: ")
    assert "Traceback" not in done.err
    return done.err


# --- what is shown -------------------------------------------------------------------------------


def test_one_tokenizer_as_a_table(run: Run) -> None:
    done = run("bytes", "é x")
    assert done.code == 0
    assert done.out.splitlines() == [
        "bytes: 4 tokens, 3 characters (0.75 per token), 4 bytes (1.00 per token)",
        "Ã│©│Ġ│x",
        "    id  piece  bytes  characters",
        "0  195  Ã      c3     0–1",
        "1  169  ©      a9     0–1",
        "2   32  Ġ      20     1–2",
        "3  120  x      78     2–3",
    ]
    assert done.err == "next: headway tokens bytes --merges WORD\n"
    assert run("bytes", "é x", "-q").err == ""


def test_unknown_tokens_are_marked_and_inserted_ones_stand_nowhere(run: Run, folder: Path) -> None:
    lines = run(folder / "wordpiece", "the ünseen").out.splitlines()
    assert lines[0].endswith(": 4 tokens, 10 characters (5.00 per token), 11 bytes (5.50 per token)")
    assert lines[1:3] == ["1 of them unknown (?)", "[CLS]│the│[UNK]?│[SEP]"]
    assert re.fullmatch(r"0 +\d+  \[CLS\]", lines[4])
    assert re.fullmatch(r"2 +\d+  \[UNK\]\?  c3 bc 6e 73 65 65 6e  4–10", lines[6])


def test_several_side_by_side(run: Run, folder: Path) -> None:
    done = run("bytes", folder / "bpe", folder / "chars", "the lowest")
    assert done.out.splitlines() == [
        "bytes: 10 tokens, 10 characters (1.00 per token), 10 bytes (1.00 per token)",
        "t│h│e│Ġ│l│o│w│e│s│t",
        f"{folder}/bpe: 4 tokens, 10 characters (2.50 per token), 10 bytes (2.50 per token)",
        "th│e│Ġlow│est",
        f"{folder}/chars: 10 tokens, 10 characters (1.00 per token), 10 bytes (1.00 per token)",
        "t│h│e│ │l│o│w│e│s│t",
    ]


def test_columns_stay_straight_under_wide_characters(run: Run, tmp_path: Path) -> None:
    train_tokenizer("chars", ["数a"]).save(tmp_path)
    assert run(tmp_path, "数a").out.splitlines()[2:] == [
        "   id  piece  bytes     characters",
        "0   2  数     e6 95 b0  0–1",
        "1   1  a      61        1–2",
    ]


def test_the_steps_of_bpe(run: Run, folder: Path) -> None:
    done = run(folder / "bpe", "--merges", "lower")
    alone = ["lower  l o w e r", "       l o w er   (e + r)", "       lo w er   (l + o)", "       low er   (lo + w)"]
    assert done.out.splitlines() == alone
    lines = run(folder / "bpe", "lower lower lower", "--steps").out.splitlines()
    assert lines[9:] == [
        *alone,
        " lower  Ġ l o w e r",
        "        Ġ l o w er   (e + r)",
        "        Ġ lo w er   (l + o)",
        "        Ġ low er   (lo + w)",
        "        Ġlow er   (Ġ + low)",
    ]


def test_the_scores_of_unigram_and_the_pieces_of_the_others(run: Run, folder: Path) -> None:
    first, best, second = run(folder / "unigram", "--merges", "the").out.splitlines()
    assert first.startswith("the  ")
    total, *each = map(float, re.findall(r"-[\d.]+", best))
    assert best.startswith("  likeliest  -")
    assert total == pytest.approx(sum(each), abs=0.01 * len(each) + 0.001)
    runner_up = re.fullmatch(r"  runner-up  (-[\d.]+)  (.+)", second)
    assert runner_up is not None
    assert float(runner_up[1]) <= total
    assert runner_up[2].replace("  ", "") == "the"
    both = run(folder / "wordpiece", "bytes", "--merges", "theth").out.splitlines()
    assert both[0] == f"{folder}/wordpiece"
    assert re.fullmatch(r"theth  \w+( ##\w+)+", both[1])
    assert both[2:] == ["bytes", "theth  t h e t h"]


def test_texts_from_files_and_from_stdin(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_bytes("é\r\n".encode())
    shown = run("bytes", "é\r\n").out
    assert "4 tokens" in shown
    assert run("bytes", "--file", tmp_path / "text").out == shown
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("é\r\n".encode())))
    assert run("bytes", "-").out == shown


def test_a_long_text_is_cut_in_the_table_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.cli import tokens

    monkeypatch.setattr(tokens, "ROWS", 3)
    lines = run("bytes", "abcdefg").out.splitlines()
    assert lines[0].startswith("bytes: 7 tokens, 7 characters (1.00 per token)")
    assert lines[1] == "a│b│c│… 4 more"
    assert len(lines) == 7
    assert lines[-1] == "… 4 more (--json has all)"
    assert len(json.loads(run("bytes", "abcdefg", "--json").out)[0]["tokens"]) == 7


def test_an_empty_text(run: Run) -> None:
    assert run("bytes", "").out == "bytes: 0 tokens, 0 characters, 0 bytes\n"
    assert json.loads(run("bytes", "", "--json").out)[0]["characters_per_token"] is None


def test_json(run: Run, folder: Path) -> None:
    done = run("bytes", folder / "unigram", "é the", "--steps", "--json")
    assert done.err == ""
    first, second = json.loads(done.out)
    assert (first["tokenizer"], second["tokenizer"]) == ("bytes", f"{folder}/unigram")
    place = {"id": 169, "piece": "©", "bytes": "a9", "start": 0, "end": 1}
    assert first["tokens"][1] == {**place, "unknown": False, "inserted": False}
    assert [first[key] for key in ("count", "characters", "bytes", "unknown", "inserted")] == [6, 5, 6, 0, 0]
    assert first["characters_per_token"] == round(5 / 6, 3)
    assert first["bytes_per_token"] == 1.0
    word = second["words"][-1]
    assert word["text"] == " the"
    assert word["steps"] == [word["pieces"]]
    assert len(word["scores"]) == len(word["pieces"])
    assert word["runner_up_score"] < sum(word["scores"])
    (merges,) = json.loads(run(folder / "bpe", "--merges", "lower", "--json").out)
    assert merges.keys() == {"tokenizer", "words"}
    assert [len(step) for step in merges["words"][0]["steps"]] == [5, 4, 3, 2]


# --- what a text may hold ------------------------------------------------------------------------


@given(st.text(max_size=30), st.text(max_size=30))
def test_visible_is_printable_and_loses_nothing(one: str, other: str) -> None:
    assert visible(one).isprintable()
    assert (visible(one) == visible(other)) == (one == other)
    if one.isprintable() and "\\" not in one:
        assert visible(one) == one


def test_a_backslash_is_no_escape() -> None:
    assert (visible("\n"), visible("\\n"), visible("\\\n")) == ("\\n", "\\\\n", "\\\\\\n")


@pytest.mark.parametrize("more", [[], ["--steps"], ["--json"]])
def test_nothing_of_a_text_reaches_the_terminal_raw(run: Run, folder: Path, more: list[str]) -> None:
    for name in ("bytes", "bpe", "unigram", "wordpiece", "chars"):
        done = run(name if name == "bytes" else folder / name, HOSTILE, *more)
        assert done.code == 0
        wild = [char for char in done.out + done.err if not char.isprintable() and char != "\n"]
        assert wild == []


def test_nothing_of_a_vocabulary_or_a_name_reaches_it_raw(run: Run, tmp_path: Path) -> None:
    odd = tmp_path / "odd\x1b[31m"
    train_tokenizer("chars", [HOSTILE]).save(odd)
    for more in (
        ["a\x1b\x7f\u202e", "--steps"],
        ["bytes", "a\x1b\u202e"],
        ["--merges", "\x1b\u202e"],
        ["bytes", "--merges", "\x1b"],
    ):
        done = run(odd, *more)
        assert done.code == 0
        assert "\\x1b" in done.out
        assert [char for char in done.out + done.err if not char.isprintable() and char != "\n"] == []
    assert "\x7f" not in run(odd, "\x7f", "--json").out
    assert json.loads(run(odd, "\x7f", "--json").out)[0]["tokens"][0]["piece"] == "\x7f"


def test_markup_is_text(run: Run, folder: Path) -> None:
    assert "[│r│e│d│]" in run("bytes", "[red]").out
    assert run("bytes", "--merges", "[red]").out == "[red]  [ r e d ]\n"


def test_colours_only_on_a_terminal_that_wants_them(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (folder / "wordpiece", "the ünseen")
    monkeypatch.setenv("TERM", "xterm-256color")
    plain = run(*arguments).out
    assert "\x1b" not in plain
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    coloured = run(*arguments).out
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    line = next(line for line in coloured.splitlines() if "│" in line)
    first, second, unknown, last = re.findall(r"\x1b\[([\d;]*)m[^\x1b]+\x1b\[0m", line)
    assert first != second
    assert unknown not in (first, second)
    assert last == second
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(*arguments).out == plain


# --- mistakes ------------------------------------------------------------------------------------


def test_usage(run: Run, tmp_path: Path) -> None:
    assert "TEXT" in refused(run(), 2, "U001")
    assert "bytes" in refused(run("bytes"), 2, "U001")
    assert "4 tokenizers" in refused(run("a", "b", "c", "d", "text"), 2, "U001")
    assert "--merges" in refused(run("a", "b", "c", "d", "--merges", "x"), 2, "U001")
    assert "--file and --merges" in refused(run("bytes", "--file", tmp_path, "--merges", "x"), 2, "U001")


def test_the_same_name_twice_is_shown_once(run: Run) -> None:
    assert run("bytes", "bytes", "é x").out == run("bytes", "é x").out


def test_texts_that_cannot_be_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.cli import tokens

    refused(run("bytes", "--file", tmp_path / "absent"), 5, "F001")
    refused(run("bytes", "--file", tmp_path), 5, "F001")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert "at byte 3" in refused(run("bytes", "--file", tmp_path / "latin"), 4, "D003")
    refused(run("bytes", "half \udc80"), 4, "D001")
    monkeypatch.setattr(tokens, "TEXT_LIMIT", 3)
    refused(run("bytes", "--file", tmp_path / "latin"), 4, "D001")
    (tmp_path / "latin").write_bytes(b"caf")
    assert run("bytes", "--file", tmp_path / "latin").code == 0


def test_tokenizers_that_are_not_there(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(run("./absent", "x"), 5, "F001")
    refused(run("last", "x"), 5, "F001")
    refused(run("wordpiece", "x"), 5, "F005")
    refused(run("nobody/nothing", "x"), 6, "N001")


def test_steps_of_a_long_text_or_of_special_tokens(run: Run, folder: Path, tmp_path: Path) -> None:
    refused(run(folder / "bpe", "a" * 1000, "--steps"), 4, "D001")
    train_tokenizer("bpe", TEXTS, 275, special=("<s>",)).save(tmp_path / "special")
    assert "merges alone" in refused(run(tmp_path / "special", "a <s>", "--steps"), 4, "D001")
