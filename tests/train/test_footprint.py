"""What a run needs at least: never more than it takes, and refused where there is less."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.errors import MemoryOrDiskError
from headway.tasks.recipe import load_recipe
from headway.train import footprint as module
from headway.train.footprint import Footprint, check_disk, check_memory, footprint, memory_advice
from headway.train.run import Run, resume, start, train
from headway.train.state import collect
from tests.train.conftest import SMALL, never, quiet

CPU = torch.device("cpu")
WORDS = [
    *("model.depth=2", "model.width=32", "data.length=32", "train.batch=8", "train.steps=2", "train.keep=1"),
    *("train.eval_every=2", "train.sample_every=2", "train.save_every=1", "train.warmup=0"),
]


def small(tmp_path: Path, task: str, *words: str) -> Run:
    """A run on the built-in data."""
    return start(*load_recipe(task, [*SMALL, *WORDS, f"out={tmp_path / 'runs'}", *words]))


@pytest.mark.parametrize("words", [(), ("train.optimizer=sgd",), ("train.optimizer=muon",), ("train.ema=0.9",)])
def test_it_is_a_bound_from_below_and_a_tight_one_for_what_stays(words: tuple[str, ...], tmp_path: Path) -> None:
    run = small(tmp_path, "tiny", *words)
    run.loop.step()
    need = footprint(run.recipe, run.model)
    tensors, _ = collect(run.loop)
    kept = {file: sum(t.numel() * t.element_size() for t in named.values()) for file, named in tensors.items()}
    kept.pop("rng")
    assert need.weights == need.gradients == kept["model"]
    assert need.checkpoint <= sum(kept.values())
    if "muon" not in str(words):
        assert need.checkpoint >= 0.99 * sum(kept.values())
    run.loop.close()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("tiny", ()),
        ("tiny", ("train.gradient_checkpointing=true",)),
        ("tiny", ("model.gated=true", "model.bias=false", "model.norm=rmsnorm", "model.activation=relu")),
        ("tiny", ("model.kind=gru",)),
        ("mlm", ("data.vocab=300",)),
        ("classify", ("data.tokenizer=bytes", "data.vocab=0")),
        ("translate", ("data.tokenizer=bytes", "data.vocab=0", "seq2seq.eval_texts=0")),
    ],
)
def test_activations_are_at_least_what_is_said(task: str, words: tuple[str, ...], tmp_path: Path) -> None:
    run = small(tmp_path, task, *words)
    ((batch, _),) = run.loop._next_batches()
    run.loop.close()
    own = {p.untyped_storage().data_ptr() for p in run.model.parameters()}
    saved: dict[int, tuple[int, torch.Tensor]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        store = tensor.untyped_storage()
        if store.data_ptr() not in own:
            saved[store.data_ptr()] = (store.nbytes(), tensor)  # held, or its place could be given to another
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run.task.loss(run.model.train(), *batch.to(CPU))
    need = footprint(run.recipe, run.model, batch)
    assert need.activations <= sum(size for size, _ in saved.values())
    assert need.activations > 0 or "gru" in str(words) or task == "translate"


def test_what_cannot_fit_is_refused_before_a_weight_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_host_memory", lambda: 50_000)
    from headway.train import run as runs

    monkeypatch.setattr(runs, "build_model", lambda *_: pytest.fail("a model was made"))
    with pytest.raises(MemoryOrDiskError) as caught:
        small(tmp_path, "tiny")
    assert (caught.value.code, caught.value.exit_code) == ("M011", 7)
    assert "train.accumulate=2" in caught.value.hint
    assert list((tmp_path / "runs").iterdir()) == []


def test_nothing_is_refused_where_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_host_memory", lambda: None)
    small(tmp_path, "tiny")


def test_processes_share_what_stays_but_not_the_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("tiny")[1]
    need = Footprint(weights=400, gradients=400, moments=800, copies=0, activations=5000, trained=400)
    monkeypatch.setattr(module, "available_host_memory", lambda: 6000)
    check_memory(need, recipe, CPU, 2)
    with pytest.raises(MemoryOrDiskError):
        check_memory(need, recipe, CPU, 1)


def test_a_gpu_and_the_host_beside_it_are_both_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, gpu = load_recipe("tiny")[1], torch.device("cuda", 0)
    need = Footprint(weights=400, gradients=400, moments=800, copies=0, activations=400, trained=400)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2000, 9000))
    monkeypatch.setattr(module, "available_host_memory", lambda: 1200)
    check_memory(need, recipe, gpu, 1)
    monkeypatch.setattr(module, "available_host_memory", lambda: 1199)  # a checkpoint passes through it
    with pytest.raises(MemoryOrDiskError):
        check_memory(need, recipe, gpu, 1)
    monkeypatch.setattr(module, "available_host_memory", lambda: 1200)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1999, 9000))
    with pytest.raises(MemoryOrDiskError) as caught:
        check_memory(need, recipe, gpu, 1)
    assert "GPU" in caught.value.message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.batch=12", "train.accumulate=2"], "train.accumulate=4 "),
        (["train.batch=9"], "train.accumulate=3 "),
        (["train.batch=7", "train.accumulate=7"], "train.gradient_checkpointing=true"),
        (["train.batch=0"], "train.batch="),
        (["model.from=./m"], "model.lora=8"),
    ],
)
def test_advice_has_numbers_that_keep_the_batch(words: list[str], said: str) -> None:
    recipe = load_recipe("lm", words)[1]
    assert said in memory_advice(recipe)


Usage = namedtuple("Usage", "total used free")


def limit_disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, free))


def test_a_disk_without_room_is_noticed_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(small(tmp_path, "tiny"), quiet)
    one = sum(path.stat().st_size for path in (run.checkpoints / "step-00000002").iterdir())
    model = (run.folder / "model.safetensors").stat().st_size
    with monkeypatch.context() as patch:
        limit_disk(patch, int(1.5 * one))  # one is kept, a second is written before it goes
        with pytest.raises(MemoryOrDiskError) as caught:
            small(tmp_path, "tiny")
    assert (caught.value.code, caught.value.exit_code) == ("M002", 7)
    assert len(list((tmp_path / "runs").iterdir())) == 1
    with monkeypatch.context() as patch:
        limit_disk(patch, 2 * one + model)
        small(tmp_path, "tiny")


def test_a_resumed_run_needs_room_for_what_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(small(tmp_path, "tiny"), quiet)
    need = footprint(run.recipe, run.model)
    limit_disk(monkeypatch, int(1.1 * need.checkpoint))
    again = resume(run.folder, never, ["train.steps=4"])  # one of two is there
    with pytest.raises(MemoryOrDiskError):
        check_disk(need, again.recipe, tmp_path / "elsewhere", 0, 0)


@pytest.mark.parametrize("where", ["loss", "evaluate", "sample", "batch"])
def test_memory_that_runs_out_in_training_says_what_to_change(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small(tmp_path, "tiny")

    def hungry(*_: Any) -> torch.Tensor:
        return torch.empty(1 << 61, dtype=torch.uint8)

    monkeypatch.setattr(run.loop.compute if where == "loss" else type(run.task), where, hungry)
    with pytest.raises(MemoryOrDiskError) as caught:
        train(run, quiet)
    assert (caught.value.code, caught.value.exit_code) == ("M010", 7)
    assert "train.accumulate=2" in caught.value.hint and f"--resume {run.folder}" in caught.value.hint
