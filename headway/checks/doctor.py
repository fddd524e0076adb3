"""A description of this machine, for `headway doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from headway.errors import counted

OPTIONAL = {
    "fastapi": "headway[serve]",
    "pillow": "headway[vision]",
    "soundfile": "headway[audio]",
    "sacrebleu": "headway[eval]",
    "gguf": "headway[gguf]",
    "llguidance": "headway[grammar]",
    "numba": "headway[cpu]",
}
"""Optional packages, and the extra that installs each."""


@dataclass(frozen=True)
class Machine:
    """The machine, measured now."""

    python: str
    torch: str
    cores: int
    threads: int
    memory_gb: float
    disk_free_gb: float
    cpu_gflops: float
    gpus: tuple[str, ...]
    compiler: bool
    offline: bool
    cache: str
    missing: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        yield f"python {self.python}, torch {self.torch}"
        cores = f"{counted(self.cores, 'cores')} ({counted(self.threads, 'threads')})"
        yield f"{cores}, {self.cpu_gflops:,.0f} GFLOP/s (float32 matrix products)"
        yield f"{self.memory_gb:.1f} GB memory, {self.disk_free_gb:.1f} GB free on this disk"
        yield "; ".join(self.gpus) if self.gpus else "no GPU: everything works, but large models are slow"
        yield "torch.compile: " + ("yes" if self.compiler else "not available, install g++ or clang")
        yield f"model cache {self.cache}" + (" (offline mode is on)" if self.offline else "")
        for name in self.missing:
            yield f"optional: {name} is not installed — pip install '{OPTIONAL[name]}'"


def examine() -> Machine:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    return Machine(
        python=platform.python_version(),
        torch=torch.__version__,
        cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        memory_gb=pages / 1e9,
        disk_free_gb=shutil.disk_usage(".").free / 1e9,
        cpu_gflops=_matrix_rate(),
        gpus=tuple(_gpus()),
        compiler=bool(shutil.which("g++") or shutil.which("clang++")),
        offline=os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "TRUE", "YES", "ON"},
        cache=os.environ.get("HF_HUB_CACHE", str(home / "hub")),
        missing=tuple(name for name in OPTIONAL if not _installed(name)),
    )


def _installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def _gpus() -> Iterator[str]:
    for i in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(i)
        yield f"cuda:{i} {facts.name}, {facts.total_memory / 1e9:.0f} GB"
    if torch.backends.mps.is_available():
        yield "mps (Apple GPU)"


def _matrix_rate(size: int = 1024, seconds: float = 0.3) -> float:
    """The best speed of a square float32 matrix product, in GFLOP/s."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        torch.mm(a, b)
        best = max(best, 2 * size**3 / (time.perf_counter() - start) / 1e9)
    return best
