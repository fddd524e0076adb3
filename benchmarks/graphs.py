"""Transformer, GCN and GIN on the same graphs: the mean of test accuracy over folds or seeds, as a markdown table.

    python benchmarks/graphs.py --data MUTAG.txt.gz --folds 10 --steps 300
    python benchmarks/graphs.py --data cora/ --seeds 5 --steps 200 model.width=64 graph.feature_dropout=0.5

Words after the options are settings of all networks; `--transformer`, `--gcn` and `--gin` take settings of one.
Each run keeps the weights of its best validation and is tested once. The interval is that of the mean (Student's t,
95 %). Folds come from the file beside the data where there is one.
"""

from __future__ import annotations

import argparse
import math
import shlex
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from headway.tasks.recipe import load_recipe
from headway.train.run import start, train

NETWORKS = ("transformer", "gcn", "gin")
USUAL = ("train.keep_best=true", "train.sample_every=1000000", "train.save_every=1000000", "data.bad_rows=skip")
OWN = {
    "transformer": "train.lr=1e-3",
    "gcn": "train.lr=1e-2 graph.positions=0",
    "gin": "train.lr=1e-2 graph.positions=0",
}
"""Settings of each network before those of the command line."""
QUANTILES = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Runs → the 97.5 % quantile of Student's distribution for their mean."""


def run(network: str, words: list[str], out: str) -> tuple[float, float, int]:
    """Test metric, seconds and parameters of one run."""
    began, events = time.monotonic(), list[dict[str, Any]]()
    recipe = load_recipe("graph", [f"graph.network={network}", *USUAL, *words, f"out={out}"])[1]
    finished = train(start(f"{network}", recipe), lambda kind, **facts: events.append({"event": kind, **facts}))
    (tested,) = (event for event in events if event["event"] == "test")
    return tested[finished.task.primary_metric], time.monotonic() - began, finished.model.parameter_count()


def interval(values: list[float]) -> str:
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    wide = QUANTILES.get(len(values), 1.96) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.3f} ± {wide:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="what data.train takes")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--folds", type=int, default=0, help="cross-validation with so many folds; 0: none")
    parser.add_argument("--only", type=int, default=0, help="no more than so many of the folds")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    for network in NETWORKS:
        parser.add_argument(f"--{network}", default="", help=f"settings of {network} alone, in one word")
    parser.add_argument("settings", nargs="*")
    given = parser.parse_args()
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    folds = range(1, (given.only or given.folds) + 1) if given.folds else [0]
    print(f"{Path(given.data).name}, {given.steps} steps; torch {torch.__version__}, {where}\n")
    print("| network | parameters | test | runs | seconds a run |\n|---|---|---|---|---|", flush=True)
    for network in given.networks.split(","):
        found = []
        with tempfile.TemporaryDirectory() as out:
            for fold in folds:
                for seed in range(given.seeds):
                    words = [f"data.train={given.data}", f"train.steps={given.steps}", f"seed={seed + 1}"]
                    words += [f"graph.folds={given.folds}", f"graph.fold={fold}"] if fold else []
                    words += [*shlex.split(OWN[network]), *given.settings, *shlex.split(getattr(given, network))]
                    found.append(run(network, words, out))
        scores, seconds, sizes = zip(*found, strict=True)
        each = statistics.fmean(seconds)
        print(f"| {network} | {sizes[0]:,} | {interval(list(scores))} | {len(scores)} | {each:.0f} |", flush=True)


if __name__ == "__main__":
    main()
