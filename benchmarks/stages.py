"""What other reviews are worth to SST-2: an encoder learns first from the sentences of reviews, then from the data.

    python benchmarks/stages.py --model ./minilm --reviews imdb.jsonl.gz --data ./data [--seeds 1,2,3] [train.lr=5e-5]

Reviews are rows with a text and its label, the labels of SST-2. Each sentence of one is given the review's label, which
is wrong for many of them; after two epochs of that the recipe sst2 goes on, from the files sst2.train.tsv, sst2.dev.tsv
and sst2.test.tsv of `--data`, with half its learning rate unless words such as train.lr=1e-4 say otherwise.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from common import emit, machine
from pretraining import PARTS, fine_tune, finished

import headway
from headway.config.recipe import DataConfig
from headway.data.datasets.labeled import read_labeled
from headway.data.datasets.next_sentence import sentences
from headway.data.files.rows import BadRows
from headway.runs.compare import confidence_interval, final_metrics

FIRST = (
    *("data.length=64", "classify.pool=mean", "classify.dropout=0.1", "train.epochs=2", "train.batch=32"),
    *("train.lr=1e-4", "train.schedule=linear", "train.warmup=80", "train.final_lr=0", "train.weight_decay=0.01"),
)
SHORTEST, LONGEST = 5, 50
"""Words of a sentence that is used."""


def write_sentences(reviews: str, path: Path) -> int:
    """The sentences of reviews, each with the label of the whole; HTML's line breaks are spaces."""
    found = read_labeled(reviews, DataConfig(), BadRows())
    lines = [
        json.dumps({"text": sentence, "label": str(row.label)})
        for row in found
        for sentence in sentences(row.text.replace("<br />", " "))
        if SHORTEST <= len(sentence.split()) <= LONGEST
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", default=[], metavar="KEY=VALUE", help="on top of the recipe sst2")
    parser.add_argument("--model", required=True, help="the folder of an encoder")
    parser.add_argument("--reviews", required=True, help="a file, or a glob in quotes")
    parser.add_argument("--data", required=True, help="the folder of SST-2")
    parser.add_argument("--seeds", default="1,2,3")
    args = parser.parse_intermixed_args()
    emit(**machine())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sentences.jsonl"
        count = write_sentences(args.reviews, path)
        words = (f"data.train={path}", f"model.from={args.model}", f"out={folder}/first")
        first = headway.train("classify", *FIRST, *words, quiet=True).folder
        told = finished(first)
        emit(stage="sentences", sentences=count, seconds=told.facts.train_seconds, **final_metrics(told))
        rest = [f"data.{part}={Path(args.data) / name}" for part, name in PARTS.items()]
        rest += ["train.lr=5e-5", *args.settings]
        found = []
        for seed in (int(text) for text in args.seeds.split(",")):
            result = fine_tune(str(first), seed, rest, folder)
            found.append(result["accuracy"])
            emit(stage="sst2", seed=seed, **result)
    emit(
        stage="sst2",
        seeds=len(found),
        accuracy=confidence_interval(found)["mean"],
        accuracy_sd=confidence_interval(found)["sd"],
    )


if __name__ == "__main__":
    main()
