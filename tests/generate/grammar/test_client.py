"""Grammars of strangers: what would take minutes or gigabytes is refused in seconds, and the rest is as it was."""

from __future__ import annotations

import gc
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("llguidance")

import llguidance

from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError, MemoryOrDiskError
from headway.generate.grammar import client as trial
from headway.generate.grammar import worker as grammarworker
from headway.generate.grammar.client import GaveUp, Trial
from headway.generate.grammar.grammar import Patterns

TOKENIZER = train_tokenizer("bytes", [], special=("<eos>",))
EOS = TOKENIZER.special["eos"]
LETTERS = "abcdefghijklmnopqrst"
ENDLESS: dict[str, Any] = {
    "patterns in one": {"type": "string", "allOf": [{"pattern": f"(.*{c}.*{c}.*)"} for c in LETTERS]},
    "multiples": {"type": "integer", "minimum": 0, "maximum": 10**30, "multipleOf": 99_999_989},
}
"""Each takes minutes, and gigabytes, where nothing bounds it."""
HARD: dict[str, Any] = ENDLESS | {
    "large multiple": {"type": "integer", "multipleOf": 1_000_003},
    "nested repeats": {"type": "string", "pattern": "^((a{0,100}){0,100}){0,100}$"},
    "nested stars": {"type": "string", "pattern": "^(([a-z]+)*)*x$"},
    "looking back": {"type": "string", "pattern": "^[ab]*a[ab]{24}$"},
    "choices": {"enum": [f"x{i:05d}" for i in range(3000)]},
    "long text": {"type": "string", "maxLength": 10**8},
    "longer text": {"type": "string", "minLength": 10**5},
    "many items": {"type": "array", "items": {"type": "string"}, "minItems": 10**6, "maxItems": 10**6},
    "many repeats": {"type": "string", "pattern": "^(ab|cd){1,100000}$"},
    "endless references": {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
    "doubling references": {
        "$ref": "#/$defs/a20",
        "$defs": {"a0": {"type": "string"}}
        | {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i - 1}"}] * 2} for i in range(1, 21)},
    },
    "alternatives in one": {
        "allOf": [{"anyOf": [{"required": [f"p{i}"]}, {"required": [f"q{i}"]}], "type": "object"} for i in range(20)]
    },
    "pattern properties": {
        "type": "object",
        "patternProperties": {f"^.*{c}.*{c}.*$": {"type": "integer"} for c in LETTERS},
        "additionalProperties": False,
    },
    "deep": json.loads('{"type": "array", "items": ' * 60 + '{"type": "string"}' + "}" * 60),
}
HONEST: tuple[dict[str, Any], ...] = (
    {"type": "object"},
    {"type": "string", "allOf": [{"pattern": "^[a-c]+$"}, {"maxLength": 9}]},
    {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 10**6},
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "zip": {"type": "string", "pattern": "^[0-9]{5}(-[0-9]{4})?$"},
            "when": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 20},
        },
        "required": ["name", "zip"],
        "additionalProperties": False,
    },
)


@pytest.fixture(scope="module")
def patterns() -> Patterns:
    return Patterns(TOKENIZER, TOKENIZER.vocab_size, (EOS,))


def resident(process: int | str = "self") -> int:
    """Megabytes of memory that a process has now."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096 >> 20


@pytest.mark.parametrize("name", HARD)
def test_a_hard_schema_is_judged_in_seconds(patterns: Patterns, name: str) -> None:
    before, began = resident(), time.monotonic()
    try:
        grammar = patterns.schema(HARD[name])
        assert name not in ENDLESS
        for _ in range(20):
            mask = grammar.allowed(0)
            assert mask is not None
            grammar.accept(0, int(mask.nonzero()[-2 if mask.sum() > 1 else -1]))
    except ConfigError as error:
        assert error.code == "C005" if name in ENDLESS else error.code in ("C003", "C005")
    assert time.monotonic() - began < 5
    assert resident() - before < 64


def test_a_verdict_is_remembered(patterns: Patterns) -> None:
    """The second time costs nothing, and the process that was ended is replaced where it is needed."""
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(ConfigError) as error:
            patterns.schema(ENDLESS["patterns in one"])
        assert error.value.code == "C005"
        seconds = time.monotonic() - began
    assert seconds < 0.05
    assert patterns.schema(HONEST[0]).allowed(0) is not None


def test_verdicts_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "VERDICTS", 3)
    patterns = Patterns(TOKENIZER, TOKENIZER.vocab_size, (EOS,))
    for i in range(6):
        patterns.regular(f"a{i}")
    assert len(patterns.trial.verdicts) == 3


def test_a_hard_regular_expression(patterns: Patterns) -> None:
    began = time.monotonic()
    for pattern in (r"((\w{1,50}\s){0,500}\p{Lu}{3}){1,1000}", "(" * 200 + "a" + ")*" * 200, "(a|b)" * 20_000):
        try:
            patterns.regular(pattern)
        except ConfigError as error:
            assert error.code in ("C003", "C005")
    assert time.monotonic() - began < 9


@pytest.mark.parametrize("number", range(len(HONEST)))
def test_masks_are_those_of_the_library_alone(patterns: Patterns, number: int) -> None:
    grammar = patterns.schema(HONEST[number])
    options = {"whitespace_flexible": False}
    text = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(HONEST[number]), overrides=options)
    free = llguidance.LLMatcher(patterns.tokenizer, text, log_level=0)
    draw = torch.Generator().manual_seed(number)
    for _ in range(60):
        mask = grammar.allowed(0)
        assert mask is not None
        assert mask.tolist() == [value > 0 for value in free.compute_logit_bias()[: patterns.vocab]]
        possible = mask.nonzero().flatten()
        token = int(possible[torch.randint(len(possible), (), generator=draw)])
        if token == EOS:
            break
        grammar.accept(0, token)
        assert free.consume_token(token)


def test_a_grammar_that_gives_up_says_so(patterns: Patterns, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not end a text in its middle as if it were complete."""
    monkeypatch.setattr(grammarworker, "LEXER_STATES", 2000)
    draw = random.Random(0)
    grammar = patterns.regular("(?s).*(a.{30}b|c.{30}d|e.{31}f).*x")
    with pytest.raises(ConfigError) as error:
        for _ in range(1000):
            assert grammar.allowed(0) is not None
            grammar.accept(0, draw.choice(b"ace"))
    assert error.value.code == "C005"


def test_who_gives_up_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that tries the grammar out is gone with whoever waited for it, long before its time is up."""
    for name, value in (("SECONDS", 60.0), ("WALL_SECONDS", 60.0), ("ROOM", 1 << 30)):
        monkeypatch.setattr(trial, name, value)
    patterns, gone = Patterns(TOKENIZER, TOKENIZER.vocab_size, (EOS,)), threading.Event()
    patterns.regular("a")
    child = patterns.trial.child
    assert child is not None
    threading.Timer(0.2, gone.set).start()
    began = time.monotonic()
    with pytest.raises(GaveUp):
        patterns.schema(ENDLESS["patterns in one"], gone.is_set)
    assert time.monotonic() - began < 2
    assert child.poll() is not None


def test_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the processor's time does not run out. Another time it may go differently, so it is not remembered."""
    monkeypatch.setattr(trial, "SECONDS", 60.0)
    monkeypatch.setattr(trial, "ROOM", 1 << 30)
    monkeypatch.setattr(trial, "WALL_SECONDS", 0.3)
    patterns = Patterns(TOKENIZER, TOKENIZER.vocab_size, (EOS,))
    with pytest.raises(ConfigError) as error:
        patterns.schema(ENDLESS["patterns in one"])
    assert error.value.code == "C005"
    assert not patterns.trial.verdicts


def test_the_process_ends_with_its_owner() -> None:
    patterns = Patterns(TOKENIZER, TOKENIZER.vocab_size, (EOS,))
    patterns.regular("a")
    child = patterns.trial.child
    assert child is not None and child.poll() is None
    del patterns
    gc.collect()
    assert child.poll() is not None


def test_a_process_that_something_else_ended(patterns: Patterns) -> None:
    patterns.regular("ab")
    assert patterns.trial.child is not None
    patterns.trial.child.kill()
    patterns.trial.child.wait()
    patterns.regular("abc")


def ending(folder: Path, monkeypatch: pytest.MonkeyPatch, *ends: str) -> Trial:
    """A trial whose processes end at their first request: the first by the first of these statements, and so on."""
    program = f"""
import os, pathlib, signal, sys
sys.stdin.buffer.readline()
print("ready", flush=True)
sys.stdin.buffer.readline()
count = len(list(pathlib.Path({str(folder)!r}).glob("run*")))
pathlib.Path({str(folder)!r}, f"run{{count}}").touch()
exec({list(ends)!r}[min(count, {len(ends) - 1})])
print('{{"error": "", "hard": false}}', flush=True)
sys.stdin.buffer.readline()
"""
    (folder / "worker.py").write_text(program)
    monkeypatch.setattr(trial, "WORKER", folder / "worker.py")
    return Trial([b"a"], [0], [0])


def by(name: str) -> str:
    return f"signal.signal(signal.{name}, signal.SIG_DFL) if {name!r} != 'SIGKILL' else 0\n" + (
        f"os.kill(os.getpid(), signal.{name})"
    )


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGHUP", "SIGINT", "SIGBUS"])
def test_a_process_that_is_ended_in_the_middle(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grammar is not to blame: another process tries it, and what that says is remembered."""
    made = ending(tmp_path, monkeypatch, by(name), "pass")
    made.judge("a")
    assert list(made.verdicts.values()) == [""]
    assert len(list(tmp_path.glob("run*"))) == 2


@pytest.mark.parametrize("ends", [["SIGKILL"], ["SIGTERM"], ["SIGSEGV", "SIGTERM"], ["SIGTERM", "SIGSEGV"]])
def test_processes_that_are_ended_again(ends: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By somebody else: no verdict, and none to remember."""
    made = ending(tmp_path, monkeypatch, *(by(name) for name in ends))
    with pytest.raises(MemoryOrDiskError) as error:
        made.judge("a")
    assert error.value.code == "M001" and not made.verdicts
    assert len(list(tmp_path.glob("run*"))) == 2


@pytest.mark.parametrize(
    ("end", "runs"),
    [(by("SIGSEGV"), 2), (by("SIGBUS"), 2), (by("SIGPROF"), 1), ("os.abort()", 1), ("raise MemoryError", 1)],
)
def test_ends_that_the_grammar_brought_on(end: str, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By our bounds, or by the same fault each time, such as a stack that overflows."""
    made = ending(tmp_path, monkeypatch, end)
    for _ in range(2):
        with pytest.raises(ConfigError) as error:
            made.judge("a")
        assert error.value.code == "C005"
    assert len(made.verdicts) == 1 and len(list(tmp_path.glob("run*"))) == runs


def optional(count: int) -> dict[str, Any]:
    names = {f"p{i}": {"type": "integer"} for i in range(count)}
    return {"type": "object", "properties": names, "additionalProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        optional(550),
        {"type": "array", "items": optional(550)},
        {"type": "object", "properties": {"a": optional(550)}, "required": ["a"], "additionalProperties": False},
    ],
)
def test_what_is_hard_a_little_into_the_text_is_refused_before(patterns: Patterns, schema: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        patterns.schema(schema)
    assert error.value.code == "C005"
    assert patterns.schema(optional(100)).allowed(0) is not None


def test_what_is_hard_later_is_not_the_fault_of_a_token(patterns: Patterns) -> None:
    late = {
        "type": "object",
        "properties": {"s": {"type": "string"}, "a": optional(550)},
        "required": ["s", "a"],
        "additionalProperties": False,
    }
    grammar = patterns.schema(late)
    with pytest.raises(ConfigError) as error:
        for token in b'{"s":"long enough","a":{':
            grammar.accept(0, token)
    assert error.value.code == "C005"
    for text in (b"x", b"{}"):
        with pytest.raises(DataError) as wrong:
            for token in text:
                grammar.accept(text[0], token)
        assert wrong.value.code == "D001"


def test_a_process_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(trial, "WORKER", tmp_path / "none.py")
    with pytest.raises(MemoryOrDiskError) as error:
        Patterns(TOKENIZER, TOKENIZER.vocab_size, (EOS,)).regular("a")
    assert error.value.code == "M001"
