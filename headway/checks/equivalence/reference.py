"""The reference for checks of generation: expected logits of a model, recomputed with higher precision.

A copy in float64 (in float32 for a model in half precision or int8) tells rounding from errors. It recomputes every
sequence from its first token through `Model.__call__`: no KV cache, no padding, no batch. A fast path may differ from
it by a few times the rounding error of the model's own forward pass.
Letters: T tokens, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from headway.baselines.build import make_model
from headway.checks.equivalence.result import TOLERANCE, max_difference
from headway.config.model import FramesConfig, ModelConfig, PatchesConfig, TokensConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.sounds import OverSamples
from headway.generate.accel import dispatch as fast
from headway.generate.protocol import Source
from headway.kernels.quantized import Int8Embedding, Int8Linear
from headway.model.attention import Attention
from headway.model.model import Model, Transformer
from headway.model.positions import make_embedding
from headway.model.quantize import quantize_

LENGTHS = (3, 11, 6, 13)
"""Lengths of the prompts: different, shorter and longer than a chunk of a fast prefill."""
NEW = 8
"""New tokens per sequence."""
SHORTEST = 12
"""The shortest context, in tokens, that these checks need."""
LARGEST, QUICK = 200_000_000, 20_000_000
"""Parameters of the largest model that is copied, to measure its rounding error; and of the largest one for which all
is recomputed in float64. Larger models are recomputed in their own precision."""
ROUNDING = {torch.float64: 8, torch.float32: 8, torch.float16: 3, torch.bfloat16: 3}
"""A fast path may have this many times the rounding error of the forward pass: it sums in another order."""
RECENT = 16
"""Sequences whose logits are cached, since several paths generate the same."""
CLEAR = 10
"""An error of 10 % in the attention scale must exceed the limit this many times."""


class Reference:
    """A model, prompts for it, and the logits it should have."""

    def __init__(self, model: Model, seed: int = 0, note: str = "") -> None:
        self.model, self.config, self.note = model, model.config, note
        first = next(model.parameters())
        self.device, self.dtype = first.device, first.dtype
        self.low_precision = model.config.quantization != "none" or self.dtype in (torch.bfloat16, torch.float16)
        """Whether rounding may change which of two tokens has the higher logit."""
        generator = torch.Generator().manual_seed(seed)
        self.vocab = model.lm.vocab
        self.prompts = self._prompts(generator)
        self.sources: list[Tensor] = []
        """Encoder inputs, one per prompt; empty for a model without an encoder."""
        if self.config.encoder is not None and self.config.source is not None:
            self.sources = [self._source(self.config.source, n, generator) for n in LENGTHS]
        self._recent: dict[tuple[int, ...], Tensor] = {}
        self.exact = model
        count = model.parameter_count()
        copied = (
            exact_copy(model, torch.float32 if self.low_precision else torch.float64) if count <= LARGEST else model
        )
        wanted = [self._forward(copied, p, i) for i, p in enumerate(self.prompts)]
        rounding_error = max(
            max_difference(self.logits(p, i), w) for i, (p, w) in enumerate(zip(self.prompts, wanted, strict=True))
        )
        self.limit = self._limit(rounding_error, max(1.0, *(float(w.abs().max()) for w in wanted)), copied is not model)
        if self.low_precision or count <= QUICK:
            self.exact = copied
            self._recent.clear()

    def _limit(self, rounding_error: float, largest: float, known: bool) -> float:
        """A few times the rounding error of the forward pass, if known; at least that of a sum in float32."""
        kind = torch.bfloat16 if self.config.quantization != "none" else self.dtype
        least = max(TOLERANCE[kind], TOLERANCE[torch.float32]) / 100 * largest
        usual = TOLERANCE[kind] * largest
        return max(least, min(usual, ROUNDING[kind] * rounding_error + least)) if known else usual

    def _prompts(self, generator: torch.Generator) -> list[list[int]]:
        """Random tokens; the last prompt shares a prefix with the second."""
        room = self.config.max_length
        most = max(LENGTHS) if room is None else max(1, room - NEW)
        rows = [torch.randint(self.vocab, (min(n, most),), generator=generator).tolist() for n in LENGTHS]
        rows[3][: len(rows[1]) - 2] = rows[1][:-2]
        return rows

    def _source(self, front: Any, length: int, generator: torch.Generator) -> Tensor:
        made = random_input(front, length, generator).to(self.device)
        return made.to(self.dtype) if made.is_floating_point() else made

    def logits(self, tokens: Sequence[int], place: int = 0) -> Tensor:
        """(T, V): logits after each token, with encoder input `place`, recomputed from the first token."""
        key = (place if self.sources else 0, *tokens)
        if key not in self._recent:
            if len(self._recent) == RECENT:
                del self._recent[next(iter(self._recent))]
            self._recent[key] = self._forward(self.exact, tokens, place)
        return self._recent[key]

    def _forward(self, model: Model, tokens: Sequence[int], place: int) -> Tensor:
        ids = torch.tensor([list(tokens)], device=self.device)
        if not self.sources:
            output = model(ids)
        else:
            source, kind = self.sources[place][None], next(model.parameters()).dtype
            output = model(source.to(kind) if source.is_floating_point() else source, ids)
        logits: Tensor = model.lm(output.hidden)
        return logits[0].double().cpu()

    def source(self, rows: Sequence[int]) -> Source | None:
        """The encoder inputs of these prompts, padded on the right; None for a model without an encoder."""
        if not self.sources:
            return None
        some = [self.sources[i] for i in rows]
        if isinstance(self.config.source, PatchesConfig):
            return Source(torch.stack(some))
        return Source(*pad(some, left=False))

    def stops_at(self, tokens: Sequence[int]) -> Model:
        """The model with other end-of-sequence tokens; the weights are shared."""
        twin = copy.copy(self.model)
        twin.config = replace(self.config, special=replace(self.config.special, eos=tuple(tokens)))
        return twin

    def is_sensitive(self) -> bool:
        """Whether an error of 10 % in the attention scale would exceed the limit."""
        parts = [m for m in self.exact.modules() if isinstance(m, Attention)]
        if not parts or self.exact is self.model:
            return True
        tokens = self.prompts[1]
        right, scales = self.logits(tokens, 1), [part.scale for part in parts]
        for part in parts:
            part.scale = 1.1 * (part.scale or part.width**-0.5)
        wrong = self._forward(self.exact, tokens, 1)
        for part, scale in zip(parts, scales, strict=True):
            part.scale = scale
        return max_difference(right, wrong) > CLEAR * self.limit


def make_reference(model: Model, seed: int = 0) -> Reference:
    """The reference of the model, or of a copy with random weights if the model's own weights would hide errors."""
    own = Reference(model, seed)
    if own.is_sensitive():
        return own
    note = "with random weights: this model's attention is too weak to show errors"
    return Reference(_with_random_weights(model, seed), seed, note)


def too_short(config: AnyConfig) -> bool:
    return config.max_length is not None and config.max_length < SHORTEST


def random_input(front: Any, length: int, generator: torch.Generator) -> Tensor:
    """Random tokens, a random image, or a random sound."""
    if isinstance(front, PatchesConfig):
        return torch.randn(*front.shape, generator=generator)
    if isinstance(front, FramesConfig):
        return torch.randn(front.channels, 2 * length, generator=generator)
    if isinstance(front, OverSamples):
        width, stride = front.span()
        return torch.randn(width + (length - 1) * stride, generator=generator)
    return torch.randint(front.vocab if isinstance(front, TokensConfig) else 2, (length,), generator=generator)


def pad(rows: Sequence[Tensor], *, left: bool) -> tuple[Tensor, Tensor]:
    """Rows of different lengths as one tensor, and the attention mask."""
    longest = max(row.shape[-1] for row in rows)
    place = torch.arange(longest, device=rows[0].device)
    padded, mask = [], []
    for row in rows:
        extra = longest - row.shape[-1]
        padded.append(nn.functional.pad(row, (extra, 0) if left else (0, extra)))
        mask.append(place >= extra if left else place < row.shape[-1])
    return torch.stack(padded), torch.stack(mask)


def exact_copy(model: Model, dtype: torch.dtype = torch.float64) -> Model:
    """The model in float64 or float32, with int8 matrices dequantized."""
    twin = copy.deepcopy(model)
    for part in list(twin.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, Int8Linear):
                setattr(part, name, _dequantized_linear(child))
            elif isinstance(child, Int8Embedding):
                table = make_embedding(child.num_embeddings, child.embedding_dim)
                table.weight = nn.Parameter(_dequantized(child), requires_grad=False)
                setattr(part, name, table)
    if isinstance(twin.config, ModelConfig):
        twin.config = replace(twin.config, quantization="none")
    return twin.to(dtype).eval()


def _dequantized_linear(linear: Int8Linear) -> nn.Linear:
    plain = nn.Linear(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
    plain.weight, plain.bias = nn.Parameter(_dequantized(linear), requires_grad=False), linear.bias  # type: ignore[assignment]
    return plain


def _dequantized(part: Int8Linear | Int8Embedding) -> Tensor:
    return part.matrix.weight.double() * part.matrix.scale.double()[:, None]


def _with_random_weights(model: Model, seed: int) -> Model:
    """The same architecture with random weights, large enough for uneven attention and clear logits."""
    first, config = next(model.parameters()), model.config
    plain = replace(config, quantization="none") if isinstance(config, ModelConfig) else config
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        twin = make_model(plain)
        for part in twin.parameters():
            if part.ndim > 1:
                nn.init.normal_(part, 0, part.shape[-1] ** -0.5)
            else:
                part.data += 0.2 * torch.randn_like(part)
    for table, rows in twin.vocabulary_rows():
        table.data[rows:] = 0
    twin = twin.to(device=first.device, dtype=first.dtype).eval()
    return quantize_(twin) if isinstance(twin, Transformer) and config != plain else twin


@contextmanager
def with_kernels(of_any_size: bool = True) -> Iterator[None]:
    """Use the accelerated decoders for models of any size; by default small models run in torch, which is as fast."""
    smallest, threads = fast.MIN_WEIGHTS, torch.get_num_threads()
    fast.MIN_WEIGHTS = 0 if of_any_size else smallest
    try:
        yield
    finally:
        fast.MIN_WEIGHTS = smallest
        torch.set_num_threads(threads)  # Numba's thread pool changes it when it starts
