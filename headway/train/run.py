"""A run, assembled: from a recipe to a folder that anyone can open."""

from __future__ import annotations

import platform
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from headway.config import SpecialTokens
from headway.data.corpus import Windows, embedded_text, read_text, split_text, tokenize
from headway.data.tokenizer import Tokenizer, load_tokenizer
from headway.data.vocabulary import train_tokenizer
from headway.errors import NotFoundError
from headway.generate.decode import Sampling, generate
from headway.hub.folder import write_model_files
from headway.model.model import Model
from headway.recipe import Recipe, decoder_config
from headway.settings import build, read_toml, to_dict, to_toml
from headway.tasks.lm import LanguageModelling
from headway.train.checkpoint import RunLock, load, save, snapshot_copy
from headway.train.log import Log
from headway.train.loop import Loop, Report
from headway.train.optim import make_optimizer
from headway.train.state import collect, restore

SAMPLE_TOKENS = 160
VOCAB = {"bpe": 4096, "unigram": 4096}
"""Size of a vocabulary that has to have one, where the recipe does not say."""


@dataclass
class Run:
    """A recipe with everything made from it."""

    folder: Path
    recipe: Recipe
    tokenizer: Tokenizer
    task: LanguageModelling
    loop: Loop

    @property
    def model(self) -> Model:
        return self.loop.model


def new_folder(out: Path, name: str) -> Path:
    """runs/tiny-0001, the first number that is free."""
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
    train, valid = (str(Path(path).resolve()) if path else "" for path in (recipe.data.train, recipe.data.valid))
    recipe = replace(recipe, data=replace(recipe.data, train=train, valid=valid))  # to be resumed from anywhere
    folder = new_folder(Path(recipe.out), name)
    try:
        (folder / "run" / "recipe.toml").write_text(to_toml(to_dict(recipe)), encoding="utf-8")
        return _assemble(folder, recipe)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def resume(folder: Path, skipped: Callable[[Path, str], None]) -> Run:
    """A run as its newest good checkpoint left it."""
    path = folder / "run" / "recipe.toml"
    if not path.exists():
        raise NotFoundError("F001", f"{folder} is no run: it has no run/recipe.toml")
    data, text = read_toml(path)
    run = _assemble(folder, build(Recipe, data, source=text))
    snapshot = load(folder / "run" / "checkpoints", skipped=skipped)
    if snapshot is not None:
        restore(run.loop, snapshot.tensors, snapshot.state["progress"])
    return run


def _assemble(folder: Path, recipe: Recipe) -> Run:
    torch.manual_seed(recipe.seed)
    text = read_text(recipe.data.train) if recipe.data.train else embedded_text()
    if recipe.data.valid:
        train, valid = text, read_text(recipe.data.valid)
    else:
        train, valid = split_text(text)
    tokenizer = _tokenizer(folder, recipe, train)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    length = recipe.data.length
    config = decoder_config(recipe.model, tokenizer.vocab_size, length)
    special = SpecialTokens(pad=tokenizer.special.get("pad"), eos=tokenizer.special.get("eos"))
    model = Model(replace(config, special=special)).to(device)
    windows = Windows(tokenize(tokenizer, train), length, recipe.seed)
    task = LanguageModelling(windows, tokenize(tokenizer, valid), len(valid.encode()), tokenizer, device)
    optimizer = make_optimizer(model, recipe.train, config.output_stack.d_model)
    return Run(folder, recipe, tokenizer, task, Loop(model, task, optimizer, recipe.train, len(windows)))


def _tokenizer(folder: Path, recipe: Recipe, text: str) -> Tokenizer:
    """Trained once per run and kept with it: a resumed run must not train another."""
    kept = folder / "run" / "tokenizer"
    if not (kept / "tokenizer.json").exists():
        lines = text.splitlines(keepends=True)
        size = recipe.data.vocab or VOCAB.get(recipe.data.tokenizer, 0)
        train_tokenizer(recipe.data.tokenizer, lines, size).save(kept)
    return load_tokenizer(kept)


def train(run: Run, report: Report) -> Run:
    """Train to the end of the budget, or until a signal; the log and the checkpoints are in the run's folder."""
    checkpoints = run.folder / "run" / "checkpoints"
    with RunLock(run.folder / "run"):
        log = Log(run.folder / "run" / "log.jsonl")
        began = time.perf_counter()

        def tell(kind: str, **facts: Any) -> None:
            log.write(kind, **facts)
            report(kind, **facts)

        def keep() -> None:
            tensors, counters = collect(run.loop)
            state = {"progress": counters, "torch": torch.__version__, "python": platform.python_version()}
            save(checkpoints, snapshot_copy(run.loop.progress.step, tensors, state), keep=run.recipe.train.keep)

        try:
            tell("start", step=run.loop.progress.step, parameters=run.model.parameter_count(), folder=str(run.folder))
            run.loop.run(tell, keep, lambda: sample_text(run))
            if not run.loop.stop_signal:
                write_model_files(run.model, run.folder, run.tokenizer)
            tell("end", step=run.loop.progress.step, seconds=time.perf_counter() - began, signal=run.loop.stop_signal)
        finally:
            log.close()
    return run


def sample_text(run: Run, seed: int = 0) -> str:
    """A short continuation of the validation text's first words, the same draw each time."""
    was_training = run.model.training
    run.model.eval()
    prompt = [int(i) for i in run.task.valid[:16]]
    new = list(generate(run.model, prompt, SAMPLE_TOKENS, Sampling(seed=seed)))
    run.model.train(was_training)
    return run.tokenizer.decode(new)
