"""Decoding on a GPU, headway beside transformers in one process: greedy, bfloat16, random weights, prompt 128.

    python benchmarks/decode_gpu.py [--only llama1,llama64,gpt2,engine] [--tokens 256]

The transformers variants of Llama run with a static cache and the compilation that it brings. `engine` is headway's
continuous batching with 64 texts at a time of mixed length, beside its own bare decoding of 64 texts.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from common import alternate, emit, machine, ratio

from headway.config.presets import gpt2, llama
from headway.data.batching.windows import embedded_text
from headway.data.tokenizers.train import train_tokenizer
from headway.generate.decode import decode
from headway.generate.engine.engine import Engine, Request
from headway.generate.sampling.sampler import Sampling
from headway.model.model import Transformer

PROMPT = 128
GREEDY = {"temperature": 0.0, "stop": ()}


def llama_1b() -> Transformer:
    """The shape of Llama 3.2 1B."""
    with torch.device("cuda"):
        return Transformer(llama(16, 2048, 32, 8, 8192, 128256, tied=True)).to(torch.bfloat16).eval()


def theirs(config: Any) -> Any:
    with torch.device("cuda"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def their_llama() -> Any:
    return theirs(
        transformers.LlamaConfig(
            hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
            intermediate_size=8192, vocab_size=128256, tie_word_embeddings=True, max_position_embeddings=8192,
            eos_token_id=None, bos_token_id=None, pad_token_id=0,
        )
    )  # fmt: skip


def ours(model: Transformer, rows: int, tokens: int) -> Callable[[], None]:
    prompts = torch.randint(0, 1000, (rows, PROMPT)).tolist()

    def run() -> None:
        for _ in decode(model, prompts, Sampling(max_tokens=tokens, **GREEDY)):
            pass

    return run


def their_generate(model: Any, rows: int, tokens: int, **how: Any) -> Callable[[], None]:
    ids = torch.randint(0, 1000, (rows, PROMPT), device="cuda")

    @torch.no_grad()
    def run() -> None:
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            **how,
        )

    return run


def side_by_side(name: str, mine: Callable[[], None], other: Callable[[], None], written: int) -> None:
    times = alternate({"transformers": other, "headway": mine}, rounds=3, warm=2)
    for variant, seconds in times.items():
        emit(
            task=name,
            variant=variant,
            tokens_per_second=written / sorted(seconds)[1],
            ratio=ratio(times, variant, "transformers"),
        )


def requests(texts: int) -> list[tuple[tuple[int, ...], int]]:
    """Prompts of 16 to 240 tokens, answers of 64 to 448."""
    dice = random.Random(0)
    sizes = [(dice.randrange(16, 241), dice.randrange(64, 449)) for _ in range(texts)]
    return [(tuple(dice.randrange(1000) for _ in range(prompt)), tokens) for prompt, tokens in sizes]


def engine(model: Transformer, texts: int) -> None:
    """All requests are there from the start, 64 are answered at a time; also the rate while there were 64 to answer."""
    tokenizer = train_tokenizer("bpe", [embedded_text()], 8192)
    engine = Engine(model, tokenizer, slots=64, capacity=768, queue=texts)
    for _ in range(2):
        for prompt, tokens in requests(texts):
            how = Sampling(max_tokens=tokens, **GREEDY)
            engine.submit(Request(prompt, how, likely=False), on_event=lambda event: None)
        before, start = engine.stats().generated_tokens, time.perf_counter()
        full, busy = 0, start
        while engine.step():
            if engine.waiting:
                full, busy = engine.stats().generated_tokens - before, time.perf_counter()
        written, seconds = engine.stats().generated_tokens - before, time.perf_counter() - start
    emit(
        task="engine",
        variant="headway",
        requests=texts,
        tokens_per_second=written / seconds,
        while_full=full / (busy - start),
        tokens=written,
    )


def their_engine(model: Any, texts: int) -> None:
    """transformers' continuous batching, the same requests."""
    settings = transformers.GenerationConfig(max_new_tokens=256, do_sample=False, eos_token_id=-1, pad_token_id=0)
    inputs = [list(prompt) for prompt, _ in requests(texts)]
    for _ in range(2):
        start = time.perf_counter()
        found = model.generate_batch(inputs=inputs, generation_config=settings)
        seconds = time.perf_counter() - start
    written = sum(len(one.generated_tokens) for one in found.values())
    emit(task="engine", variant="transformers", requests=texts, tokens_per_second=written / seconds, tokens=written)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="llama1,llama64,gpt2,engine,theirs")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--requests", type=int, default=512)
    args = parser.parse_args()
    only = args.only.split(",")
    emit(**machine(), transformers=transformers.__version__)
    transformers.logging.set_verbosity_error()
    if {"llama1", "llama64", "engine"} & {*only}:
        model = llama_1b()
        for rows in (1, 64):
            if f"llama{rows}" in only:
                other = their_generate(their_llama(), rows, args.tokens, cache_implementation="static")
                side_by_side(f"llama-1b x{rows}", ours(model, rows, args.tokens), other, rows * args.tokens)
        if "engine" in only:
            bare = ours(model, 64, args.tokens)
            times = alternate({"bare": bare}, rounds=3, warm=1)["bare"]
            emit(task="bare decode x64", tokens_per_second=64 * args.tokens / sorted(times)[1])
            engine(model, args.requests)
        del model
    if "theirs" in only:
        their_engine(their_llama(), args.requests)
    if "gpt2" in only:
        with torch.device("cuda"):
            small = Transformer(gpt2()).to(torch.bfloat16).eval()
        other = their_generate(
            theirs(transformers.GPT2Config(eos_token_id=None, bos_token_id=None, pad_token_id=0)), 1, args.tokens
        )
        side_by_side("gpt2-124m x1", ours(small, 1, args.tokens), other, args.tokens)


if __name__ == "__main__":
    main()
