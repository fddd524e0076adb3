"""The version: from the git tag when headway is built, from a file when it runs."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

import headway
from headway.version import FILE

ROOT = Path(__file__).resolve().parent.parent


def test_the_version_is_read_from_the_file_that_the_build_writes(tmp_path: Path) -> None:
    copy = shutil.copy(ROOT / "headway" / "version.py", tmp_path)
    assert runpy.run_path(str(copy))["__version__"] == "0.1.dev0+uninstalled"
    (tmp_path / FILE.name).write_text("1.2.3\n")
    assert runpy.run_path(str(copy))["__version__"] == "1.2.3"
    assert Version(headway.__version__) >= Version("0.1.dev0")


def git(folder: Path, *words: str) -> None:
    person = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *person, *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("tagged", "commits", "expected"),
    [(None, 0, "0.1.dev0"), (None, 2, "0.1.dev2"), ("v0.3.0", 1, "0.3.0"), ("v0.3.0", 2, "0.3.1.dev1")],
    ids=["no git", "no tag", "a tag", "after a tag"],
)
def test_a_build_takes_the_tag_of_git(tmp_path: Path, tagged: str | None, commits: int, expected: str) -> None:
    pytest.importorskip("setuptools_scm")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "headway").mkdir()
    if commits:
        git(tmp_path, "init", "-q")
        git(tmp_path, "add", "pyproject.toml")
    for number in range(commits):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "a change")
        if tagged and not number:
            git(tmp_path, "tag", tagged)
    command = [sys.executable, "-m", "setuptools_scm", "--root", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Version(done.stdout.strip()).public == expected
