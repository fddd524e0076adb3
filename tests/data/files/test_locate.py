"""From a spec to files: what exists wins, the order is fixed, the hub is asked for data only."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors as hub
from huggingface_hub.utils import filter_repo_objects

from headway.data.files.digest import fingerprint
from headway.data.files.locate import FORMATS, file_format, find_files, skipped_files, skipped_note
from headway.data.files.rows import documents
from headway.errors import DataError, NetworkError, NotFoundError


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(b"words") if name.endswith(".gz") else b"words")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is asked of the hub; a dataset of some files is what comes."""
    calls: list[dict[str, Any]] = []
    files = [
        "README.md", "LICENSE", ".gitattributes", "dataset_infos.json", "script.py", "train.pkl", "data.zip",
        "data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/test-00000-of-00001.parquet",
        "de/train/part.jsonl.gz", "de/test/part.jsonl.gz", "training.txt", "contest.csv",
    ]  # fmt: skip

    def note(hub_id: str, **options: Any) -> str:
        calls.append({"id": hub_id, **options})
        folder = here / "cache" / str(len(calls))
        write(folder, *filter_repo_objects(files, allow_patterns=options["allow_patterns"]))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", note)
    return calls


def names(spec: str) -> list[str]:
    return [path.as_posix() for path in find_files(spec)]


# --- formats ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.csv", ("csv", False)),
        ("A.CSV.GZ", ("csv", True)),
        ("a.tsv", ("tsv", False)),
        ("a.jsonl.gz", ("jsonl", True)),
        ("a.ndjson", ("jsonl", False)),
        ("a.json", ("json", False)),
        ("a.parquet", ("parquet", False)),
        ("a.md", ("text", False)),
        ("a.train.gz", ("text", True)),
        ("README", ("text", False)),
        ("csv", ("text", False)),
        (".csv", ("text", False)),
        ("folder.csv/a.txt", ("text", False)),
    ],
)
def test_the_format_of_a_name(name: str, expected: tuple[str, bool]) -> None:
    assert file_format(name) == expected


# --- files here ---------------------------------------------------------------------------------


def test_a_file_is_itself(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here, "org/name", "a[1].txt", "x.dat", "README.md")
    monkeypatch.setenv("HOME", str(here))
    for spec in ("org/name", "./org/name", "a[1].txt", "x.dat", "README.md", str(here / "x.dat")):
        assert find_files(spec) == [Path(spec)]
    assert find_files("~/x.dat") == [here / "x.dat"]


def test_a_glob_is_sorted(here: Path) -> None:
    write(here, "c/b.jsonl.gz", "c/a.jsonl.gz", "c/10.jsonl.gz", "c/a.txt", "c/d.jsonl.gz/x", "c/deep/a.jsonl.gz")
    assert names("c/*.jsonl.gz") == ["c/10.jsonl.gz", "c/a.jsonl.gz", "c/b.jsonl.gz"]
    assert names("c/[ab].*") == ["c/a.jsonl.gz", "c/a.txt", "c/b.jsonl.gz"]
    assert names("c/**/a.jsonl.gz") == ["c/a.jsonl.gz", "c/deep/a.jsonl.gz"]
    assert names("?/a.txt") == ["c/a.txt"]


def test_a_folder_is_its_data(here: Path) -> None:
    write(here, "c/b.txt", "c/a/z.csv", "c/a.csv", "c/code.py", "c/words.train.gz", "c/CAPS.TXT", "c/plain")
    write(here, "c/README.md", "c/license.txt", "c/dataset_info.json", "c/.hidden", "c/.git/x.txt", "c/a/.b/y.csv")
    (here / "c/picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (here / "c/tape.tar.gz").write_bytes(gzip.compress(b"name" + b"\0" * 500))
    (here / "c/latin").write_bytes(b"caf\xe9" * 2000)
    (here / "c/cut.rst").write_bytes("é".encode() * 4000 + b"x")  # 4096 bytes end within a character
    (here / "c/cut2.rst").write_bytes(b"x" + "é".encode() * 4000)
    (here / "c/broken.log.gz").write_bytes(b"no gzip")
    os.mkfifo(here / "c/pipe.txt")
    (here / "elsewhere.txt").write_text("words")
    (here / "c/link.txt").symlink_to(here / "elsewhere.txt")
    expected = [
        "CAPS.TXT", "a/z.csv", "a.csv", "b.txt", "broken.log.gz", "code.py", "cut.rst", "cut2.rst", "latin",
        "link.txt", "plain", "words.train.gz",
    ]  # fmt: skip
    assert names("c") == names("c/") == [f"c/{name}" for name in expected]
    assert skipped_files("c") == ["picture.png", "tape.tar.gz"]
    with pytest.raises(DataError, match=r"D006.*broken\.log\.gz"):
        list(documents("c/broken.log.gz"))


@pytest.mark.parametrize("extension", ["pdf", "docx", "doc", "xls", "zip", "png", "PDF", "npz", "tar.gz", "wav"])
def test_what_is_no_text_is_refused_by_name_and_counted_in_a_folder(here: Path, extension: str) -> None:
    """Even where its first bytes look like text."""
    write(here, f"c/x.{extension}", "c/a.txt")
    for spec in (f"c/x.{extension}", "c/x*"):
        with pytest.raises(DataError) as caught:
            find_files(spec)
        assert caught.value.code == "D003" and f"x.{extension}" in caught.value.message and caught.value.hint
    assert names("c") == ["c/a.txt"]
    assert skipped_files("c") == [f"x.{extension}"]
    assert f"x.{extension}" in skipped_note(skipped_files("c"))
    (here / "c/a.txt").unlink()
    with pytest.raises(DataError, match=rf"D002.*1 file left out.*x\.{extension}"):
        find_files("c")


def test_a_folder_without_data(here: Path) -> None:
    (here / "empty").mkdir()
    write(here, "about/README.md")
    for name in ("empty", "about"):
        with pytest.raises(DataError, match=f"D002.*{name}: no data files in this folder"):
            find_files(name)


def test_a_folder_that_cannot_be_listed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here, "c/a.txt")

    def fail(path: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(NotFoundError, match=r"F001.*c: cannot be read: Permission denied"):
        find_files("c")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("corpus/trian.jsonl", 'no such file: corpus/trian.jsonl — did you mean "train.jsonl"?'),
        ("corpus/other", "no such file: corpus/other"),
        ("absent/train.jsonl.gz", "no such file: absent/train.jsonl.gz"),
        ("absent/a/b", "no such file: absent/a/b"),
        ("trian.csv", 'no such file: trian.csv — did you mean "train.csv"?'),
        ("corpus/*.csv", "no file matches corpus/*.csv"),
        ("corpus/trian.json?", 'no file matches corpus/trian.json? — did you mean "train.jsonl"?'),
        ("", "no such file: "),
        ("a\0b", "no such file: 'a\\x00b'"),
        ("a\0*", "no such file: 'a\\x00*'"),
        ("x" * 5000, "no such file: xxx"),
        ("x" * 5000 + "*", "no file matches"),
        ("org/name@", "no such file"),
        ("org/name:", "no such file"),
        ("hf://name", "no such file"),
        ("../org/name", "no such file"),
        ("org/name@../../x", "no such file"),
        ("or--g/name", "no such file"),
        ("hf://org/na--me", "no such file"),
        ("https://huggingface.co/datasets/org/name", "no such file"),
        ("pipe", "pipe is neither a file nor a folder"),
    ],
)
def test_what_is_not_there(here: Path, asked: list[dict[str, Any]], spec: str, said: str) -> None:
    write(here, "corpus/train.jsonl", "train.csv")
    os.mkfifo(here / "pipe")
    with pytest.raises(NotFoundError) as caught:
        find_files(spec)
    assert caught.value.code == "F001"
    assert caught.value.message.startswith(said)
    assert asked == []


# --- the hub ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "hub_id", "revision"),
    [
        ("org/name", "org/name", None),
        ("hf://org/name", "org/name", None),
        ("hf://datasets/org/name", "org/name", None),
        ("org/name@v1.0", "org/name", "v1.0"),
        ("org/name@refs/convert/parquet", "org/name", "refs/convert/parquet"),
        ("Org-1/na.me_2:train", "Org-1/na.me_2", None),
        ("hf://org/name@main:train", "org/name", "main"),
    ],
)
def test_a_dataset_of_the_hub(
    here: Path, asked: list[dict[str, Any]], spec: str, hub_id: str, revision: str | None
) -> None:
    found = find_files(spec)
    assert len(found) >= 2
    assert all(path.is_file() and (here / "cache") in path.parents for path in found)
    (call,) = asked
    assert (call["id"], call["revision"], call["repo_type"]) == (hub_id, revision, "dataset")
    assert call.keys() == {"id", "revision", "repo_type", "allow_patterns"}


def test_only_data_is_fetched(here: Path, asked: list[dict[str, Any]]) -> None:
    assert [path.relative_to(here / "cache/1").as_posix() for path in find_files("org/name")] == [
        "contest.csv",
        "data/test-00000-of-00001.parquet",
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
        "de/test/part.jsonl.gz",
        "de/train/part.jsonl.gz",
        "training.txt",
    ]
    wanted = [f"x{extension}{packed}" for extension in FORMATS if extension != ".md" for packed in ("", ".gz")]
    never = ["x.py", "x.pkl", "x.bin", "x.zip", "x.tar.gz", "x.arrow", "README.md", "x.sh", "x.npy", "x.pt"]
    patterns = asked[0]["allow_patterns"]
    assert sorted(filter_repo_objects(wanted + never, allow_patterns=patterns)) == sorted(wanted)


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train", ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"]),
        ("test", ["data/test-00000-of-00001.parquet"]),
        ("de", ["de/test/part.jsonl.gz", "de/train/part.jsonl.gz"]),
        ("contest", ["contest.csv"]),
    ],
)
def test_a_split_is_named_by_files_or_else_by_folders(
    here: Path, asked: list[dict[str, Any]], split: str, expected: list[str]
) -> None:
    """A name as a whole: test is not contest, and train is not training. The rest is not even fetched."""
    found = find_files(f"org/name:{split}")
    assert [path.relative_to(here / "cache/1").as_posix() for path in found] == expected
    got = [path for path in (here / "cache").rglob("*") if path.is_file()]
    assert len(got) < 7
    assert all(split in path.as_posix() for path in got)


def test_a_split_that_is_not_there(asked: list[dict[str, Any]]) -> None:
    with pytest.raises(NotFoundError, match=r"F001.*org/name has no file of split 'valid'") as caught:
        find_files("org/name@v1:valid")
    assert "https://huggingface.co/datasets/org/name/tree/v1" in caught.value.hint


def test_a_path_that_exists_wins_over_the_hub(here: Path, asked: list[dict[str, Any]]) -> None:
    write(here, "org/name/a.txt", "org/other")
    assert names("org/name") == ["org/name/a.txt"]
    assert names("org/other") == ["org/other"]
    assert asked == []
    write(here, "hf:/org/name/a.txt")
    assert len(find_files("hf://org/name")) == 7
    assert [call["id"] for call in asked] == ["org/name"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (hub.LocalEntryNotFoundError("not cached. More."), NetworkError),
        (ConnectionError("no route"), NetworkError),
        (hub.HFValidationError("bad id"), NotFoundError),
    ],
)
def test_the_errors_of_the_hub_are_ours(error: Exception, expected: type, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(expected, match="org/name@v1"):
        find_files("org/name@v1:train")


# --- fingerprints -------------------------------------------------------------------------------


def test_a_fingerprint_goes_by_names_and_bytes(here: Path) -> None:
    write(here, "one/a.txt", "one/b/c.csv", "two/a.txt", "two/b/c.csv")
    first = fingerprint("one")
    assert len(first) == 64
    assert int(first, 16) > 0
    assert fingerprint("one") == fingerprint("two") == fingerprint(str(here / "two")) == fingerprint("one/**/*.[tc]*")
    (here / "two/b/c.csv").write_bytes(b"wordz")
    assert fingerprint("two") != first
    (here / "one/b/c.csv").rename(here / "one/b/d.csv")
    renamed = fingerprint("one")
    assert renamed != first
    (here / "one/b/d.csv").rename(here / "one/d.csv")
    assert fingerprint("one") not in (first, renamed)


def test_a_fingerprint_knows_where_files_end(here: Path) -> None:
    """No shift of bytes between names and contents gives the same one."""
    found = set()
    for folder, files in {
        "a": {"1": b"23", "4": b"5"},
        "b": {"12": b"3", "4": b"5"},
        "c": {"1": b"2", "3": b"45"},
    }.items():
        for name, content in files.items():
            (here / folder).mkdir(exist_ok=True)
            (here / folder / name).write_bytes(content)
        found.add(fingerprint(folder))
    assert len(found) == 3


def test_a_file_has_the_fingerprint_of_its_name_and_bytes(here: Path) -> None:
    write(here, "one/a.txt", "two/a.txt", "two/b.txt")
    assert fingerprint("one/a.txt") == fingerprint("two/a.txt") != fingerprint("two/b.txt")
    with pytest.raises(NotFoundError):
        fingerprint("three")
