"""All verbs alike: their order in the help, short lines, --json on each, exit codes told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from headway.cli.app import VERBS, app
from headway.errors import HeadwayError
from tests.cli.conftest import Run


def commands() -> Iterator[tuple[list[str], Any]]:
    """Every command that does something: (words, command)."""
    root: Any = get_command(app)
    for verb, command in root.commands.items():
        inside = getattr(command, "commands", {})
        yield [verb], command
        yield from (([verb, name], each) for name, each in inside.items())


COMMANDS = list(commands())


def test_the_help_has_the_verbs_in_the_order_of_a_days_work(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = run("--help")
    found = re.findall(r"^  ([a-z]+) +[A-Z].*$", done.out.partition("Commands:")[2], re.MULTILINE)
    assert tuple(found) == VERBS
    assert {words[0] for words, _ in COMMANDS} == set(VERBS)
    assert max(map(len, done.out.splitlines())) <= 82 and "..." not in done.out.partition("Commands:")[2]
    assert found.index("data") < found.index("train") < found.index("run") < found.index("eval") < found.index("serve")


def test_the_help_tells_the_exit_codes(run: Run) -> None:
    text = run("--help").out
    for cls in HeadwayError.__subclasses__():
        assert re.search(rf"\b{cls.exit_code} [a-z]", text.partition("Exit codes")[2])


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS])
def test_every_verb_has_json(words: list[str], command: Any) -> None:
    assert "--json" in {name for param in command.params for name in param.opts}


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS])
def test_every_verb_has_examples(run: Run, words: list[str], command: Any) -> None:
    done = run(*words, "--help")
    assert done.code == 0 and re.search(r"Examples:\n    headway ", done.out)


def test_a_training_run_as_json(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One object on stdout, for a run, for a finished run that is resumed, and for an export of it."""
    monkeypatch.chdir(tmp_path)
    small = ["train.steps=2", "train.batch=4", "model.depth=1", "model.width=16", "model.heads=1", "train.warmup=0"]
    (tmp_path / "test.csv").write_text("text,label\na good film,1\na bad film,0\n")
    data = ["data.train=test.csv", "data.valid=test.csv", "data.test=test.csv", "data.tokenizer=words", "data.vocab=0"]
    done = run("train", "classify", "--json", "-q", *small, *data)
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    found = json.loads(done.out)
    assert (found["name"], found["status"], found["steps"], found["task"]) == (
        "classify-0001",
        "finished",
        2,
        "classify",
    )
    assert Path(found["report"]).is_file() and 0 <= found["test"]["accuracy"] <= 1
    listed = json.loads(run("runs", "--json", "-q").out)[0]
    assert {key: found[key] for key in listed if key != "bytes"} == {k: v for k, v in listed.items() if k != "bytes"}
    again = json.loads(run("train", "--resume", "last", "--json", "-q").out)
    assert again["name"] == "classify-0001" and again["steps"] == 2
    out = json.loads(run("export", "last", "out", "--json", "-q").out)
    assert (out["folder"], out["kind"], out["layout"]) == ("out", "encoder", "transformers")
    assert out["parameters"] == found["parameters"]
    half = json.loads(run("export", "last", "int8", "quant=int8", "--json", "-q").out)
    assert half["bytes"][1] < half["bytes"][0] and half["layout"] == "headway"
