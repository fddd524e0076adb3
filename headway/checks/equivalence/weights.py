"""Proofs about weights: rows that only round a vocabulary up, matrices that are shared, adapters, whole numbers.

Letters: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headway.checks.equivalence.rows import TOLERANCE, Row, gap
from headway.checks.equivalence.subject import LARGEST, Subject, kernels, too_short
from headway.generate.beam.search import Beam, beam_search
from headway.generate.decode import decode
from headway.generate.sampling.sampler import Sampling
from headway.hub.convert import dump_tensors
from headway.model.lora import LowRank, add_adapters, merge_adapters
from headway.model.model import Model
from headway.model.quantized import Int8Linear, stored
from headway.tasks.losses.tokens import token_loss, twice_loss

SPARE, TIED = "spare rows closed", "tied = one matrix"
ADAPTERS, WHOLE = "LoRA merged = beside", "int8 alone = together"
MATRICES = ("qkv", "q", "kv", "out", "up", "down")
"""Those that adapters may stand beside."""
TOGETHER = 33
"""Sequences in one step: more than one call of a kernel takes."""


def spare_rows(model: Model, limit: float) -> Row:
    """A vocabulary is rounded up inside the model. Whatever the extra rows hold, nothing predicts them, no loss counts
    them and no file has them."""
    if model.config.lm is None:
        return Row(SPARE, None, note="the model predicts no tokens")
    if model.lm.output.out_features == model.lm.vocab:
        return Row(SPARE, None, note="the vocabulary fills its table")
    dice = torch.Generator().manual_seed(0)
    first = next(model.parameters())
    hidden = torch.randn(6, model.config.output_stack.d_model, generator=dice).to(first.device, first.dtype)
    prompts = torch.randint(model.lm.vocab, (2, 3), generator=dice)
    before, files = [*_decided(model, hidden), *_generated(model, prompts)], _in_files(model)
    with _opened(model, hidden):
        after, changed = [*_decided(model, hidden), *_generated(model, prompts)], _in_files(model)
    if files != changed:
        return Row(SPARE, math.inf, limit, "a file has them")
    if any(a.shape != b.shape for a, b in zip(before, after, strict=True)):
        return Row(SPARE, math.inf, limit, "they are among the logits")
    return Row(SPARE, max(gap(a, b) for a, b in zip(before, after, strict=True)), limit)


def _decided(model: Model, hidden: Tensor) -> list[Tensor]:
    """Logits and losses of six hidden states."""
    head, targets = model.lm, torch.arange(len(hidden), device=hidden.device) % model.lm.vocab
    logits, wide = head(hidden), head.wide(hidden)
    losses = [token_loss(head, hidden, targets, share)[0] for share in (0.0, 0.1)]
    twice = twice_loss(head, hidden, targets[: len(hidden) // 2], 0.1, 1.0)[0]
    return [logits, wide.float().logsumexp(-1), wide.argmax(-1), torch.stack([*losses, twice])]


def _generated(model: Model, prompts: Tensor) -> list[Tensor]:
    """Tokens that a decoder generates, in each way."""
    if model.config.decoder is None or model.config.encoder is not None or too_short(model.config):
        return []
    found, rows = [], prompts.tolist()
    for how in (Sampling(temperature=0.0, stop=(), max_tokens=4), Sampling(seed=1, stop=(), max_tokens=4)):
        with kernels():
            found.append([piece.token for piece in decode(model, rows, how)])
    texts = beam_search(model, Beam(width=2, max_tokens=4, eos=()), rows)
    return [torch.tensor(found), torch.tensor([best[0].tokens for best in texts])]


def _in_files(model: Model) -> dict[str, tuple[tuple[int, ...], float]]:
    """Shapes and sums of the tables that a file would have."""
    tables = ((name, t) for name, t in dump_tensors(model, None, "") if t.ndim and len(t) >= model.lm.vocab)
    return {name: (tuple(t.shape), float(t.double().sum())) for name, t in tables}


@contextmanager
def _opened(model: Model, hidden: Tensor) -> Iterator[None]:
    """The extra rows hold what scores higher than any token; afterwards, what they held."""
    kept = [(part, rows, part.data[rows:].clone()) for part, rows in model.vocabulary_rows()]
    wanted = model.lm.features(hidden).float()
    largest = float(model.lm(hidden).float().abs().max())
    try:
        for part, rows, _ in kept:
            spare = len(part) - rows
            if part.ndim == 2:
                loud = wanted[torch.arange(spare) % len(wanted)]
                part.data[rows:] = (127 * loud / loud.abs().amax(1, keepdim=True)).to(part.dtype)
            else:  # a bias, or the scale of whole numbers
                part.data[rows:] = 3 * (1 + largest)
        yield
    finally:
        for part, rows, old in kept:
            part.data[rows:] = old


def tied(model: Model, again: Model) -> Row:
    """Matrices that the config shares are one, in the model and after it was saved and loaded."""
    config = model.config
    if not (config.shared_embedding or (config.lm and config.lm.tied)):
        return Row(TIED, None, note="nothing is tied")
    for each in (model, again):
        fronts = [
            front for front in (getattr(each, "target", None), getattr(each, "source", None)) if front is not None
        ]
        tables = [fronts[0].table, *([fronts[1].table] if config.shared_embedding else [])]
        tables += [each.lm.output] if config.lm and config.lm.tied else []
        if len({stored(table)[0].data_ptr() for table in tables}) != 1:
            return Row(TIED, math.inf, note="before it was saved" if each is model else "after it was loaded")
    return Row(TIED, 0.0)


def adapters(model: Model, read: Any) -> Row:
    """Adapters beside the matrices, and the same adapters added to them; `read` gives the outputs of a model.

    A model in half precision is read in float32: its own rounding would hide what small adapters do.
    """
    if model.config.quantization != "none":
        return Row(ADAPTERS, None, note="whole numbers have no adapters")
    if model.parameter_count() > LARGEST:
        return Row(ADAPTERS, None, note=f"tried up to {LARGEST:,} weights")
    kind = next(model.parameters()).dtype
    wide = torch.promote_types(kind, torch.float32)
    note = "" if kind == wide else "in float32"
    twin = copy.deepcopy(model).to(wide)
    plain = read(twin)
    if not add_adapters(twin, 2, MATRICES):
        return Row(ADAPTERS, None, note="no matrix has a place for them")
    twin = twin.to(wide)  # adapters start in float32
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for part in twin.modules():
            if isinstance(part, LowRank):
                nn.init.normal_(part.widen, 0, 0.1 * part.out_features**-0.5)
    beside = read(twin)
    merge_adapters(twin)
    merged = read(twin)
    largest = max(float(value.abs().max()) for value in plain.values())
    limit = TOLERANCE[wide] * (max(1.0, largest) if math.isfinite(largest) else 1.0)
    if not any(gap(plain[k], beside[k]) > limit for k in plain):
        return Row(ADAPTERS, math.inf, limit, "adapters do nothing")
    return Row(ADAPTERS, max(gap(beside[k], merged[k]) for k in beside), limit, note)


def whole_numbers(subject: Subject) -> Row:
    """A sequence alone, and beside so many others that products are taken in another way."""
    model = subject.model
    if not any(isinstance(part, Int8Linear) for part in model.modules()):
        return Row(WHOLE, None, note="the matrices are not in whole numbers")
    text, count = subject.prompts[0], TOGETHER
    ids = torch.tensor([text], device=subject.device)
    source = subject.source([0] * count)
    found = []
    for rows in (1, count):
        some = None if source is None else source.take([0] * rows)
        cache = (
            model.start(batch=rows, capacity=len(text))
            if some is None
            else model.start(some.inputs, keep=some.keep, capacity=len(text))
        )
        found.append(model.step(cache, ids.expand(rows, -1))[0])
    return Row(WHOLE, gap(*found), subject.limit, subject.note)
