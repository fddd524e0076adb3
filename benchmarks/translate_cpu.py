"""Translation on a CPU with beam search: headway in float32 and int8, transformers, CTranslate2; same weights.

python benchmarks/translate_cpu.py [--rounds 5] [--threads 2] [--sentences 32] [--length 25] [--beam 4] [--vocab 32000]

The model is of transformer-base's shape (6 + 6 layers, 512 wide) in Marian's layout, with random weights: every variant
writes `--length` tokens for each sentence, all sentences in one batch. Every round runs every variant once, in turn;
ratios are medians over rounds of the ratio within a round. CTranslate2 takes part where it is installed
(pip install ctranslate2; no dependency of headway's), in a process of its own: in the same one, torch is slower beside
it, whoever uses it. It is also said how many sentences come out the same.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import os
import statistics
import tempfile
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from common import alternate, clean, emit, machine, ratio
from marian import THEIRS, Rows, Write, marian, ours, same_model, theirs

from headway.model.quantize import quantize_


def ctranslate2(model: Any, source: torch.Tensor, args: argparse.Namespace, kind: str, folder: Path) -> Write:
    """Converted by its own reader of Marian's weights, which leaves the padding out; tokens are spelled as numbers."""
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    model.save_pretrained(folder / "for ctranslate2")
    rows = [[str(i) for i in row] for row in source.tolist()]
    context.Process(target=_serve, args=(its, folder, kind, rows, vars(args)), daemon=True).start()

    def write() -> Rows:
        ours.send("go on")
        found: Rows = ours.recv()
        return found

    return write


def asked(pipe: Connection) -> bool:
    try:
        return bool(pipe.recv())
    except EOFError:
        return False


def _serve(pipe: Connection, folder: Path, kind: str, rows: list[list[str]], args: dict[str, int]) -> None:
    """Translate whenever asked to."""
    import ctranslate2 as ct

    made = folder / kind
    _convert(THEIRS.MarianMTModel.from_pretrained(folder / "for ctranslate2"), made, kind)
    translator = ct.Translator(str(made), compute_type=kind, intra_threads=args["threads"], inter_threads=1)
    length = args["length"]
    while asked(pipe):
        found = translator.translate_batch(
            rows, beam_size=args["beam"], min_decoding_length=length, max_decoding_length=length, length_penalty=1.0,
            max_batch_size=0,
        )  # fmt: skip
        pipe.send([[int(token) for token in each.hypotheses[0]] for each in found])


def _convert(model: Any, folder: Path, kind: str) -> None:
    from ctranslate2.converters.transformers import MarianMTLoader

    loader = MarianMTLoader()
    spec = loader.get_model_spec(model)
    tokens = ["</s>", *(str(i) for i in range(1, model.config.vocab_size - 1))]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.decoder_start_token, spec.config.add_source_eos = "</s>", False  # it starts from zeros in any case
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "1", "</s>", "1"
    spec.validate()
    spec.optimize(quantization=kind)
    folder.mkdir()
    spec.save(str(folder))


def variants(args: argparse.Namespace, folder: Path) -> dict[str, Write]:
    oracle = marian(args.vocab)
    model = same_model(oracle, folder)
    source = torch.randint(
        10, args.vocab - 1, (args.sentences, args.length), generator=torch.Generator().manual_seed(1)
    )
    size = (args.length, args.beam)
    found = {"transformers": theirs(oracle, source, *size), "headway float32": ours(model, source, *size)}
    found["headway int8"] = ours(quantize_(copy.deepcopy(model)), source, *size)
    if find_spec("ctranslate2") is not None:
        for kind in ("float32", "int8"):
            found[f"ctranslate2 {kind}"] = ctranslate2(oracle, source, args, kind, folder)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (
        ("rounds", 5),
        ("threads", 2),
        ("sentences", 32),
        ("length", 25),
        ("beam", 4),
        ("vocab", 32000),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    THEIRS.utils.logging.set_verbosity_error()
    THEIRS.utils.logging.disable_progress_bar()
    emit(name="machine", **machine())
    clean()
    with tempfile.TemporaryDirectory() as folder:
        found = variants(args, Path(folder))
        texts = {name: write() for name, write in found.items()}  # each has run once before it is timed
        times = alternate(found, args.rounds, warm=0)
    what = f"translation, {args.sentences} sentences of {args.length} tokens, beam {args.beam}"
    for variant in times:
        emit(
            name=what,
            variant=variant,
            seconds=statistics.median(times[variant]),
            to_transformers=ratio(times, variant, "transformers"),
            **{f"to_{peer}": ratio(times, variant, peer) for peer in times if peer.startswith("ctranslate2")},
            same=sum(a == b for a, b in zip(texts[variant], texts["transformers"], strict=True)),
        )


if __name__ == "__main__":
    main()
