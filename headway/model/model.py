"""The model: one or two stacks, their front ends, and heads; and decoding through start, step, reorder.

Letters: B batch, T tokens, S source tokens, M width of the model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.config.model import ModelConfig
from headway.errors import DataError
from headway.model.attention import Attention, Backend, Watch, below
from headway.model.cache import Cache, KeyValues
from headway.model.embed import Embedded, FrameEmbedding, PatchEmbedding, TokenEmbedding, make_front
from headway.model.heads import ClassifyHead, LMHead, SpanHead, TagHead
from headway.model.init import initialise
from headway.model.masks import Layout
from headway.model.quantize import quantize_
from headway.model.quantized import Int8Matrix, stored
from headway.model.transformer import Stack

HEADS = ("lm", "nsp", "classify", "tag", "span")


@dataclass(frozen=True)
class Output:
    """What a forward pass gives: the hidden states that heads read, and which of them are real."""

    hidden: Tensor
    """(B, T, M) of the output stack."""
    keep: Tensor | None
    memory: Tensor | None = None
    """(B, S, M) of the encoder, in an encoder–decoder."""


class Model(nn.Module):
    """A transformer of any kind; `config` says which. Heads are submodules named after their config field."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.output_stack.d_model
        if config.encoder and config.source:
            self.source, self.encoder = make_front(config.source, width), Stack(config.encoder)
        if config.decoder and config.target:
            self.target, self.decoder = TokenEmbedding(config.target, width), Stack(config.decoder)
            if config.shared_embedding:
                assert isinstance(self.source, TokenEmbedding)
                self.target.table = self.source.table
        if config.lm:
            front = self.target if config.decoder else self.source
            assert isinstance(front, TokenEmbedding)
            self.lm = LMHead(config.lm, config.output_stack, front.config.vocab, front.table)
        if config.nsp:
            self.nsp = ClassifyHead(config.nsp, config.output_stack)
        if config.classify:
            self.classify = ClassifyHead(config.classify, config.output_stack)
        if config.tag:
            self.tag = TagHead(config.tag, config.output_stack)
        if config.span:
            self.span = SpanHead(config.span, config.output_stack)
        initialise(self, config)
        if config.quantization == "int8":
            quantize_(self)

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        keep: Tensor | None = None,
        target_keep: Tensor | None = None,
        segments: Tensor | None = None,
        backend: Backend = "fused",
        watch: Watch | None = None,
    ) -> Output:
        """Hidden states. `inputs` are token ids (B, T), images or mel frames; `targets` feed a second stack.

        `keep` marks real tokens on whichever side padding is; as whole numbers 1, 2, … it marks packed sequences.
        """
        if self.config.encoder is None:
            return self._decode(inputs, keep, backend=backend, watch=watch)
        memory = self.encode(inputs, keep=keep, segments=segments, backend=backend, watch=watch)
        if self.config.decoder is None:
            return memory
        if targets is None:
            raise DataError("D001", "an encoder–decoder model needs targets beside its inputs")
        return self._decode(targets, target_keep, memory=memory, backend=backend, watch=watch)

    def encode(
        self,
        inputs: Tensor,
        *,
        keep: Tensor | None = None,
        segments: Tensor | None = None,
        backend: Backend = "fused",
        watch: Watch | None = None,
    ) -> Output:
        """The encoder alone."""
        front: Embedded
        if isinstance(self.source, TokenEmbedding):
            front = self.source(inputs, keep, segments)
        elif isinstance(self.source, FrameEmbedding):
            front = self.source(inputs, keep)
        else:
            assert isinstance(self.source, PatchEmbedding)
            front = self.source(inputs, keep)  # an image has no padding: its mask says which patches are hidden
        layout = front.layout
        hidden = self.encoder(front.x, layout, again=front.again, backend=backend, watch=below(watch, "encoder"))
        return Output(hidden, layout.keep)

    def _decode(
        self,
        ids: Tensor,
        keep: Tensor | None,
        *,
        memory: Output | None = None,
        backend: Backend = "fused",
        watch: Watch | None = None,
    ) -> Output:
        front: Embedded = self.target(ids, keep)
        hidden = self.decoder(
            front.x,
            front.layout,
            again=front.again,
            memory=None if memory is None else memory.hidden,
            memory_keep=None if memory is None else memory.keep,
            backend=backend,
            watch=below(watch, "decoder"),
        )
        return Output(hidden, keep, None if memory is None else memory.hidden)

    def scores(self, output: Output) -> dict[str, Tensor]:
        """Every head's scores by name; an empty dict for a bare model."""
        result: dict[str, Tensor] = {}
        for name in HEADS:
            if getattr(self.config, name) is not None:
                head, hidden = getattr(self, name), output.hidden
                pooled = isinstance(head, ClassifyHead)
                result[name] = head(hidden, output.keep) if pooled else head(hidden)
        return result

    def start(
        self, inputs: Tensor | None = None, *, keep: Tensor | None = None, batch: int = 1, capacity: int
    ) -> Cache:
        """Ready to decode: an empty cache, and for an encoder–decoder the source read once."""
        stack = self.config.decoder
        if stack is None or not self.config.lm:
            raise DataError("D001", "only a model with a decoder and an lm head generates")
        batch = batch if inputs is None else len(inputs)
        like = next(self.decoder.parameters(), torch.empty(0))
        cache = Cache.empty(stack.n_layers, batch, stack.kv_heads, capacity, stack.head_width, like)
        if self.config.encoder is not None:
            if inputs is None:
                raise DataError("D001", "an encoder–decoder model needs inputs to start from")
            memory = self.encode(inputs, keep=keep)
            cache.memory = [block.cross.remember(memory.hidden) for block in self.decoder.blocks]  # type: ignore[union-attr,operator]
            cache.memory_keep = memory.keep
        return cache

    def step(self, cache: KeyValues, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Scores (B, V) after the last of the new tokens `ids` (B, T), which the cache then holds.

        Prompts of unequal length are padded on the left: the last column is the one to go on from.
        """
        scores: Tensor = self.lm(self.extend(cache, ids, keep)[:, -1])
        return scores

    def extend(self, cache: KeyValues, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Hidden states (B, T, M) of the new tokens, read with and added to what the cache holds."""
        positions, marks = cache.place(ids.shape[1], keep)
        layout = Layout(positions, marks, cache.length)
        front: Embedded = self.target(ids, layout=layout)
        hidden: Tensor = self.decoder(front.x, layout, again=front.again, memory_keep=cache.memory_keep, cache=cache)
        cache.advance()
        return hidden

    @staticmethod
    def reorder(cache: Cache, rows: Tensor) -> Cache:
        """The cache with its rows chosen anew."""
        return cache.reorder(rows)

    def parameter_count(self) -> int:
        """Weights, each counted once, without the rows that only round a vocabulary up and biases held at zero."""
        rows = dict(self.vocabulary_rows())
        silent = sum(m.groups * m.width for m in self.modules() if isinstance(m, Attention) and not m.key_bias)
        whole = [*self.parameters(), *(m.weight for m in self.modules() if isinstance(m, Int8Matrix))]
        return sum(rows.get(p, len(p)) * p[0].numel() for p in whole) - silent

    def vocabulary_rows(self) -> Iterator[tuple[Tensor, int]]:
        """Parameters, or what stands for them, whose first axis is a vocabulary rounded up, with its true size."""
        for front in (getattr(self, "source", None), getattr(self, "target", None)):
            if isinstance(front, TokenEmbedding):
                yield from ((part, front.config.vocab) for part in stored(front.table))
        if self.config.lm:
            yield from ((part, self.lm.vocab) for part in stored(self.lm.output))
            if self.lm.output.bias is not None:
                yield self.lm.output.bias, self.lm.vocab
