"""Make the data of the recipes spoken-prompts and fsdd-strings.

    python benchmarks/speech_data.py prompts ARCHIVE OUT
    python benchmarks/speech_data.py digits ARCHIVES OUT [--strings 12000] [--test 300] [--seed 1]

prompts: ARCHIVE has wav.tar.gz and transcripts.tsv (file, seconds, text). Every tenth file by name is a test file.
digits: ARCHIVES has FSDD's train.tar.gz and test.tar.gz. Strings of three to six digits of one speaker are joined, with
silence between them; `times` in the table says when each digit begins and ends. Test strings are made of test takes.

OUT gets train/ and test/, each with its files and a table metadata.jsonl.
"""

from __future__ import annotations

import argparse
import csv
import json
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from fsdd import NAME, TEST_TAKES, recordings
from numpy.typing import NDArray

from headway.data.sounds.decode import open_sound
from headway.data.sounds.wav import wav_bytes

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000
HUSH = (0.03, 0.25)
"""Seconds of silence around digits."""
Row = dict[str, Any]


def prompts(archive: Path, out: Path) -> None:
    with (archive / "transcripts.tsv").open(encoding="utf-8", newline="") as file:
        texts = {row["file"]: row["text"] for row in csv.DictReader(file, delimiter="\t")}
    parts: dict[str, list[Row]] = {"train": [], "test": []}
    with tarfile.open(archive / "wav.tar.gz") as files:
        members = {each.name.removeprefix("./"): each for each in files if each.isfile()}
        for number, name in enumerate(sorted(texts)):
            part = "test" if number % 10 == 9 else "train"
            raw = files.extractfile(members[name])
            assert raw is not None
            (out / part).mkdir(parents=True, exist_ok=True)
            flat = name.replace("/", "-")
            (out / part / flat).write_bytes(raw.read())
            parts[part].append({"file_name": flat, "transcription": " ".join(texts[name].split())})
    write_tables(out, parts)


def digits(archives: Path, out: Path, strings: int, test: int, seed: int) -> None:
    takes: dict[str, dict[str, list[tuple[int, NDArray[np.float32]]]]] = {
        part: defaultdict(list) for part in ("train", "test")
    }
    for name, raw in sorted(recordings(archives)):
        digit, speaker, take = NAME.fullmatch(name).groups()  # type: ignore[union-attr]
        part = "test" if int(take) < TEST_TAKES else "train"
        takes[part][speaker].append((int(digit), open_sound(raw, name).samples))
    draw = np.random.default_rng(seed)
    parts: dict[str, list[Row]] = {"train": [], "test": []}
    for part, count in (("train", strings), ("test", test)):
        (out / part).mkdir(parents=True, exist_ok=True)
        speakers = sorted(takes[part])
        for number in range(count):
            row, samples = joined(draw, takes[part][speakers[number % len(speakers)]])
            row["file_name"] = f"{number:05}.wav"
            (out / part / row["file_name"]).write_bytes(wav_bytes(samples, RATE))
            parts[part].append(row)
    write_tables(out, parts)


def joined(draw: np.random.Generator, takes: list[tuple[int, NDArray[np.float32]]]) -> tuple[Row, NDArray[np.float32]]:
    """Some takes one after the other, with silence around each."""
    chosen = [takes[i] for i in draw.integers(len(takes), size=int(draw.integers(3, 7)))]
    sounds, times, at = list[NDArray[np.float32]](), list[list[float]](), 0
    for _, samples in chosen:
        hush = 0.001 * draw.standard_normal(round(RATE * draw.uniform(*HUSH))).astype(np.float32)
        sounds += [hush, samples]
        times.append([(at + len(hush)) / RATE, (at + len(hush) + len(samples)) / RATE])
        at += len(hush) + len(samples)
    row = {"transcription": " ".join(WORDS[digit] for digit, _ in chosen), "times": times}
    return row, np.concatenate(sounds)


def write_tables(out: Path, parts: dict[str, list[Row]]) -> None:
    for part, rows in parts.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out / part / "metadata.jsonl").write_text(lines, encoding="utf-8")
        print(f"{len(rows):,} {part} sounds in {out / part}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("prompts", "digits"))
    parser.add_argument("archives", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--strings", type=int, default=12_000)
    parser.add_argument("--test", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.kind == "prompts":
        prompts(asked.archives, asked.out)
    else:
        digits(asked.archives, asked.out, asked.strings, asked.test, asked.seed)
