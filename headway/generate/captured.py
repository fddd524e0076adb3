"""A decoding step at the speed of memory: one token of every text, in a few kernels, recorded once and replayed.

Used on NVIDIA GPUs for decoders of the usual build: norms before the branches, no bias on the scores. Everything else
decodes through `Model.step`, which this is tested against.
Letters: B texts, V vocabulary, G key-value heads, D width of a head, M width of the model, S columns of the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from headway.model.masks import Layout
from headway.model.model import Model
from headway.model.norms import LayerNorm, RMSNorm
from headway.model.positions import rotary_angles

SPLIT = 512
"""Columns that one program of the attention looks at."""


def fits(model: Model, device: torch.device) -> bool:
    """Whether a model can be decoded by these kernels."""
    config = model.config
    stack, front = config.decoder, config.target
    if device.type != "cuda" or find_spec("triton") is None or stack is None or front is None or config.lm is None:
        return False
    plain = not (stack.cross or stack.relative or stack.alibi or stack.sparse or stack.window or stack.layer_scale)
    usual = stack.norm_at == "pre" and stack.norm != "dyt" and stack.residual and stack.final_norm and stack.key_bias
    simple = not front.positions.every_layer and stack.head_width % 2 == 0 and config.lm.transform is None
    linears = [m for m in model.decoder.modules() if m is not model.decoder and hasattr(m, "in_features")]
    half = next(model.parameters()).dtype in (torch.bfloat16, torch.float16)
    return plain and usual and simple and half and all(type(m) is nn.Linear for m in [*linears, model.lm.output])


class FastStep:
    """Reads `ids` (B,) into columns `end` of a cache and leaves scores (B, V) in `scores`; `end` moves on by itself."""

    def __init__(self, model: Model, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        """Keys and values are (B, G, S, D) by layer; a text has columns begin … end, both to be set by the caller."""
        stack = model.config.decoder
        assert stack is not None
        self.model, self.keys, self.values, self.stack = model, keys, values, stack
        rows, _, columns, _ = keys[0].shape
        device, dtype = keys[0].device, keys[0].dtype
        self.ids = torch.zeros(rows, dtype=torch.long, device=device)
        self.begin = torch.zeros(rows, dtype=torch.int32, device=device)
        self.end = torch.zeros(rows, dtype=torch.int32, device=device)
        self.moves = torch.ones(rows, dtype=torch.int32, device=device)
        """How far `end` moves: 0 for a row that nobody uses."""
        self.angles: tuple[Tensor, Tensor] | None = None
        if stack.rope is not None:
            places = torch.arange(columns, device=device)[None]
            self.angles = tuple(a[0, 0].contiguous() for a in rotary_angles(stack.rope, stack.head_width, places))  # type: ignore[assignment]
        self.parts = -(-columns // SPLIT)
        heads = stack.n_heads
        self.mixed = torch.empty(rows, heads, self.parts, stack.head_width, device=device, dtype=torch.float32)
        self.peaks = torch.empty(rows, heads, self.parts, device=device)
        self.sums = torch.empty_like(self.peaks)
        self.scores = torch.empty(0)
        self._graph: torch.cuda.CUDAGraph | None = None
        self.dtype = dtype

    def __call__(self) -> Tensor:
        """The scores of the next tokens; they are overwritten by the next call."""
        if self._graph is None:
            self._record()
        assert self._graph is not None
        self._graph.replay()
        return self.scores

    def _record(self) -> None:
        """Kernels are compiled in a first pass, on a stream of its own as recording wants it; it moves nothing."""
        keep = self.end.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._pass()
        torch.cuda.current_stream().wait_stream(stream)
        self.end.copy_(keep)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.scores = self._pass()
        self.end.copy_(keep)

    def _pass(self) -> Tensor:
        model = self.model
        places = (self.end - self.begin).long()[:, None]
        x = model.target(self.ids[:, None], layout=Layout(places, None, 0)).x[:, 0]
        scores = (self._one(x) if len(x) == 1 else self._several(x))[:, : model.lm.vocab]
        self.end += self.moves
        return scores if model.lm.config.scale == 1.0 else scores * model.lm.config.scale

    def _one(self, x: Tensor) -> Tensor:
        """Matrix by vector: all else happens in the kernels that read a matrix."""
        for layer, block in enumerate(self.model.decoder.blocks):
            attention, ffn = block.attention, block.ffn
            qkv = vector_product(x, attention.qkv, norm=block.residual1.norm)
            x = vector_product(self._attend(layer, qkv), attention.out, add=x)
            hidden = vector_product(x, ffn.up, norm=block.residual2.norm, act=ffn.activation, gated=ffn.gated)
            x = vector_product(hidden, ffn.down, add=x)
        return vector_product(x, self.model.lm.output, norm=self.model.decoder.norm)

    def _several(self, x: Tensor) -> Tensor:
        """Products by the library, which is as fast as memory for these; between them one kernel each."""
        decoder = self.model.decoder
        norms = [*(block.residual1.norm for block in decoder.blocks[1:]), decoder.norm]
        x, normed = add_and_norm(x, None, decoder.blocks[0].residual1.norm)
        for layer, (block, following) in enumerate(zip(decoder.blocks, norms, strict=True)):
            attention, ffn = block.attention, block.ffn
            x, normed = add_and_norm(x, attention.out(self._attend(layer, attention.qkv(normed))), block.residual2.norm)
            hidden = gate_values(ffn.up(normed), ffn.activation, ffn.gated)
            x, normed = add_and_norm(x, ffn.down(hidden), following)
        return self.model.lm.output(normed)

    def _attend(self, layer: int, qkv: Tensor) -> Tensor:
        from headway.generate import kernels

        stack, keys = self.stack, self.keys[layer]
        width, group = stack.head_width, stack.n_heads // stack.kv_heads
        rows = len(keys)
        out = torch.empty(rows, stack.n_heads * width, device=qkv.device, dtype=qkv.dtype)
        cos, sin = self.angles if self.angles is not None else (qkv, qkv)
        one = self.parts == 1
        kernels.attend[(rows, stack.kv_heads, self.parts)](
            qkv, keys, self.values[layer], cos, sin, self.begin, self.end,
            out if one else self.mixed, self.peaks, self.sums, keys.stride(0), keys.stride(1),
            stack.scale or width**-0.5,
            G=stack.kv_heads, R=group, D=width, HALF=max(16, _power(width // 2)), WIDE_R=max(16, _power(group)),
            ROTARY=self.angles is not None, SPLIT=SPLIT, SPLITS=self.parts, BLOCK=64, num_warps=4,
        )  # fmt: skip
        if not one:
            kernels.merge[(rows * stack.n_heads,)](
                self.mixed, self.peaks, self.sums, out,
                D=width, WIDE_D=_power(width), SPLITS=self.parts, WIDE=_power(self.parts), num_warps=2,
            )  # fmt: skip
        return out


def vector_product(
    x: Tensor,
    linear: nn.Linear,
    *,
    norm: nn.Module | None = None,
    act: str = "none",
    gated: bool = False,
    add: Tensor | None = None,
) -> Tensor:
    """act(linear(norm(x))) + add of one row x (1, K); `gated` halves what comes out."""
    from headway.generate import kernels

    inputs, outputs = linear.in_features, linear.out_features // (2 if gated else 1)
    out = torch.empty(1, outputs, device=x.device, dtype=x.dtype)
    block_n = 8 if outputs > 1 << 15 else 4
    block_k = 2048 if inputs % 2048 == 0 and inputs > 4096 else 1024 if inputs % 1024 == 0 else 256
    kernels.vector_product[(-(-outputs // block_n),)](
        x, linear.weight, linear.bias if linear.bias is not None else x, getattr(norm, "weight", x),
        getattr(norm, "bias", x), x if add is None else add, out, outputs, inputs,
        getattr(norm, "eps", 0.0), getattr(norm, "offset", 0.0),
        NORM=_kind(norm), ACT=act, GATED=gated, BIAS=linear.bias is not None, ADD=add is not None,
        BLOCK_N=block_n, BLOCK_K=block_k, WIDE_K=_power(inputs), num_warps=4,
    )  # fmt: skip
    return out


def add_and_norm(x: Tensor, y: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """x + y, in x's place, and its norm."""
    from headway.generate import kernels

    out = torch.empty_like(x)
    kernels.add_and_norm[(len(x),)](
        x, x if y is None else y, norm.weight, getattr(norm, "bias", x), out, x.shape[1], norm.eps,
        getattr(norm, "offset", 0.0),
        ADD=y is not None, NORM=_kind(norm), WIDE_K=_power(x.shape[1]), num_warps=4,
    )  # fmt: skip
    return x, out


def gate_values(x: Tensor, act: str, gated: bool) -> Tensor:
    """act(x), or act(gate) · value."""
    from headway.generate import kernels

    rows, width = x.shape
    width //= 2 if gated else 1
    out = torch.empty(rows, width, device=x.device, dtype=x.dtype)
    kernels.gate_values[(rows, -(-width // 1024))](x, out, width, ACT=act, GATED=gated, BLOCK=1024, num_warps=4)
    return out


def _kind(norm: nn.Module | None) -> str:
    return {LayerNorm: "layernorm", RMSNorm: "rmsnorm"}.get(type(norm), "none")


def _power(count: int) -> int:
    """The power of two that is not below a count."""
    return 1 << (count - 1).bit_length()
