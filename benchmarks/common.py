"""Fair timing: all variants in one process, in turn, so that whatever else the machine does falls on all alike."""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

Times = dict[str, list[float]]


def alternate(
    variants: Mapping[str, Callable[[], Any]],
    rounds: int,
    warm: int = 1,
    repeats: int = 1,
    clock: Callable[[], float] | None = None,
) -> Times:
    """Seconds per call: each round runs every variant `repeats` times, after `warm` untimed calls of each.

    The clock is the wall's unless another one is given.
    """
    now = clock or _now
    for run in variants.values():
        for _ in range(warm):
            run()
    times: Times = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            start = now()
            for _ in range(repeats):
                run()
            times[name].append((now() - start) / repeats)
    return times


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def ratio(times: Times, name: str, base: str) -> float:
    """How many times as fast as `base`: the median over rounds of the ratio within a round."""
    return statistics.median(b / t for b, t in zip(times[base], times[name], strict=True))


def emit(**facts: Any) -> None:
    """One JSON line a figure, with numbers as short as they are certain."""
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in facts.items()}), flush=True)


def machine() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "gpu": gpu,
    }


def clean() -> None:
    """Forget compiled code and freed memory between models."""
    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
