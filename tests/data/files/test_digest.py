"""Digests of data files: of their content, and once for each file of a run."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from headway.data.files import digest
from headway.data.files.digest import Content, file_content, fingerprint, hash_once
from headway.errors import NotFoundError

TEXT = b"".join(b"line %d\n" % i for i in range(50))


def test_a_file_that_is_packed_again_has_the_same_content(tmp_path: Path) -> None:
    plain, fast, small = tmp_path / "a.txt", tmp_path / "b.txt.gz", tmp_path / "c.txt.gz"
    plain.write_bytes(TEXT)
    fast.write_bytes(gzip.compress(TEXT, 1))
    small.write_bytes(gzip.compress(TEXT, 9))
    assert fast.read_bytes() != small.read_bytes()
    assert file_content(plain) == file_content(fast) == file_content(small)
    assert (file_content(small).size, file_content(small).lines) == (len(TEXT), 50)
    small.write_bytes(gzip.compress(TEXT + b"x", 9))
    assert file_content(small).sha256 != file_content(fast).sha256


@pytest.mark.parametrize("raw", [b"no gzip at all", gzip.compress(TEXT)[:-9]])
def test_a_damaged_archive_is_hashed_as_it_is(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(raw)
    assert file_content(tmp_path / "a.gz").size == len(raw)


def test_an_archive_beyond_its_readers_limit_is_hashed_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "GZIP_FREE", 10)
    monkeypatch.setattr(digest, "GZIP_RATIO", 1)
    (tmp_path / "a.gz").write_bytes(raw := gzip.compress(b"x" * 5000))
    assert file_content(tmp_path / "a.gz").size == len(raw)


def test_a_missing_file_has_a_code(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        file_content(tmp_path / "none")
    assert caught.value.code == "F001"


def test_each_file_is_hashed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT)
    calls: list[object] = []
    real = digest._hashed

    def counted(file: object, tick: digest.Tick, limit: float = 1e18) -> Content | None:
        calls.append(file)
        return real(file, tick, limit)  # type: ignore[arg-type]

    monkeypatch.setattr(digest, "_hashed", counted)
    with hash_once():
        first = file_content(path)
        assert fingerprint(str(path)) == fingerprint(str(path)) and len(calls) == 1
        path.write_bytes(TEXT.upper())
        os.utime(path, ns=(1, 1))
        assert file_content(path) != first and len(calls) == 2
    file_content(path)
    file_content(path)
    assert len(calls) == 4  # outside, nothing is remembered
