"""Weights: what is written comes back, what is damaged or hostile is refused by code, nothing is run."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import headway
from headway.errors import ConfigError, DamagedError, HeadwayError, MemoryOrDiskError, NotFoundError
from headway.hub import weights
from headway.hub.weights import open_weights, write_weights
from headway.jsonfile import JSON_LIMIT, read_json
from headway.resources import DISK_FULL

PLAIN = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def pack(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file around a header, right or wrong."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + body


def some_tensors() -> dict[str, torch.Tensor]:
    random_ = torch.Generator().manual_seed(0)
    return {
        "float32": torch.randn(3, 4, generator=random_),
        "bfloat16": torch.randn(5, generator=random_).bfloat16(),
        "float16": torch.randn(2, 1, 2, generator=random_).half(),
        "float64": torch.randn(2, generator=random_).double(),
        "int64": torch.tensor([-1, 2**62]),
        "int32": torch.tensor([-7], dtype=torch.int32),
        "int8": torch.tensor([[-128, 127]], dtype=torch.int8),
        "uint8": torch.tensor([255], dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]),
        "complex64": torch.tensor([1 + 2j]).conj(),
        "float8_e4m3fn": torch.tensor([0.5, -2.0]).to(torch.float8_e4m3fn),
        "scalar": torch.tensor(1.25),
        "empty": torch.zeros(0, 3),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "name with é, 字 and 😀": torch.ones(1),
    }


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    as_bytes = [tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8) for tensor in (left, right)]
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(*as_bytes)


def refused(folder: Path, code: str) -> str:
    """The message with which a folder is refused; reading is part of the attempt."""
    with pytest.raises(HeadwayError) as caught:
        opened = open_weights(folder)
        for name in opened.names:
            opened.read(name)
    kind = {"X": DamagedError, "F": NotFoundError, "C": ConfigError}[code[0]]
    assert (caught.value.code, type(caught.value)) == (code, kind), str(caught.value)
    assert "\n" not in caught.value.message
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 600 + len(str(folder))
    return caught.value.message


# --- what is written comes back -----------------------------------------------------------------


def test_single_file_round_trip(tmp_path: Path) -> None:
    tensors = some_tensors()
    write_weights(tmp_path / "new" / "folder", tensors)
    folder = tmp_path / "new" / "folder"
    assert os.listdir(folder) == ["model.safetensors"]
    opened = open_weights(folder)
    assert sorted(opened.names) == sorted(tensors)
    assert opened.metadata == {"format": "pt"}
    assert opened.total_bytes == sum(tensor.nbytes for tensor in tensors.values())
    assert "scalar" in opened
    assert "absent" not in opened
    for name, tensor in tensors.items():
        assert opened.shape(name) == tuple(tensor.shape)
        assert opened.dtype(name) == str(tensor.dtype).removeprefix("torch.")
        assert same(opened.read(name), tensor), name


def test_the_safetensors_library_reads_what_we_write_and_we_read_what_it_writes(tmp_path: Path) -> None:
    tensors = {name: tensor.resolve_conj().contiguous() for name, tensor in some_tensors().items()}
    write_weights(tmp_path / "ours", iter(tensors.items()), metadata={})
    loaded = safetensors.torch.load_file(tmp_path / "ours" / "model.safetensors")
    assert loaded.keys() == tensors.keys()
    assert all(same(loaded[name], tensor) for name, tensor in tensors.items())
    (tmp_path / "theirs").mkdir()
    safetensors.torch.save_file(tensors, tmp_path / "theirs" / "model.safetensors", {"who": "library"})
    opened = open_weights(tmp_path / "theirs")
    assert opened.metadata == {"who": "library"}
    assert all(same(opened.read(name), tensor) for name, tensor in tensors.items())


def test_sharded_round_trip(tmp_path: Path) -> None:
    tensors = {f"layer.{i}": torch.full((i + 1,), float(i)) for i in range(10)}
    write_weights(tmp_path, tensors, shard_bytes=64)
    index = json.loads((tmp_path / weights.INDEX).read_text())
    shards = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert shards == [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    assert len(shards) > 3
    assert len(os.listdir(tmp_path)) == len(shards) + 1
    assert set(index["weight_map"].values()) == set(shards)
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors.values())
    for shard in shards:
        assert sum(tensor.nbytes for tensor in safetensors.torch.load_file(tmp_path / shard).values()) <= 64
    opened = open_weights(tmp_path)
    assert sorted(opened.names) == sorted(tensors)
    assert opened.total_bytes == index["metadata"]["total_size"]
    assert opened.metadata == {"format": "pt"}
    assert all(same(opened.read(name), tensor) for name, tensor in tensors.items())


def test_a_tensor_larger_than_a_shard_gets_one_alone(tmp_path: Path) -> None:
    sizes = {"first": 99, "a": 2, "big": 99, "b": 2, "c": 2}
    write_weights(tmp_path, {name: torch.ones(size) for name, size in sizes.items()}, shard_bytes=16)
    places = json.loads((tmp_path / weights.INDEX).read_text())["weight_map"]
    assert [int(places[name][6:11]) for name in sizes] == [1, 2, 3, 4, 4]


def test_every_tensor_is_written_on_its_boundary(tmp_path: Path) -> None:
    write_weights(tmp_path, {"a": torch.ones(3, dtype=torch.uint8), "b": torch.ones(1), "c": torch.ones(1).half()})
    data = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    begins = {name: json.loads(data[8 : 8 + size])[name]["data_offsets"][0] for name in "abc"}
    assert size % 8 == 0
    assert begins == {"b": 0, "c": 4, "a": 6}


def test_shared_storage_is_written_in_full(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    tensors = {"tied": base, "again": base, "tail": base[6:], "stride": base[::3]}
    write_weights(tmp_path, tensors)
    opened = open_weights(tmp_path)
    assert opened.total_bytes == 4 * (12 + 12 + 6 + 4)
    assert all(same(opened.read(name), tensor) for name, tensor in tensors.items())


def test_reading_maps_the_file_and_opens_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_weights(tmp_path, {"a": torch.ones(4), "b": torch.ones(4)})
    calls: list[Any] = []
    library_open = safetensors.safe_open
    counted = lambda *args, **kwargs: calls.append(args) or library_open(*args, **kwargs)  # noqa: E731
    monkeypatch.setattr(safetensors, "safe_open", counted)
    opened = open_weights(tmp_path)
    assert calls == []
    first, second, other = opened.read("a"), opened.read("a"), opened.read("b")
    assert len(calls) == 1
    assert first.data_ptr() == second.data_ptr()
    assert abs(other.data_ptr() - first.data_ptr()) == 16
    first += 1  # a private mapping: neither an error nor a change of the file
    assert same(open_weights(tmp_path).read("a"), torch.ones(4))


@pytest.mark.parametrize("spaces", range(4))
def test_items_off_their_boundaries_are_read_aligned(tmp_path: Path, spaces: int) -> None:
    header = json.dumps({"a": PLAIN}).encode() + b" " * spaces
    tensor = torch.tensor([1.5, -2.5])
    (tmp_path / "model.safetensors").write_bytes(pack(header, tensor.numpy().tobytes()))
    found = open_weights(tmp_path).read("a")
    assert same(found, tensor)
    assert found.data_ptr() % 4 == 0


def test_any_single_safetensors_file_will_do_but_not_an_adapter(tmp_path: Path) -> None:
    good = pack({"a": PLAIN}, bytes(8))
    (tmp_path / "adapter_model.safetensors").write_bytes(good)
    (tmp_path / "._weights.safetensors").write_bytes(b"junk of a file browser")
    assert "no model.safetensors" in refused(tmp_path, "F002")
    (tmp_path / "weights.safetensors").write_bytes(good)
    assert open_weights(tmp_path).names == ["a"]
    (tmp_path / "more.safetensors").write_bytes(good)
    assert "2 safetensors files (more.safetensors, …)" in refused(tmp_path, "F002")


def test_one_shard_without_its_index_is_not_a_model(tmp_path: Path) -> None:
    (tmp_path / "model-00001-of-00012.safetensors").write_bytes(pack({"a": PLAIN}, bytes(8)))
    refused(tmp_path, "F002")
    (tmp_path / "model-00001-of-00012.safetensors").rename(tmp_path / "model-00001-of-00001.safetensors")
    assert open_weights(tmp_path).names == ["a"]


def test_model_safetensors_comes_before_an_index(tmp_path: Path) -> None:
    (tmp_path / weights.INDEX).write_text('{"weight_map": {"a": "absent.safetensors"}}')
    refused(tmp_path, "F002")
    (tmp_path / "model.safetensors").write_bytes(pack({"whole": PLAIN}, bytes(8)))
    assert open_weights(tmp_path).names == ["whole"]


def test_an_unknown_name_is_a_missing_tensor(tmp_path: Path) -> None:
    write_weights(tmp_path, {"a": torch.ones(1)})
    opened = open_weights(tmp_path)
    for method in (opened.read, opened.shape, opened.dtype):
        with pytest.raises(DamagedError) as caught:
            method("b")
        assert caught.value.code == "X002"


@pytest.mark.parametrize("spaces", range(0, 64, 8))
def test_tensors_of_bytes_are_aligned_wherever_a_file_has_them(tmp_path: Path, spaces: int) -> None:
    """torch's int8 product ends the process otherwise."""
    header = {"a": {"dtype": "I8", "shape": [4, 32], "data_offsets": [0, 128]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64 + spaces)
    (tmp_path / "model.safetensors").write_bytes(pack(text, bytes(range(128))))
    tensor = open_weights(tmp_path).read("a")
    assert tensor.data_ptr() % 64 == 0 and tensor.flatten().tolist() == [*range(128)]


def test_what_we_write_is_aligned_and_stays_mapped(tmp_path: Path) -> None:
    """An odd number of small items does not shift the tensors whose sizes are whole."""
    tensors = {
        "scale": torch.ones(50257, dtype=torch.bfloat16),
        "weight": torch.ones(3, 64, dtype=torch.int8),
        "bias": torch.ones(5),
        "norm": torch.ones(16),
    }
    write_weights(tmp_path, tensors)
    file, opened = tmp_path / "model.safetensors", open_weights(tmp_path)
    start = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    places = {name: start + opened._entry(name).begin for name in tensors}
    assert [places[name] % 64 for name in ("weight", "norm")] == [0, 0]
    assert places["scale"] % 2 == 0 and places["bias"] % 4 == 0
    assert all(torch.equal(opened.read(name), tensor) for name, tensor in tensors.items())


# --- damaged and hostile headers ----------------------------------------------------------------


def entry(**changes: Any) -> dict[str, Any]:
    return {"a": PLAIN | changes}


def two(second: list[int]) -> dict[str, Any]:
    return {"a": PLAIN, "b": PLAIN | {"data_offsets": second}}


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "no bytes": (b"", "0 bytes"),
    "seven bytes": (bytes(7), "7 bytes"),
    "length past the end": (pack({"a": PLAIN}, bytes(8), length=5000), "header length 5,000 in a file of"),
    "length over the limit": (pack({"a": PLAIN}, bytes(8), length=100_000_001), "limit is 100,000,000"),
    "length of all ones": (b"\xff" * 8 + b"{}", "18,446,744,073,709,551,615"),
    "length zero": (pack(b"", b"{}"), "JSON"),
    "no brace": (pack(b" {}"), "does not start with a brace"),
    "a list": (pack(b"[]"), "does not start with a brace"),
    "not JSON": (pack(b"{'a': 1}"), "not valid JSON"),
    "two values": (pack(b"{}{}"), "not valid JSON"),
    "not UTF-8": (pack(b'{"a\xff": 1}'), "not UTF-8"),
    "UTF-16": (pack(b"{\0}\0"), "not valid JSON"),
    "half a surrogate": (pack(json.dumps({"\ud800": PLAIN}).encode(), bytes(8)), "not UTF-8"),
    "key twice": (pack(b'{"a": %s, "a": %s}' % ((json.dumps(PLAIN).encode(),) * 2), bytes(8)), "'a' twice"),
    "field twice": (pack(b'{"a": {"dtype": "F32", "dtype": "F32"}}'), "'dtype' twice"),
    "deep lists": (pack(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "deeper than 64"),
    "deep objects": (pack(b'{"a":' * 100_000 + b"1" + b"}" * 100_000), "deeper than 64"),
    "rather deep": (pack(b'{"a":' + b"[" * 65 + b"]" * 65 + b"}"), "deeper than 64"),
    "unclosed": (pack(b'{"a":' + b"[" * 100_000), "deeper than 64"),
    "too many values": (pack(b'{"a":[' + b"[]," * 1_000_000 + b"[]]}"), "more than 1,500,000 values"),
    "a huge number": (pack(b'{"a": ' + b"9" * 5000 + b"}"), "4300 digits"),
    "infinity": (pack(b'{"a": 1e999}'), "1e999 is not a finite number"),
    "metadata of numbers": (pack({"__metadata__": {"a": 1}}), "__metadata__"),
    "metadata a list": (pack({"__metadata__": []}), "__metadata__"),
    "entry a list": (pack({"a": [1]}), "dtype, shape and data_offsets"),
    "entry without dtype": (
        pack({"a": {"shape": [2], "data_offsets": [0, 8]}}),
        "dtype, shape and data_offsets",
    ),
    "entry with more": (pack(entry(code="x"), bytes(8)), "nothing else"),
    "unknown dtype": (pack(entry(dtype="F31"), bytes(8)), "dtype 'F31' is unknown"),
    "dtype a list": (pack(entry(dtype=["F32"]), bytes(8)), "dtype ['F32'] is unknown"),
    "shape a number": (pack(entry(shape=2), bytes(8)), "shape 2"),
    "shape negative": (pack(entry(shape=[-1, -2]), bytes(8)), "shape [-1, -2]"),
    "shape of a float": (pack(entry(shape=[2.0]), bytes(8)), "shape [2.0]"),
    "shape of true": (pack(entry(shape=[True, 2]), bytes(8)), "shape [True, 2]"),
    "shape of 65": (pack(entry(shape=[1] * 64 + [2]), bytes(8)), "at most 64"),
    "shape overflows to fit": (pack(entry(shape=[2**32, 2**32, 2]), bytes(8)), "64 bits"),
    "shape overflows, empty": (pack(entry(shape=[2**40, 2**40, 0], data_offsets=[0, 0])), "64 bits"),
    "shape past the file": (pack(entry(shape=[2**40]), bytes(8)), "takes 4,398,046,511,104 bytes, but"),
    "offsets of three": (pack(entry(data_offsets=[0, 4, 8]), bytes(8)), "data_offsets [0, 4, 8]"),
    "offsets negative": (pack(entry(data_offsets=[-8, 0]), bytes(8)), "data_offsets [-8, 0]"),
    "offsets backwards": (pack(entry(data_offsets=[8, 0]), bytes(8)), "span -8"),
    "offsets too narrow": (
        pack(entry(data_offsets=[0, 7]), bytes(8)),
        "takes 8 bytes, but data_offsets span 7",
    ),
    "offsets enormous": (pack(entry(data_offsets=[0, 10**4000]), bytes(8)), "takes 8 bytes"),
    "overlap": (pack(two([4, 12]), bytes(12)), "'b' overlaps the one before: begins at 4, not 8"),
    "same place": (pack(two([0, 8]), bytes(8)), "overlaps"),
    "hole": (pack(two([12, 20]), bytes(20)), "'b' leaves a hole before it: begins at 12, not 8"),
    "hole at the start": (pack(entry(data_offsets=[4, 12]), bytes(12)), "begins at 4, not 0"),
    "truncated": (pack(two([8, 16]), bytes(15)), "take 16 bytes, 15 are there"),
    "over-long": (pack(two([8, 16]), bytes(17)), "too long: the tensors take 16 bytes, 17 are there"),
    "a Git LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
        "point to the weights",
    ),
    "a web page": (b"<!DOCTYPE html><html><body>not found</body></html>", "header length"),
    "a line break in a name": (pack({"a\nb\x1b[31m": {}}), r"'a\nb\x1b[31m'"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused(tmp_path: Path, case: str) -> None:
    data, part = BAD_FILES[case]
    (tmp_path / "model.safetensors").write_bytes(data)
    start = time.perf_counter()
    message = refused(tmp_path, "X001")
    assert time.perf_counter() - start < 5
    assert message.startswith(f"{tmp_path / 'model.safetensors'}: ")
    assert part in message


def test_a_good_file_beside_the_bad_ones(tmp_path: Path) -> None:
    """The control: the files above differ from this one in what their names say."""
    (tmp_path / "model.safetensors").write_bytes(pack({"__metadata__": {}} | two([8, 16]), bytes(16)))
    assert open_weights(tmp_path).names == ["a", "b"]


def test_a_header_of_wide_characters_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "WIDE_LIMIT", 100)
    for note, allowed in (("x" * 200, True), ("é" + "x" * 200, False)):
        for escaped in (True, False):
            raw = json.dumps({"__metadata__": {"note": note}}, ensure_ascii=escaped).encode()
            (tmp_path / "model.safetensors").write_bytes(pack(raw))
            if allowed:
                assert open_weights(tmp_path).metadata == {"note": note}
            else:
                assert "ASCII" in refused(tmp_path, "X001")


def test_a_file_that_goes_away_after_opening(tmp_path: Path) -> None:
    write_weights(tmp_path, {"a": torch.ones(1)})
    opened = open_weights(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"something else entirely")
    with pytest.raises(DamagedError, match="X001"):
        opened.read("a")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(NotFoundError, match="F001"):
        opened.read("a")


# --- other formats ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "m.pth", "last.ckpt", "x.pkl", "tf_model.h5", "M.BIN", "q.gguf"]
)
def test_other_formats_are_named_and_not_opened(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes(pickle.dumps({"a": 1}))
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("opened"))
    assert name in refused(tmp_path, "X005")
    with pytest.raises(DamagedError) as caught:
        open_weights(tmp_path)
    assert "save_pretrained" in caught.value.hint


def test_a_pickle_named_safetensors(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / "model.safetensors")
    refused(tmp_path, "X005")
    torch.save({"a": torch.ones(3)}, tmp_path / "model.safetensors", _use_new_zipfile_serialization=False)
    refused(tmp_path, "X005")
    for protocol in (2, 3, 4, 5):
        (tmp_path / "model.safetensors").write_bytes(pickle.dumps({"a": 1}, protocol))
        refused(tmp_path, "X005")
    for tiny in (b"PK\x03\x04", b"\x80\x04N."):
        (tmp_path / "model.safetensors").write_bytes(tiny)
        refused(tmp_path, "X005")


@pytest.mark.parametrize("length", [0x80, 0x180, 0x280, 0x480, 0x12380])
def test_a_header_length_that_looks_like_a_pickle(tmp_path: Path, length: int) -> None:
    data = pack(json.dumps({"a": PLAIN}).encode().ljust(length), bytes(8))
    assert data[0] == 0x80
    (tmp_path / "model.safetensors").write_bytes(data)
    assert open_weights(tmp_path).names == ["a"]
    (tmp_path / "model.safetensors").write_bytes(data[:100])
    assert f"header length {length:,}" in refused(tmp_path, "X001")


# --- folders, indexes, links --------------------------------------------------------------------


def test_folders_without_weights(tmp_path: Path) -> None:
    refused(tmp_path / "absent", "F001")
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "F001")
    refused(tmp_path / "a\0b", "F001")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "F002")
    (tmp_path / "empty" / "config.json").write_text("{}")
    refused(tmp_path / "empty", "F002")
    (tmp_path / "empty" / "model.safetensors").mkdir()
    refused(tmp_path / "empty", "F002")


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    refused(tmp_path, "F002")
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(NotFoundError, match="F001"):
        read_json(tmp_path / "config.json")


def sharded(folder: Path) -> dict[str, Any]:
    write_weights(folder, {"a": torch.ones(2), "b": torch.zeros(2)}, shard_bytes=8)
    return json.loads((folder / weights.INDEX).read_text())


def set_index(folder: Path, index: Any) -> None:
    (folder / weights.INDEX).write_text(index if isinstance(index, str) else json.dumps(index))


@pytest.mark.parametrize(
    ("index", "code"),
    [
        ("", "C001"),
        ("[]", "C001"),
        ('{"weight_map": {"a": "b", "a": "c"}}', "C001"),
        ("{}", "X001"),
        ({"weight_map": ["a"]}, "X001"),
        ({"weight_map": {"a": 1}}, "X001"),
        ({"weight_map": {"a": None}}, "X001"),
    ],
)
def test_a_bad_index(tmp_path: Path, index: Any, code: str) -> None:
    sharded(tmp_path)
    set_index(tmp_path, index)
    assert weights.INDEX in refused(tmp_path, code)


@pytest.mark.parametrize(
    "shard",
    [
        "../outside.safetensors", "..", ".", "", "/etc/passwd", "sub/inside.safetensors", "a\0b", "x:stream",
        "./model.safetensors", "C:\\x.safetensors", "C:x.safetensors", "..\\outside.safetensors", "\\\\host",
    ],
)  # fmt: skip
def test_a_shard_name_that_is_a_path(tmp_path: Path, shard: str) -> None:
    folder = tmp_path / "model"
    index = sharded(folder)
    (folder / "sub").mkdir()
    for place in (tmp_path / "outside.safetensors", folder / "sub" / "inside.safetensors"):
        place.write_bytes(pack({"a": PLAIN}, bytes(8)))
    index["weight_map"]["a"] = shard
    set_index(folder, index)
    refused(folder, "X006")


def test_a_shard_that_is_missing(tmp_path: Path) -> None:
    index = sharded(tmp_path)
    index["weight_map"]["a"] = "x" * 5000
    set_index(tmp_path, index)
    with pytest.raises(NotFoundError, match="F002"):
        open_weights(tmp_path)
    index["weight_map"]["a"] = "model-00009-of-00009.safetensors"
    set_index(tmp_path, index)
    assert "model-00009-of-00009.safetensors: no such file" in refused(tmp_path, "F002")


def test_a_shard_without_its_tensor(tmp_path: Path) -> None:
    index = sharded(tmp_path)
    index["weight_map"]["b"] = index["weight_map"]["a"]
    set_index(tmp_path, index)
    assert "no tensor 'b'" in refused(tmp_path, "X002")


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    shard = tmp_path / sharded(tmp_path)["weight_map"]["b"]
    shard.write_bytes(shard.read_bytes()[:-1])
    assert refused(tmp_path, "X001").startswith(f"{shard}: cut short")


def test_an_index_that_sends_us_to_a_pickle(tmp_path: Path) -> None:
    index = sharded(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"a": [1] * 50}))
    index["weight_map"]["a"] = "pytorch_model.bin"
    set_index(tmp_path, index)
    refused(tmp_path, "X005")


def test_tensors_outside_the_index_are_left_out(tmp_path: Path) -> None:
    index = sharded(tmp_path)
    del index["weight_map"]["b"]
    set_index(tmp_path, index)
    assert open_weights(tmp_path).names == ["a"]


def test_links_stay_in_the_folder(tmp_path: Path) -> None:
    folder, outside = tmp_path / "model", tmp_path / "outside.safetensors"
    folder.mkdir()
    outside.write_bytes(pack({"a": PLAIN}, bytes(8)))
    link = folder / "model.safetensors"
    link.symlink_to(outside)
    assert str(outside) in refused(folder, "X006")
    link.unlink()
    link.symlink_to(Path("..") / "outside.safetensors")
    refused(folder, "X006")
    link.unlink()
    link.symlink_to("model.safetensors")
    refused(folder, "F002")
    link.unlink()
    (folder / "real.weights").write_bytes(outside.read_bytes())
    link.symlink_to("real.weights")
    assert open_weights(folder).names == ["a"]
    (tmp_path / "alias").symlink_to(folder)
    assert open_weights(tmp_path / "alias").names == ["a"]


def test_links_of_an_index_and_its_shards(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shard = folder / sharded(folder)["weight_map"]["a"]
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    refused(folder, "X006")
    (folder / weights.INDEX).rename(tmp_path / "index")
    (folder / weights.INDEX).symlink_to(tmp_path / "index")
    assert weights.INDEX in refused(folder, "X006")


def test_a_hub_cache_snapshot(tmp_path: Path) -> None:
    cache = tmp_path / "models--someone--model"
    folder = cache / "snapshots" / "0123abcd"
    sharded(folder)
    (cache / "blobs").mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(cache / "blobs" / f"hash{number}")
        path.symlink_to(Path("..") / ".." / "blobs" / f"hash{number}")
    opened = open_weights(folder)
    assert same(opened.read("a"), torch.ones(2))
    (cache / "snapshots").rename(cache / "copies")
    refused(cache / "copies" / "0123abcd", "X006")
    (cache / "copies").rename(cache / "snapshots")
    shard = next(folder.glob("*.safetensors"))
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes(shard.read_bytes())
    shard.unlink()
    shard.symlink_to(Path("..") / ".." / ".." / "secret.safetensors")
    refused(folder, "X006")
    shard.unlink()
    shard.symlink_to(Path("..") / ".." / "blobs" / "not-downloaded-yet")
    refused(folder, "F002")


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_weights(tmp_path, {"a": torch.ones(1)})

    def denied(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert "cannot be read: Permission denied" in refused(tmp_path, "F001")
    monkeypatch.setattr(os, "listdir", denied)
    refused(tmp_path, "F001")


# --- JSON files ---------------------------------------------------------------------------------


def test_read_json(tmp_path: Path) -> None:
    value = {"text": "é 😀", "number": -1.5e-3, "large": 10**30, "nothing": None, "list": [[], {}, True]}
    for escaped in (True, False):
        (tmp_path / "config.json").write_text(json.dumps(value, ensure_ascii=escaped), encoding="utf-8")
        assert read_json(tmp_path / "config.json") == value
    (tmp_path / "config.json").write_text('{"a":' + "[" * 63 + "]" * 63 + "}")
    assert read_json(tmp_path / "config.json")["a"]


BAD_JSON = {
    "empty": b"",
    "a list": b"[]",
    "a number": b"1",
    "cut": b'{"a": 1',
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": Infinity}',
    "minus Infinity": b'{"a": -Infinity}',
    "too large a float": b'{"a": 1e400}',
    "too long an integer": b'{"a": ' + b"1" * 9999 + b"}",
    "key twice": b'{"a": 1, "a": 2}',
    "inner key twice": b'{"a": [{"b": 1, "b": 1}]}',
    "64 lists": b'{"a":' + b"[" * 64 + b"]" * 64 + b"}",
    "a million lists": b'{"a":' + b"[" * 1_000_000,
    "five million values": b'{"a": [' + b"1," * 5_000_000 + b"1]}",
    "Latin-1": '{"é": 1}'.encode("latin-1"),
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "half a surrogate": b'{"a": "\\uDc00"}',
    "an encoded surrogate": b'{"a": "\xed\xa0\x80"}',
    "a NUL": b'{"a": "\0"}',
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_bad_json(tmp_path: Path, case: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(BAD_JSON[case])
    with pytest.raises(ConfigError) as caught:
        read_json(path)
    assert caught.value.code == "C001"
    assert caught.value.message.startswith(f"{path}: ")
    assert "\n" not in caught.value.message


def test_json_files_are_bounded_and_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("absent.json", "x" * 5000, "a\0b"):
        with pytest.raises(NotFoundError, match="F001"):
            read_json(tmp_path / name)
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert read_json(tmp_path / "config.json", limit=8) == {"a": 1}
    with pytest.raises(ConfigError, match="larger than 7 bytes"):
        read_json(tmp_path / "config.json", limit=7)
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(JSON_LIMIT + 1)
    with pytest.raises(ConfigError, match="larger than 64,000,000 bytes"):
        read_json(tmp_path / "large.json")


# --- fuzzing ------------------------------------------------------------------------------------

ODD = [
    -1, 0, 1, 7, 2**31, 2**63 - 1, 2**63, 2**64, 1.0, -0.0, "8", "", None, True, [], {}, [0, 0], "F64", "BF16",
]  # fmt: skip


def mutate(random_: random.Random, good: bytes) -> bytes:
    """One change of the kinds that damage or malice make."""
    size = int.from_bytes(good[:8], "little")
    header, body = json.loads(good[8 : 8 + size]), good[8 + size :]
    kind = random_.randrange(9)
    if kind == 0:  # bits of the header
        data = bytearray(good)
        for _ in range(random_.choice((1, 1, 2, 8))):
            data[random_.randrange(8 + size)] ^= 1 << random_.randrange(8)
        return bytes(data)
    if kind == 1:  # bytes of the header, by ones that mean something to JSON
        data = bytearray(good)
        data[8 + random_.randrange(size)] = random_.choice(b'{}[]",:0129-eE.\\u tfn\0\xff')
        return bytes(data)
    if kind == 2:
        return good[: random_.randrange(len(good))]
    if kind == 3:
        return good + random_.randbytes(random_.randint(1, 20))
    if kind == 4:  # the length
        length = random_.choice((size + random_.randint(-20, 20), random_.getrandbits(random_.randint(1, 64))))
        return length.to_bytes(8, "little") + good[8:]
    if kind == 5:  # header bytes cut out or put in twice, with the length to match
        first, last = sorted(random_.randrange(size) for _ in range(2))
        raw = good[8 : 8 + size]
        return pack(random_.choice((raw[:first] + raw[last:], raw[:last] + raw[first:])), body)
    name = random_.choice(list(header))
    field = random_.choice(("dtype", "shape", "data_offsets"))
    if kind == 6 or name == "__metadata__":  # one field, or the whole entry
        if random_.random() < 0.8 and name != "__metadata__":
            header[name][field] = random_.choice(ODD)
        else:
            header[name] = random_.choice(ODD)
    elif kind == 7:  # one number
        field = random_.choice(("shape", "data_offsets"))
        if header[name][field]:
            place = random_.randrange(len(header[name][field]))
            change = random_.choice((-8, -1, 1, 4, 8, 2**32, 2**62))
            header[name][field][place] += change
    else:  # an entry renamed, dropped, or given the place of another
        entry = header.pop(name)
        if random_.random() < 0.7:
            header[random_.choice((name, "new", "\0", "a" * 300))] = entry
        if random_.random() < 0.5:
            header["extra"] = header[random_.choice([key for key in header if key != "__metadata__"])]
    return pack(header, body)


def test_fuzzed_files_are_refused_or_read_right(tmp_path: Path) -> None:
    names = ("float32", "bfloat16", "int64", "bool", "scalar", "empty")
    write_weights(tmp_path, {name: some_tensors()[name] for name in names}, metadata={"format": "pt", "k": "v"})
    path = tmp_path / "model.safetensors"
    good, random_, read = path.read_bytes(), random.Random(1), 0
    started = time.perf_counter()
    for number in range(4000):
        data = mutate(random_, good)
        path.unlink()
        path.write_bytes(data)
        try:
            opened = open_weights(tmp_path)
            tensors = {name: opened.read(name) for name in opened.names}
        except HeadwayError as error:
            assert error.code in ("X001", "X005"), f"{number}: {error}"
            assert error.message.isprintable(), number
            continue
        read += 1
        size = int.from_bytes(data[:8], "little")
        header = {key: value for key, value in json.loads(data[8 : 8 + size]).items() if key != "__metadata__"}
        assert tensors.keys() == header.keys(), number
        for name, tensor in tensors.items():
            begin, end = (8 + size + offset for offset in header[name]["data_offsets"])
            assert list(tensor.shape) == header[name]["shape"], number
            assert tensor.reshape(-1).view(torch.uint8).numpy().tobytes() == data[begin:end], number
    assert 100 < read < 2000, "both outcomes must occur, or the mutations are too weak or too strong"
    assert time.perf_counter() - started < 20


def test_fuzzed_indexes_raise_only_our_errors(tmp_path: Path) -> None:
    sharded(tmp_path)
    path = tmp_path / weights.INDEX
    good, random_, read = path.read_bytes(), random.Random(2), 0
    for _ in range(1000):
        data = bytearray(good)
        for _ in range(random_.choice((1, 1, 3))):
            data[random_.randrange(len(data))] = random_.choice((random_.randrange(256), *b'{}[]",:\\/.0'))
        path.write_bytes(data[: random_.choice((len(data), len(data), random_.randrange(len(data))))])
        try:
            opened = open_weights(tmp_path)
            read += bool([opened.read(name) for name in opened.names])
        except HeadwayError as error:
            assert error.code in ("C001", "F002", "X001", "X002", "X006")
            assert error.message.isprintable()
    assert 10 < read < 900


# --- writing that fails -------------------------------------------------------------------------

DISK_ERRORS = [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO]


def fail_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, number: int) -> None:
    original, calls = getattr(owner, name), []

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == call:
            raise OSError(number, os.strerror(number))
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize("number", DISK_ERRORS)
@pytest.mark.parametrize(
    ("owner", "name", "calls"), [(os, "fsync", 5), (weights, "_raw_bytes", 3), (Path, "rename", 4)]
)
def test_a_full_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: int, number: int
) -> None:
    """Three shards and an index: five syncs (the folder's is the last), three tensors, four renames."""
    tensors = {key: torch.ones(25) for key in "abc"}
    (tmp_path / "config.json").write_text("{}")
    for call in range(1, calls + 1):
        with monkeypatch.context() as patch, pytest.raises(HeadwayError) as caught:
            fail_at(patch, owner, name, call, number)
            write_weights(tmp_path, tensors, shard_bytes=100)
        assert caught.value.code == ("M002" if number in DISK_FULL else "F007")
        assert str(tmp_path) in caught.value.message
        assert os.listdir(tmp_path) == ["config.json"], call
    with monkeypatch.context() as patch:
        fail_at(patch, owner, name, calls + 1, number)
        write_weights(tmp_path, tensors, shard_bytes=100)
    assert len(os.listdir(tmp_path)) == 5


def test_the_message_of_a_full_disk_has_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1234}))
    fail_at(monkeypatch, weights, "_raw_bytes", 1, errno.ENOSPC)
    with pytest.raises(MemoryOrDiskError, match=r"No space left on device; 40,\d\d\d bytes needed") as caught:
        write_weights(tmp_path, {"a": torch.ones(10_000)})
    assert "1,234 free" in caught.value.message


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_tensors_that_fail_to_come_leave_nothing(tmp_path: Path, kind: type[BaseException]) -> None:
    def source() -> Any:
        yield "a", torch.ones(4)
        yield "b", torch.ones(4)
        raise kind

    with pytest.raises(kind):
        write_weights(tmp_path, source(), shard_bytes=16)
    assert os.listdir(tmp_path) == []


def test_names_that_cannot_be_written(tmp_path: Path) -> None:
    for names in (("a", "a"), ("__metadata__",), ("\ud800",)):
        with pytest.raises(ValueError, match=r"taken|surrogates"):
            write_weights(tmp_path, ((name, torch.ones(1)) for name in names), shard_bytes=1)
        assert os.listdir(tmp_path) == []


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFoundError, match="F007"):
        write_weights(tmp_path / "file" / "folder", {"a": torch.ones(1)})


@pytest.mark.parametrize(
    "name", ["model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json"]
)
def test_weights_are_never_written_over(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(NotFoundError, match="F004"):
        write_weights(tmp_path, {"a": torch.ones(1)})
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "precious"


# --- nothing is run -----------------------------------------------------------------------------

WATCHED = """
import json
import os
import sys
from pathlib import Path
from headway.errors import HeadwayError
from headway.hub.weights import open_weights, read_json

warm, hostile, control = Path(sys.argv[1]), [Path(name) for name in sys.argv[3:]], sys.argv[2] == "control"
opened = open_weights(warm)
assert "torch" not in sys.modules, "opening needs no torch"
opened.read("a").sum().item()
import pickle

events = []
watch = ("exec", "compile", "import", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn",
         "os.spawn", "socket.", "pickle.", "marshal.", "ctypes.", "shutil.", "os.remove", "os.rename")
WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def hook(event, args):
    text = str(args[0]) if args else ""
    if event.startswith(watch) or event == "open" and (args[2] & WRITE or text.endswith((".bin", ".py"))):
        events.append([event, text])

sys.addaudithook(hook)
outcome = []
for folder in hostile:
    try:
        opened = open_weights(folder)
        outcome += [float(opened.read(name).sum()) for name in opened.names]
    except HeadwayError as error:
        outcome.append(error.code)
    read_json(folder / "config.json")
    if control:
        pickle.loads((folder / "pytorch_model.bin").read_bytes())
sys.stdout.write(json.dumps([outcome, events]))
"""


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return exec, (f"import socket; open({str(self.marker)!r}, 'w').close()",)


def test_opening_a_hostile_folder_runs_nothing(tmp_path: Path) -> None:
    marker, script = tmp_path / "marker", tmp_path / "watched.py"
    script.write_text(WATCHED)
    write_weights(tmp_path / "warm", {"a": torch.ones(2)})
    folders = [tmp_path / name for name in ("only-pickle", "both", "disguised", "index")]
    for folder in folders:
        folder.mkdir()
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(marker)))
        for name in ("__init__", "modeling", "torch", "safetensors", "json", "numpy", "sitecustomize"):
            (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'w').close()")
        auto = {"AutoModel": "modeling.Model", "AutoConfig": "modeling.Config"}
        (folder / "config.json").write_text(json.dumps({"auto_map": auto, "model_type": "x", "torch_dtype": "os"}))
    write_weights(folders[1], {"a": torch.ones(3)}, metadata={"format": "__import__('os').system('false')"})
    (folders[2] / "model.safetensors").write_bytes(pickle.dumps(Bomb(marker)))
    set_index(folders[3], {"weight_map": {"a": "pytorch_model.bin"}})

    def watched(mode: str) -> Any:
        root = Path(headway.__file__).parents[1]
        done = subprocess.run(
            [sys.executable, script, tmp_path / "warm", mode, *folders],
            cwd=folders[1],
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    outcome, events = watched("plain")
    assert outcome == ["X005", 3.0, "X005", "X005"]
    # The index leads to the pickle by name: its first bytes are looked at, nothing more.
    assert events == [["open", str(folders[3] / "pytorch_model.bin")]]
    assert not marker.exists()
    _, events = watched("control")
    assert {event for event, _ in events} >= {"exec", "compile", "open", "pickle.find_class"}
    assert marker.exists()
