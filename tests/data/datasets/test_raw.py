"""Raw files: nothing is lost between bytes, characters and tokens; made-up bytes; classification by folder."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.config.recipe import DataConfig
from headway.data.datasets.labeled import read_labeled
from headway.data.datasets.raw import ALPHABET, CHUNKS, printable, raw_chunks, raw_files, read_raw
from headway.data.datasets.text import hold_out, read_corpus, tokenize_corpus, train_or_load_tokenizer
from headway.data.files.rows import BadRows
from headway.data.synthetic import byte_files
from headway.data.synthetic.byte_files import make_file_types, make_sound
from headway.errors import DataError, NotFoundError
from headway.tasks.inputs import read_examples
from headway.tasks.recipe import load_recipe
from headway.tasks.registry import get_task
from headway.train.run import start, train

RAW = DataConfig(raw=True, length=16)
ODD = bytes([0, 255, 13, 10, 0x1B, 0x85, 0xA0, 0xC3, 0xA9, 32, 32, 9, 0])
"""No UTF-8; NUL, carriage returns, escapes and kinds of white space."""


def test_every_byte_is_a_token_and_comes_back(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(ODD * 3)
    (tmp_path / "b").write_bytes(bytes(range(256)))
    texts = read_corpus(str(tmp_path), RAW)
    assert [text.encode("latin-1") for text in texts.read()] == [ODD * 3, bytes(range(256))]
    tokenizer = train_or_load_tokenizer(tmp_path / "run", RAW, texts, causal=True)
    for text in texts.read():
        ids = tokenizer.encode(text).ids
        assert len(ids) == len(text) and tokenizer.decode(ids).encode("latin-1") == text.encode("latin-1")
    store = tokenize_corpus(texts, tokenizer)
    assert store.byte_count == 3 * len(ODD) + 256 and len(store.ids) == store.byte_count + 2, "and ends of documents"
    first, second = hold_out(texts)
    assert first.raw and second.raw and first.key != second.key


def test_without_raw_such_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(ODD)
    with pytest.raises(DataError):
        list(read_corpus(str(tmp_path / "a.bin"), DataConfig()).read())


def test_files_of_a_spec(tmp_path: Path) -> None:
    for name in ("a.so", ".hidden", "x/b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    assert [path.name for path in raw_files(str(tmp_path))] == ["a.so", "b.png"]
    assert [path.name for path in raw_files(str(tmp_path / "*.so"))] == ["a.so"]
    with pytest.raises(NotFoundError, match="nothing"):
        raw_files(str(tmp_path / "nothing"))


def test_chunks_and_what_people_see() -> None:
    assert list(raw_chunks("abcdefgh", 3)) == ["abc", "def"] and list(raw_chunks("ab", 3)) == ["ab"]
    assert list(raw_chunks("", 3)) == []
    assert printable("a\x1b[31m\0é") == "a·[31m·é" and len(ALPHABET) == 256


def test_a_folder_for_each_label(tmp_path: Path) -> None:
    for kind, raw in (("zeros", bytes(1000)), ("odd", ODD)):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "1.bin").write_bytes(raw)
    rows = read_labeled(str(tmp_path), RAW, BadRows())
    assert {(row.label, len(row.text)) for row in rows} == {("zeros", 16), ("odd", 13)}
    assert [row.line for row in rows if row.label == "zeros"] == [*range(1, CHUNKS + 1)]
    assert read_raw(tmp_path / "odd" / "1.bin", 2) == "\0ÿ"
    (tmp_path / "odd" / "0.bin").write_bytes(b"")
    with pytest.raises(DataError, match=r"0.bin: the file is empty"):
        read_labeled(str(tmp_path), RAW, BadRows())
    examples = read_examples(get_task("classify"), str(tmp_path / "odd" / "1.bin"), RAW, BadRows())
    assert [example.text.encode("latin-1") for example in examples] == [ODD]


def test_made_up_sound_is_eight_bits_around_silence() -> None:
    sound = make_sound(2).encode("latin-1")
    assert len(sound) == 2 * byte_files.RATE and min(sound) < 64 < 192 < max(sound)
    assert make_sound(2) == make_sound(2) != make_sound(2, seed=1)


def test_kinds_of_files_that_are_not_there_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("def f(x):\n    return x\n" * 200)
    (tmp_path / "b.json").write_text('{"a": 1}')  # shorter than a chunk
    monkeypatch.setattr(byte_files, "_installed", lambda: iter(sorted(tmp_path.iterdir())))
    rows = make_file_types(10, 32)
    assert {row.label for row in rows} == {"python", "gzip"} and all(len(row.text) == 32 for row in rows)
    assert [row.text for row in rows] == [row.text for row in make_file_types(10, 32)]


def test_the_installation_has_several_kinds() -> None:
    kinds = {row.label for row in make_file_types(3, 64)}
    assert {"python", "bytecode", "gzip"} <= kinds


SMALL = ("model.depth=1", "model.width=16", "model.heads=2", "train.steps=2", "train.batch=4", "train.warmup=1")


def test_bits_of_sound_are_counted_by_the_byte(tmp_path: Path) -> None:
    log: list[dict[str, Any]] = []
    (tmp_path / "a.raw").write_bytes(bytes(range(256)) * 20)
    data = (f"data.train={tmp_path / 'a.raw'}", "data.length=32")
    words = [*SMALL, *data, f"out={tmp_path}/runs", "train.sample_every=2"]
    run = train(start("run", load_recipe("sound-bytes", words)[1]), lambda kind, **f: log.append({"event": kind, **f}))
    last = [event for event in log if event["event"] == "eval"][-1]
    count = len(bytes(range(256)) * 20) // 10
    assert last["bits_per_byte"] == pytest.approx(last["valid"] / math.log(2) * (count - 1) / count, rel=1e-3)
    (sample,) = (event["text"] for event in log if event["event"] == "sample")
    assert sample.replace("\n", "").isprintable()
    made = str(headway.load(run.folder).generate("\xff\x00", max_tokens=5))
    assert len(made.encode("latin-1")) == 5
