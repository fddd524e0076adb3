"""Beam search for decoders and encoder–decoders, many inputs at once.

Letters: B inputs, W beams, V vocabulary, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headway.generate.accel.cuda import beam as gpubeam
from headway.generate.accel.dispatch import accelerates_beams, beam_decoder
from headway.generate.beam.rules import Beam, Group, Hypothesis, Search, hypotheses
from headway.generate.protocol import Decoder, S, Source, initial_ids, prefill
from headway.generate.trace import Branch, Growth

__all__ = ["Beam", "Hypothesis", "beam_search"]


@torch.no_grad()
def beam_search(
    model: Decoder[S],
    beam: Beam,
    prompts: Sequence[Sequence[int]] | None = None,
    *,
    source: Source | None = None,
    most: Sequence[int] | None = None,
    trace: list[Growth] | None = None,
) -> list[list[Hypothesis]]:
    """The n best hypotheses of each input, best first; without prompts, after the start token.

    `most` are the most new tokens of each input, where `beam` would allow more.
    """
    begin = initial_ids(model, prompts, source)
    if not begin:
        return []
    search = Search(model, beam, begin, source, most)
    alike = source is not None and len({len(row) for row in begin}) == 1
    if source is not None and alike and trace is None and accelerates_beams(model) and gpubeam.suits(search):
        try:
            return gpubeam.find(model, search, begin, source)
        except torch.cuda.OutOfMemoryError:  # the search below takes less memory
            gpubeam.forget(model)
    reader = beam_decoder(model, len(begin), beam.width) if alike else model
    state, logits = prefill(reader, begin, source, search.capacity)
    threads = torch.get_num_threads()
    try:
        if getattr(reader, "threads", False):  # idle threads of torch would delay the kernels'
            torch.set_num_threads(1)
        return _search(reader, search, state, logits, trace)
    finally:
        torch.set_num_threads(threads)


def _search(
    model: Decoder[Any], search: Search, state: Any, logits: Tensor, trace: list[Growth] | None
) -> list[list[Hypothesis]]:
    """Step by step; inputs for which no better hypothesis can be found drop out."""
    beam, inputs, groups = search.beam, list(range(len(search.limits))), search.groups()
    found: list[list[Hypothesis]] = [[] for _ in inputs]
    for step in range(search.longest):
        parents, ended = search.advance(groups, logits, step)
        if trace is not None:
            trace.extend(_growth(inputs, step, groups, parents, ended))
        going = torch.stack([g.open for g in groups]).any(0).tolist()  # the only synchronization with the device
        if done := [i for i, goes in enumerate(going) if not goes]:
            for i, best in zip(done, hypotheses([g.take(done) for g in groups], beam.n_best), strict=True):
                found[inputs[i]] = best
        if not any(going):
            break
        first = torch.arange(len(going), device=parents.device)[:, None]  # the state's row of each input's first beam
        rows = first * beam.width + parents if step else first.expand_as(parents)
        if not all(going):
            kept = [i for i, goes in enumerate(going) if goes]
            inputs, groups = [inputs[i] for i in kept], [g.take(kept) for g in groups]
            search.take(kept)
            rows = rows[kept]
        state = model.reorder(state, rows.flatten())
        ids = torch.cat([g.tokens[:, :, step] for g in groups], 1)
        logits = model.step(state, ids.reshape(-1, 1))
    return found


def _growth(
    inputs: list[int], step: int, groups: list[Group], parents: Tensor, ended: list[tuple[Tensor, ...]]
) -> list[Growth]:
    tokens, scores = torch.cat([g.tokens[:, :, step] for g in groups], 1), torch.cat([g.scores for g in groups], 1)
    over = [torch.cat(parts, 1) for parts in zip(*ended, strict=True)]
    return [
        Growth(row, step, _branches(parents[i], tokens[i], scores[i]), _branches(*(part[i] for part in over)))
        for i, row in enumerate(inputs)
    ]


def _branches(parents: Tensor, tokens: Tensor, scores: Tensor) -> list[Branch]:
    columns = zip(parents.tolist(), tokens.tolist(), scores.tolist(), strict=True)
    return [Branch(parent, token, score) for parent, token, score in columns if score > -math.inf]
