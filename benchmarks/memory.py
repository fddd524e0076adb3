"""bAbI: the error of a memory network on each task, of the best of several starts and of all of them.

    python benchmarks/memory.py --data babi/en --starts 10 --out 1k.jsonl
    python benchmarks/memory.py --data babi/en --joint --starts 3 model.width=50 train.epochs=60
    python benchmarks/memory.py --data babi/en-10k --tasks 1,6,17 memory.network=transformer train.optimizer=adamw …

The folder has bAbI's files qa1_…_train.txt.gz and qa1_…_test.txt.gz. Words after the options are settings of the recipe
babi. The best start is the one with the lowest training loss over its last epoch (Sukhbaatar et al. 2015), never the
one with the lowest test error. Each finished run is a line of --out; a run that is there already is not trained again.
"""

from __future__ import annotations

import argparse
import glob
import json
import math
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from headway.tasks.recipe import load_recipe
from headway.train.run import start, train

USUAL = ("train.sample_every=1000000", "train.save_every=1000000")
FAILED = 0.05


def names(data: str) -> dict[int, str]:
    """The number of each task that has both files → its name."""
    found = {}
    for path in glob.glob(f"{data}/qa*_train.txt*"):
        match = re.fullmatch(r"qa(\d+)_(.*)_train\.txt(\.gz)?", Path(path).name)
        if match and glob.glob(f"{data}/qa{match[1]}_*_test.txt*"):
            found[int(match[1])] = match[2]
    return dict(sorted(found.items()))


def run(train_on: str, seed: int, settings: list[str]) -> list[dict[str, Any]]:
    """One run: the test error of each of its tasks, and the loss by which starts are chosen."""
    began, losses = time.monotonic(), list[float]()

    def report(kind: str, **facts: Any) -> None:
        if kind == "step":
            losses.append(facts["loss"])

    with tempfile.TemporaryDirectory() as out:
        words = [*USUAL, *settings, f"data.train={train_on}", f"seed={seed}", f"out={out}"]
        finished = train(start("run", load_recipe("babi", words)[1]), report)
        evaluation = json.loads((finished.folder / "run" / "evaluation.json").read_text(encoding="utf-8"))
    last = losses[-math.ceil(finished.loop.plan.steps_per_epoch) :]
    shared = {"seed": seed, "loss": statistics.fmean(last), "seconds": time.monotonic() - began}
    tasks = evaluation["details"]["by_task"]
    return [{"task": int(re.findall(r"\d+", row["kind"])[0]), "error": row["error"], **shared} for row in tasks]


def table(runs: list[dict[str, Any]], tasks: dict[int, str]) -> None:
    """Each task with its runs, and the means over tasks."""
    print("| task | runs | best start | mean of starts | seconds a run |\n|---|---|---|---|---|")
    best, mean = [], []
    for task, name in tasks.items():
        own = [each for each in runs if each["task"] == task]
        if not own:
            continue
        best.append(min(own, key=lambda each: each["loss"])["error"])
        mean.append(statistics.fmean(each["error"] for each in own))
        seconds = statistics.fmean(each["seconds"] for each in own)
        print(f"| {task} {name} | {len(own)} | {best[-1]:.1%} | {mean[-1]:.1%} | {seconds:.0f} |")
    failed = [sum(error > FAILED for error in errors) for errors in (best, mean)]
    print(f"| mean of {len(best)} tasks | | {statistics.fmean(best):.1%} | {statistics.fmean(mean):.1%} | |")
    print(f"| failed (> 5 %) | | {failed[0]} | {failed[1]} | |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder with bAbI's files")
    parser.add_argument("--tasks", default="", help="numbers of tasks, such as 1,6; default: all")
    parser.add_argument("--joint", action="store_true", help="one model for all tasks of the folder")
    parser.add_argument("--starts", type=int, default=1, help="runs of each task, each from other initial weights")
    parser.add_argument("--out", default="", help="keep the results of runs in this file, and go on from there")
    parser.add_argument("settings", nargs="*")
    given = parser.parse_args()
    tasks = names(given.data)
    if given.tasks:
        tasks = {number: tasks[number] for number in map(int, given.tasks.split(","))}
    specs = {f"{given.data}/qa{task}_*": [task] for task in tasks}
    if given.joint:
        specs = {given.data: list(tasks)}
    path, runs = Path(given.out) if given.out else None, list[dict[str, Any]]()
    if path and path.exists():
        runs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    print(f"{given.data}, {' '.join(given.settings)}; torch {torch.__version__}, {where}\n")
    for seed in range(1, given.starts + 1):  # all tasks once, then all again: a table half-way has every task
        for spec, own in specs.items():
            if any(each["seed"] == seed and each["task"] in own for each in runs):
                continue
            found = run(spec, seed, given.settings)
            runs += found
            if path:
                with path.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(each) + "\n" for each in found)
        table(runs, tasks)


if __name__ == "__main__":
    main()
