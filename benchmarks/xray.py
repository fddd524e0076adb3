"""How long X-ray needs to answer a change of a model: GPT-2's shape (124M), 32 tokens, two threads.

python benchmarks/xray.py [--tokens 32] [--rounds 9] [--threads 2]

Layers below the change are not computed again, so a head of the first layer costs most. Random weights: times do not
depend on what the weights are.
"""

from __future__ import annotations

import argparse

import torch
from common import alternate, clean, emit, machine

from headway.api import Bundle
from headway.config.presets import preset
from headway.data.tokenizers.train import train_tokenizer
from headway.inspect.changes import Scale
from headway.inspect.session import Session
from headway.model.model import Transformer
from headway.studio.xray.values import before_and_after, head_values, pass_values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    emit(**machine())
    clean()
    torch.manual_seed(0)
    model = Transformer(preset("gpt2")).eval()
    session = Session(Bundle("gpt2", model, train_tokenizer("bytes", ["abc"]), None))
    text = "x" * args.tokens
    seen = session.run(text)

    def change(layer: int) -> None:
        before_and_after(session, seen, [Scale(layer=layer, head=3, factor=0.5)], args.tokens - 1)

    work = {
        "pass": lambda: pass_values(session.run(text)),
        "all heads": lambda: head_values(seen, "decoder"),
        **{f"change in layer {layer + 1}": lambda layer=layer: change(layer) for layer in (0, 5, 11)},
    }
    for name, times in alternate(work, args.rounds).items():
        emit(name=f"gpt2 {name}, {args.tokens} tokens", seconds=sorted(times)[len(times) // 2], fastest=min(times))


if __name__ == "__main__":
    main()
