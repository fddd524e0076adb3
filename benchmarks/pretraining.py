"""What pretraining is worth: SST-2 learned from random weights, from headway's own pretraining, from another encoder.

    python benchmarks/pretraining.py --texts wiki.train.tokens.gz books.txt.gz --valid wiki.valid.tokens.gz \\
        --data ./data --other ./minilm [--steps 8000] [--seeds 1,2,3] [--jobs 1] [train.epochs=4]

The recipe bert-small is pretrained on the texts, or `--own` names a run that was. Random weights have the shape of that
run, and its tokenizer; another encoder (`--other`) has its own. Each is fine-tuned with the recipe sst2, from the files
sst2.train.tsv, sst2.dev.tsv and sst2.test.tsv of `--data`; words such as train.lr=2e-4 go on top of it, for all alike,
and those after `--pretrain` on top of bert-small. The table has test accuracy, mean ± spread (standard deviation) over
seeds, and the gain over random weights. `--jobs` fine-tunes several at a time.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

import torch
from common import emit, machine

import headway
from headway.hub.folder import save_model
from headway.model.model import Transformer
from headway.runs.compare import confidence_interval, final_metrics
from headway.runs.history import History, read_run

BUDGETS = ("train.steps=", "train.minutes=", "train.epochs=")
PARTS = {"train": "sst2.train.tsv", "valid": "sst2.dev.tsv", "test": "sst2.test.tsv"}


def finished(run: Path) -> History:
    """What became of a run; one that was stopped has no result."""
    told = read_run(run)
    if told.status != "finished":
        raise SystemExit(f"{run} is {told.status}")
    return told


def pretrain(args: argparse.Namespace, folder: Path) -> Path:
    """bert-small on all texts as one, since what is held out is cut between files where there are several."""
    corpus = folder / "corpus.txt"
    with corpus.open("wb") as out:
        for name in args.texts:
            with gzip.open(name) if name.endswith(".gz") else open(name, "rb") as text:
                shutil.copyfileobj(text, out)
    words = [f"data.train={corpus}", f"out={folder}", *args.pretrain]
    if not any(word.startswith(BUDGETS) for word in words):
        words.append(f"train.steps={args.steps}")
    if args.valid:
        words.append(f"data.valid={args.valid}")
    start = time.perf_counter()
    run = headway.train("bert-small", *words, quiet=True).folder
    told = finished(run)
    emit(
        pretraining="bert-small",
        steps=told.facts.steps,
        seconds=told.facts.train_seconds,
        seconds_in_all=time.perf_counter() - start,
        tokens_s=told.facts.tokens_per_second,
        corpus_mb=corpus.stat().st_size / 1e6,
        parameters=told.facts.parameters,
        **final_metrics(told),
    )
    return run


def random_twin(run: Path, seed: int, folder: Path) -> Path:
    """A model of the same shape that has learned nothing, with the same tokenizer."""
    bundle = headway.load(run)
    torch.manual_seed(seed)
    return save_model(Transformer(bundle.config), folder / f"random-{seed}", bundle.tokenizer)


def fine_tune(start: str, seed: int, words: Sequence[str], folder: str) -> dict[str, float]:
    """One run of sst2, in whatever process; its folder is its own."""
    out = Path(folder) / f"from-{Path(start).name}" / str(seed)
    words = (*words, f"model.from={start}", f"seed={seed}", f"out={out}")
    told = finished(headway.train("sst2", *words, quiet=True).folder)
    return {"accuracy": final_metrics(told)["accuracy"], "seconds": told.facts.train_seconds or 0.0}


def fine_tune_all(args: argparse.Namespace, own: Path, folder: Path) -> dict[str, list[float]]:
    """Accuracies by where the weights came from, each printed when those before it are there as well."""
    words = [f"data.{part}={Path(args.data) / name}" for part, name in PARTS.items()] + args.settings
    jobs = []
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        for seed in (int(text) for text in args.seeds.split(",")):
            starts = {"random": random_twin(own, seed, folder), "own": own}
            starts |= {"other": Path(args.other)} if args.other else {}
            for name, start in starts.items():
                jobs.append((name, seed, pool.submit(fine_tune, str(start), seed, words, str(folder))))
        found: dict[str, list[float]] = {}
        for name, seed, job in jobs:
            result = job.result()
            found.setdefault(name, []).append(result["accuracy"])
            emit(start=name, seed=seed, **result)
    return found


def table(found: dict[str, list[float]]) -> None:
    base = confidence_interval(found["random"])["mean"]
    for name, values in found.items():
        over = confidence_interval(values)
        assert over["mean"] is not None and base is not None
        emit(start=name, accuracy=over["mean"], accuracy_sd=over["sd"], gain=over["mean"] - base, seeds=len(values))
    print("\n| start | SST-2 test accuracy | gain |\n|---|---|---|")
    for name, values in found.items():
        mean, sd = confidence_interval(values)["mean"], confidence_interval(values)["sd"]
        assert mean is not None and base is not None
        wide = "" if sd is None else f" ± {100 * sd:.2f}"
        print(f"| {name} | {100 * mean:.2f}{wide} | {100 * (mean - base):+.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", default=[], metavar="KEY=VALUE", help="on top of the recipe sst2")
    parser.add_argument("--texts", nargs="+", default=[], help="text files to pretrain on, .gz or not")
    parser.add_argument("--valid", default="", help="text to validate on; the last tenth of the others without it")
    parser.add_argument("--data", required=True, help="the folder of SST-2")
    parser.add_argument("--other", default="", help="the folder of another encoder")
    parser.add_argument("--own", default="", help="a run that was pretrained before")
    parser.add_argument("--out", default="", help="where runs are kept; without it they are not")
    parser.add_argument("--steps", type=int, default=8000, help="of pretraining")
    parser.add_argument("--pretrain", nargs="+", default=[], metavar="KEY=VALUE", help="on top of bert-small")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_intermixed_args()
    if not (args.texts or args.own):
        parser.error("give --texts to pretrain on, or --own RUN")
    emit(**machine())
    with nullcontext(args.out) if args.out else tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        own = Path(args.own) if args.own else pretrain(args, folder)
        table(fine_tune_all(args, own, folder))


if __name__ == "__main__":
    main()
