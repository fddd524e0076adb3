"""Sounds from folders and tables, with labels, texts and segments."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.config.recipe import DataConfig
from headway.data.files.readers import Flaw
from headway.data.sounds.decode import open_sound
from headway.data.sounds.rows import SoundRow, find_parts, other_files, parse_sound, read_rows, sound_files
from headway.data.sounds.wav import wav_bytes
from headway.errors import DataError, HeadwayError

TONE = (0.5 * np.sin(np.arange(1600) * 0.3)).astype(np.float32)
WAV = wav_bytes(TONE, 8000)


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(WAV)
    return path


def rows(spec: Path | str, **data: Any) -> list[SoundRow]:
    found = list(read_rows(str(spec), DataConfig(**data)))
    assert all(isinstance(row, SoundRow) for row in found), found
    return found  # type: ignore[return-value]


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for name in ("dog/1.wav", "dog/deep/2.WAV", "cat/3.flac", ".hidden/4.wav", "cat/notes.txt"):
        write(tmp_path / name)
    found = rows(tmp_path)
    names = [(Path(row.file).name, row.label) for row in found]
    assert names == [("3.flac", "cat"), ("1.wav", "dog"), ("2.WAV", "dog")]
    assert other_files(str(tmp_path)) == ["cat/notes.txt"] and len(sound_files(str(tmp_path))) == 3
    assert not find_parts(str(tmp_path))
    assert [row.label for row in rows(f"{tmp_path}/*/*.wav")] == ["dog"]
    assert [row.label for row in rows(tmp_path / "dog" / "1.wav")] == [None]
    with pytest.raises(DataError, match="no sounds"):
        (tmp_path / "empty").mkdir()
        rows(tmp_path / "empty")


def test_parts_of_a_dataset(tmp_path: Path) -> None:
    for name in ("train/a/1.wav", "val/a/2.wav", "test/b/3.wav"):
        write(tmp_path / name)
    parts = find_parts(str(tmp_path))
    assert {part: Path(spec).name for part, spec in parts.items()} == {"train": "train", "valid": "val", "test": "test"}


def test_a_table_of_paths_and_segments(tmp_path: Path) -> None:
    write(tmp_path / "clips" / "long.wav")
    table = tmp_path / "metadata.csv"
    table.write_text(
        "file_name,label,start,end\nclips/long.wav,a,0.05,0.1\nclips/long.wav,b,,\nclips/long.wav,c,0.1,\n"
    )
    for spec in (table, tmp_path):
        found = rows(spec)
        assert [(row.label, row.start, row.end) for row in found] == [
            ("a", 0.05, 0.1),
            ("b", 0, None),
            ("c", 0.1, None),
        ]
        assert Path(found[0].sound) == tmp_path / "clips" / "long.wav" and found[1].line == 3


def test_bad_rows_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a.wav")
    table = tmp_path / "list.csv"
    table.write_text("file_name,label,start\nb.wav,x,\na.wav,x,soon\na.wav,x,inf\n,x,\na.wav,x,0.1\n")
    found = list(read_rows(str(table), DataConfig()))
    flaws = [row for row in found if isinstance(row, Flaw)]
    assert [(flaw.line, flaw.column) for flaw in flaws] == [
        (2, "file_name"),
        (3, "start"),
        (4, "start"),
        (5, "file_name"),
    ]
    assert "no such file" in flaws[0].reason and "a.wav" in flaws[0].reason  # the nearest name
    assert "'soon' is no time" in flaws[1].reason


def test_bytes_and_texts_in_parquet(tmp_path: Path) -> None:
    sounds = [{"bytes": WAV, "path": "x.wav"}] * 2
    table = pa.table({"audio": sounds, "label": [0, 1], "transcription": ["hello", "you"]})
    features = {"info": {"features": {"label": {"names": ["dog", "cat"], "_type": "ClassLabel"}}}}
    path = tmp_path / "train.parquet"
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), path)
    found = rows(path)
    assert [(row.label, row.text) for row in found] == [("dog", "hello"), ("cat", "you")]
    assert np.abs(open_sound(found[0].sound).samples - TONE).max() < 1e-3


def test_a_column_is_named_by_a_setting(tmp_path: Path) -> None:
    write(tmp_path / "a.wav")
    (tmp_path / "list.jsonl").write_text('{"what": "a.wav", "kind": "x"}\n')
    assert rows(tmp_path / "list.jsonl", sound="what", label="kind")[0].label == "x"


def test_values_of_requests() -> None:
    coded = base64.b64encode(WAV).decode()
    assert parse_sound(coded, None) == WAV
    assert parse_sound(f"data:audio/x-wav;base64,{coded}", Path()) == WAV
    samples, rate = parse_sound({"array": TONE, "sampling_rate": 8000}, None)
    assert samples is TONE and rate == 8000
    assert open_sound(parse_sound("played:rising", None)).seconds == 1
    for value in ("/etc/passwd", "clip.wav", "", None, 3, "played:nothing"):
        with pytest.raises(HeadwayError):
            parse_sound(value, None)
