"""Transcription in Whisper-tiny's shape with random weights: headway against transformers, and faster-whisper on a CPU.

    python benchmarks/transcribe.py [--windows 64] [--tokens 100] [--rounds 3] [--batches 8,64] [--dtype auto]

Every window has 30 seconds of noise, and every side writes the same number of tokens for it, without timestamps: the
token that ends a text is suppressed. Spectrograms are made before; the encoder, the decoder and the choice of tokens
are measured, alternating. Each side is measured with batches of several sizes, and its best counts. Figures are hours
of sound per hour. In float32 all tokens of headway and transformers are compared first; in half precision close calls
turn. faster-whisper is measured where it is installed, on a CPU, in float32, from the same weights.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import tokenizers
import torch
from common import alternate, emit, machine, ratio
from torch import Tensor

from headway.config import presets
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.generate.beam.search import Beam, beam_search
from headway.generate.protocol import Source
from headway.hub.folder import load_model, save_model
from headway.model.model import Transformer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FRAMES, SECONDS, WAVE = 3000, 30.0, 80
START, END, TASK = 50258, 50257, [50258, 50259, 50359, 50363]


def tokenizer_of_whisper() -> tokenizers.Tokenizer:
    """Whisper's special tokens in their places; CTranslate2 looks for them by name. Texts are no texts."""
    tasks = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
    languages = ("en", *(f"l{number}" for number in range(TASK[2] - 1 - TASK[1] - 1)))
    special = [f"<|{name}|>" for name in ("endoftext", "startoftranscript", *languages, *tasks)]
    names = [*(f"t{number}" for number in range(END)), *special]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({name: i for i, name in enumerate(names)}, "t0"))
    made.add_special_tokens(special)
    return made


def folder_of_whisper(place: Path) -> Path:
    """A folder of random weights, with which texts are not all of one token."""
    torch.manual_seed(0)
    model = Transformer(presets.preset("whisper-tiny"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return save_model(model, place / "whisper", Tokenizer(tokenizer_of_whisper()))


def ours(folder: Path, dtype: torch.dtype, windows: Tensor, tokens: int, batch: int) -> Callable[[], list[list[int]]]:
    model = load_model(folder, dtype).to(DEVICE).eval()
    beam = Beam(width=1, max_tokens=tokens, banned=((END,),), renormalise=True)
    frames = windows.to(DEVICE, dtype)

    def run() -> list[list[int]]:
        found = []
        for part in frames.split(batch):
            hypotheses = beam_search(model, beam, [TASK] * len(part), source=Source(part))
            found += [best[0].tokens for best in hypotheses]
        return found

    return run


def theirs(folder: Path, dtype: torch.dtype, windows: Tensor, tokens: int, batch: int) -> Callable[[], list[list[int]]]:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder, dtype=dtype).to(DEVICE).eval()
    config = transformers.GenerationConfig(
        decoder_start_token_id=START, eos_token_id=END, pad_token_id=END, suppress_tokens=[END], max_length=None,
        max_new_tokens=tokens, do_sample=False, num_beams=1, return_timestamps=False, is_multilingual=True,
    )  # fmt: skip
    frames = windows.to(DEVICE, dtype)

    def run() -> list[list[int]]:
        found: list[list[int]] = []
        for part in frames.split(batch):
            prompt = torch.tensor([TASK] * len(part), device=DEVICE)
            with torch.no_grad():
                made = transformers.GenerationMixin.generate(
                    model, part, generation_config=config, decoder_input_ids=prompt
                )  # without what Whisper's own method does before and after
            found += made[:, len(TASK) :].tolist()
        return found

    return run


def faster_whisper(folder: Path, place: Path, windows: Tensor, tokens: int, batch: int) -> Callable[[], Any] | None:
    """CTranslate2's decoder from the same weights; None where it is not installed or cannot convert the folder."""
    if DEVICE.type != "cpu" or find_spec("ctranslate2") is None:
        return None
    import ctranslate2

    try:
        converted = ctranslate2.converters.TransformersConverter(str(folder)).convert(str(place / "ct2"))
    except Exception as error:  # it asks for files that a folder of random weights has not
        emit(peer="faster-whisper", skipped=str(error)[:200])
        return None
    model = ctranslate2.models.Whisper(converted, device="cpu", intra_threads=torch.get_num_threads())

    def run() -> None:
        for part in windows.float().split(batch):
            features = ctranslate2.StorageView.from_array(part.contiguous().numpy())
            model.generate(
                features, [TASK] * len(part), beam_size=1, max_length=tokens + len(TASK), suppress_tokens=[END]
            )

    return run


def main(args: argparse.Namespace) -> None:
    emit(**machine())
    windows = torch.randn(args.windows, WAVE, FRAMES, generator=torch.Generator().manual_seed(1))
    half = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
    dtype = half if args.dtype == "auto" else getattr(torch, args.dtype)
    with tempfile.TemporaryDirectory() as held:
        place = Path(held)
        folder = folder_of_whisper(place)
        sides: dict[str, Callable[[], Any]] = {}
        for batch in args.batches:
            sides[f"headway {batch}"] = ours(folder, dtype, windows, args.tokens, batch)
            if args.peer:
                sides[f"transformers {batch}"] = theirs(folder, dtype, windows, args.tokens, batch)
                if (other := faster_whisper(folder, place, windows, args.tokens, batch)) is not None:
                    sides[f"faster-whisper {batch}"] = other
        if args.peer and dtype == torch.float32:
            few = windows[: args.batches[0]]
            same = [side(folder, dtype, few, args.tokens, len(few))() for side in (ours, theirs)]
            emit(windows=len(few), same_tokens=sum(a == b for a, b in zip(*same, strict=True)) / len(few))
        times = alternate(sides, args.rounds)
    best: dict[str, str] = {}
    for name, taken in times.items():
        hours = args.windows * SECONDS / sorted(taken)[len(taken) // 2]
        emit(side=name, tokens=args.tokens, hours_per_hour=hours)
        side = name.rpartition(" ")[0]
        if side not in best or min(taken) < min(times[best[side]]):
            best[side] = name
    for side, name in best.items():
        if side != "headway":
            emit(against=name, headway=best["headway"], ratio=ratio(times, best["headway"], name))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=lambda text: [int(each) for each in text.split(",")], default=[8, 64])
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--no-peer", dest="peer", action="store_false")
    main(parser.parse_args())
