"""What `headway train` and `headway eval` print as the next commands: each works as it is printed."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.data.images.png import png
from headway.data.sounds.wav import wav_bytes
from headway.tasks.recipe import load_recipe
from headway.tasks.registry import get_task, task_names
from tests.cli.conftest import Done, Run

FOLDER = "my data"
"""A name that a shell splits unless it is quoted."""
SMALL = ("model.depth=1", "model.width=16", "model.heads=1", "train.steps=2", "train.batch=2", "data.length=32", "-q")
TEXT = "It rained for days - and nobody = said why.\nAnna's dog ran to the river.\n" * 20
OWN: dict[str, str | list[dict[str, Any]]] = {
    "lm": TEXT,
    "mlm": TEXT,
    "chat": [{"messages": [{"role": r, "content": "hello you"} for r in ("user", "assistant")]}] * 4,
    "classify": [{"text": f"-a 'good' film = {i}", "label": "ab"[i % 2]} for i in range(8)],
    "pairs": [{"sentence1": f"a film {i}", "sentence2": "an actor", "label": "ab"[i % 2]} for i in range(8)],
    "tag": [{"tokens": ["anna", "ran"], "ner_tags": ["B-PER", "O"]}] * 4,
    "answer": [
        {"question": "who ran ?", "context": f"anna ran {i} .", "answers": {"text": ["anna"], "answer_start": [0]}}
        for i in range(4)
    ],
    "embed": [{"anchor": f"a dog {i}", "positive": f"hound {i}"} for i in range(4)],
    "seq2seq": [{"source": f"a dog runs {i}", "target": "ein hund rennt"} for i in range(4)],
}
"""Task → data of a user."""


def next_commands(done: Done) -> list[list[str]]:
    """The printed commands as the words that a shell would make of them."""
    (line,) = [line for line in done.err.splitlines() if line.startswith("next: ")]
    return [shlex.split(command)[1:] for command in line.removeprefix("next: ").split("   ")]


def trained(run: Run, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[list[str]]:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))  # where --chat reads its turns
    done = run("train", *(word for word in words if word != "-q"))
    assert done.code == 0, done.err
    return next_commands(done)


@pytest.mark.parametrize("kind", OWN)
def test_after_training_on_data_of_the_user(
    kind: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data, task = OWN[kind], get_task("classify" if kind == "pairs" else kind)
    path = tmp_path / FOLDER / ("own.txt" if isinstance(data, str) else "own.jsonl")
    path.parent.mkdir()
    text = data if isinstance(data, str) else "".join(json.dumps(row) + "\n" for row in data)
    path.write_text(text, encoding="utf-8")
    words = [task.starter or task.name, f"data.train={path.relative_to(tmp_path)}", f"out={FOLDER}/runs", *SMALL]
    commands = trained(run, monkeypatch, *words)
    assert [command[0] for command in commands] == ["run", "eval", "check"]
    for command in commands[:2]:
        done = run(*command, *(["--tokens", "4"] if command[0] == "run" and task.generates else []))
        assert done.code == 0, (command, done.err)
        assert ("…" not in command and done.out.strip()) or kind == "chat", (command, done.out)
    if kind == "pairs":
        assert commands[0][-1].startswith("pair=")


def write_media(folder: Path) -> None:
    """Images and sounds with a table of each kind, and graphs in tables."""
    folder.mkdir()
    rows = []
    for i in range(6):
        (folder / f"{i}.png").write_bytes(png(np.full((16, 16), 40 * i, np.uint8)))
        (folder / f"{i}.wav").write_bytes(wav_bytes(np.sin(np.arange(8000) * (0.1 + i)).astype(np.float32), 16_000))
        rows.append((f"{i}.png", f"{i}.wav", "ab"[i % 2], f"the number {i}"))
    tables = {"images": (0, 2, 3), "sounds": (1, 2, 3), "both": (0, 1, 2)}
    names = ("image", "sound", "label", "text")
    for name, columns in tables.items():
        lines = [",".join(row[c] for c in columns) for row in (names, *rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")
    graphs = folder / "graphs"
    graphs.mkdir()
    each = [f"{g},{node},{'CO'[g % 2]}" for g in range(6) for node in "xyz"]
    (graphs / "nodes.csv").write_text("\n".join(["graph,id,tag", *each]), encoding="utf-8")
    each = [f"{g},x,{node}" for g in range(6) for node in "yz"]
    (graphs / "edges.csv").write_text("\n".join(["graph,source,target", *each]), encoding="utf-8")
    (graphs / "graphs.csv").write_text("graph,label\n" + "".join(f"{g},{'ab'[g % 2]}\n" for g in range(6)))


@pytest.mark.parametrize(
    ("task", "data"),
    [
        ("images", "images.csv"), ("caption", "images.csv"), ("contrastive", "images.csv"),
        ("audio_classification", "sounds.csv"), ("transcribe", "sounds.csv"), ("fusion", "both.csv"),
        ("graph", "graphs"),
    ],
)  # fmt: skip
def test_after_training_on_tables_of_files(
    task: str, data: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first command names a file that is there: the one of a held-out row."""
    monkeypatch.chdir(tmp_path)
    write_media(tmp_path / FOLDER)
    commands = trained(run, monkeypatch, task, f"data.train={FOLDER}/{data}", *SMALL)
    assert [command[0] for command in commands] == ["run", "eval", "check"]
    done = run(*commands[0])
    assert done.code == 0 and done.out.strip(), (commands[0], done.err)


@pytest.mark.slow
@pytest.mark.parametrize("name", task_names())
def test_after_training_on_made_up_data(name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = get_task(name)
    first = trained(run, monkeypatch, task.starter or task.name, *SMALL)[0]
    assert first[:2] == ["run", "last"] and run(*first).code == 0


def test_after_an_evaluation_the_data_are_kept(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained(run, monkeypatch, "classify", *SMALL)
    path = tmp_path / "some rows.csv"
    path.write_text("body,label\na good film,positive\na bad film,negative\n", encoding="utf-8")
    (command,) = next_commands(run("eval", "last", path, "data.text=body"))
    assert command == ["eval", "last", str(path), "data.text=body", "out=predictions.jsonl"]
    done = run(*command)
    assert done.code == 0 and len((tmp_path / "predictions.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    assert next_commands(done) == [["runs", "report", "last"]]


def test_the_end_of_a_run_advises_with_commands(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of two short rows: the rate never rose, and most rows do not fit."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my rows.csv"
    rows = "".join(f"{'a long text of many words ' * 4}{i},{'ab'[i % 2]}\n" for i in range(40))
    path.write_text(f"text,label\n{rows}", encoding="utf-8")
    words = ["classify", f"data.train={path}", *SMALL[:-1], "data.length=8"]
    done = run("train", *words)
    commands = [shlex.split(line) for line in done.err.splitlines() if line.startswith("  headway train ")]
    assert len(commands) == 2 and all(command[:4] == ["headway", "train", *words[:2]] for command in commands)
    recipes = [load_recipe(command[2], command[3:])[1] for command in commands]
    assert recipes[0].train.steps == 8 and recipes[1].data.length > 8
    found = json.loads((tmp_path / "runs" / "classify-0001" / "run" / "report.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in found["suggestions"]] == ["nothing_learned", "examples_cut"]
    assert [shlex.split(each["command"]) for each in found["suggestions"]] == commands
    assert "advice" not in run("train", *words, "-q").err
    shown = run("runs", "show", "classify-0001").out
    assert all(each["command"] in shown for each in found["suggestions"])
