"""What became of runs, a line each: PYTHONPATH=. python benchmarks/gpu/told.py FOLDER … (any folder above runs)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from headway.runs.compare import final_metrics
from headway.runs.history import read_run


def told(folder: Path) -> dict[str, Any]:
    run = read_run(folder)
    facts = run.facts
    found: dict[str, Any] = {"run": str(folder), "status": run.status, "tested": bool(run.last_event("test"))}
    found |= {name: run.setting(f"model.{name}") for name in ("kind", "attention")} | final_metrics(run)
    found |= {"steps": facts.steps, "train_s": facts.train_seconds, "wall_s": facts.wall_seconds}
    found |= {"tokens_s": facts.tokens_per_second, "parameters": facts.parameters}
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}


for top in sys.argv[1:]:
    for log in sorted(Path(top).glob("**/run/log.jsonl")):
        print(json.dumps(told(log.parent.parent)), flush=True)
