"""Generate from a batch of prompts, token by token; no sequence depends on the others in its batch.

Only the methods of `generate/protocol.py` are used, so every model that implements them can be decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from headway.errors import ConfigError, DataError
from headway.generate.accel.dispatch import accelerates
from headway.generate.detokenize import Detokenizer, TextStream
from headway.generate.engine import sequence as state
from headway.generate.engine.runner import BatchRunner, EagerRunner, Runner
from headway.generate.engine.scheduler import Scheduler
from headway.generate.grammar.grammar import Mask
from headway.generate.prefix_cache import PrefixCache
from headway.generate.protocol import Decoder, S, Source, initial_ids
from headway.generate.sampling.sampler import Sampling, with_seed
from headway.generate.trace import Choice

__all__ = ["Piece", "Sampling", "decode", "generate"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A new token of a sequence, the text that is certain now, and in the last piece why the sequence ends."""

    row: int
    token: int | None
    """None if the sequence ends without a token, because none is allowed."""
    text: str = ""
    """Always empty without a tokenizer."""
    finish: state.Finish | None = None
    """stop: a stop token, a stop string, or a complete text by the mask; length: max_tokens."""


@torch.no_grad()
def decode(
    model: Decoder[S],
    prompts: Sequence[Sequence[int]] | None,
    sampling: Sampling | Sequence[Sampling],
    *,
    source: Source | None = None,
    tokenizer: Detokenizer | None = None,
    mask: Mask | None = None,
    trace: list[Choice] | None = None,
) -> Iterator[Piece]:
    """New tokens after each prompt, in turn; without prompts, after the start token of an encoder–decoder.

    A sequence does not depend on the others, nor on how many there are. A sequence that outgrows the model's context
    goes on from its last half. `trace` is given every step's alternatives.
    """
    running = _sequences(model, initial_ids(model, prompts, source), sampling, tokenizer, source, mask)
    running = [sequence for sequence in running if sequence.left]
    runner = _runner(model, source, len(running))
    scheduler = Scheduler(runner, trace)
    try:
        while running:
            pieces = []
            for sequence, sample in scheduler.step(running):
                if sample.broken:
                    raise state.diverged()
                if sequence.fault is not None:
                    raise sequence.fault
                pieces.append(Piece(sequence.row, sample.token, *sequence.take(sample.token)))
            yield from pieces
            over = {piece.row for piece in pieces if piece.finish is not None}
            running = [sequence for sequence in running if sequence.row not in over] if over else running
    finally:
        runner.close()


def generate(model: Decoder[S], prompt: Sequence[int], tokens: int, sampling: Sampling) -> Iterator[int]:
    """Up to `tokens` new ids after one prompt; a stop token ends them and is not among them."""
    for piece in decode(model, [prompt], replace(sampling, max_tokens=tokens)):
        if piece.token is not None and piece.finish != "stop":
            yield piece.token


def _runner(model: Decoder[S], source: Source | None, rows: int) -> Runner:
    """Kernels if there are any for the model, else the model itself."""
    inner: Any = model.model if isinstance(model, PrefixCache) else model
    if source is None and accelerates(inner, rows):
        return BatchRunner(inner, reuse=inner is not model)
    return EagerRunner(model, source)


def _sequences(
    model: Decoder[S],
    prompts: list[list[int]],
    sampling: Sampling | Sequence[Sampling],
    tokenizer: Detokenizer | None,
    source: Source | None,
    mask: Mask | None,
) -> list[state.Sequence]:
    settings = [sampling] * len(prompts) if isinstance(sampling, Sampling) else list(sampling)
    if len(settings) != len(prompts):
        raise DataError("D001", f"{len(prompts)} prompts but {len(settings)} settings for them")
    if tokenizer is None and any(s.stop_strings for s in settings):
        raise ConfigError("C004", "stop_strings need a tokenizer: they are found in text, not in tokens")
    ends, max_length = model.config.special.eos_ids, model.config.max_length
    sources: list[list[int]] | None = None if source is None else [[] for _ in prompts]
    if source is not None and any(s.no_repeat_source for s in settings):
        sources = source.ids()
    sequences = []
    for row, (prompt, each) in enumerate(zip(prompts, map(with_seed, settings), strict=True)):
        context = () if source is not None else tuple(prompt)  # a start token is no text
        sequences.append(
            state.Sequence(
                tokens=prompt,
                sampling=each,
                stop=ends if each.stop is None else each.stop,
                left=each.limit(len(prompt), each.max_tokens),
                stream=None if tokenizer is None else TextStream(tokenizer, each.stop_strings, context),
                mask=mask,
                row=row,
                source=None if sources is None else sources[row],
                begin=0 if max_length is None else max(0, len(prompt) - max_length),
            )
        )
    return sequences
