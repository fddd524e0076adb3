"""Fine-tuning with the settings that headway chooses beside the hand-tuned recipes: five data sets, three sizes, seeds.

    python benchmarks/defaults.py --model ./minilm --data ./data [--sets sst2,trec] [--rows 400,3000,0] [--seeds 1,2,3]
        [--jobs 6] [--with "name: train.lr=2e-4 train.epochs=6"]…

`--data` is a folder with the files of `FILES`. The sides are the recipe with only data and model on top, and
`headway train TASK` with only data and model (`defaults`); `--with` adds sides: the recipe with more words on
top, or the defaults if the name starts with "defaults".
With a number of rows, the first ones of the shuffled training file are learned from, and a tenth of them is held out;
0 is all rows, with the set's own validation data. Scores are on the set's test data. Runs go side by side, `--jobs` at
a time: scores only, no times.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import multiprocessing
import os
import random
import re
import statistics
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

FILES = {
    "sst2": ("sst2.train.tsv", "sst2.dev.tsv", "sst2.test.tsv"),
    "trec": ("trec.train.tsv", "", "trec.test.tsv"),
    "pairs": ("squad.train.json.gz", "squad.dev.json.gz", "xquad.en.json.gz"),
    "conll": ("eng.train.gz", "eng.testa.gz", "eng.testb.gz"),
    "squad": ("squad.train.json.gz", "squad.dev.json.gz", "xquad.en.json.gz"),
}
"""Training, validation and test data of each set."""
TASKS = {"sst2": "classify", "trec": "classify", "pairs": "classify", "conll": "tag", "squad": "answer"}
RECIPES = {"pairs": ("sst2", "data.length=128")}
"""Where the hand-tuned recipe has another name than the set: a recipe, and words for it."""
COLUMNS = {"trec": ("data.text=column3", "data.label=column1")}
METRICS = {"classify": "accuracy", "tag": "f1", "answer": "f1"}


def read(path: Path) -> str:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return file.read()
    return path.read_text(encoding="utf-8")


def sentence_pairs(text: str) -> list[str]:
    """A question and a sentence of its paragraph: does it hold the answer? One true and one false pair a question."""
    draw, lines = random.Random(0), []
    for paragraph in (p for article in json.loads(text)["data"] for p in article["paragraphs"]):
        context = paragraph["context"]
        ends = [0, *(m.end() for m in re.finditer(r"[.!?]\s+(?=[A-Z])", context)), len(context)]
        spans = list(itertools.pairwise(ends))
        for asked in paragraph["qas"]:
            if not asked["answers"]:
                continue
            at = asked["answers"][0]["answer_start"]
            true = next(span for span in spans if span[0] <= at < span[1])
            others = [span for span in spans if span != true]
            for label, span in (("yes", true), ("no", draw.choice(others) if others else None)):
                if span:
                    row = {"question": asked["question"], "sentence": context[slice(*span)].strip(), "label": label}
                    lines.append(json.dumps(row))
    return lines


def examples(name: str, text: str) -> list[Any]:
    """The examples of a training file, as they can be shuffled and written again."""
    if name == "pairs":
        return sentence_pairs(text)
    if name == "conll":
        return [part for part in text.split("\n\n") if part.strip() and "-DOCSTART-" not in part]
    if name == "squad":
        data = json.loads(text)["data"]
        paragraphs = [(article["title"], p) for article in data for p in article["paragraphs"]]
        return [(title, p["context"], asked) for title, p in paragraphs for asked in p["qas"]]
    return text.splitlines()


def write(name: str, rows: list[Any], path: Path) -> str:
    if name == "squad":
        data = [{"title": t, "paragraphs": [{"context": context, "qas": [asked]}]} for t, context, asked in rows]
        path.write_text(json.dumps({"version": "2.0", "data": data}), encoding="utf-8")
    else:
        path.write_text(("\n\n" if name == "conll" else "\n").join(rows) + "\n", encoding="utf-8")
    return str(path)


def data_words(name: str, rows: int, source: Path, folder: Path) -> list[str]:
    """Where the data of a set are; the first `rows` of the shuffled training data, or all."""
    train, valid, test = FILES[name]
    suffix = {"pairs": ".jsonl", "conll": ".conll", "squad": ".json"}.get(name, ".tsv")
    words = list(COLUMNS.get(name, ()))
    if rows:
        found = examples(name, read(source / train))
        random.Random(0).shuffle(found)
        words.append("data.train=" + write(name, found[:rows], folder / f"{name}.{rows}{suffix}"))
        parts = {"test": test}
    else:
        parts = {"train": train, "test": test} | ({"valid": valid} if valid else {})
    for part, file in parts.items():
        path = str(source / file)
        if name == "pairs":
            path = write(name, sentence_pairs(read(source / file)), folder / f"{name}.{part}{suffix}")
        words.append(f"data.{part}={path}")
    return words


def sides(name: str, given: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """The name of a side, its recipe, and its words."""
    recipe, *words = RECIPES.get(name, (name,))
    yield "recipe", recipe, words
    yield "defaults", TASKS[name], []
    for side, _, text in (each.partition(":") for each in given):
        chosen = side.startswith("defaults")
        yield side, TASKS[name] if chosen else recipe, [*(() if chosen else words), *text.split()]


def score(job: tuple[str, str, list[str], str]) -> tuple[float, int]:
    """The test score of a run, in points, and its steps."""
    recipe, out, words, metric = job
    import headway
    from headway.runs.compare import final_metrics
    from headway.runs.history import read_run

    run = read_run(Path(os.fspath(headway.train(recipe, *words, f"out={out}", "train.save_every=100000"))))
    return 100 * final_metrics(run)[metric], run.facts.steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--sets", default=",".join(FILES))
    parser.add_argument("--rows", default="400,3000,0")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="sides, by name")
    parser.add_argument("--with", dest="more", action="append", default=[], metavar="NAME: KEY=VALUE …")
    args = parser.parse_args()
    seeds, only = args.seeds.split(","), args.only.split(",") if args.only else []
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as made, ProcessPoolExecutor(args.jobs, mp_context=spawn) as pool:
        waiting, found = {}, {}
        for rows in map(int, args.rows.split(",")):
            for name in args.sets.split(","):
                data = data_words(name, rows, args.data.resolve(), Path(made))
                for side, recipe, words in sides(name, args.more):
                    for seed in seeds if not only or side in only else ():
                        all_words = [*data, *words, f"model.from={args.model}", f"seed={seed}"]
                        job = (recipe, f"{made}/{name}-{rows}-{side}-{seed}", all_words, METRICS[TASKS[name]])
                        waiting[pool.submit(score, job)] = (name, rows, side)
        for done in as_completed(waiting):
            try:
                points, steps = done.result()
            except Exception as error:
                print(json.dumps({"run": waiting[done], "error": str(error)}), flush=True)
                continue
            found.setdefault(waiting[done], []).append(points)
            print(json.dumps({"run": waiting[done], "points": round(points, 2), "steps": steps}), flush=True)
    print(f"{'set':6} {'rows':>5}  {'side':24} mean ± sd over seeds")
    for (name, rows, side), points in sorted(found.items()):
        spread = statistics.stdev(points) if len(points) > 1 else 0.0
        print(f"{name:6} {rows or 'all':>5}  {side:24} {statistics.fmean(points):.2f} ± {spread:.2f}  ({len(points)})")


if __name__ == "__main__":
    main()
