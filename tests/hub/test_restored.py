"""Checkpoints as models: the same to the bit as the finished run, of every kind of run, while it trains on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import headway
from headway.api import Bundle, load
from headway.errors import DamagedError, NotFoundError
from headway.hub import checkpoint, run_names
from headway.hub.download import pinned_name
from headway.tasks.recipe import load_recipe
from headway.train.run import Run, start, train
from tests.train.conftest import SMALL, begin, quiet, stop_after


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("restored")


@pytest.fixture(scope="module")
def base(place: Path) -> Path:
    """A finished language model, from which others start."""
    return train(begin(place / "base", "model.depth=2"), quiet).folder


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is said on stderr about the weights that are used."""
    run_names.note.cache_clear()
    told: list[str] = []
    monkeypatch.setattr("logging.Logger.warning", lambda self, text, *args: told.append(text % args))
    yield told
    run_names.note.cache_clear()


def same(one: Bundle, other: Bundle) -> None:
    """The same model: config, every weight to the bit, tokenizer, generation settings, task."""
    assert one.config == other.config
    ours, theirs = (dict(bundle.model.named_parameters()) for bundle in (one, other))
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name].dtype == theirs[name].dtype, name
        assert torch.equal(ours[name], theirs[name]), name
    texts = [bundle.tokenizer and bundle.tokenizer.backend.to_str() for bundle in (one, other)]
    assert texts[0] == texts[1]
    assert one.generation == other.generation and one.task == other.task


def grown(place: Path, base: Path, *words: str, recipe: str = "tiny") -> Run:
    """A run that starts from the base, whose shape it takes."""
    kept = [word for word in SMALL if "model." not in word]
    text = [f"data.train={place / 'base' / 'text.txt'}"] if recipe == "tiny" else []
    return start(*load_recipe(recipe, [*kept, *text, f"out={place / 'runs'}", f"model.from={base}", *words]))


KINDS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "mean": ("train.ema=0.9",),
    "best": ("train.keep_best=true", "train.eval_every=2", "train.lr=0.1"),
    "average": ("train.average=2",),
    "rnn": ("model.kind=gru",),
    "rounded vocabulary": ("data.tokenizer=bpe", "data.vocab=299"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_checkpoint_of_a_finished_run_is_its_model(place: Path, kind: str) -> None:
    words = [word for word in KINDS[kind] if not (kind == "rnn" and "heads" in word)]
    folder = train(begin(place / kind, *words), quiet).folder
    same(load(f"{folder}@6"), load(folder))
    three = load(f"{folder}@3").model
    assert any(not torch.equal(p, q) for p, q in zip(three.parameters(), load(folder).model.parameters(), strict=True))


@pytest.mark.parametrize("words", [(), ("model.lora=2",), ("model.freeze=1",)], ids=["all", "lora", "freeze"])
def test_of_a_run_from_another_model(place: Path, base: Path, words: tuple[str, ...]) -> None:
    folder = train(grown(place, base, *words), quiet).folder
    same(load(f"{folder}@6"), load(folder))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_new_head_beside_adapters(place: Path, base: Path, dtype: torch.dtype) -> None:
    """The head is float32 and the base may not be: the dtype that the finished folder loads with is the one."""
    small = place / f"base-{dtype}"
    load(base, dtype=dtype).save(small)
    folder = train(grown(place, small, "model.lora=2", recipe="classify"), quiet).folder
    same(load(f"{folder}@6"), load(folder))


def test_an_encoder_decoder(place: Path) -> None:
    """Its sinusoidal positions are frozen: they are not in the checkpoint."""
    pairs = place / "pairs.tsv"
    pairs.write_text("source\ttarget\n" + "".join(f"a {i} b\tb {i} a\n" for i in range(30)), encoding="utf-8")
    words = [*SMALL, "train.batch_tokens=0", "data.vocab=0", "data.tokenizer=bytes"]
    words += [f"data.train={pairs}", f"out={place / 'runs'}"]
    folder = train(start(*load_recipe("translate", words)), quiet).folder
    same(load(f"{folder}@6"), load(folder))


@pytest.mark.parametrize("words", [(), ("model.lora=2",)], ids=["new", "lora"])
def test_a_stopped_run_is_used_and_exported(
    place: Path, base: Path, tmp_path: Path, notes: list[str], words: tuple[str, ...]
) -> None:
    run = stop_after(grown(place, base, *words) if words else begin(tmp_path), 4)
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")}
    bundle = load(run.folder)
    assert [note for note in notes if "did not finish" in note and "step 4" in note and str(run.folder) in note]
    same(bundle, load(f"{run.folder}@4"))
    assert bundle.recipe == run.recipe and bundle.folder == run.folder
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")} == before, "only read"
    exported = load(bundle.save(tmp_path / "out"))
    for name, parameter in bundle.model.named_parameters():
        assert torch.equal(parameter, dict(exported.model.named_parameters())[name])
    assert exported.generate(["the"], exported.sampling(temperature=0, max_tokens=4))


def test_a_damaged_checkpoint_falls_back(tmp_path: Path, notes: list[str]) -> None:
    run = stop_after(begin(tmp_path), 4)
    path = run.checkpoints / "step-00000004" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    same(load(run.folder), load(f"{run.folder}@3"))
    assert any("step-00000004" in note and "SHA-256" in note for note in notes)
    with pytest.raises(DamagedError) as caught:
        load(f"{run.folder}@4")
    assert caught.value.code == "X001"


def test_a_run_that_goes_on_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint that is read is deleted by the trainer: the next one is read."""
    run = stop_after(begin(tmp_path), 3)
    real, calls = checkpoint.verify, [0]

    def late(path: Path, *rest: Any) -> dict[str, Any]:
        calls[0] += 1
        if calls[0] == 1:
            path.rename(path.with_name("step-00000005.partial-00"))
            (path.with_name("step-00000005.partial-00")).rename(path.with_name("step-00000005"))
            manifest = {**real_manifest, "step": 5}
            (path.with_name("step-00000005") / "manifest.json").write_bytes(checkpoint.sealed(manifest))
        return real(path, *rest)

    real_manifest = real(run.checkpoints / "step-00000003")
    monkeypatch.setattr("headway.hub.restored.verify", late)
    assert load(run.folder).generate(["the"]) and calls[0] == 2


def test_a_base_that_changed_is_refused(place: Path, base: Path) -> None:
    own = place / "changing"
    load(base).save(own)
    run = stop_after(grown(place, own, "model.lora=2"), 3)
    other = load(base)
    for parameter in other.model.parameters():
        parameter.data += 1
    for path in sorted(own.iterdir()):
        path.unlink()
    other.save(own)
    with pytest.raises(DamagedError) as caught:
        load(run.folder)
    assert caught.value.code == "X008"


def test_names_that_are_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stop_after(begin(tmp_path), 4)
    monkeypatch.chdir(tmp_path)
    for what in ("last@5", "tiny-0001@five", "runs/tiny-0001@99", "tiny@-1", "tiny@"):
        with pytest.raises(NotFoundError) as caught:
            load(what)
        assert caught.value.code == "F001" and "@3, @4" in caught.value.hint, what
    with pytest.raises(NotFoundError) as caught:
        load("last@best")
    assert caught.value.code == "F001" and "train.keep_best" in caught.value.hint
    for what in ("last@4", "tiny@4", "tiny-0001@4", "./runs/tiny-0001@4", "last", "tiny", str(run.folder)):
        assert load(what).folder is not None


def test_the_best_weights(tmp_path: Path) -> None:
    run = stop_after(begin(tmp_path, "train.keep_best=true", "train.eval_every=2", "train.lr=0.5"), 5)
    best = run.loop.best
    assert best is not None
    model = load(f"{run.folder}@best").model
    assert all(torch.equal(p, best.tensors[name]) for name, p in model.named_parameters() if p.shape[0] % 64 == 0)


def test_a_run_without_a_checkpoint(tmp_path: Path) -> None:
    run = begin(tmp_path)
    with pytest.raises(NotFoundError) as caught:
        load(run.folder)
    assert caught.value.code == "F002" and "--resume" in caught.value.hint


def test_model_from_a_stopped_run_has_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training goes on meanwhile: what a run started from must stay what it was."""
    run = stop_after(begin(tmp_path), 3)
    monkeypatch.chdir(tmp_path)
    names: tuple[tuple[str, Callable[[str], bool]], ...] = (
        ("last", lambda name: name == f"{run.folder}@3"),
        ("tiny@3", lambda name: name == f"{run.folder}@3"),
        ("org/name", lambda name: name == "org/name"),
        ("", lambda name: name == ""),
    )
    for what, right in names:
        assert right(pinned_name(what, Path("runs"))), what
    kept = [word for word in SMALL if "model." not in word]
    words = [*kept, f"data.train={tmp_path / 'text.txt'}", "model.from=last", "train.steps=1"]
    second = start(*load_recipe("tiny", words))
    shutil.rmtree(run.checkpoints / "step-00000003")  # that run went on: what this one learns is not lost
    train(second, quiet)
    assert second.recipe.model.from_ == f"{run.folder}@3"
    assert headway.load("last").folder == Path("runs/tiny-0002")
