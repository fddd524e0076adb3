"""Forward pass on a CPU, headway against transformers (sdpa), the same weights in both.

python benchmarks/forward.py [--models gpt2,bert] [--rounds 7] [--batch 8] [--length 128] [--dtypes float32,bfloat16]

Without --dtypes only float32: on a CPU without bfloat16 instructions the other takes minutes a pass.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from common import alternate, clean, emit, machine, ratio

from headway.hub.folder import load_model


def oracle(name: str) -> Any:
    if name == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="sdpa", use_cache=False))
    config = transformers.BertConfig(attn_implementation="sdpa")
    return transformers.BertModel(config, add_pooling_layer=False)


def compare(name: str, dtype: torch.dtype, args: argparse.Namespace) -> None:
    clean()
    torch.manual_seed(0)
    theirs = oracle(name)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load_model(Path(folder), dtype=dtype)
    theirs = theirs.to(dtype).eval()
    ids = torch.randint(0, 30000, (args.batch, args.length))

    def run_theirs() -> torch.Tensor:
        out = theirs(ids)
        return out.logits if name == "gpt2" else out.last_hidden_state

    def run_ours() -> torch.Tensor:
        hidden = ours(ids).hidden
        return ours.lm(hidden) if name == "gpt2" else hidden

    with torch.inference_mode():
        # both run here once before they are timed
        gap = float((run_theirs().float() - run_ours().float()).abs().max())
        times = alternate({"transformers": run_theirs, "headway": run_ours}, args.rounds, warm=0)
    tokens = args.batch * args.length
    emit(
        name=f"{name} forward {args.batch}x{args.length}",
        dtype=str(dtype).removeprefix("torch."),
        ratio=ratio(times, "headway", "transformers"),
        tokens_s={k: round(tokens / statistics.median(t), 1) for k, t in times.items()},
        largest_difference=gap,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt2,bert")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--dtypes", default="float32")
    args = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    emit(**machine(), transformers=transformers.__version__)
    for dtype in args.dtypes.split(","):
        for name in args.models.split(","):
            compare(name, getattr(torch, dtype), args)


if __name__ == "__main__":
    main()
