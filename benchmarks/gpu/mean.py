"""Mean and spread over the seeds in what benchmarks/finetune.py printed: python benchmarks/gpu/mean.py FILE …

Times count in files named alone.* only: the others shared the GPU.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

Seeds = dict[int, dict[str, Any]]


def lines(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    return [line for line in found if "seed" in line and "side" in line]


def summary(runs: Seeds, alone: Seeds) -> dict[str, Any]:
    found: dict[str, Any] = {"seeds": sorted(runs)}
    for figure in ("accuracy", "em", "f1"):
        values = [100 * run[figure] for run in runs.values() if figure in run]
        if values:
            spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            found[figure] = f"{statistics.fmean(values):.2f}{spread}"
    for name in ("seconds", "steps_s") if alone else ():
        found[f"{name}_alone"] = round(statistics.fmean(run[name] for run in alone.values()), 2)
    return found


def main() -> None:
    runs: dict[tuple[str, str], Seeds] = defaultdict(dict)
    alone: dict[tuple[str, str], Seeds] = defaultdict(dict)
    for path in map(Path, sys.argv[1:]):
        for line in lines(path):
            key = line["task"], line["side"]
            runs[key][line["seed"]] = line
            if path.name.startswith("alone."):
                alone[key][line["seed"]] = line
    for key, found in sorted(runs.items()):
        print(json.dumps({"task": key[0], "side": key[1], **summary(found, alone[key])}, ensure_ascii=False))
    for task in sorted({task for task, _ in alone}):
        ours, theirs = alone[task, "headway"], alone[task, "transformers"]
        ratios = [theirs[seed]["seconds"] / ours[seed]["seconds"] for seed in ours if seed in theirs]
        if ratios:
            print(
                json.dumps({"task": task, "times_as_fast": round(statistics.median(ratios), 3), "seeds": len(ratios)})
            )


if __name__ == "__main__":
    main()
