"""A resumed run goes on with what it began with: other data, tokenizers or models do not pass unnoticed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.data.batching.token_store import TokenStore
from headway.data.files.locate import find_files
from headway.errors import ConfigError, DamagedError, DataError, NotFoundError
from headway.hub.checkpoint import sealed, step_folders, verify
from headway.tasks.recipe import load_recipe
from headway.train import checkpoint, provenance
from headway.train.optim.schedule import lr_factor_from_start, peak_lr
from headway.train.run import Run, resume, start, train
from tests.train.conftest import SMALL, events, never, quiet, stop_after


def lm_rows(n: int) -> str:
    return "".join(f"line {i}: the quick brown fox jumps over the lazy dog\n" for i in range(n))


def classify_rows(n: int) -> str:
    return "text,label\n" + "".join(f"a text of words {i},{'good' if i % 2 else 'bad'}\n" for i in range(n))


def pair_rows(n: int) -> str:
    return "".join(json.dumps({"source": f"one two {i}", "target": f"eins zwei {i}"}) + "\n" for i in range(n))


TASKS: dict[str, tuple[str, str, Callable[[int], str], list[str]]] = {
    "lm": ("lm", "txt", lm_rows, ["data.tokenizer=bytes", "data.vocab=0"]),
    "classify": ("classify", "csv", classify_rows, ["data.tokenizer=bytes", "data.vocab=0"]),
    "seq2seq": ("translate", "jsonl", pair_rows, ["data.tokenizer=chars", "data.vocab=0", "seq2seq.eval_texts=1"]),
}


def stopped(folder: Path, task: str, valid: bool = False) -> tuple[Run, Path]:
    """A run that was interrupted after three of six steps, and its data."""
    recipe_name, ending, rows, more = TASKS[task]
    path = folder / f"data.{ending}"
    path.write_text(rows(60))
    words = [*SMALL, *more, f"data.train={path}", f"out={folder / 'runs'}"]
    if valid:
        other = folder / f"valid.{ending}"
        other.write_text(rows(12))
        words.append(f"data.valid={other}")
    return stop_after(start(*load_recipe(recipe_name, words)), 3), path


CHANGES: dict[str, Callable[[Path, Callable[[int], str]], None]] = {
    "replaced": lambda path, rows: path.write_text(rows(60).replace("o", "u")) and None,
    "halved": lambda path, rows: path.write_text(rows(30)) and None,
    "one line more": lambda path, rows: path.write_text(rows(61)) and None,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("valid", "changed"), [(False, "data"), (True, "data"), (True, "valid")])
@pytest.mark.parametrize("task", TASKS)
def test_changed_data_are_refused(task: str, valid: bool, changed: str, change: str, tmp_path: Path) -> None:
    run, path = stopped(tmp_path, task, valid)
    path = path.with_name(f"{changed}{path.suffix}")
    CHANGES[change](path, TASKS[task][2])
    with pytest.raises(DataError) as caught:
        resume(run.folder, never)
    assert caught.value.code == "D020"
    assert path.name in caught.value.message and "--accept-changed-data" in caught.value.hint


@pytest.mark.parametrize("task", TASKS)
def test_changed_data_can_be_accepted_and_the_log_says_so(task: str, tmp_path: Path) -> None:
    run, path = stopped(tmp_path, task)
    path.write_text(TASKS[task][2](61))
    again = train(resume(run.folder, never, accept_changed_data=True), quiet)
    assert again.loop.progress.step == 6
    (event,) = events(run.folder, "changes")
    assert any("accepted" in note and path.name in note for note in event["notes"])
    # the next checkpoint knows the new data: they are accepted once
    assert resume(run.folder, never).notes == []


@pytest.mark.parametrize("task", TASKS)
def test_touched_and_moved_data_are_the_same(task: str, tmp_path: Path) -> None:
    run, path = stopped(tmp_path, task)
    os.utime(path, (1, 1))
    assert resume(run.folder, never).notes == []
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / f"other{path.suffix}"
    shutil.move(path, moved)
    again = resume(run.folder, never, [f"data.train={moved}"])
    assert again.notes == [f"data.train {path} → {moved}"]
    train(again, quiet)
    assert resume(run.folder, never).notes == []


def test_a_run_that_was_not_stopped_ends_in_the_same_bits_when_its_data_moved(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    run, path = stopped(tmp_path / "a", "lm")
    other, _ = stopped(tmp_path / "b", "lm")
    moved = path.rename(tmp_path / "moved.txt")
    ends = [
        train(resume(run.folder, never, [f"data.train={moved}"]), quiet),
        train(resume(other.folder, never), quiet),
    ]
    first, second = ((one.folder / "model.safetensors").read_bytes() for one in ends)
    assert first == second


def test_the_difference_is_named_with_both_sizes(tmp_path: Path) -> None:
    run, path = stopped(tmp_path, "lm")
    before = path.stat().st_size
    path.write_text(lm_rows(30))
    with pytest.raises(DataError) as caught:
        resume(run.folder, never)
    numbers = (f"{before:,}", f"{path.stat().st_size:,}", "60", "30")
    assert all(number in caught.value.message for number in numbers), caught.value.message


def test_files_of_a_folder_are_compared_one_by_one() -> None:
    a, b, c = ({"name": n, "size": i, "sha256": n} for i, n in enumerate("abc"))
    assert provenance._differences([a, b], [a, b]) == []
    assert provenance._differences([a, b], [{**a, "name": "x"}, {**b, "name": "y"}]) == []
    assert len(provenance._differences([a, b], [b, a])) == 2  # the order of files is the order of samples
    gone = provenance._differences([a, b, c], [a, b])
    assert gone == ["3 files before, 2 now", "c is gone"]
    assert provenance._differences([a, b], [a, {**c, "name": "b"}]) == ["b had 1 bytes, now 2"]
    assert provenance._differences([], [a]) == ["none before, now a (0 bytes)"]


def test_test_data_may_change_and_are_noted(tmp_path: Path) -> None:
    run, _ = stopped(tmp_path, "lm")
    test = tmp_path / "test.txt"
    test.write_text(lm_rows(9))
    again = resume(run.folder, never, [f"data.test={test}"])
    assert len(again.notes) == 2 and any("none before, now test.txt" in note for note in again.notes)


def test_a_run_of_an_older_headway_is_resumed_with_a_note(tmp_path: Path) -> None:
    run, _ = stopped(tmp_path, "lm")
    forget_origin(run.folder)
    again = resume(run.folder, never)
    assert again.loop.progress.step == 3 and len(again.notes) == 1 and "older headway" in again.notes[0]
    train(again, quiet)
    rates = [event["lr"] for event in events(run.folder, "step")][3:]
    config = again.recipe.train
    assert rates == pytest.approx([peak_lr(config, 16) * lr_factor_from_start(config, i, i / 6) for i in (3, 4, 5)])


def test_words_on_top_of_an_older_run_are_held_to_its_recipe(tmp_path: Path) -> None:
    run, _ = stopped(tmp_path, "lm")
    forget_origin(run.folder)
    with pytest.raises(ConfigError) as caught:
        resume(run.folder, never, ["train.batch=8"])
    assert caught.value.code == "C040"
    assert resume(run.folder, never, ["train.steps=7"]).notes[1:] == ["train.steps 6 → 7"]


def forget_origin(folder: Path) -> None:
    """The checkpoints as headway wrote them before they held a record."""
    for path in step_folders(folder / "run" / "checkpoints"):
        manifest = verify(path)
        manifest["state"].pop("origin")
        for name in ("decay_from_start", "warm_seconds"):
            manifest["state"]["progress"].pop(name)
        (path / "manifest.json").write_bytes(sealed(manifest))


def test_an_older_run_with_another_shape_is_refused_by_its_tensors(tmp_path: Path) -> None:
    run, _ = stopped(tmp_path, "lm")
    forget_origin(run.folder)
    recipe = run.folder / "run" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("width = 16", "width = 32"))
    with pytest.raises(DamagedError) as caught:
        resume(run.folder, never)
    assert caught.value.code == "X003"


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    run, _ = stopped(tmp_path, "seq2seq")
    path = run.folder / "run" / "tokenizer" / "tokenizer.json"
    content = json.loads(path.read_text())
    vocab = content["model"]["vocab"]
    vocab["e"], vocab["o"] = vocab["o"], vocab["e"]
    path.write_text(json.dumps(content))
    with pytest.raises(DamagedError) as caught:
        resume(run.folder, never)
    assert caught.value.code == "X020"


def test_labels_that_are_others_are_refused_even_if_the_data_are_accepted(tmp_path: Path) -> None:
    run, path = stopped(tmp_path, "classify")
    path.write_text(classify_rows(60).replace("good", "fine"))
    with pytest.raises(DataError) as caught:
        resume(run.folder, never, accept_changed_data=True)
    assert caught.value.code == "D020" and "fine" in caught.value.message


def test_without_a_checkpoint_a_run_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("abc\n" * 200)
    words = [*SMALL, f"data.train={path}", f"out={tmp_path / 'runs'}", "data.tokenizer=chars", "data.vocab=0"]
    run = start(*load_recipe("lm", words))
    path.write_text("abcdef\n" * 200)
    again = resume(run.folder, never)
    assert again.notes == []
    assert again.task.tokenizer.vocab_size > run.task.tokenizer.vocab_size


def test_data_that_change_while_they_are_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.txt"
    path.write_text(lm_rows(60))
    from headway.tasks.lm import training as lm

    tokens = lm.tokenize_corpus

    def slow(*args: Any) -> TokenStore:
        path.write_text(lm_rows(61))
        return tokens(*args)

    monkeypatch.setattr(lm, "tokenize_corpus", slow)
    with pytest.raises(DataError) as caught:
        start(*load_recipe("lm", [*SMALL, *TASKS["lm"][3], f"data.train={path}", f"out={tmp_path / 'runs'}"]))
    assert caught.value.code == "D020" and not list((tmp_path / "runs").iterdir())


def test_built_in_data_that_are_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text that comes with Python is another one with another Python."""
    from headway.data.datasets import text

    monkeypatch.setattr(text, "embedded_text", lambda: lm_rows(60))
    run = start(*load_recipe("tiny", [*SMALL, f"out={tmp_path / 'runs'}"]))
    stop_after(run, 1)
    monkeypatch.setattr(text, "embedded_text", lambda: lm_rows(60).replace("o", "u"))
    with pytest.raises(DataError) as caught:
        resume(run.folder, never)
    assert caught.value.code == "D020"


def test_another_machine_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = stopped(tmp_path, "lm")
    monkeypatch.setattr(provenance.platform, "python_version", lambda: "9.9")
    monkeypatch.setattr(provenance, "__version__", "8.8")
    (note,) = resume(run.folder, never).notes
    assert "→ 9.9" in note and "→ 8.8" in note


def test_many_files_are_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "MAX_FILES", 2)
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text(f"text {i}")
    (one,) = provenance._files(find_files(str(tmp_path)))
    assert (one["name"], one["size"]) == ("3 files", 18)
    (tmp_path / "1.txt").write_text("TEXT 1")
    assert provenance._differences([one], provenance._files(find_files(str(tmp_path)))) == [
        "3 files has other content, 18 bytes as before"
    ]


def test_the_revision_of_a_hub_dataset_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "datasets--a--b" / "snapshots" / ("0f" * 20)
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("x\n")
    assert provenance._files(find_files(str(folder)))[0]["revision"] == "0f" * 20


def test_a_base_that_the_folder_of_a_run_names_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = stopped(tmp_path, "lm")
    path = run.folder / "run" / "recipe.toml"
    path.write_text(path.read_text().replace('from = ""', 'from = "somebody/model"'))
    monkeypatch.setattr("headway.hub.download.fetch", lambda *_: pytest.fail("fetched"))
    with pytest.raises(NotFoundError) as error:
        resume(run.folder, never)
    assert error.value.code == "F006"


def test_a_refused_resume_changes_nothing(tmp_path: Path) -> None:
    run, _ = stopped(tmp_path, "lm")
    before = (run.folder / "run" / "recipe.toml").read_bytes()
    with checkpoint.RunLock(run.folder / "run"), pytest.raises(ConfigError) as error:
        resume(run.folder, never, ["train.steps=8", "train.lr=0.5"])
    assert error.value.code == "C030"
    assert (run.folder / "run" / "recipe.toml").read_bytes() == before
    train(resume(run.folder, never, ["train.steps=8"]), quiet)
    assert "steps = 8" in (run.folder / "run" / "recipe.toml").read_text()


def test_what_was_held_out_is_not_trusted_after_data_were_mixed(tmp_path: Path) -> None:
    run, data = stopped(tmp_path, "lm")
    provenance.check_held_out(run.folder, run.recipe)
    data.write_text(lm_rows(30))
    train(resume(run.folder, never, accept_changed_data=True), quiet)
    with pytest.raises(DataError) as error:
        provenance.check_held_out(run.folder, run.recipe)
    assert error.value.code == "D020"
    train(resume(run.folder, never, ["train.steps=9"]), quiet)  # the mark stays
    with pytest.raises(DataError):
        provenance.check_held_out(run.folder, run.recipe)
