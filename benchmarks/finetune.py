"""A pretrained encoder fine-tuned by headway and by a plain loop around transformers, with the same settings.

    python benchmarks/finetune.py sst2 --model ./encoder --data ./data [--seeds 1,2,3] [--only headway] [train.lr=2e-4]

Tasks are the recipes sst2, trec, conll and squad; `--data` is a folder with their files (see FILES), and words such as
train.epochs=2 or data.train=… go on top of the recipe. headway trains as `headway train` does. The loop reads its
settings from the same recipe: batches, which come in the same order, steps, learning rates, weight decay, clipping,
dropout, precision, and whether the best weights or the last are kept. Its model is transformers' own for the task, with
its own way from the vectors of a text to its label; loss and figures are headway's for both.

Seconds are those of training alone, from the first step on, without loading and evaluation. Runs should have the
machine to themselves; each result is printed when it is there, then mean and spread (standard deviation) over seeds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from common import clean, emit, machine
from torch import Tensor, nn

import headway
from headway.config.model import ModelConfig
from headway.config.recipe import TrainConfig
from headway.data.batching.prefetch import Prefetcher
from headway.hub.download import resolve
from headway.hub.folder import open_folder
from headway.model.model import Output
from headway.runs.compare import confidence_interval, final_metrics
from headway.tasks.batch import Batch
from headway.tasks.recipe import Recipe, batch_size, load_recipe
from headway.tasks.training import TaskContext, Training, make_training
from headway.train.build import base_tokenizer
from headway.train.distributed import World
from headway.train.optim.average import WeightCopy
from headway.train.optim.schedule import lr_factor, peak_lr

FILES = {
    "sst2": {"train": "sst2.train.tsv", "valid": "sst2.dev.tsv", "test": "sst2.test.tsv"},
    "trec": {"train": "trec.train.tsv", "valid": "trec.test.tsv", "test": "trec.test.tsv"},  # so that all is learned
    "conll": {"train": "eng.train.gz", "valid": "eng.testa.gz", "test": "eng.testb.gz"},
    "squad": {"train": "squad.train.json.gz", "valid": "squad.dev.json.gz", "test": "xquad.en.json.gz"},
}
METRICS = {"classify": ("accuracy", "macro_f1"), "tag": ("f1",), "answer": ("em", "f1")}
"""Of each task, the first being the one to compare by."""
NOT_THEIRS = {"optimizer": "adamw", "layer_decay": 1.0, "unfreeze": 0, "accumulate": 1, "ema": 0.0, "average": 0}
NOT_THEIRS |= {"patience": 0, "minutes": None, "checkpointing": False, "on_nan": "stop"}
"""Settings of train that the loop does not have, and the value that it stands for."""
THEIRS: Any = transformers  # only part of it has type hints
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WORLD = World(0, 1, DEVICE)
Result = dict[str, float]


def now() -> float:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


class Peer(nn.Module):
    """A model of transformers in the place of one of headway's: its scores pass through heads that change nothing."""

    def __init__(self, body: Any, config: ModelConfig) -> None:
        super().__init__()
        self.body, self.config = body, config

    def forward(self, inputs: Tensor, *, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Output:
        typed = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        found = self.body(input_ids=inputs, attention_mask=attention_mask.long(), **typed)
        if self.config.span is None:
            return Output(found.logits, attention_mask)
        return Output(torch.stack([found.start_logits, found.end_logits], -1), attention_mask)

    def classify(self, scores: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return scores

    tag = span = classify


def make_peer(recipe: Recipe, task: Training, compiled: bool) -> Peer:
    """The model of transformers for a task, from the folder that headway starts from."""
    folder = resolve(recipe.model.from_)
    config = task.config(open_folder(folder).config)
    settings = THEIRS.AutoConfig.from_pretrained(folder)
    head = config.classify or config.tag
    if head is not None:
        settings.num_labels = len(config.labels)
        settings.classifier_dropout = head.dropout
    kinds = {
        "classify": THEIRS.AutoModelForSequenceClassification,
        "tag": THEIRS.AutoModelForTokenClassification,
        "answer": THEIRS.AutoModelForQuestionAnswering,
    }
    body = kinds[recipe.task].from_pretrained(folder, config=settings, dtype=torch.float32)
    if compiled:
        body.compile(dynamic=True)
    return Peer(body, config).to(DEVICE).train()


def make_adam(model: nn.Module, config: TrainConfig, rate: float) -> torch.optim.Optimizer:
    """Matrices decay, norms and biases do not, as in headway."""
    wide = [p for p in model.parameters() if p.ndim >= 2]
    narrow = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": wide, "weight_decay": config.weight_decay}, {"params": narrow, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(config.betas[0], config.betas[1]), fused=True)


def precision(config: TrainConfig) -> torch.autocast:
    half = DEVICE.type == "cuda" if config.dtype == "auto" else config.dtype == "bfloat16"
    return torch.autocast(DEVICE.type, torch.bfloat16, enabled=half)


def step_of(model: Peer, task: Training, config: TrainConfig, rate: float) -> Callable[[Batch, float], None]:
    """One step on a batch, at a share of the peak learning rate."""
    optimizer = make_adam(model, config, rate)
    loss = task.loss

    def step(batch: Batch, factor: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
        with precision(config):
            total = loss(model, *batch.to(DEVICE))
        (total / batch.count).backward()
        if config.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class Best:
    """The weights of the best evaluation, where the recipe keeps them."""

    def __init__(self, model: Peer, task: Training, config: TrainConfig) -> None:
        self.model, self.task, self.config = model, task, config
        self.copies, self.goal = WeightCopy(model), -math.inf

    def look(self) -> None:
        with precision(self.config):
            found = self.task.evaluate(self.model, WORLD)[self.task.primary_metric]  # type: ignore[arg-type]
        goal = found if self.task.higher_is_better else -found
        if goal > self.goal:
            self.goal = goal
            self.copies.store()


def plain_loop(recipe: Recipe, compiled: bool, folder: Path) -> Result:
    """What `headway train` does, without headway: a model of transformers, and the usual loop."""
    config = recipe.train
    task = make_training(TaskContext(recipe, folder, base_tokenizer(recipe)))
    torch.manual_seed(recipe.seed)
    model = make_peer(recipe, task, compiled)
    plan = task.plan(batch_size(recipe))
    budget = float(config.steps) if config.steps is not None else (config.epochs or 0) * plan.steps_per_epoch
    total, step = math.ceil(budget), step_of(model, task, config, peak_lr(config, model.config.output_stack.d_model))
    best = Best(model, task, config) if config.keep_best else None

    def make(number: int) -> Batch:
        batch = task.batch(plan.samples(number))
        return batch.pinned() if DEVICE.type == "cuda" else batch

    seconds, start = 0.0, now()
    with Prefetcher(make, 0, recipe.data.workers) as batches:
        for number in range(total):
            step(next(batches), lr_factor(config, number, number / budget))
            if best is not None and ((number + 1) % config.eval_every == 0 or number + 1 == total):
                seconds += now() - start
                best.look()
                start = now()
        seconds += now() - start
    if best is not None:
        best.copies.copy_to_model()
    with precision(config):
        peer: Any = model
        found = task.test(peer, WORLD) or task.evaluate(peer, WORLD)
    return {**found, "seconds": seconds, "steps": float(total)}


def by_headway(args: argparse.Namespace, words: Sequence[str], folder: Path) -> Result:
    run = headway.train(args.task, *words, f"out={folder}", quiet=True).record
    if run.status != "finished":
        raise SystemExit(f"the run was {run.status}")
    return {**final_metrics(run), "seconds": run.facts.train_seconds or 0.0, "steps": float(run.facts.steps)}


def by_transformers(args: argparse.Namespace, words: Sequence[str], folder: Path) -> Result:
    recipe = load_recipe(args.task, words)[1]
    given = {name: getattr(recipe.train, name) for name in NOT_THEIRS}
    if other := [f"train.{name}={value}" for name, value in given.items() if value != NOT_THEIRS[name]]:
        raise SystemExit(f"{', '.join(other)}: the loop has no such setting (--only headway has)")
    if recipe.model.lora or recipe.model.freeze:
        raise SystemExit("model.lora, model.freeze: the loop trains all weights (--only headway does not)")
    return plain_loop(recipe, args.compile, folder)


SIDES = {"headway": by_headway, "transformers": by_transformers}


def file_words(args: argparse.Namespace, folder: Path) -> list[str]:
    """Where the data are, as words for the recipe; those given by hand come first."""
    given = {word.partition("=")[0] for word in args.settings}
    words = []
    for part, name in FILES[args.task].items():
        if args.data and f"data.{part}" not in given:
            path = Path(args.data) / name
            words.append(f"data.{part}={beginning(path, args.rows, folder) if args.rows else path}")
    return words


def beginning(path: Path, rows: int, folder: Path) -> Path:
    """A file with only the first sentences, lines or questions of another."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        text = file.read()
    made = folder / path.name.removesuffix(".gz")
    if made.suffix == ".json":
        text = json.dumps(_questions(json.loads(text), rows))
    elif made.suffix == ".tsv":
        text = "".join(text.splitlines(keepends=True)[:rows])
    else:
        text = "\n\n".join(text.split("\n\n")[:rows]) + "\n"
    made.write_text(text, encoding="utf-8")
    return made


def _questions(squad: Any, rows: int) -> Any:
    articles = []
    for article in squad["data"]:
        paragraphs = []
        for paragraph in article["paragraphs"]:
            asked, rows = paragraph["qas"][:rows], rows - len(paragraph["qas"][:rows])
            paragraphs += [{**paragraph, "qas": asked}] if asked else []
        articles += [{**article, "paragraphs": paragraphs}] if paragraphs else []
    return {**squad, "data": articles}


def summary(task: str, names: Sequence[str], found: Mapping[str, Sequence[Result]]) -> None:
    for side, results in found.items():
        facts: dict[str, Any] = {}
        for name in (*names, "seconds"):
            over = confidence_interval([result[name] for result in results])
            facts |= {name: over["mean"], f"{name}_sd": over["sd"]}
        emit(task=task, side=side, runs=len(results), **facts)
    if len(found) == 2:
        pairs = list(zip(found["headway"], found["transformers"], strict=True))
        gaps = {f"{name}_gain": statistics.fmean(a[name] - b[name] for a, b in pairs) for name in names}
        emit(task=task, times_as_fast=statistics.median(b["seconds"] / a["seconds"] for a, b in pairs), **gaps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=FILES)
    parser.add_argument(
        "settings", nargs="*", default=[], metavar="KEY=VALUE", help="on top of the recipe, for both sides"
    )
    parser.add_argument("--model", required=True, help="the folder of an encoder")
    parser.add_argument("--data", default="", help="the folder of the data")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--only", choices=SIDES)
    parser.add_argument("--compile", action="store_true", help="the model of transformers, with dynamic shapes")
    parser.add_argument("--rows", type=int, default=0, help="only the first rows of each file, for a trial")
    args = parser.parse_intermixed_args()
    THEIRS.utils.logging.set_verbosity_error()
    THEIRS.utils.logging.disable_progress_bar()
    emit(**machine(), transformers=THEIRS.__version__)
    sides = [args.only] if args.only else list(SIDES)
    found: dict[str, list[Result]] = {side: [] for side in sides}
    names = METRICS[load_recipe(args.task)[1].task]
    for place, seed in enumerate(args.seeds.split(",")):
        for side in sides[:: -1 if place % 2 else 1]:  # whoever comes first in a process may pay for more than its own
            with tempfile.TemporaryDirectory() as made:
                folder = Path(made)
                words = [*file_words(args, folder), *args.settings, f"model.from={args.model}", f"seed={seed}"]
                result = SIDES[side](args, words, folder)
            found[side].append(result)
            shown = {name: result[name] for name in (*names, "seconds")}
            rate = result["steps"] / max(result["seconds"], 1e-9)
            emit(task=args.task, side=side, seed=int(seed), **shown, steps=int(result["steps"]), steps_s=rate)
            clean()
    summary(args.task, names, found)


if __name__ == "__main__":
    main()
