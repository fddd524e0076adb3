"""Unpack FSDD (https://github.com/Jakobovski/free-spoken-digit-dataset) for `headway train fsdd`.

    python benchmarks/fsdd.py ARCHIVES OUT

ARCHIVES is a folder with train.tar.gz and test.tar.gz of files {digit}_{speaker}_{index}.wav, or with such files. OUT
gets train/ and test/, each with its files and a table metadata.csv. Takes 0 to 4 of each digit are the test part.
"""

from __future__ import annotations

import csv
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

NAME = re.compile(r"(\d)_([a-z]+)_(\d+)\.wav")
TEST_TAKES = 5


def main(archives: Path, out: Path) -> None:
    rows: dict[str, list[tuple[str, str, str]]] = {"train": [], "test": []}
    for name, raw in sorted(recordings(archives)):
        digit, speaker, take = NAME.fullmatch(name).groups()  # type: ignore[union-attr]
        part = "test" if int(take) < TEST_TAKES else "train"
        folder = out / part
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
        rows[part].append((name, digit, speaker))
    for part, found in rows.items():
        with (out / part / "metadata.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("file_name", "label", "speaker"), *found])
        print(f"{len(found):,} {part} recordings in {out / part}")


def recordings(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of all recordings, in archives or as files."""
    for path in folder.glob("*.wav"):
        if NAME.fullmatch(path.name):
            yield path.name, path.read_bytes()
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as files:
            for member in files:
                name = Path(member.name).name
                if member.isfile() and NAME.fullmatch(name):
                    yield name, files.extractfile(member).read()  # type: ignore[union-attr]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
