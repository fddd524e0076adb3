"""Bytes that are no text, without a download: 8-bit sound of made-up tunes, and files of the Python installation."""

from __future__ import annotations

import gzip
import os
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from headway.data.datasets.labeled import LabeledText
from headway.data.datasets.raw import RAW

RATE = 4000
"""Samples of sound in a second, one byte each."""
NOTES = (0, 2, 4, 7, 9, 12)
"""Semitones above the lowest note."""
LOWEST, LENGTH, OVERTONES = 220.0, 500, (1.0, 0.4, 0.2)
"""Hertz of the lowest note, samples of a note, and how loud its overtones are."""
KINDS = {
    **{".py": "python", ".pyc": "bytecode", ".so": "library", ".dll": "library", ".dylib": "library"},
    **{".json": "json", ".txt": "prose", ".rst": "prose", ".md": "prose", ".h": "c", ".c": "c"},
}
"""Extension of a file → its kind."""
PACKED = "gzip"
"""The kind that is made by packing Python files."""
MOST_FILES, FEWEST_CHUNKS = 30_000, 40
"""Files that are looked at; chunks of a kind without which it is left out."""


def make_sound(seconds: int = 120, seed: int = 0) -> str:
    """A tune as 8-bit samples (unsigned, 128 is silence), each a character; equal seeds give equal tunes."""
    rng = np.random.default_rng(seed)
    time, parts, place = np.arange(LENGTH) / RATE, list[np.ndarray](), 0
    for _ in range(seconds * RATE // LENGTH):
        place = int(np.clip(place + rng.integers(-2, 3), 0, len(NOTES) - 1))
        pitch = LOWEST * 2 ** (NOTES[place] / 12)
        wave = sum(loud * np.sin(2 * np.pi * pitch * (i + 1) * time) for i, loud in enumerate(OVERTONES))
        parts.append(wave * np.exp(-4 * time) * 70)
    samples = np.concatenate(parts)
    raw: bytes = np.clip(samples.round() + 128, 0, 255).astype(np.uint8).tobytes()
    return raw.decode(RAW)


def make_file_types(each: int, length: int, seed: int = 0) -> list[LabeledText]:
    """Up to `each` chunks of every kind of file that the Python installation has, from anywhere in the files."""
    rng = random.Random(seed)
    files: dict[str, list[Path]] = {}
    for path in _installed():
        files.setdefault(KINDS[path.suffix], []).append(path)
    files[PACKED] = files.get(KINDS[".py"], [])
    found = list[LabeledText]()
    for kind, paths in sorted(files.items()):
        chunks = list[LabeledText]()
        for number in range(4 * each):
            if not paths or len(chunks) == each:
                break
            path = paths[rng.randrange(len(paths))]
            raw = path.read_bytes()
            raw = gzip.compress(raw, mtime=0) if kind == PACKED else raw
            if len(raw) >= length:
                start = rng.randrange(len(raw) - length + 1)
                text = raw[start : start + length].decode(RAW)
                chunks += [LabeledText(text, None, kind, path.name, number)] if text.strip("\0 \n") else []
        found += chunks if len(chunks) >= min(each, FEWEST_CHUNKS) else []
    rng.shuffle(found)
    return found


def _installed() -> Iterator[Path]:
    """Files of a known kind in the standard library and beside it, sorted within each folder."""
    seen = 0
    for name in ("stdlib", "platstdlib", "purelib", "include"):
        for folder, folders, names in os.walk(sysconfig.get_path(name)):
            folders.sort()
            for each in sorted(names):
                path = Path(folder, each)
                if path.suffix in KINDS and path.is_file() and os.access(path, os.R_OK):
                    seen += 1
                    yield path
            if seen > MOST_FILES:
                return
