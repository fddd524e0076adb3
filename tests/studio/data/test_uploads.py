"""Uploads stay in their folder, whatever a page calls them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.errors import HeadwayError, MemoryOrDiskError, UsageError
from headway.studio.data import uploads
from headway.studio.data.uploads import FOLDER, keep, new_batch, safe_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("reviews.csv", "reviews.csv"),
        ("photos/cats/1.png", "photos/cats/1.png"),
        ("../../etc/passwd", "etc/passwd"),
        ("/etc/passwd", "etc/passwd"),
        ("a\\..\\b.txt", "a/b.txt"),
        (".hidden/.bashrc", "hidden/bashrc"),
        ("$(rm -rf ~) ;\n<b>.csv", "__rm_-rf_______b_.csv"),
        ("Übung für alle.txt", "Übung_für_alle.txt"),
        ("x" * 300 + ".jsonl", "x" * 94 + ".jsonl"),
        ("...", "file"),
    ],
)
def test_a_name_is_made_harmless(name: str, expected: str) -> None:
    assert safe_path(name).as_posix() == expected


@pytest.mark.parametrize("name", ["", "/", "..", "a/b/c/d/e/f/g"])
def test_a_name_that_says_nothing_or_too_much_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        safe_path(name)


def send(state: Path, batch: str, name: str, *blocks: bytes | Exception) -> Path:
    async def content() -> AsyncIterator[bytes]:
        for block in blocks:
            if isinstance(block, Exception):
                raise block
            yield block

    return asyncio.run(keep(state, batch, name, content()))


def test_a_file_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    path = send(tmp_path, batch := new_batch(), "a/b.txt", b"one ", b"two")
    assert path == tmp_path / FOLDER / batch / "a" / "b.txt" and path.read_bytes() == b"one two"
    with pytest.raises(ValueError, match="gone"):
        send(tmp_path, batch, "a/c.txt", b"one", ValueError("gone"))
    assert [each.name for each in path.parent.iterdir()] == ["b.txt"]


@pytest.mark.parametrize("batch", ["..", "0123", "../../x/abcd", "ABCDEFABCDEF"])
def test_only_a_batch_of_the_studio_is_a_place(tmp_path: Path, batch: str) -> None:
    with pytest.raises(HeadwayError):
        send(tmp_path, batch, "a.txt", b"x")


def test_all_uploads_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_BYTES", 5)
    send(tmp_path, new_batch(), "a.txt", b"12345")
    with pytest.raises(MemoryOrDiskError, match=r"0\.0 GB in 1 files"):
        send(tmp_path, new_batch(), "b.txt", b"1")
