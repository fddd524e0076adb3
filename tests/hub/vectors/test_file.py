"""Files of word vectors: both formats, other programs' ways to write them, and files that are damaged or hostile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.api import load
from headway.errors import DamagedError, NotFoundError
from headway.hub.vectors.file import new_vector_file, read_vectors, write_vectors
from headway.hub.vectors.header import vectors_header

WORDS = ["the", "straße", "東京", "dog", "don't"]
VECTORS = np.random.default_rng(0).standard_normal((len(WORDS), 7)).astype(np.float32)


@pytest.mark.parametrize("name", ["vectors.bin", "vectors.txt", "vectors.vec"])
def test_what_is_written_is_read_to_the_bit(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    write_vectors(path, WORDS, VECTORS, binary=name.endswith("bin"))
    found = read_vectors(path)
    assert found.words == WORDS and np.array_equal(found.vectors, VECTORS)
    assert read_vectors(path, rows=False).words == WORDS and vectors_header(path) == (5, 7)
    assert new_vector_file(tmp_path / "new.bin", False).suffix == ".bin"


def test_binary_files_without_line_breaks_are_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "gensim.bin"
    parts = [word.encode() + b" " + row.tobytes() for word, row in zip(WORDS, VECTORS, strict=True)]
    path.write_bytes(b"5 7\n" + b"".join(parts))
    found = read_vectors(path)
    assert found.words == WORDS and np.array_equal(found.vectors, VECTORS)


def test_of_words_that_stand_twice_the_first_counts(tmp_path: Path) -> None:
    path = tmp_path / "twice.vec"
    path.write_text("3 2\ndog 1 2\ncat 3 4\ndog 5 6\n")
    found = read_vectors(path)
    assert found.words == ["dog", "cat"] and found.vectors.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"9999999999 300\ndog 1\n", "promises 9,999,999,999 words"),
        (b"1000000 300\n" + b"dog " + bytes(64), "promises 1,000,000 words"),
        (b"3 0\ndog 1\n", "of 0 numbers"),
        (b"2 2\ndog 1 2\ncat 3\n", "has 1 number, and not 2"),
        (b"2 2\ndog 1 2\ncat 3 x\n", "no number"),
        (b"2 2\ndog 1 2\ncat\n", "line 3 of 3"),
        (b"2 2\ndog 1 nan\ncat 3 4\n", "not finite"),
        (b"2 2\n" + b"dog " + bytes(8) + b"\n" + b"c" * 20, "word 2 of 2"),
    ],
)
def test_damaged_and_hostile_files_are_refused(raw: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.bin"
    path.write_bytes(raw)
    with pytest.raises(DamagedError, match=says):
        read_vectors(path)


def test_other_files_are_none_of_vectors(tmp_path: Path) -> None:
    for name, raw in (("notes.txt", b"12 apples\n"), ("a.bin", b"\x80\x02pickle"), ("b.json", b"3 4\n")):
        (tmp_path / name).write_bytes(raw)
        assert vectors_header(tmp_path / name) is None
    with pytest.raises(DamagedError, match="no first line"):
        read_vectors(tmp_path / "a.bin")


def test_a_file_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "vectors.bin"
    write_vectors(path, ["dog", "cat", "car"], np.array([[1, 0.1], [1, 0], [0, 1]], np.float32), binary=True)
    model = load(path)
    assert model.task == "word2vec" and [near.word for near in model.nearest("Dog", k=2)] == ["cat", "car"]
    assert model.embed("cat").tolist() == [1, 0] and model.embed(["cat", "car"]).shape == (2, 2)
    saved = load(model.save(tmp_path / "saved"))
    assert [near.word for near in saved.nearest("dog - cat")] == ["car"]
    again = model.save_vectors(tmp_path / "again.vec", text=True)
    assert read_vectors(again).vectors.tolist() == read_vectors(path).vectors.tolist()
    for wrong in ("again.vec", "other.bin"):
        with pytest.raises(NotFoundError, match="F004"):
            model.save_vectors(tmp_path / wrong, text=True)
