"""Decoding at the speed of memory: prompts read without padding, and one token of every text as a recorded graph.

Used on NVIDIA GPUs for decoders of the usual build: norms before the branches, no bias on the scores. Everything else
decodes through `Model.step`, which this is tested against.
Letters: B texts, N tokens of prompts, V vocabulary, G key-value heads, D width of a head, S columns of the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor

from headway.generate.logits import best
from headway.generate.products import add_and_norm, gate_values, power_of_two, vector_product
from headway.generate.reading import SIZES, PromptPass, in_passes
from headway.generate.recording import recorded
from headway.matrices.linear import Linear
from headway.model.masks import Layout
from headway.model.model import Model
from headway.model.positions import rotary_angles

PROCESSORS = 132
"""Of an H100 or H200: the attention of a step is cut into about as many parts."""


def fits(model: object) -> TypeGuard[Model]:
    """Whether a model can be decoded by these kernels."""
    if not isinstance(model, Model) or find_spec("triton") is None:
        return False
    config, first = model.config, next(model.parameters())
    stack, front = config.decoder, config.target
    if not first.is_cuda or torch.version.hip or stack is None or front is None or config.lm is None:
        return False
    plain = not (stack.cross or stack.relative or stack.alibi or stack.sparse or stack.window or stack.layer_scale)
    usual = stack.norm_at == "pre" and stack.norm != "dyt" and stack.residual and stack.final_norm and stack.key_bias
    simple = not front.positions.every_layer and stack.head_width % 2 == 0 and config.lm.transform is None
    linears = [m for m in model.decoder.modules() if hasattr(m, "in_features")]
    half = first.dtype in (torch.bfloat16, torch.float16)
    return plain and usual and simple and half and all(type(m) is Linear for m in [*linears, model.lm.output])


_KEPT: WeakKeyDictionary[Model, FastDecoder] = WeakKeyDictionary()
"""The decoder that a model was last used with: recording one takes as long as writing a sentence."""


def borrow(model: Model, rows: int, columns: int) -> FastDecoder:
    """A decoder for so many texts of up to `columns` tokens, nobody else's until it is given back."""
    kept = _KEPT.pop(model, None)
    if kept is not None and kept.suits(model, rows, columns):
        return kept
    cache = model.start(batch=rows, capacity=(columns // 256 + 1) * 256)
    return FastDecoder(model, cache.keys, cache.values)


def give_back(decoder: FastDecoder) -> None:
    if (model := decoder.owner()) is not None:
        _KEPT[model] = decoder


class FastDecoder:
    """A cache (B, G, S, D) by layer, whose rows hold one text each, and what reads into it.

    The last column is nobody's: what only fills up a pass goes there.
    """

    def __init__(self, model: Model, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        stack = model.config.decoder
        assert stack is not None
        self.owner, self.weights = ref(model), _address(model)
        self.front, self.lm, self.stack = model.target, model.lm, stack
        self.blocks: list[Any] = list(model.decoder.blocks)
        self.norm: Any = model.decoder.norm
        self.keys, self.values = keys, values
        self.group, self.width = stack.n_heads // stack.kv_heads, stack.head_width
        self.rows, _, columns, _ = keys[0].shape
        device = keys[0].device
        self.ids = torch.zeros(self.rows, dtype=torch.long, device=device)
        """The next token of each text …"""
        self.end = torch.zeros(self.rows, dtype=torch.int32, device=device)
        """… and the column it goes to; a step moves them on by one. In a row that nobody uses, that does no harm: what
        is written there is beyond the text that the row has, and at last in the last column."""
        self.angles: tuple[Tensor, ...] | None = None
        if stack.rope is not None:
            places = torch.arange(columns, device=device)[None]
            self.angles = tuple(a[0, 0].contiguous() for a in rotary_angles(stack.rope, self.width, places))
        share = columns * self.rows * stack.kv_heads // PROCESSORS
        self.split = min(512, max(64, power_of_two(share + 1) // 2))
        """Columns that one program of a step's attention looks at."""
        self.parts = -(-columns // self.split)
        self.mixed = torch.empty(self.rows, stack.n_heads, self.parts, self.width, device=device)
        self.peaks = torch.empty(self.rows, stack.n_heads, self.parts, device=device)
        self.sums = torch.empty_like(self.peaks)
        self.best = self.ids
        """The best token of each row after a step, -1 where scores are no numbers: for those who ask for no other."""
        self._graph: torch.cuda.CUDAGraph | None = None
        self._scores = torch.empty(0)
        self._passes: dict[int, PromptPass] = {}

    def suits(self, model: Model, rows: int, columns: int) -> bool:
        """Whether it can serve so many texts of such length, and the weights are still where it looks for them."""
        have = self.keys[0].shape[2]
        return self.rows == rows and columns <= have <= 2 * columns + 1024 and self.weights == _address(model)

    def read(self, texts: Mapping[int, tuple[int, Sequence[int]]]) -> Tensor:
        """Scores (texts, V) after new tokens of some rows, each given as (older tokens, new ones)."""
        found: dict[int, Tensor] = {}
        for part in in_passes(texts):
            size = next(size for size in SIZES if sum(len(new) for _, _, new, _ in part) <= size)
            if size not in self._passes:
                self._passes[size] = PromptPass(self, size)
            scores = self._passes[size](part)
            found |= {row: scores[place] for place, (row, _, _, whole) in enumerate(part) if whole}
        return torch.stack([found[row] for row in texts])

    def step(self) -> Tensor:
        """Scores (B, V) after `ids`; the next step takes the place of them."""
        if self._graph is None:
            self._record()
        assert self._graph is not None
        self._graph.replay()
        return self._scores

    def _record(self) -> None:
        end = self.end.clone()
        self._graph, self._scores = recorded(self._step)
        self.end.copy_(end)

    def _step(self) -> Tensor:
        x = self.front(self.ids[:, None], layout=Layout(self.end.long()[:, None], None, 0)).x[:, 0]
        scores = self._alone(x) if len(x) == 1 else self.head(self.through(x, self._look))
        highest, tokens = best(scores)
        self.best = tokens.where(highest > -torch.inf, -1)
        torch.clamp(self.end + 1, max=self.keys[0].shape[2] - 1, out=self.end)
        return scores

    def _alone(self, x: Tensor) -> Tensor:
        """Matrix by vector: all else happens in the kernels that read a matrix."""
        for layer, block in enumerate(self.blocks):
            attention, ffn = block.attention, block.ffn
            qkv = vector_product(x, attention.qkv, norm=block.residual1.norm)
            x = vector_product(self._look(layer, qkv), attention.out, add=x)
            hidden = vector_product(x, ffn.up, norm=block.residual2.norm, act=ffn.activation, gated=ffn.gated)
            x = vector_product(hidden, ffn.down, add=x)
        return self._scaled(vector_product(x, self.lm.output, norm=self.norm))

    def through(self, x: Tensor, look: Any) -> Tensor:
        """Products by the library, which is as fast as memory for these; between them one kernel each."""
        norms = [*(block.residual1.norm for block in self.blocks), self.norm]
        normed = add_and_norm(x, None, norms[0])
        for layer, (block, following) in enumerate(zip(self.blocks, norms[1:], strict=True)):
            attention, ffn = block.attention, block.ffn
            normed = add_and_norm(x, attention.out(look(layer, attention.qkv(normed))), block.residual2.norm)
            normed = add_and_norm(x, ffn.down(gate_values(ffn.up(normed), ffn.activation, ffn.gated)), following)
        return normed

    def head(self, x: Tensor) -> Tensor:
        """Hidden states that have passed the last norm to scores."""
        return self._scaled(self.lm.output(x))

    def _scaled(self, scores: Tensor) -> Tensor:
        scores, scale = scores[:, : self.lm.vocab], self.lm.config.scale
        return scores if scale == 1.0 else scores * scale

    def _look(self, layer: int, qkv: Tensor) -> Tensor:
        """The attention of one new token a row."""
        from headway.generate import kernels

        stack, keys, one = self.stack, self.keys[layer], self.parts == 1
        out = torch.empty(self.rows, stack.n_heads * self.width, device=qkv.device, dtype=qkv.dtype)
        kernels.attend[(self.rows, stack.kv_heads, self.parts)](
            qkv, keys, self.values[layer], *(self.angles or (qkv, qkv)), self.end, out if one else self.mixed,
            self.peaks, self.sums, keys.stride(0), keys.stride(1), stack.scale or self.width**-0.5,
            G=stack.kv_heads, R=self.group, D=self.width, HALF=max(16, power_of_two(self.width // 2)),
            WIDE_R=max(16, power_of_two(self.group)), ROTARY=self.angles is not None,
            SPLIT=self.split, SPLITS=self.parts,
            BLOCK=64, num_warps=2 if self.rows > 8 else 4,
        )  # fmt: skip
        if not one:
            kernels.merge[(self.rows * stack.n_heads,)](
                self.mixed, self.peaks, self.sums, out,
                D=self.width, WIDE_D=power_of_two(self.width), SPLITS=self.parts, WIDE=power_of_two(self.parts),
                num_warps=2,
            )  # fmt: skip
        return out


def _address(model: Model) -> tuple[int, torch.dtype]:
    """Where a model's weights are: a recorded step reads them there."""
    first = next(model.parameters())
    return first.data_ptr(), first.dtype
