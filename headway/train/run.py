"""A run from start to end: assembled from a recipe or a checkpoint, trained, logged, saved."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from headway.baselines.recurrent import CELLS
from headway.config.toml import to_toml
from headway.data.batching.batch_sampler import BatchSampler
from headway.data.datasets.parallel import split_pair_spec
from headway.data.files.digest import hash_once
from headway.data.files.lines import read_as
from headway.errors import ConfigError, DataError, DivergedError
from headway.hub.download import pinned_name, resolve
from headway.hub.folder import write_side_files
from headway.hub.weights import writing
from headway.model.model import Model
from headway.resources import memory_errors
from headway.tasks.defaults.choose import Chosen, choose
from headway.tasks.recipe import Recipe, batch_size, load_run_recipe, recipe_values, with_overrides
from headway.tasks.training import TaskContext, Training, make_training
from headway.train import provenance
from headway.train.build import base_tokenizer, build_model, meta_model
from headway.train.checkpoint import RunLock, load, save, snapshot_copy
from headway.train.distributed import World, init_distributed, shard
from headway.train.footprint import Footprint, check_disk, check_first_step, footprint, memory_advice
from headway.train.log.cost import model_flops_per_token, peak_memory, utilisation
from headway.train.log.events import Log
from headway.train.log.sinks import open_sinks
from headway.train.loop import Loop, Report
from headway.train.optim.optimizer import make_optimizer
from headway.train.provenance import Record, Resumed
from headway.train.result import finish, make_sample, saved_weights
from headway.train.state import collect, restore
from headway.version import __version__

MAX_REWINDS = 5


@dataclass
class Run:
    """A recipe with everything that is made from it."""

    folder: Path
    recipe: Recipe
    task: Training
    loop: Loop
    origin: Record = field(default_factory=dict)
    """What the run is made from, as checkpoints record it; on rank 0 only."""
    notes: list[str] = field(default_factory=list)
    """What has changed since the checkpoint that the run continues from."""
    words: Sequence[str] = ()
    """What the user typed after `headway train`: the recipe and the settings, or the settings of a resumed run."""
    chosen: Chosen | None = None
    """The settings that were chosen for a new run."""
    written: Recipe | None = None
    """The recipe in the folder of a resumed run; it is replaced when training begins, under the run's lock."""

    @property
    def model(self) -> Model:
        return self.loop.model

    @property
    def checkpoints(self) -> Path:
        return self.folder / "run" / "checkpoints"


def new_folder(out: Path, name: str) -> Path:
    """runs/tiny-0001, with the first number that is free."""
    with writing(out, 0):
        out.mkdir(parents=True, exist_ok=True)
        taken = [int(m[1]) for p in out.iterdir() if (m := re.fullmatch(rf"{re.escape(name)}-(\d+)", p.name))]
        folder = out / f"{name}-{max(taken, default=0) + 1:04d}"
        (folder / "run").mkdir(parents=True)
    return folder


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """The recipe with absolute paths, so that the run can be resumed from another folder; a run has its step."""

    def full(path: str) -> str:
        if sides := split_pair_spec(path):
            return ",".join(full(side) for side in sides)
        return str(Path(path).resolve()) if path and Path(path).exists() else path

    data, base = recipe.data, pinned_name(recipe.model.from_, Path(recipe.out))
    data = replace(data, train=full(data.train), valid=full(data.valid), test=full(data.test))
    model = replace(recipe.model, from_=base, embeddings=full(recipe.model.embeddings))
    return replace(recipe, data=data, model=model)


def start(name: str, recipe: Recipe, words: Sequence[str] = ()) -> Run:
    """A new run in a new folder. If it cannot be assembled, the folder is removed.

    `words` are what the user typed: the recipe and its settings. The log keeps them for the report's commands.
    """
    world = init_distributed()
    recipe = with_absolute_paths(recipe)
    base = world.broadcast_text(recipe.model.from_)  # a run that is still training has another step a moment later
    chosen = choose(replace(recipe, model=replace(recipe.model, from_=base)))
    recipe = chosen.recipe
    folder = Path(world.broadcast_text(str(new_folder(Path(recipe.out), name)) if world.first else ""))
    try:
        if world.first:
            _write_recipe(folder, recipe)
        with memory_errors(lambda: memory_advice(recipe)):
            run = _assemble(folder, recipe, world)
        run.chosen = chosen
        _check_disk(run)
        if world.first and run.recipe != recipe:
            _write_recipe(folder, run.recipe)
        run.words = words
        return run
    except BaseException:
        if world.first:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def resume(
    folder: Path, skipped: Callable[[Path, str], None], words: Sequence[str] = (), *, accept_changed_data: bool = False
) -> Run:
    """A run in the state of its newest good checkpoint, with `key=value` words on top of its recipe.

    A change that would make it another run is an error; other changes are listed in `notes`.
    """
    written = load_run_recipe(folder)
    recipe, world = with_absolute_paths(with_overrides(written, words)) if words else written, init_distributed()
    if world.first:
        with RunLock(folder / "run"):  # refuses a run that another process trains
            pass
    if recipe.model.from_ and recipe.model.from_ == written.model.from_:
        resolve(recipe.model.from_, local=True)  # a file names this model, so it is never downloaded
    with memory_errors(lambda: memory_advice(recipe, folder)):
        snapshot = load(folder / "run" / "checkpoints", skipped=skipped)
        if snapshot is None:
            if world.first:
                _forget_tokenizer(folder)
            run = _assemble(folder, recipe, world)
        else:
            resumed = Resumed(snapshot.state.get("origin"), written, accept_changed_data)
            run = _assemble(folder, recipe, world, resumed)
            restore(run.loop, snapshot.tensors, snapshot.state["progress"])
    _check_disk(run)
    run.written, run.words = written, words
    return run


def _write_recipe(folder: Path, recipe: Recipe) -> None:
    """Write run/recipe.toml atomically."""
    path = folder / "run" / "recipe.toml"
    partial = path.with_name(f"recipe.partial-{os.getpid()}")
    with writing(path.parent, 0):
        partial.write_text(to_toml(recipe_values(recipe)), encoding="utf-8")
        os.replace(partial, path)


def _forget_tokenizer(folder: Path) -> None:
    """Remove the tokenizer of a run without a checkpoint: its data may have changed since, and nothing was learned."""
    with RunLock(folder / "run"):
        shutil.rmtree(folder / "run" / "tokenizer", ignore_errors=True)


def _assemble(folder: Path, recipe: Recipe, world: World, resumed: Resumed | None = None) -> Run:
    """Make the run. Rank 0 also records what it is made from, and compares that with a resumed run's record."""
    if not world.first:
        return make(folder, recipe, world)  # ends with rank 0 if that fails
    notes = provenance.check_recipe(recipe, resumed) if resumed else []
    with hash_once():  # tasks hash their data as well
        stamp, data = provenance.data_stamp(recipe), provenance.data_record(recipe)
        notes += provenance.check_data(recipe, data, resumed) if resumed else []
        run = make(folder, recipe, world)
    if provenance.data_stamp(recipe) != stamp:
        raise DataError("D020", "a data file changed while it was being read", "start again when it is complete")
    place = provenance.record_place(world.device, world.size, run.loop.compute.bfloat16)
    run.origin = provenance.record_run(run.recipe, data, run.task, run.model.config, place)
    run.origin["mixed"] = provenance.is_mixed(data, resumed)
    run.notes = notes + (provenance.check_split(run.origin, recipe, resumed) if resumed else [])
    return run


@dataclass(frozen=True)
class Prepared:
    """A recipe with its data read, before there is a model."""

    task: Training
    plan: BatchSampler
    planned: Model | None
    """The model without memory for its weights; None if only loading can tell."""
    footprint: Footprint | None


def prepare(folder: Path, recipe: Recipe, world: World) -> Prepared:
    """Read the data of a recipe, and refuse it if its first step would not fit into memory."""
    tokenizer = base_tokenizer(recipe)
    with read_as(recipe.data.encoding):
        task = make_training(TaskContext(recipe, folder / "run" / "tokenizer", tokenizer, world.rank_zero_first))
        world.rank_zero_first(lambda: write_side_files(folder / "run", task.model_files))
        world.rank_zero_first(lambda: task.test_part)  # finds mistakes in the test data before training, not after
    plan = task.plan(batch_size(recipe))
    planned = meta_model(recipe, task)
    need = None if planned is None else check_first_step(recipe, planned, task.batch, plan, world)
    return Prepared(task, plan, planned, need)


def make(folder: Path, recipe: Recipe, world: World, prepared: Prepared | None = None) -> Run:
    """Task, model, optimizer and loop of a recipe."""
    prepared = prepared or prepare(folder, recipe, world)
    settings, task, plan = recipe.train, prepared.task, prepared.plan
    torch.manual_seed(recipe.seed)
    model = build_model(recipe, task, world.device)
    task.initialise(model)
    if getattr(model.config, "network", "") in CELLS:
        # torch.compile does not speed up these kernels, and a captured graph would replay the first batch's lengths
        settings = replace(settings, compile=bool(settings.compile), cuda_graphs=False)
    shard(model, world)
    torch.manual_seed(recipe.seed + world.rank)  # each process draws its own dropout masks
    if world.size > 1 and settings.optimizer == "muon":
        raise ConfigError(
            "C004", f"train.optimizer = muon needs full matrices: it cannot train with gpus = {world.size}"
        )
    optimizer = make_optimizer(model, settings, model.config.output_stack.d_model)
    loop = Loop(model, task, optimizer, settings, plan, world, recipe.data.workers)
    return Run(folder, task.recipe, task, loop)  # the task completes the recipe with what it finds in the data


def _check_disk(run: Run) -> None:
    """Check that the disk has room for what the run will still write."""
    if run.loop.world.first:
        size = sum(p.numel() * p.element_size() for p in saved_weights(run.model).values())
        check_disk(footprint(run.recipe, run.model), run.recipe, run.folder, run.loop.progress.step, size)


def train(run: Run, report: Report) -> Run:
    """Train until the budget is spent or a signal comes. Rank 0 writes the log and reports."""
    with memory_errors(lambda: memory_advice(run.recipe, run.folder)):
        if not run.loop.world.first:
            _train(run, lambda kind, **facts: None)
            return run
        with RunLock(run.folder / "run"):
            if run.written is not None and run.recipe != run.written:
                _write_recipe(run.folder, run.recipe)
            with _logged(run, report) as log:
                _train(run, log)
    return run


@contextmanager
def _logged(run: Run, report: Report) -> Iterator[Report]:
    """A `Report` that also writes run/log.jsonl and the recipe's sinks."""
    log = Log(run.folder / "run" / "log.jsonl")
    sinks = open_sinks(run.recipe.train.sinks, run.folder, run.folder.name, recipe_values(run.recipe))

    def write(kind: str, **facts: Any) -> None:
        log.write(kind, **facts)
        report(kind, **facts)
        for sink in list(sinks):
            sink.write(kind, facts)
            if sink.problem:
                sinks.remove(sink)
                report("sink", problem=sink.problem)

    try:
        yield write
    finally:
        for sink in sinks:
            sink.close()
        log.close()


def _train(run: Run, report: Report) -> None:
    loop, world = run.loop, run.loop.world
    if world.first and run.task.tokenizer is not None and not (run.folder / "run" / "tokenizer").exists():
        run.task.tokenizer.save(run.folder / "run" / "tokenizer")  # for those who use a checkpoint
    report("restart" if loop.progress.step else "start", **_start_facts(run))
    if run.chosen and run.chosen.settings:
        report("chosen", settings=dict(run.chosen.settings), line=str(run.chosen))
    chance = {"chance": run.task.chance, "guesser": run.task.guesser}
    report("data", **run.task.facts, **chance, bad_tests=run.task.bad_tests.count)
    if run.notes:
        report("changes", step=loop.progress.step, notes=run.notes)

    def save_checkpoint() -> None:
        tensors, counters = collect(loop)
        if world.first:
            state = {"progress": counters, "origin": run.origin}
            retention = max(run.recipe.train.keep, run.recipe.train.average)
            save(run.checkpoints, snapshot_copy(loop.progress.step, tensors, state), retention=retention)

    if run.recipe.train.on_nan == "rewind" and not loop.progress.step:
        save_checkpoint()
    with loop.signals():  # one that comes while the model is written does not stop that
        _train_with_rewinds(run, report, save_checkpoint)
        if not loop.stop_signal:
            finish(loop, run.recipe, run.folder, report)
    now = loop.progress
    flops = now.tokens * model_flops_per_token(run.recipe, run.model)
    report(
        "end",
        step=now.step,
        seconds=now.seconds,
        signal=loop.stop_signal,
        peak_memory=peak_memory(world.device),
        flops=flops,
        mfu=utilisation(flops / world.size, now.seconds, world.device),
    )


def _start_facts(run: Run) -> dict[str, Any]:
    """The facts of the `start` event."""
    world = run.loop.world
    count, trained = parameters_of(run.task, run.model)
    return {
        "step": run.loop.progress.step,
        "words": list(run.words),
        "max_length": run.model.config.max_length,
        "parameters": count,
        "trained": trained,
        "folder": str(run.folder),
        "device": torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else platform.machine(),
        "world": world.size,
        "version": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "goal": run.task.primary_metric,
        "rising": run.task.higher_is_better,
    }


def parameters_of(task: Training, model: Model) -> tuple[int, int]:
    """The parameters of a model, and how many of them training changes."""
    every, count = list(model.parameters()), model.parameter_count()
    trained = [parameter.numel() for parameter in every if parameter.requires_grad]
    return count, count if len(trained) == len(every) or not task.by_gradient else sum(trained)


def _train_with_rewinds(run: Run, report: Report, save_checkpoint: Callable[[], None]) -> None:
    """Train. If that diverges and `train.on_nan = rewind`, go back to the last checkpoint and halve the rate."""
    loop = run.loop
    for attempt in range(MAX_REWINDS + 1):
        try:
            return loop.run(report, save_checkpoint, lambda: make_sample(loop, run.recipe, run.folder))
        except DivergedError as error:
            step, scale = loop.progress.step, loop.progress.scale
            policy = run.recipe.train.on_nan if attempt < MAX_REWINDS else "stop"
            report("nan", step=step, where=error.message, action=policy)
            if policy != "rewind":
                raise
            if (snapshot := load(run.checkpoints, skipped=lambda path, why: None)) is None:
                raise
            restore(loop, snapshot.tensors, snapshot.state["progress"])
            loop.progress.scale = scale / 2
