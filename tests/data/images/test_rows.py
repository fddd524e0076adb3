"""Images from folders, tables and arrays, each with its label and caption."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.config.recipe import DataConfig
from headway.data.files.readers import Flaw
from headway.data.images.png import png
from headway.data.images.rows import ImageRow, find_parts, image_files, other_files, parse_image, read_rows
from headway.errors import DataError, HeadwayError

PIXELS = np.arange(5 * 8 * 8, dtype=np.uint8).reshape(5, 8, 8)


def write(path: Path, number: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(PIXELS[number]))
    return path


def rows(spec: Path | str, **data: Any) -> list[ImageRow]:
    found = list(read_rows(str(spec), DataConfig(**data)))
    assert all(isinstance(row, ImageRow) for row in found), found
    return found  # type: ignore[return-value]


def idx(path: Path, array: Any) -> None:
    head = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
        file.write(head + array.tobytes())


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for name in ("dog/1.png", "dog/deep/2.JPG", "cat/3.png", ".hidden/4.png", "cat/notes.txt"):
        write(tmp_path / name)
    found = rows(tmp_path)
    assert [(Path(row.file).name, row.label) for row in found] == [("3.png", "cat"), ("1.png", "dog"), ("2.JPG", "dog")]
    assert other_files(str(tmp_path)) == ["cat/notes.txt"] and len(image_files(str(tmp_path))) == 3
    assert not find_parts(str(tmp_path))
    assert [row.label for row in rows(f"{tmp_path}/*/*.png")] == ["cat", "dog"]


def test_parts_of_a_dataset(tmp_path: Path) -> None:
    for name in ("train/a/1.png", "val/a/2.png", "test/b/3.png"):
        write(tmp_path / name)
    parts = find_parts(str(tmp_path))
    assert {part: Path(spec).name for part, spec in parts.items()} == {"train": "train", "valid": "val", "test": "test"}
    assert [row.label for row in rows(parts["test"])] == ["b"]
    write(tmp_path / "bus/4.png")  # now `train` is a class beside others
    assert find_parts(str(tmp_path)) == {}


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files(tmp_path: Path, suffix: str) -> None:
    for part, labels in (("train", [3, 1, 4, 1, 5]), ("t10k", [9, 2, 6, 5, 3])):
        idx(tmp_path / f"{part}-images-idx3-ubyte{suffix}", PIXELS)
        idx(tmp_path / f"{part}-labels-idx1-ubyte{suffix}", np.array(labels, np.uint8))
    parts = find_parts(str(tmp_path))
    assert set(parts) == {"train", "test"}
    assert [row.label for row in rows(parts["test"])] == [9, 2, 6, 5, 3]
    assert np.array_equal(rows(parts["train"])[2].image, PIXELS[2])
    assert len(image_files(str(tmp_path))) == 4


@pytest.mark.parametrize("damage", ["short", "long", "magic", "labels"])
def test_damaged_idx_files(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    idx(path, PIXELS)
    raw = path.read_bytes()
    path.write_bytes({"short": raw[:-1], "long": raw + b"x", "magic": b"x" + raw[1:], "labels": raw}[damage])
    idx(tmp_path / "train-labels-idx1-ubyte", np.zeros(4 if damage == "labels" else 5, np.uint8))
    with pytest.raises(DataError, match="train-images"):
        rows(path)


def test_npz_files(tmp_path: Path) -> None:
    plain = tmp_path / "plain.npz"
    np.savez(plain, x=PIXELS, y=np.arange(5))
    assert [row.label for row in rows(plain)] == [0, 1, 2, 3, 4] and not find_parts(str(plain))
    both = tmp_path / "both.npz"
    np.savez(both, x_train=PIXELS, y_train=np.arange(5), x_test=PIXELS[:2], y_test=np.array([[7], [8]]))
    assert [row.label for row in rows(find_parts(str(both))["test"])] == [7, 8]
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    np.savez(tmp_path / "other.npz", weights=PIXELS)
    (tmp_path / "damaged.npz").write_bytes(plain.read_bytes()[:-40])
    for name in ("objects", "other", "damaged"):
        with pytest.raises(DataError, match=name):
            rows(tmp_path / f"{name}.npz")


def test_tables_with_paths(tmp_path: Path) -> None:
    write(tmp_path / "pics" / "1.png")
    write(tmp_path / "pics" / "2.png")
    (tmp_path / "list.csv").write_text("path,label,caption\npics/1.png,dog,a dog\npics/2.png,cat,a cat\n")
    found = rows(tmp_path / "list.csv")
    assert [(row.label, row.text, row.line) for row in found] == [("dog", "a dog", 2), ("cat", "a cat", 3)]
    (tmp_path / "pics" / "metadata.jsonl").write_text('{"file_name": "2.png", "text": "two"}\n')
    assert [(Path(row.image).name, row.text) for row in rows(tmp_path / "pics")] == [("2.png", "two")]
    (tmp_path / "list.csv").write_text("picture,kind\npics/1.png,dog\npics/3.png,cat\n")
    first, second = read_rows(str(tmp_path / "list.csv"), DataConfig(label="kind"))
    assert isinstance(first, ImageRow) and first.label == "dog"
    assert isinstance(second, Flaw) and second.line == 3 and "3.png" in second.reason


def test_tables_with_bytes_as_datasets_writes_them(tmp_path: Path) -> None:
    raw = [png(pixels) for pixels in PIXELS]
    table = pa.table({"image": [{"bytes": each, "path": None} for each in raw], "label": [0, 1, 0, 1, 0]})
    info = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(info)}), tmp_path / "train.parquet")
    found = rows(tmp_path / "train.parquet")
    assert [row.label for row in found] == ["cat", "dog", "cat", "dog", "cat"] and found[3].image == raw[3]


def test_images_in_requests() -> None:
    raw = png(PIXELS[0])
    text = base64.b64encode(raw).decode()
    assert parse_image(text, None) == parse_image(f"data:image/png;base64,{text}", None) == raw
    for wrong in ("/etc/passwd", "a.png", "", 7, None, [], {"path": "/etc/passwd"}):
        with pytest.raises(HeadwayError):
            parse_image(wrong, None)


def test_a_folder_without_images(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(DataError, match="no images"):
        rows(tmp_path)
