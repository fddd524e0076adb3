"""All attention maps of a model beside its plain forward pass, and what the X-ray of a short text takes.

python benchmarks/inspection.py [--tokens 256] [--rounds 7] [--threads 2]

Random weights of GPT-2's shape (124M): times do not depend on what the weights are.
"""

from __future__ import annotations

import argparse

import torch
from common import alternate, clean, emit, machine, ratio

from headway.api import Bundle
from headway.config.presets import preset
from headway.data.tokenizers.train import train_tokenizer
from headway.inspect.changes import Scale
from headway.inspect.session import Session
from headway.model.model import Transformer

SHORT = 32
"""Tokens of the text whose X-ray is timed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    emit(**machine())
    clean()
    torch.manual_seed(0)
    model = Transformer(preset("gpt2")).eval()
    session = Session(Bundle("gpt2", model, train_tokenizer("bytes", ["abc"]), None))
    text, short = "x" * args.tokens, "x" * SHORT
    ids = session.read(text).args[0]

    def plain() -> torch.Tensor:
        with torch.inference_mode():
            return model(ids).hidden

    times = alternate({"forward": plain, "maps": lambda: session.run(text).attention()}, args.rounds)
    emit(name=f"gpt2 all maps, {args.tokens} tokens", times_of_a_forward_pass=1 / ratio(times, "maps", "forward"))
    change = Scale(layer=5, head=3, factor=0.5)

    def xray() -> None:
        seen = session.run(short, changes=[change])
        seen.predictions(5)
        seen.lens(3, SHORT - 1)
        seen.head_stats()

    found = alternate({"xray": xray}, args.rounds)
    emit(name=f"gpt2 a changed head, {SHORT} tokens", seconds=sorted(found["xray"])[args.rounds // 2])


if __name__ == "__main__":
    main()
