"""Files of a dataset of images or sounds: a folder per class, tables, globs, and the parts of a divided dataset.

Each function takes the endings of the files that count.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.data.files.columns import column_names, quoted
from headway.data.files.locate import file_format
from headway.data.files.rows import peek
from headway.jsonfile import unreadable

TABLES = ("csv", "tsv", "jsonl", "json", "parquet", "sheet")
PARTS: dict[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "valid": ("valid", "val", "validation", "dev"),
    "test": ("test", "testing", "t10k", "eval"),
}
"""Parts of a dataset → names of their folders, files and arrays."""
METADATA = "metadata"
"""The table that `datasets` reads beside the files of a folder."""


@dataclass(frozen=True)
class Listing:
    """What a folder holds."""

    files: list[Path]
    """Images or sounds."""
    tables: list[Path]
    """Tables to read in their place."""


def divided(folder: Path, holds_part: Callable[[Path], bool]) -> dict[str, str]:
    """The parts of a dataset that a folder holds as folders, or as files for which `holds_part`; empty if it has none.

    Each part is a spec.
    """
    inside = {each.name.lower(): each for each in sorted(folder.iterdir()) if not each.name.startswith(".")}
    folders = {name for name, each in inside.items() if each.is_dir()}
    if folders - {name for names in PARTS.values() for name in names}:
        return {}  # folders of classes, of which one may be called train
    parts: dict[str, str] = {}
    for part, names in PARTS.items():
        inner = next((inside[name] for name in names if name in inside and inside[name].is_dir()), None)
        files = (each for each in inside.values() if part_of(each.name) == part and holds_part(each))
        if (found_at := inner or next(files, None)) is not None:
            parts[part] = str(found_at)
    return parts if "train" in parts else {}


def part_of(name: str) -> str:
    """The part that a file's name begins with: t10k-images-idx3-ubyte, train-00000-of-00002.parquet."""
    word = re.split(r"[^a-z0-9]", name.lower(), maxsplit=1)[0]
    return next((part for part, names in PARTS.items() if word in names), "")


def is_table(path: Path) -> bool:
    return path.is_file() and file_format(path)[0] in TABLES


def matching(spec: str, suffixes: Collection[str]) -> list[Path]:
    """The files that a glob matches, with one of these endings."""
    pattern = os.path.expanduser(spec)
    found = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else []
    return [Path(each) for each in found if Path(each).suffix.lower() in suffixes]


def listing(folder: Path, suffixes: Collection[str]) -> Listing:
    """A folder's files; its tables, if one is called metadata or if there are no such files."""
    every = below(folder)
    tables = [path for path in every if is_table(path)]
    files = [path for path in every if path.suffix.lower() in suffixes]
    listed = [path for path in tables if path.name.lower().split(".")[0] == METADATA]
    return Listing(files, listed or ([] if files else tables))


def label_of(path: Path, folder: Path) -> str | None:
    """The class of a file: the folder in which it is, right below the folder of the dataset."""
    inner = path.relative_to(folder).parts
    return inner[0] if len(inner) > 1 else None


def below(folder: Path) -> list[Path]:
    """Files below a folder, sorted; hidden ones are left out. Links are followed, but not back to where they are."""
    return list(_below(folder, frozenset()))


def _below(folder: Path, above: frozenset[str]) -> Iterator[Path]:
    real = os.path.realpath(folder)
    if real in above:
        return
    try:
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as error:
        raise unreadable(folder, error) from None
    yield from (each for each in inside if not each.is_dir())
    for each in inside:
        if each.is_dir():
            yield from _below(each, above | {real})


def columns_there(file: str, line: int) -> str:
    """For an error about a missing column: those of the table that a row stands in; empty where it is in none."""
    if not (file and line and is_table(Path(file))):
        return ""
    return f"; there are {quoted(column_names(row.values for row in peek(Path(file))[1]))}"


def others(folder: str, used: Collection[Path]) -> list[str]:
    """Names of a folder's files that are not used: they are left out, and counted."""
    root = Path(os.path.expanduser(folder))
    if not root.is_dir():
        return []
    left = {*used}
    return [path.relative_to(root).as_posix() for path in below(root) if path not in left]
