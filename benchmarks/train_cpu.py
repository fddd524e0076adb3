"""Training step on a CPU (6 layers of 384, 12 × 256 characters, float32), headway's loop against transformers.

python benchmarks/train_cpu.py [--rounds 5] [--repeats 2]

headway's side is its whole loop: reading the batch, clipping, looking for numbers that are not finite, the log's facts.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable

from headway.model.model import Transformer

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from common import alternate, emit, machine, ratio

from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.config.shape import decoder_config
from headway.data.batching.token_store import TokenStore
from headway.data.tokenizers.train import train_tokenizer
from headway.tasks.lm.training import LanguageModelTraining
from headway.tasks.recipe import Recipe
from headway.train.distributed import World
from headway.train.loop import Loop
from headway.train.optim.optimizer import make_optimizer

TOKENIZER = train_tokenizer("bytes", [])

LAYERS, HEADS, WIDTH, LENGTH, BATCH, VOCAB = 6, 6, 384, 256, 12, 65


def theirs(compiled: bool) -> Callable[[], None]:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=LAYERS,
        n_head=HEADS,
        n_embd=WIDTH,
        n_positions=LENGTH,
        vocab_size=VOCAB,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config).train()
    call = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randint(0, VOCAB, (2, BATCH, LENGTH))

    def step() -> None:
        scores = call(x, use_cache=False).logits
        F.cross_entropy(scores.view(-1, VOCAB), y.view(-1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def ours(compiled: bool) -> Callable[[], object]:
    torch.manual_seed(0)
    model = Transformer(decoder_config(ShapeConfig(depth=LAYERS, width=WIDTH, heads=HEADS), VOCAB, LENGTH)).train()
    ids = np.random.default_rng(0).integers(0, VOCAB, 1_000_000).astype(np.uint16)
    store = TokenStore(ids, np.array([0, len(ids)]), len(ids), None)
    config = TrainConfig(steps=1_000_000, lr=1e-3, compile=compiled)
    task = LanguageModelTraining(Recipe(seed=1, data=DataConfig(length=LENGTH)), TOKENIZER, store, store)
    world = World(0, 1, torch.device("cpu"))
    loop = Loop(model, task, make_optimizer(model, config, WIDTH), config, task.plan(BATCH), world, workers=1)
    return loop.step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    emit(**machine(), transformers=transformers.__version__)
    variants = {
        "transformers eager": theirs(False),
        "transformers compiled": theirs(True),
        "headway": ours(False),
        "headway compiled": ours(True),
    }
    times = alternate(variants, args.rounds, warm=1, repeats=args.repeats)
    for name, seconds in times.items():
        rate = BATCH * LENGTH / statistics.median(seconds)
        emit(variant=name, tokens_s=rate, ratio=ratio(times, name, "transformers eager"))


if __name__ == "__main__":
    main()
