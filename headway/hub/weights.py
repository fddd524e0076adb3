"""Safetensors files of a model folder: checked, opened, read tensor by tensor, and written.

Headers are checked before the safetensors library sees a file, so that a damaged or hostile file gives an error of one
line with a code. Pickles are never opened.
"""

from __future__ import annotations

import json
import math
import os
import re
import reprlib
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.errors import DamagedError, NotFoundError
from headway.jsonfile import AGAIN, parse_object, read_json, show, unreadable
from headway.progress import bar
from headway.resources import VECTOR_BYTES, write_error

if TYPE_CHECKING:
    import torch

HEADER_LIMIT, HEADER_VALUES, WIDE_LIMIT = 100_000_000, 1_500_000, 32_000_000
"""Bytes of a header (the limit of the format), its values, and its bytes if some are not ASCII: parsed JSON can take a
hundred times the memory of its text."""
MAX_DIMS = 64
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = {
    "BOOL": ("bool", 1), "U8": ("uint8", 1), "I8": ("int8", 1), "U16": ("uint16", 2), "I16": ("int16", 2),
    "U32": ("uint32", 4), "I32": ("int32", 4), "U64": ("uint64", 8), "I64": ("int64", 8),
    "F16": ("float16", 2), "BF16": ("bfloat16", 2), "F32": ("float32", 4), "F64": ("float64", 8),
    "C64": ("complex64", 8), "F8_E4M3": ("float8_e4m3fn", 1), "F8_E5M2": ("float8_e5m2", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1), "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
}  # fmt: skip
"""Name in the file → name in torch, bytes per item."""
OTHER_FORMATS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack", ".gguf", ".onnx")
FORMAT = {"format": "pt"}
CONVERT = """if you trust its source, convert it with transformers: AutoModel….from_pretrained("OLD")\
.save_pretrained("NEW"), with the class that config.json names under architectures"""
_brief = reprlib.Repr()
_brief.maxstring = 100


class _Entry(NamedTuple):
    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Weights:
    """The tensors of a model folder: opened by `open_weights`, not yet read."""

    def __init__(self, folder: Path, entries: dict[str, _Entry], metadata: dict[str, str]) -> None:
        self.folder, self.metadata, self._entries = folder, metadata, entries
        self._handles: dict[Path, Any] = {}

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    @property
    def total_bytes(self) -> int:
        return sum(entry.end - entry.begin for entry in self._entries.values())

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape

    def dtype(self, name: str) -> str:
        """The name in torch: "bfloat16"."""
        return DTYPES[self._entry(name).dtype][0]

    def read(self, name: str) -> torch.Tensor:
        """The tensor, mapped from the file: its pages are read on first use."""
        from safetensors import SafetensorError, safe_open

        file = self._entry(name).file
        try:
            if file not in self._handles:
                self._handles[file] = safe_open(file, framework="pt", device="cpu")
            tensor: torch.Tensor = self._handles[file].get_tensor(name)
        except SafetensorError as error:
            raise _damaged(file, f"tensor {_brief.repr(name)}: {str(error).splitlines()[0]}") from error
        except OSError as error:
            raise unreadable(file, error) from error
        # After a header of odd length items are not aligned, which no kernel can read; the int8 kernel needs whole
        # vectors aligned. All other tensors stay mapped: copies would double a model's memory.
        unit = VECTOR_BYTES if tensor.element_size() == 1 else tensor.element_size()
        return tensor.clone() if tensor.data_ptr() % unit else tensor

    def fill(self, name: str, out: torch.Tensor) -> None:
        """Copy the tensor into `out`, rows of a larger one."""
        out.copy_(self.read(name).reshape(out.shape))

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            raise _damaged(self.folder, f"no tensor {_brief.repr(name)}", code="X002")
        return self._entries[name]


def open_weights(folder: Path) -> Weights:
    """Find the weights of a model folder and check all headers; no tensor is read."""
    if not os.path.isdir(folder):
        raise NotFoundError("F001", f"{show(folder)}: no such folder")
    if os.path.lexists(folder / INDEX) and not os.path.lexists(folder / SINGLE):
        return Weights(folder, *_check_index(folder))
    return Weights(folder, *_check_file(_inside(folder, _single_file(folder))))


def open_file(path: Path) -> Weights:
    """Open one safetensors file of any name and check its header; no tensor is read."""
    return Weights(path.parent, *_check_file(path))


def _single_file(folder: Path) -> str:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise unreadable(folder, error) from error
    found = [name for name in names if name.endswith(".safetensors") and name[0] != "."]
    found = [name for name in found if not name.startswith("adapter_model")]
    if SINGLE in found:
        return SINGLE
    if len(found) == 1 and not re.search(r"-of-0*([2-9]|1\d)\d*\.safetensors$", found[0]):
        return found[0]
    if found:
        what = f"{len(found)} safetensors files ({show(found[0])}, …) but no {INDEX}"
        raise NotFoundError("F002", f"{show(folder)}: {what}", AGAIN)
    if other := [name for name in names if name.lower().endswith(OTHER_FORMATS)]:
        raise _damaged(folder, f"no safetensors, only {show(other[0])}, not opened", "X005", CONVERT)
    hint = (
        "this is an adapter of another library: give the model that it belongs to"
        if "adapter_model.safetensors" in names
        else ""
    )
    raise NotFoundError("F002", f"{show(folder)}: no {SINGLE} and no {INDEX}", hint)


def _check_index(folder: Path) -> tuple[dict[str, _Entry], dict[str, str]]:
    """Only tensors that the index lists belong to the model."""
    places = read_json(_inside(folder, INDEX)).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        raise _damaged(folder / INDEX, "weight_map must give a file name for each tensor")
    shards = {place: _check_file(_inside(folder, place)) for place in dict.fromkeys(places.values())}
    for name, place in places.items():
        if name not in shards[place][0]:
            raise _damaged(folder / place, f"no tensor {_brief.repr(name)}, which {INDEX} puts there", "X002")
    metadata = {key: note for _, notes in shards.values() for key, note in notes.items()}
    return {name: shards[place][0][name] for name, place in places.items()}, metadata


def _inside(folder: Path, name: str) -> Path:
    """`folder/name`, if it is a file in the folder or a link of a hub snapshot to its blobs."""
    if name in ("", ".", "..") or any(mark in name for mark in "/\\:\0"):
        raise _damaged(folder, f"{_brief.repr(name)} is not a plain file name", "X006")
    root, target = (Path(os.path.realpath(path)) for path in (folder, folder / name))
    blobs = Path(os.path.realpath(root.parent.parent / "blobs")) if root.parent.name == "snapshots" else root
    if not (target.is_relative_to(root) or target.is_relative_to(blobs)):
        raise _damaged(folder / name, f"links out of its folder, to {show(target)}", "X006", "copy the file")
    if not os.path.isfile(target):
        raise NotFoundError("F002", f"{show(folder / name)}: no such file", AGAIN)
    return folder / name


def _check_file(path: Path) -> tuple[dict[str, _Entry], dict[str, str]]:
    """The entries and the metadata of one safetensors file."""
    raw, room = _read_header(path)
    try:
        if len(raw) > WIDE_LIMIT and (not raw.isascii() or b"\\u" in raw):  # takes 4 bytes a character
            raise ValueError(f"a header over {WIDE_LIMIT:,} bytes with more than plain ASCII in it")
        header = parse_object(raw, HEADER_VALUES)
        notes = header.pop("__metadata__", {})
        if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
            raise ValueError("__metadata__ must map names to text")
        entries = {name: _check_entry(path, name, value) for name, value in header.items()}
        _check_cover(entries, room)
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    return entries, notes


def _read_header(path: Path) -> tuple[bytes, int]:
    """The JSON header of a safetensors file, and the number of bytes after it."""
    try:
        with path.open("rb") as file:
            size, start = os.fstat(file.fileno()).st_size, file.read(64)
            length, room = int.from_bytes(start[:8], "little"), size - 8
            if start[8:9] == b"{" and length <= min(room, HEADER_LIMIT):
                file.seek(8)
                return file.read(length), room - length
    except OSError as error:
        raise unreadable(path, error) from error
    # A header length may start with \x80 too, but then zeros or the brace of the header follow.
    if start[:2] == b"PK" or (start[:1] == b"\x80" and start[2:8].strip(b"\0") and start[8:9] != b"{"):
        raise _damaged(path, "a pickle or zip archive under this name, not opened", "X005", CONVERT)
    if start.startswith(b"version https://git-lfs"):
        raise _damaged(path, f"{size} bytes that only point to the weights", hint="run `git lfs pull` there")
    if size < 8:
        raise _damaged(path, f"{size} bytes, where the header length alone takes 8")
    if length > min(room, HEADER_LIMIT):
        limit = f"the limit is {HEADER_LIMIT:,}"
        raise _damaged(path, f"header length {length:,} in a file of {size:,} bytes; {limit}")
    raise _damaged(path, f"a header of {length:,} bytes that does not start with a brace")


def _check_entry(path: Path, name: str, value: Any) -> _Entry:
    def wrong(what: str) -> ValueError:
        return ValueError(f"tensor {_brief.repr(name)}: {what}")

    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise wrong("must have dtype, shape and data_offsets, nothing else")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise wrong(f"dtype {_brief.repr(dtype)} is unknown to headway")
    if not _are_naturals(shape) or len(shape) > MAX_DIMS:
        raise wrong(f"shape {_brief.repr(shape)} is not a list of at most {MAX_DIMS} sizes from 0")
    if not _are_naturals(offsets) or len(offsets) != 2:
        raise wrong(f"data_offsets {_brief.repr(offsets)} is not a begin and an end")
    items = math.prod(max(size, 1) for size in shape)  # strides overflow even if one axis is empty
    if items >= 1 << 63:
        raise wrong(f"shape {_brief.repr(shape)} has more items than 64 bits count")
    needed, span = 0 if 0 in shape else items * DTYPES[dtype][1], offsets[1] - offsets[0]
    if needed != span:
        sizes = f"{needed:,} bytes, but data_offsets span {_brief.repr(span)}"
        raise wrong(f"{dtype} of shape {_brief.repr(shape)} takes {sizes}")
    return _Entry(path, dtype, tuple(shape), offsets[0], offsets[1])


def _are_naturals(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_cover(entries: dict[str, _Entry], room: int) -> None:
    """Check that the tensors, end to end, fill the `room` bytes after the header exactly."""
    position = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != position:
            what = "overlaps the one before" if entry.begin < position else "leaves a hole before it"
            where = f"begins at {_brief.repr(entry.begin)}, not {position:,}"
            raise ValueError(f"tensor {_brief.repr(name)} {what}: {where}")
        position = entry.end
    if position != room:
        what = "cut short" if position > room else "too long"
        raise ValueError(f"{what}: the tensors take {position:,} bytes, {room:,} are there")


def _damaged(path: Path, what: str, code: str = "X001", hint: str = AGAIN) -> DamagedError:
    return DamagedError(code, f"{show(path)}: {what}", hint)


def write_weights(
    folder: Path,
    tensors: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
    *,
    shard_bytes: int = 5 * 10**9,
    metadata: Mapping[str, str] = FORMAT,
) -> None:
    """Write model.safetensors, or shards and their index. On an error no file is left behind."""
    made: list[Path] = []
    numbers: dict[str, int] = {}  # tensor → number of its shard
    total = 0
    try:
        with writing(folder, 0):
            folder.mkdir(parents=True, exist_ok=True)
            if taken := [name for name in os.listdir(folder) if re.match(r"model[-.].*safetensors", name)]:
                raise NotFoundError("F004", f"{show(folder)}: holds weights already: {show(taken[0])}")
        for shard in _shards(tensors.items() if isinstance(tensors, Mapping) else tensors, shard_bytes):
            numbers |= dict.fromkeys(shard, len(made))
            made.append(folder / f".weights-{secrets.token_hex(8)}.tmp")
            total += write_tensors(made[-1], shard, metadata)
        names = [f"model-{i + 1:05d}-of-{len(made):05d}.safetensors" for i in range(len(made))]
        if len(made) > 1:  # the index gets its name last: shards without an index are no model
            places = {tensor: names[i] for tensor, i in numbers.items()}
            index = {"metadata": {"total_size": total}, "weight_map": places}
            text = json.dumps(index, indent=2, sort_keys=True).encode() + b"\n"
            made.append(folder / f".weights-{secrets.token_hex(8)}.tmp")
            _write_file(made[-1], len(text), [text])
        with writing(folder, 0):
            for i, name in enumerate([*names, INDEX] if len(made) > 1 else [SINGLE]):
                made[i] = made[i].rename(folder / name)
            sync_folder(folder)
    except BaseException:
        for path in made:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        raise


def _shards(pairs: Iterable[tuple[str, torch.Tensor]], limit: int) -> Iterator[dict[str, torch.Tensor]]:
    """Tensors in order, with a new shard whenever the next tensor would exceed the limit."""
    shard: dict[str, torch.Tensor] = {}
    seen, filled = {"__metadata__"}, 0
    for name, tensor in pairs:
        if name in seen:
            raise ValueError(f"tensor name {name!r} is taken")
        if shard and filled + tensor.nbytes > limit:
            yield shard
            shard, filled = {}, 0
        seen.add(name)
        shard[name] = tensor
        filled += tensor.nbytes
    yield shard


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: Mapping[str, str]) -> int:
    """Write one safetensors file; returns the bytes of its tensors."""
    size, chunks = tensor_chunks(tensors, metadata)
    _write_file(path, size, chunks)
    return sum(tensor.nbytes for tensor in tensors.values())


def tensor_chunks(
    tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] = FORMAT
) -> tuple[int, Iterator[bytes | memoryview]]:
    """The size of a safetensors file, and its bytes in pieces. Tensors that share memory are written separately."""
    keys = {torch_name: key for key, (torch_name, _) in DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    order = file_order(tensors)
    for name, tensor in order:
        begin, end = end, end + tensor.nbytes
        dtype = keys[str(tensor.dtype).removeprefix("torch.")]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % VECTOR_BYTES)
    start = len(text).to_bytes(8, "little") + text
    return len(start) + end, chain([start], (_raw_bytes(tensor) for _, tensor in order))


def file_order(tensors: Mapping[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    """The order of tensors in a file.

    Tensors whose size is a multiple of VECTOR_BYTES come first, so that each starts at such a multiple. The others
    follow by item size, largest first, which keeps every item on its own boundary.
    """
    return sorted(
        tensors.items(), key=lambda item: (item[1].nbytes % VECTOR_BYTES > 0, -item[1].element_size(), item[0])
    )


def _raw_bytes(tensor: torch.Tensor) -> bytes | memoryview:
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().data


def _write_file(path: Path, size: int, chunks: Iterable[bytes | memoryview]) -> None:
    with writing(path.parent, size), path.open("xb") as file, bar("saving weights", size, "bytes") as tick:
        for chunk in chunks:
            tick(file.write(chunk))
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def writing(folder: Path, needed: int) -> Iterator[None]:
    """Turn an OSError into our error, with the free space as it was before."""
    free = shutil.disk_usage(next(place for place in (folder, *folder.parents) if os.path.exists(place))).free
    try:
        yield
    except OSError as error:
        raise write_error(show(folder), error, room=f"; {needed:,} bytes needed, {free:,} free") from error


def sync_folder(folder: Path) -> None:
    """Make new file names durable; only POSIX can open a folder for it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
