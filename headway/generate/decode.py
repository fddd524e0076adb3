"""Many texts written at once, one token at a time, each as if it were alone.

Only the protocol in `generate/protocol.py` is used, so whatever implements it can be decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal

import torch
from torch import Tensor

from headway.errors import ConfigError, DataError, DivergedError
from headway.generate.accel.base import FastDecoder
from headway.generate.accel.cuda.graphs import copy_to_cpu, copy_to_device
from headway.generate.accel.dispatch import accelerates, acquire, release
from headway.generate.detokenize import Detokenizer, TextStream
from headway.generate.engine.slot_cache import common_prefix
from headway.generate.grammar.grammar import Mask
from headway.generate.prefix_cache import PrefixCache
from headway.generate.protocol import Decoder, S, Source, device_of, initial_ids, prefill
from headway.generate.sampling.logits import apply_mask
from headway.generate.sampling.sampler import Sampler, Sampling
from headway.generate.trace import Choice, choices
from headway.model.model import Model

__all__ = ["Piece", "Sampling", "decode", "generate"]

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Piece:
    """What a row has to tell: a token, the text that is now certain, and in its last piece why it ends."""

    row: int
    token: int | None
    """None where a text ends without one, because nothing may follow."""
    text: str = ""
    """Always empty without a tokenizer."""
    finish: Finish | None = None
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

    Neither the other rows nor their number change what a row becomes. A text that outgrows the model goes on
    from its last half. `trace` is given each step's alternatives.
    """
    rows = _rows(model, initial_ids(model, prompts, source), sampling, tokenizer, source)
    sources = source.ids() if source is not None and any(row.sampling.no_repeat_source for row in rows) else None
    sampler = Sampler([row.sampling for row in rows], [row.text for row in rows], [row.stop for row in rows], sources)
    batch: _Batch[Any] = _Batch(model, source)
    keeps = isinstance(model, PrefixCache)
    reader: object = model.model if isinstance(model, PrefixCache) else model
    if source is None and accelerates(reader, len(rows)):
        batch = _FastBatch(reader, keeps=keeps)
    try:
        yield from _write(batch, sampler, [row for row in rows if row.left], mask, trace)
    finally:
        batch.close()


def generate(model: Decoder[S], prompt: Sequence[int], tokens: int, sampling: Sampling) -> Iterator[int]:
    """Up to `tokens` new ids after one prompt; a stop token ends them and is not among them."""
    for piece in decode(model, [prompt], replace(sampling, max_tokens=tokens)):
        if piece.token is not None and piece.finish != "stop":
            yield piece.token


def _write(
    batch: _Batch[Any], sampler: Sampler, live: list[_Row], mask: Mask | None, trace: list[Choice] | None
) -> Iterator[Piece]:
    """Token after token of the rows, until all are done."""
    while live:
        logits, processed, chosen, found = _step(batch, sampler, live, mask, trace)
        _look(logits, processed, chosen, live, found, trace)
        pieces = [row.take(token) for row, token in zip(live, found, strict=True)]
        if mask is not None:
            for piece in pieces:
                if piece.finish is None and piece.token is not None:
                    mask.accept(piece.row, piece.token)
        yield from pieces
        live = [row for row, piece in zip(live, pieces, strict=True) if piece.finish is None]


def _step(
    batch: _Batch[Any], sampler: Sampler, live: list[_Row], mask: Mask | None, trace: list[Choice] | None
) -> tuple[Tensor, Tensor, Tensor, list[int | None]]:
    """Scores, scores as the settings want them, the tokens chosen, and what these are; the next step has begun."""
    logits = batch.read(live)
    allowed = None if mask is None else [mask.allowed(row.index) for row in live]
    chosen = batch.best(live) if sampler.argmax_only and mask is None and trace is None else None
    processed = logits
    if chosen is None:
        logits = logits.float()  # a copy, where it is in half precision: the next step may take the place of it
        processed, chosen = _choose(logits, sampler, live, allowed)
    tokens = copy_to_cpu(chosen)
    if any(row.left > 1 for row in live):
        batch.ahead(live, chosen)
    return (
        logits,
        processed,
        chosen,
        [None if token < 0 else token for token in tokens()],
    )  # here the device is waited for


def _choose(
    logits: Tensor, sampler: Sampler, live: list[_Row], allowed: list[Tensor | None] | None
) -> tuple[Tensor, Tensor]:
    """Scores as the rows' settings want them, and the token chosen for each; nothing waits for the device."""
    rows, positions = [row.index for row in live], [row.count for row in live]
    processed = logits
    if allowed is not None and any(m is not None for m in allowed):
        everything = torch.ones(logits.shape[-1], dtype=torch.bool)
        table = torch.stack([everything if m is None else m for m in allowed])
        processed = apply_mask(processed, table.to(logits.device))
    processed = sampler.process(processed, rows, [row.text for row in live], positions)
    return processed, sampler.sample(processed, rows, positions)


def _look(
    logits: Tensor,
    processed: Tensor,
    chosen: Tensor,
    live: list[_Row],
    tokens: list[int | None],
    trace: list[Choice] | None,
) -> None:
    """Whether scores are numbers, where no token was possible; and the alternatives, if somebody wants to see them."""
    some = [i for i, token in enumerate(tokens) if token is not None]
    if len(some) < len(tokens) and bool(logits.isnan().any()):
        raise DivergedError("T001", "the model's scores are not numbers", "its weights are damaged, or too large")
    if trace is not None:
        rows, positions = [live[i].index for i in some], [live[i].count for i in some]
        trace += choices(logits[some], processed[some], chosen[some], rows, positions)


@dataclass(eq=False)
class _Row:
    """A text in the making."""

    index: int
    sampling: Sampling
    stop: tuple[int, ...]
    text: list[int]
    """Prompt and new tokens."""
    begin: int
    """First token of the text that the model still sees."""
    stream: TextStream | None
    count: int = 0
    """New tokens so far."""

    @property
    def left(self) -> int:
        return self.sampling.limit(len(self.text) - self.count, self.sampling.max_tokens) - self.count

    @property
    def seen(self) -> list[int]:
        return self.text[self.begin :]

    def take(self, token: int | None) -> Piece:
        if token is None:
            return Piece(self.index, None, self.close(), "stop")
        self.text.append(token)
        self.count += 1
        if token in self.stop:
            return Piece(self.index, token, self.close(), "stop")
        text = "" if self.stream is None else self.stream.push(token)
        if self.stream is not None and self.stream.stopped:
            return Piece(self.index, token, text, "stop")
        if not self.left:
            return Piece(self.index, token, text + self.close(), "length")
        return Piece(self.index, token, text)

    def close(self) -> str:
        return "" if self.stream is None else self.stream.close()

    def slide(self, room: int | None) -> None:
        """Once more is seen than the model can read, see only the last half of that."""
        if room is not None and len(self.text) - self.begin > room:
            self.begin = len(self.text) - max(1, room // 2)


def _rows(
    model: Decoder[S],
    prompts: list[list[int]],
    sampling: Sampling | Sequence[Sampling],
    tokenizer: Detokenizer | None,
    source: Source | None,
) -> list[_Row]:
    settings = [sampling] * len(prompts) if isinstance(sampling, Sampling) else list(sampling)
    if len(settings) != len(prompts):
        raise DataError("D001", f"{len(prompts)} prompts but {len(settings)} settings for them")
    if tokenizer is None and any(s.stop_strings for s in settings):
        raise ConfigError("C004", "stop_strings are found in text, and there is no tokenizer to make it")
    own, room = model.config.special.eos_ids, model.config.max_length
    rows = []
    for i, (prompt, setting) in enumerate(zip(prompts, settings, strict=True)):
        context = () if source is not None else tuple(prompt)  # a start token is no text
        stream = None if tokenizer is None else TextStream(tokenizer, setting.stop_strings, context)
        begin = 0 if room is None else max(0, len(prompt) - room)
        rows.append(_Row(i, setting, own if setting.stop is None else setting.stop, prompt, begin, stream))
    return rows


class _Batch(Generic[S]):
    """The rows a model holds in one state. Begun anew when a text outgrows the model; narrowed when most are done."""

    def __init__(self, model: Decoder[S], source: Source | None) -> None:
        self.model, self.source, self.device = model, source, device_of(model)
        self.rows: list[_Row] = []
        self.state: S | None = None
        self.used = self.capacity = 0

    def read(self, live: list[_Row]) -> Tensor:
        """Scores (B, V) after the texts of these rows, of which all but the last token may have been read."""
        if self.state is None or self.used == self.capacity:
            self.open(live)
            source = None if self.source is None else self.source.take([row.index for row in live])
            state, logits = prefill(self.model, [row.seen for row in live], source, self.capacity)
            self.state = state
            return logits
        if 2 * len(live) <= len(self.rows):  # copying costs too: not for each row that ends
            places = torch.tensor(self.places(live), device=self.device)
            self.state, self.rows = self.model.reorder(self.state, places), list(live)
        ids = torch.tensor([[row.text[-1]] for row in self.rows], device=self.device)
        self.used += 1
        return self.of(live, self.model.step(self.state, ids))

    def best(self, live: list[_Row]) -> Tensor | None:
        """The best token of each row, -1 where there is none, if the step has found it already."""
        return None

    def ahead(self, live: list[_Row], chosen: Tensor) -> None:
        """Nothing to be gained: a step is begun when its tokens are known."""

    def close(self) -> None:
        """Nothing to give back."""

    def of(self, live: list[_Row], logits: Tensor) -> Tensor:
        """The scores of those rows that are still written."""
        if len(live) == len(self.rows):
            return logits
        return logits[copy_to_device(self.places(live), self.device)]

    def places(self, live: list[_Row]) -> list[int]:
        return [self.rows.index(row) for row in live]

    def open(self, live: list[_Row]) -> None:
        """Room for all that is seen of the texts. One that outgrew the model has filled the state: it is not asked."""
        room = self.model.config.max_length
        for row in live:
            row.slide(room)
        longest = max(len(row.seen) for row in live)
        self.rows, self.used = list(live), longest
        self.capacity = longest + max(row.left for row in live)
        if room is not None:
            self.capacity = min(self.capacity, room)


class _FastBatch(_Batch[Any]):
    """The same with a fast decoder. A GPU reads the tokens of the next step before anybody has looked at them."""

    def __init__(self, model: Model, *, keeps: bool) -> None:
        """`keeps`: texts that begin like those that were written before are not read from their beginning."""
        super().__init__(model, None)
        self.decodes, self.keeps = model, keeps
        self.fast: FastDecoder | None = None
        self.due = False
        """Whether the tokens of the next step are where it reads them …"""
        self.next: Tensor | None = None
        """… and the scores of that step, if it has begun."""
        self.stepped = False
        """Whether it was a step that was read last, and not prompts."""

    def read(self, live: list[_Row]) -> Tensor:
        self.stepped = self.due
        if self.due and self.fast is not None:
            logits = self.fast.step(self.places(live)) if self.next is None else self.next
            self.due, self.next = False, None
            return self.of(live, logits)
        self.close()
        self.open(live)
        self.fast = acquire(self.decodes, len(live), self.capacity)
        self.fast.end.copy_(torch.tensor([len(row.seen) for row in live]))
        texts, held = [row.seen for row in live], self.fast.held
        self.fast.held = [[] for _ in live]  # until they are read
        known = [
            min(common_prefix(*pair), len(pair[1]) - 1) if self.keeps else 0 for pair in zip(held, texts, strict=True)
        ]
        logits = self.fast.prefill({i: (n, text[n:]) for i, (n, text) in enumerate(zip(known, texts, strict=True))})
        self.fast.held = texts
        return logits

    def best(self, live: list[_Row]) -> Tensor | None:
        return None if self.fast is None or not self.stepped else self.of(live, self.fast.best)

    def ahead(self, live: list[_Row], chosen: Tensor) -> None:
        """Have the next step read these tokens, which only the device may know yet: it need not wait for us."""
        if self.fast is None or self.used == self.capacity:
            return
        if len(live) == len(self.rows):
            self.fast.ids.copy_(chosen.clamp(min=0))
        else:
            self.fast.ids[copy_to_device(self.places(live), self.device)] = chosen.clamp(min=0)
        self.used += 1
        self.due = True
        if self.fast.runs_ahead:
            self.next = self.fast.step()

    def close(self) -> None:
        if self.fast is not None:
            self.fast.held = [
                row.seen[:-1] if held else [] for row, held in zip(self.rows, self.fast.held, strict=True)
            ]
            release(self.fast)
            self.fast = None
