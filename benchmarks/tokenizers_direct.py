"""Training and using a tokenizer through headway, against the library it calls.

python benchmarks/tokenizers_direct.py FILE [--vocab 8192] [--rounds 3]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import tokenizers
from common import alternate, emit, machine, ratio
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from headway.data.batching.windows import tokenize
from headway.data.tokenizers.train import train_tokenizer

CHUNK = 1 << 16


def direct(lines: list[str], vocab: int) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, initial_alphabet=alphabet)
    backend.train_from_iterator(lines, trainer)
    return backend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    text = args.file.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    size = len(text.encode()) / 1e6
    emit(**machine(), tokenizers=tokenizers.__version__, megabytes=size)
    ours, theirs = train_tokenizer("bpe", lines, args.vocab), direct(lines, args.vocab)
    chunks = [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
    work = {
        "train": {
            "tokenizers": lambda: direct(lines, args.vocab),
            "headway": lambda: train_tokenizer("bpe", lines, args.vocab),
        },
        "encode": {
            "tokenizers": lambda: [e.ids for e in theirs.encode_batch_fast(chunks, add_special_tokens=False)],
            "headway": lambda: ours.ids(chunks),
        },
        "corpus": {
            "tokenizers": lambda: np.concatenate(
                [np.asarray(e.ids) for e in theirs.encode_batch_fast(chunks, add_special_tokens=False)]
            ),
            "headway": lambda: tokenize(ours, text),
        },
    }
    for task, variants in work.items():
        times = alternate(variants, args.rounds)
        for name, seconds in times.items():
            rate = size / sorted(seconds)[len(seconds) // 2]
            emit(task=task, variant=name, megabytes_s=rate, ratio=ratio(times, name, "tokenizers"))


if __name__ == "__main__":
    main()
