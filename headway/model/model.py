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
from headway.model.attention import Attention, Backend, Hook, scoped
from headway.model.cache import KVCache, KVCacheLike
from headway.model.embed import Embedded, FrameEmbedding, PatchEmbedding, TokenEmbedding, make_front
from headway.model.heads import ClassifyHead, LMHead, SpanHead, TagHead
from headway.model.init import initialise
from headway.model.masks import Layout
from headway.model.quantize import quantize_
from headway.model.quantized import Int8Matrix, stored_tensors
from headway.model.transformer import Stack

HEADS = ("lm", "nsp", "classify", "tag", "span")


@dataclass(frozen=True)
class Output:
    """What a forward pass gives: the hidden states that heads read, and which of them are real."""

    hidden: Tensor
    """(B, T, M) of the output stack."""
    attention_mask: Tensor | None
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
        attention_mask: Tensor | None = None,
        target_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """Hidden states. `inputs` are token ids (B, T), images or mel frames; `targets` feed a second stack.

        `attention_mask` is true for real tokens; as integers 1, 2, … it gives the segment ids of packed sequences.
        """
        if self.config.encoder is None:
            return self._decode(inputs, attention_mask, backend=backend, hook=hook)
        memory = self.encode(
            inputs, attention_mask=attention_mask, token_type_ids=token_type_ids, backend=backend, hook=hook
        )
        if self.config.decoder is None:
            return memory
        if targets is None:
            raise DataError("D001", "an encoder–decoder model needs targets beside its inputs")
        return self._decode(targets, target_attention_mask, memory=memory, backend=backend, hook=hook)

    def encode(
        self,
        inputs: Tensor,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """The encoder alone."""
        front: Embedded
        if isinstance(self.source, TokenEmbedding):
            front = self.source(inputs, attention_mask, token_type_ids)
        elif isinstance(self.source, FrameEmbedding):
            front = self.source(inputs, attention_mask)
        else:
            assert isinstance(self.source, PatchEmbedding)
            front = self.source(
                inputs, attention_mask
            )  # an image has no padding: its mask says which patches are hidden
        layout = front.layout
        hidden = self.encoder(
            front.x, layout, repeated_positions=front.repeated_positions, backend=backend, hook=scoped(hook, "encoder")
        )
        return Output(hidden, layout.attention_mask)

    def _decode(
        self,
        ids: Tensor,
        attention_mask: Tensor | None,
        *,
        memory: Output | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        front: Embedded = self.target(ids, attention_mask)
        hidden = self.decoder(
            front.x,
            front.layout,
            repeated_positions=front.repeated_positions,
            memory=None if memory is None else memory.hidden,
            memory_attention_mask=None if memory is None else memory.attention_mask,
            backend=backend,
            hook=scoped(hook, "decoder"),
        )
        return Output(hidden, attention_mask, None if memory is None else memory.hidden)

    def logits(self, output: Output) -> dict[str, Tensor]:
        """Every head's scores by name; an empty dict for a bare model."""
        result: dict[str, Tensor] = {}
        for name in HEADS:
            if getattr(self.config, name) is not None:
                head, hidden = getattr(self, name), output.hidden
                pooled = isinstance(head, ClassifyHead)
                result[name] = head(hidden, output.attention_mask) if pooled else head(hidden)
        return result

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> KVCache:
        """Ready to decode: an empty cache, and for an encoder–decoder the source read once."""
        stack = self.config.decoder
        if stack is None or not self.config.lm:
            raise DataError("D001", "only a model with a decoder and an lm head generates")
        batch = batch if inputs is None else len(inputs)
        like = next(self.decoder.parameters(), torch.empty(0))
        cache = KVCache.empty(stack.n_layers, batch, stack.kv_heads, capacity, stack.head_width, like)
        if self.config.encoder is not None:
            if inputs is None:
                raise DataError("D001", "an encoder–decoder model needs inputs to start from")
            memory = self.encode(inputs, attention_mask=attention_mask)
            cache.memory = [block.cross.project_kv(memory.hidden) for block in self.decoder.blocks]  # type: ignore[union-attr,operator]
            cache.memory_attention_mask = memory.attention_mask
        return cache

    def step(self, cache: KVCacheLike, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Scores (B, V) after the last of the new tokens `ids` (B, T), which the cache then holds.

        Prompts of unequal length are padded on the left: the last column is the one to go on from.
        """
        logits: Tensor = self.lm(self.extend(cache, ids, attention_mask)[:, -1])
        return logits

    def extend(self, cache: KVCacheLike, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Hidden states (B, T, M) of the new tokens, read with and added to what the cache holds."""
        positions, attention_mask = cache.reserve(ids.shape[1], attention_mask)
        layout = Layout(positions, attention_mask, cache.length)
        front: Embedded = self.target(ids, layout=layout)
        hidden: Tensor = self.decoder(
            front.x,
            layout,
            repeated_positions=front.repeated_positions,
            memory_attention_mask=cache.memory_attention_mask,
            cache=cache,
        )
        cache.advance()
        return hidden

    @staticmethod
    def reorder(cache: KVCache, rows: Tensor) -> KVCache:
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
                yield from ((part, front.config.vocab) for part in stored_tensors(front.table))
        if self.config.lm:
            yield from ((part, self.lm.vocab) for part in stored_tensors(self.lm.output))
            if self.lm.output.bias is not None:
                yield self.lm.output.bias, self.lm.vocab
