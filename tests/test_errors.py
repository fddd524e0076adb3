"""Errors: one catalogue, every code of it in use, one exit code per branch of the tree."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from headway import errors
from headway.errors import CATALOGUE, HeadwayError, nearest

ROOT = Path(__file__).resolve().parent.parent

CODE = re.compile(r"[A-Z]\d{3}")

TREE = {
    "HeadwayError": (1, "B"),
    "UsageError": (2, "U"),
    "ConfigError": (3, "C"),
    "DataError": (4, "D"),
    "NotFoundError": (5, "F"),
    "NetworkError": (6, "N"),
    "MemoryOrDiskError": (7, "M"),
    "DivergedError": (8, "T"),
    "DamagedError": (9, "X"),
}
"""Class → exit code, first letter of its codes."""

NOT_YET_RAISED: set[str] = set()


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """Every file of headway/, parsed once."""
    files = sorted((ROOT / "headway").rglob("*.py"))
    return [(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))) for path in files]


@cache
def codes_used() -> dict[str, list[str]]:
    """Code → the places in headway/ that give it to an error or a helper; the catalogue and comparisons aside."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees():
        nodes = [] if path == "headway/errors.py" else list(ast.walk(tree))
        read = {inner for node in nodes if isinstance(node, ast.Compare) for inner in ast.walk(node)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in read:
                found[node.value].append(f"{path}:{node.lineno}")
    return {code: places for code, places in found.items() if CODE.fullmatch(code)}


@cache
def raised_directly() -> list[tuple[str, str, str]]:
    """(place, class, code) of every call to a class of the tree whose code is written out there."""
    found = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TREE:
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    found.append((f"{path}:{node.lineno}", node.func.id, str(first.value)))
    return found


def test_every_code_that_is_used_is_in_the_catalogue() -> None:
    used = codes_used()
    assert len(used) > 20
    assert {code: places for code, places in used.items() if code not in CATALOGUE} == {}
    assert [call for call in raised_directly() if call[2] not in CATALOGUE] == []


def test_every_code_of_the_catalogue_is_used() -> None:
    assert set(CATALOGUE) - set(codes_used()) == NOT_YET_RAISED


def test_every_code_belongs_to_the_class_that_raises_it() -> None:
    calls = raised_directly()
    assert len(calls) > 50
    assert [call for call in calls if not call[2].startswith(TREE[call[1]][1])] == []


def test_the_tree() -> None:
    classes = {
        name: cls for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, HeadwayError)
    }
    assert {name: cls.exit_code for name, cls in classes.items()} == {name: code for name, (code, _) in TREE.items()}
    assert all(cls.__base__ is HeadwayError for name, cls in classes.items() if name != "HeadwayError")
    for name, (exit_code, letter) in TREE.items():
        assert re.search(rf"{name} +exit {exit_code} +{letter}  ", errors.__doc__ or ""), name
    assert {code[0] for code in CATALOGUE} <= {letter for _, letter in TREE.values()}
    assert all(CODE.fullmatch(code) for code in CATALOGUE)


def test_what_a_user_reads() -> None:
    plain = errors.NotFoundError("F001", "no such model: x")
    assert str(plain) == "error[F001]: no such model: x"
    assert str(errors.ConfigError("C003", "a = 1", "try 2")) == "error[C003]: a = 1\n  try 2"
    assert (plain.code, plain.message, plain.hint) == ("F001", "no such model: x", "")
    with pytest.raises(AssertionError, match="Z999"):
        HeadwayError("Z999", "a code nobody listed")


def test_nearest_names_one_close_name_or_none() -> None:
    assert nearest("gpt3-tiny", ["gpt2-tiny", "gpt2", "bert-tiny"]) == ' — did you mean "gpt2-tiny"?'
    assert nearest("zzz", ["gpt2-tiny"]) == ""
    assert nearest("", []) == ""
