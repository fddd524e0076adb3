"""A run, assembled: from a recipe to a folder that anyone can open."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.baselines.recurrent import CELLS
from headway.config.toml import read_toml, to_toml
from headway.data.datasets.parallel import split_pair_spec
from headway.errors import ConfigError, DivergedError, NotFoundError
from headway.hub.adapter import write_adapter
from headway.hub.convert import tie_weights
from headway.hub.download import resolve
from headway.hub.folder import write_model_files
from headway.hub.weights import writing
from headway.model.lora import ADAPTER_SUFFIXES, merge_adapters
from headway.model.model import Model, evaluating
from headway.resources import memory_errors
from headway.tasks.recipe import Recipe, batch_size, read_recipe, recipe_values, with_overrides
from headway.tasks.training import TaskContext, Training, make_training
from headway.train import provenance
from headway.train.build import base_tokenizer, build_model, empty_model, meta_model
from headway.train.checkpoint import RunLock, last_weights, load, save, snapshot_copy
from headway.train.distributed import World, full_tensor, init_distributed, shard
from headway.train.footprint import check_disk, check_first_step, footprint, memory_advice
from headway.train.log.cost import flops_per_token, peak_memory, utilisation
from headway.train.log.events import Log
from headway.train.loop import Loop, Report
from headway.train.optim.average import average_weights, trainable_weights
from headway.train.optim.optimizer import make_optimizer
from headway.train.provenance import Record, Resumed
from headway.train.state import collect, load_weights, restore
from headway.version import __version__

MOST_REWINDS = 5


@dataclass
class Run:
    """A recipe with everything made from it."""

    folder: Path
    recipe: Recipe
    task: Training
    loop: Loop
    origin: Record = field(default_factory=dict)
    """What it is made from, as checkpoints hold it; in the first process only."""
    notes: list[str] = field(default_factory=list)
    """What has changed since the checkpoint that it goes on from."""
    written: Recipe | None = None
    """The recipe in the folder of a run that goes on; replaced when training begins, and nobody else trains there."""

    @property
    def model(self) -> Model:
        return self.loop.model

    @property
    def checkpoints(self) -> Path:
        return self.folder / "run" / "checkpoints"


def new_folder(out: Path, name: str) -> Path:
    """runs/tiny-0001, the first number that is free."""
    with writing(out, 0):
        out.mkdir(parents=True, exist_ok=True)
        taken = [int(m[1]) for p in out.iterdir() if (m := re.fullmatch(rf"{re.escape(name)}-(\d+)", p.name))]
        folder = out / f"{name}-{max(taken, default=0) + 1:04d}"
        (folder / "run").mkdir(parents=True)
    return folder


def last_folder(out: Path) -> Path:
    """The run that was started last."""
    found = sorted(out.glob("*/run/recipe.toml"), key=lambda p: p.stat().st_mtime) if out.is_dir() else []
    if not found:
        raise NotFoundError("F001", f"no runs in {out}", "start one: headway train tiny")
    return found[-1].parent.parent


def start(name: str, recipe: Recipe) -> Run:
    """A new run: its folder, its tokenizer, its model from the seed. Where that fails, no folder is left."""
    world = init_distributed()
    recipe = with_absolute_paths(recipe)
    folder = Path(world.broadcast_text(str(new_folder(Path(recipe.out), name)) if world.first else ""))
    try:
        if world.first:
            _write_recipe(folder, recipe)
        with memory_errors(lambda: memory_advice(recipe)):
            run = _assemble(folder, recipe, world)
        _check_disk(run)
        if world.first and run.recipe != recipe:
            _write_recipe(folder, run.recipe)
        return run
    except BaseException:
        if world.first:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _write_recipe(folder: Path, recipe: Recipe) -> None:
    """The whole file, or the one before it."""
    path = folder / "run" / "recipe.toml"
    partial = path.with_name(f"recipe.partial-{os.getpid()}")
    partial.write_text(to_toml(recipe_values(recipe)), encoding="utf-8")
    os.replace(partial, path)


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """Paths of files made whole, so that the run can be resumed from another folder."""

    def full(path: str) -> str:
        if sides := split_pair_spec(path):
            return ",".join(full(side) for side in sides)
        return str(Path(path).resolve()) if path and Path(path).exists() else path

    data, base = recipe.data, recipe.model.from_
    if base == "last":
        base = str(last_folder(Path(recipe.out)))
    data = replace(data, train=full(data.train), valid=full(data.valid), test=full(data.test))
    return replace(recipe, data=data, model=replace(recipe.model, from_=full(base)))


def resume(
    folder: Path, skipped: Callable[[Path, str], None], words: Sequence[str] = (), *, accept_changed_data: bool = False
) -> Run:
    """A run as its newest good checkpoint left it, with `key=value` words on top of its recipe.

    What would make it another run is an error; what else has changed stands in its `notes`.
    """
    path = folder / "run" / "recipe.toml"
    if not path.exists():
        raise NotFoundError("F001", f"{folder} is no run: it has no run/recipe.toml")
    data, text = read_toml(path)
    kept = read_recipe(data, source=text)
    recipe, world = with_absolute_paths(with_overrides(kept, words)) if words else kept, init_distributed()
    if world.first:
        with RunLock(folder / "run"):  # one that is being trained is left alone
            pass
    if recipe.model.from_ and recipe.model.from_ == kept.model.from_:
        resolve(recipe.model.from_, local=True)  # a file names it, so nothing is fetched for it
    with memory_errors(lambda: memory_advice(recipe, folder)):
        snapshot = load(folder / "run" / "checkpoints", skipped=skipped)
        if snapshot is None:
            if world.first:
                _forget_tokenizer(folder)
            run = _assemble(folder, recipe, world)
        else:
            run = _assemble(folder, recipe, world, Resumed(snapshot.state.get("origin"), kept, accept_changed_data))
            restore(run.loop, snapshot.tensors, snapshot.state["progress"])
    _check_disk(run)
    run.written = kept
    return run


def _forget_tokenizer(folder: Path) -> None:
    """Nothing was learned yet, so the run begins anew: not with a vocabulary of data that may have changed since."""
    with RunLock(folder / "run"):
        shutil.rmtree(folder / "run" / "tokenizer", ignore_errors=True)


def rewind(run: Run, skipped: Callable[[Path, str], None]) -> bool:
    """Back to the newest good checkpoint; false if there is none."""
    snapshot = load(run.checkpoints, skipped=skipped)
    if snapshot is not None:
        restore(run.loop, snapshot.tensors, snapshot.state["progress"])
    return snapshot is not None


def _assemble(folder: Path, recipe: Recipe, world: World, resumed: Resumed | None = None) -> Run:
    """All that a recipe stands for. The first process records what it is made from, and compares where it goes on."""
    if not world.first:
        return _make(folder, recipe, world)  # waits for the first, and is ended with it
    notes = provenance.check_recipe(recipe, resumed) if resumed else []
    stamp, data = provenance.data_stamp(recipe), provenance.data_record(recipe)
    notes += provenance.check_data(recipe, data, resumed) if resumed else []
    run = _make(folder, recipe, world)
    if provenance.data_stamp(recipe) != stamp:
        raise provenance.changed_meanwhile()
    place = provenance.record_place(world.device, world.size, run.loop.compute.half)
    run.origin = provenance.record_run(run.recipe, data, run.task, run.model.config, place)
    run.origin["mixed"] = provenance.is_mixed(data, resumed)
    run.notes = notes + (provenance.check_split(run.origin, recipe, resumed) if resumed else [])
    return run


def _make(folder: Path, recipe: Recipe, world: World) -> Run:
    settings = recipe.train
    task = make_training(
        TaskContext(recipe, folder / "run" / "tokenizer", base_tokenizer(recipe), world.rank_zero_first)
    )
    world.rank_zero_first(lambda: task.test_part)  # mistakes in it are found now, not when the training is done
    plan = task.plan(batch_size(recipe))
    if (planned := meta_model(recipe, task)) is not None:
        check_first_step(recipe, planned, task.batch, plan, world)
    torch.manual_seed(recipe.seed)
    model = build_model(recipe, task, world.device)
    if getattr(model.config, "network", "") in CELLS:
        # torch.compile passes these kernels by, and a recorded step would keep the lengths of the texts it was made of
        settings = replace(settings, compile=bool(settings.compile), record=False)
    shard(model, world)
    torch.manual_seed(recipe.seed + world.rank)  # each process draws other numbers for its own samples
    if world.size > 1 and settings.optimizer == "muon":
        raise ConfigError("C004", "train.optimizer = muon needs whole matrices: it works in one process only")
    optimizer = make_optimizer(model, settings, model.config.output_stack.d_model)
    loop = Loop(model, task, optimizer, settings, plan, world, recipe.data.workers)
    return Run(folder, task.recipe, task, loop)  # some things only the data can say


def _check_disk(run: Run) -> None:
    """Whether there is room for what the run has yet to write."""
    if run.loop.world.first:
        size = sum(p.numel() * p.element_size() for p in _written(run).values())
        check_disk(footprint(run.recipe, run.model), run.recipe, run.folder, run.loop.progress.step, size)


def train(run: Run, report: Report) -> Run:
    """Train to the end of the budget, or until a signal; the log and the checkpoints are in the run's folder."""
    with memory_errors(lambda: memory_advice(run.recipe, run.folder)):
        return _train_first(run, report) if run.loop.world.first else _train_along(run)


def _train_along(run: Run) -> Run:
    """Beside the first process, which does the talking and writing."""
    _train(run, lambda kind, **facts: None)
    return run


def _train_first(run: Run, report: Report) -> Run:
    with RunLock(run.folder / "run"):
        if run.written is not None and run.recipe != run.written:
            _write_recipe(run.folder, run.recipe)
        log = Log(run.folder / "run" / "log.jsonl")
        sinks = _open_sinks(run)

        def tell(kind: str, **facts: Any) -> None:
            log.write(kind, **facts)
            report(kind, **facts)
            for sink in list(sinks):
                sink.write(kind, facts)
                if sink.problem:
                    sinks.remove(sink)
                    report("sink", problem=sink.problem)

        try:
            _train(run, tell)
        finally:
            for sink in sinks:
                sink.close()
            log.close()
    return run


def _open_sinks(run: Run) -> list[Any]:
    if not run.recipe.train.sinks:
        return []
    from headway.train.log.sinks import open_sinks

    return open_sinks(run.recipe.train.sinks, run.folder, run.folder.name, recipe_values(run.recipe))


def _train(run: Run, tell: Report) -> None:
    loop, world, now = run.loop, run.loop.world, run.loop.progress
    tell(
        "restart" if now.step else "start",
        step=now.step,
        parameters=run.model.parameter_count(),
        trained=_trained_count(run.model),
        folder=str(run.folder),
        device=torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else platform.machine(),
        world=world.size,
        version=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        goal=run.task.primary_metric,
        rising=run.task.higher_is_better,
    )
    tell("data", **run.task.facts, bad_tests=run.task.bad_tests.count)
    if run.notes:
        tell("changes", step=now.step, notes=run.notes)

    def keep() -> None:
        tensors, counters = collect(loop)
        if world.first:
            state = {"progress": counters, "origin": run.origin}
            kept = max(run.recipe.train.keep, run.recipe.train.average)
            save(run.checkpoints, snapshot_copy(loop.progress.step, tensors, state), retention=kept)

    if run.recipe.train.on_nan == "rewind" and not now.step:
        keep()
    _with_rewinds(run, tell, keep)
    if not loop.stop_signal:
        _finish(run, tell)
    now = loop.progress
    flops = now.tokens * flops_per_token(run.model.config, run.model.parameter_count(), run.recipe.data.length)
    tell(
        "end",
        step=now.step,
        seconds=now.seconds,
        signal=loop.stop_signal,
        peak_memory=peak_memory(world.device),
        flops=flops,
        mfu=utilisation(flops / world.size, now.seconds, world.device),
    )


def _trained_count(model: Model) -> int:
    """Weights that change: all of them, or those that are not frozen."""
    learning = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    return model.parameter_count() if len(learning) == len(list(model.parameters())) else sum(learning)


def _with_rewinds(run: Run, tell: Report, keep: Callable[[], None]) -> None:
    """Train; where that diverges and the recipe says so, again from the last checkpoint at half the rate."""
    for attempt in range(MOST_REWINDS + 1):
        try:
            return run.loop.run(tell, keep, lambda: sample_text(run))
        except DivergedError as error:
            step, scale = run.loop.progress.step, run.loop.progress.scale
            policy = run.recipe.train.on_nan if attempt < MOST_REWINDS else "stop"
            tell("nan", step=step, where=error.message, action=policy)
            if policy != "rewind" or not rewind(run, lambda path, why: None):
                raise
            run.loop.progress.scale = scale / 2


def _finish(run: Run, tell: Report) -> None:
    """The folder that anyone can open, and then the score on the test data: what goes wrong there loses nothing."""
    loop = run.loop
    loop.finish()
    if run.recipe.train.average:
        loop.world.barrier()  # until the first process has written the last of them
        load_weights(loop, average_weights(last_weights(run.checkpoints, run.recipe.train.average)))
    model = full_model(run)
    if loop.world.first:
        _write_model(run, model)
    with loop.compute.precision():
        result = run.task.test(run.model, loop.world)
    if result is not None:
        tell("test", step=loop.progress.step, **result)
    if loop.world.first:
        _write_details(run, model)
    loop.world.barrier()


def _written(run: Run) -> dict[str, Tensor]:
    """The weights that the run's folder will hold in the end."""
    changed = trainable_weights(run.model)
    adapters = all(name.endswith(ADAPTER_SUFFIXES) for name in changed)
    return changed if adapters else dict(run.model.named_parameters())


def _write_model(run: Run, model: Model) -> None:
    """The adapters alone, where nothing else was trained; else one model, whole, which has a place for a new head."""
    shape, tokenizer = run.recipe.model, run.task.tokenizer
    if all(name.endswith(ADAPTER_SUFFIXES) for name in trainable_weights(run.model)):
        write_adapter(model, run.folder, shape.from_, shape.lora, shape.lora_targets)
        if tokenizer is not None:
            tokenizer.save(run.folder)
    else:
        merge_adapters(model)
        write_model_files(model, run.folder, tokenizer, resolve(shape.from_) if shape.from_ else None)


def _write_details(run: Run, model: Model) -> None:
    """run/evaluation.json: what the report shows beside the figures."""
    with run.loop.compute.precision():
        details = run.task.details(model)
    if details is not None:
        text = json.dumps(details, ensure_ascii=False, indent=1)
        (run.folder / "run" / "evaluation.json").write_text(text + "\n", encoding="utf-8")


def full_model(run: Run) -> Model:
    """The model with all of its weights, where several processes share them; the first one's is to be used."""
    if run.loop.world.size == 1:
        return run.model
    model = empty_model(run.model.config, run.recipe.model)
    parameters = dict(run.model.named_parameters())
    state = {name: full_tensor(parameters[name].detach()) for name, _ in model.named_parameters()}
    model.load_state_dict(state, assign=True, strict=False)  # tied weights are in the state once
    tie_weights(model)
    return model


def sample_text(run: Run) -> str:
    """What the model makes of a held-out example."""
    with evaluating(run.model):
        model = full_model(run).eval()
        return run.task.sample(model) if run.loop.world.first else ""
