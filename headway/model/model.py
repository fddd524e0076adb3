"""Model, the interface that tasks, trainer and decoding use; and Transformer, which implements it.

Letters: B batch, T tokens, S source tokens, M width of the model, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.config.model import ModelConfig, StackConfig
from headway.config.networks.kinds import AnyConfig
from headway.errors import DataError
from headway.front.build import Front, make_front
from headway.front.condition import ConditionEmbedding
from headway.front.embedded import Embedded
from headway.front.tokens import TokenEmbedding
from headway.kernels.quantized import Int8Matrix, stored_tensors
from headway.model.attention import Attention, Backend, Hook, scoped
from headway.model.cache import KVCache, KVCacheLike
from headway.model.feed_forward import balance_loss
from headway.model.heads import HEADS, ClassifyHead, DenoiseHead, LMHead, SpanHead, TagHead, make_head
from headway.model.init import initialise
from headway.model.masks import Layout
from headway.model.quantize import quantize_
from headway.model.stack import Stack


@dataclass(frozen=True)
class Output:
    """The result of a forward pass: the hidden states that heads read, and their attention mask."""

    hidden: Tensor
    """(B, T, M) of the output stack."""
    attention_mask: Tensor | None
    memory: Tensor | None = None
    """(B, S, M): the encoder's output, in an encoder–decoder."""
    penalty: Tensor | None = None
    """What training adds to the loss of each prediction, where a network regularises its activations."""


class Model(nn.Module, ABC):
    """A network of any kind. An abstract class, not a Protocol: users need the methods of `nn.Module` as well."""

    config: AnyConfig
    source: Front
    """Front end of the encoder."""
    target: TokenEmbedding
    """Front end of the decoder."""
    lm: LMHead
    nsp: ClassifyHead
    classify: ClassifyHead
    tag: TagHead
    span: SpanHead
    denoise: DenoiseHead
    """Front ends and heads are named as their fields in the config. What the config leaves out does not exist."""

    @abstractmethod
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
        """Hidden states. `inputs` are token ids (B, T), images or sounds; `targets` are the decoder's inputs.

        `attention_mask` is true for real tokens, whichever side the padding is on. As integers 1, 2, … it holds the
        segment ids of packed sequences, and 0 is padding.
        """

    @abstractmethod
    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> Any:
        """A new decoding state with room for `capacity` tokens per row; an encoder encodes `inputs` into it."""

    @abstractmethod
    def extend(self, state: Any, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Hidden states (B, T, M) of the new tokens `ids`; the state then holds these tokens too."""

    @abstractmethod
    def reorder(self, state: Any, /, rows: Tensor) -> Any:
        """The state whose row i is row rows[i] of the given state."""

    def first_carry(self, rows: int) -> tuple[Tensor, ...]:
        """The state of a recurrent network before its first token, rows first; empty for other models."""
        return ()

    def read_on(self, ids: Tensor, mask: Tensor | None = None, carry: Any = ()) -> tuple[Output, Any]:
        """The output for tokens that follow those of `carry`, and the carry after them."""
        return self(ids, attention_mask=mask), ()

    def step(self, state: Any, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits (B, V) after the last of the new tokens `ids` (B, T), which the state then holds.

        Prompts of unequal length are padded on the left, so that the last column is each row's last token.
        """
        logits: Tensor = self.lm(self.extend(state, ids, attention_mask)[:, -1])
        return logits

    def logits(self, output: Output) -> dict[str, Tensor]:
        """The logits of every head by its name; an empty dict for a model without heads."""
        result: dict[str, Tensor] = {}
        for name, kind in HEADS.items():
            if getattr(self.config, name) is not None:
                mask = (output.attention_mask,) if kind.pools else ()
                result[name] = getattr(self, name)(output.hidden, *mask)
        return result

    def finished(self) -> Model:
        """The model that a run saves: this one, or its teacher."""
        return self

    def parameter_count(self) -> int:
        """Number of weights, each counted once.

        Rows that only round a vocabulary up do not count, nor do biases that are held at zero (Whisper's keys).
        """
        rows = dict(self.vocabulary_rows())
        unused = sum(m.groups * m.width for m in self.modules() if isinstance(m, Attention) and not m.key_bias)
        weights = [*self.parameters(), *(m.weight for m in self.modules() if isinstance(m, Int8Matrix))]
        return sum(rows.get(p, len(p)) * p[0].numel() for p in weights) - unused

    def vocabulary_rows(self) -> Iterator[tuple[Tensor, int]]:
        """Weights whose first axis is a vocabulary rounded up, each with the vocabulary's true size."""
        for front in (getattr(self, "source", None), getattr(self, "target", None)):
            if isinstance(front, TokenEmbedding):
                yield from ((part, front.config.vocab) for part in stored_tensors(front.table))
        if self.config.lm:
            yield from ((part, self.lm.vocab) for part in stored_tensors(self.lm.output))
            if self.lm.output.bias is not None:
                yield self.lm.output.bias, self.lm.vocab


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards the model is in the mode it was in before."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


class Transformer(Model):
    """A transformer of any kind: `config` says which stacks, front ends and heads it has."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config: ModelConfig = config
        width = config.output_stack.d_model
        if config.encoder and config.source:
            self.source, self.encoder = make_front(config.source, width), Stack(config.encoder)
        if config.decoder and config.target:
            self.target, self.decoder = TokenEmbedding(config.target, width), Stack(config.decoder)
            if config.shared_embedding:
                assert isinstance(self.source, TokenEmbedding)
                self.target.table = self.source.table
        self.condition = ConditionEmbedding(config.condition, width) if config.condition else None
        for name in HEADS:
            if getattr(config, name) is not None:
                setattr(self, name, make_head(name, config, self.target if config.decoder else self.source))
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
        condition: tuple[Tensor, Tensor] | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """`condition`: times and class numbers (B,); without one, a model that needs it reads time 0 and no class."""
        if self.config.encoder is None:
            return self._decode(inputs, attention_mask, backend=backend, hook=hook)
        masks = {"attention_mask": attention_mask, "token_type_ids": token_type_ids}
        memory = self.encode(inputs, **masks, condition=condition, backend=backend, hook=hook)
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
        condition: tuple[Tensor, Tensor] | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """The encoder alone."""
        front: Embedded
        if isinstance(self.source, TokenEmbedding):
            front = self.source(inputs, attention_mask, token_type_ids)
        else:
            front = self.source(inputs, attention_mask)  # images have no padding: the mask says which patches to hide
        again = front.repeated_positions
        vector = None
        if self.condition is not None:
            none = front.x.new_zeros(len(front.x)), front.x.new_full((len(front.x),), self.condition.config.classes)
            times, classes = condition or none
            vector = self.condition(times, classes.long()).to(front.x.dtype)
        routes: list[Tensor] = []
        hidden = self.encoder(
            front.x, front.layout, again, condition=vector, routes=routes, backend=backend, hook=scoped(hook, "encoder")
        )
        mask = front.layout.attention_mask
        return Output(hidden, mask, penalty=self._imbalance(self.config.encoder, routes, mask))

    def _imbalance(
        self, config: StackConfig | None, routes: list[Tensor], attention_mask: Tensor | None
    ) -> Tensor | None:
        """The penalty of experts that are not equally busy, in training."""
        if not routes or not self.training or config is None or config.experts is None:
            return None
        return config.experts.balance * balance_loss(routes, config.experts, attention_mask)

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
        routes: list[Tensor] = []
        hidden = self.decoder(
            front.x,
            front.layout,
            front.repeated_positions,
            memory=None if memory is None else memory.hidden,
            memory_attention_mask=None if memory is None else memory.attention_mask,
            routes=routes,
            backend=backend,
            hook=scoped(hook, "decoder"),
        )
        penalty = self._imbalance(self.config.decoder, routes, attention_mask)
        if memory is not None and memory.penalty is not None:
            penalty = memory.penalty if penalty is None else memory.penalty + penalty
        return Output(hidden, attention_mask, None if memory is None else memory.hidden, penalty)

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> KVCache:
        """An empty KV cache; an encoder–decoder also encodes `inputs` once and keeps their keys and values."""
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

    def extend(self, cache: KVCacheLike, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        positions, mask = cache.reserve(ids.shape[1], attention_mask)
        layout, memory_mask = Layout(positions, mask, cache.length), cache.memory_attention_mask
        front: Embedded = self.target(ids, layout=layout)
        again = front.repeated_positions
        hidden: Tensor = self.decoder(front.x, layout, again, memory_attention_mask=memory_mask, cache=cache)
        cache.advance()
        return hidden

    def reorder(self, cache: KVCache, /, rows: Tensor) -> KVCache:
        return cache.reorder(rows)
