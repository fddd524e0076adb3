"""Lorenz's equations: for how long a transformer and an LSTM of as many weights follow them, in Lyapunov times.

    python benchmarks/lorenz.py [--steps 2000] [--rates 1e-3,4e-3] [--seeds 1,2,3] [--layers 1,2] [word …]

Both have the starter's data, look-back and budget; words such as dynamics.noise=0.1 go on top of both. The learning
rate of each side, and the number of layers of the LSTM, are those with the best validation of the first seed; its width
follows from the number of weights. Matrices of blocks are trained by Muon, all others, and so the LSTM, by AdamW. Then
every seed is trained, and scored on trajectories that decided nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.baselines.build import make_model
from headway.config.recipe import ShapeConfig
from headway.config.shape import series_config
from headway.tasks.recipe import load_recipe
from headway.train.run import start, train

METRIC = "prediction_horizon"


@dataclass(frozen=True)
class Result:
    weights: int
    valid: float
    test: float
    seconds: float


def run(words: Sequence[str], seed: int) -> Result:
    """One training run: its weights, and its prediction horizon on validation and test trajectories."""
    log: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        recipe = load_recipe("dynamics", [*words, f"seed={seed}", f"out={folder}"])[1]
        done = train(start("lorenz", recipe), lambda kind, **facts: log.append({"event": kind, **facts}))
        weights = done.model.parameter_count()
    last = {kind: [event for event in log if event["event"] == kind][-1] for kind in ("eval", "test", "end")}
    return Result(weights, last["eval"][METRIC], last["test"][METRIC], last["end"]["seconds"])


def lstm_width(weights: int, layers: int, look_back: int) -> int:
    """The width with which an LSTM has as many weights."""

    def count(width: int) -> int:
        shape = ShapeConfig(kind="lstm", depth=layers, width=width)
        sizes = {"look_back": look_back, "horizon": 1, "patch": 1, "stride": 1, "channels": 3}
        return make_model(series_config(shape, causal=True, **sizes)).parameter_count()

    return min(range(8, 513), key=lambda width: abs(count(width) - weights))


def best(name: str, sides: Sequence[tuple[str, ...]], seed: int) -> tuple[tuple[str, ...], Result]:
    """The words with the best validation."""
    found = []
    for words in sides:
        result = run(words, seed)
        found.append((result.valid, words, result))
        print(f"{name:12} {' '.join(words):60} {result.weights:9,}  valid {result.valid:.2f}  {result.seconds:.0f} s")
    return max(found, key=lambda each: each[0])[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rates", default="1e-3,4e-3")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--layers", default="1,2")
    args = parser.parse_args()
    seeds, rates = [int(each) for each in args.seeds.split(",")], args.rates.split(",")
    every = max(1, args.steps // 2)
    common = (*args.words, f"train.steps={args.steps}", f"train.eval_every={every}", f"train.sample_every={args.steps}")
    ours, first = best("transformer", [(*common, f"train.lr={rate}") for rate in rates], seeds[0])
    look_back = load_recipe("dynamics", list(common))[1].settings.look_back
    shapes = [(layers, lstm_width(first.weights, layers, look_back)) for layers in map(int, args.layers.split(","))]
    sides = [
        (*common, "model.kind=lstm", f"model.depth={layers}", f"model.width={width}", f"train.lr={rate}")
        for layers, width in shapes
        for rate in rates
    ]
    theirs, second = best("lstm", sides, seeds[0])
    for name, words, known in (("transformer", ours, first), ("lstm", theirs, second)):
        scores = [known.test, *(run(words, seed).test for seed in seeds[1:])]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        shown = " ".join(f"{score:.2f}" for score in scores)
        mean = f"{statistics.mean(scores):.2f} ± {spread:.2f} Lyapunov times"
        print(f"{name:12} {known.weights:9,} weights  {mean}  ({shown})")


if __name__ == "__main__":
    main()
