"""Checks of weights: padding rows of the vocabulary, tied matrices, LoRA adapters, int8.

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

from headway.baselines.ngram import NGram
from headway.checks.equivalence.reference import LARGEST, Reference, too_short, with_kernels
from headway.checks.equivalence.result import TOLERANCE, Outcome, max_difference, skip
from headway.generate.beam.search import Beam, beam_search
from headway.generate.decode import decode
from headway.generate.sampling.sampler import Sampling
from headway.hub.convert import dump_tensors
from headway.kernels.lora import LoRALinear, add_adapters, merge_adapters
from headway.kernels.quantized import Int8Linear, stored_tensors
from headway.model.feed_forward import Experts
from headway.model.model import Model
from headway.tasks.losses.tokens import r_drop_loss, token_loss

MATRICES = ("qkv", "q", "kv", "out", "up", "down")
"""Matrices that can have an adapter."""
TOGETHER = 33
"""Sequences in one step: more than one kernel call takes."""


def spare_rows(model: Model, limit: float) -> Outcome:
    """The model pads its vocabulary. Whatever the padding rows hold, they are not predicted, not part of any loss, and
    not in any file."""
    if model.config.lm is None:
        return skip("the model does not predict tokens")
    if isinstance(model, NGram):
        return skip("the vocabulary has no padding")
    if model.lm.output.out_features == model.lm.vocab:
        return skip("the vocabulary has no padding")
    generator = torch.Generator().manual_seed(0)
    first = next(model.parameters())
    hidden = torch.randn(6, model.config.output_stack.d_model, generator=generator).to(first.device, first.dtype)
    prompts = torch.randint(model.lm.vocab, (2, 3), generator=generator)
    before, files = [*_logits_and_losses(model, hidden), *_generated(model, prompts)], _in_files(model)
    with _spare_rows_filled(model, hidden):
        after, changed = [*_logits_and_losses(model, hidden), *_generated(model, prompts)], _in_files(model)
    if files != changed:
        return Outcome(math.inf, limit, "a file holds the padding rows")
    if any(a.shape != b.shape for a, b in zip(before, after, strict=True)):
        return Outcome(math.inf, limit, "the logits include the padding rows")
    return Outcome(max(max_difference(a, b) for a, b in zip(before, after, strict=True)), limit)


def _logits_and_losses(model: Model, hidden: Tensor) -> list[Tensor]:
    """Logits and losses of six hidden states."""
    head, targets = model.lm, torch.arange(len(hidden), device=hidden.device) % model.lm.vocab
    logits, wide = head(hidden), head.padded_logits(hidden)
    losses = [token_loss(head, hidden, targets, share)[0] for share in (0.0, 0.1)]
    twice = r_drop_loss(head, hidden, targets[: len(hidden) // 2], 0.1, 1.0)[0]
    return [logits, wide.float().logsumexp(-1), wide.argmax(-1), torch.stack([*losses, twice])]


def _generated(model: Model, prompts: Tensor) -> list[Tensor]:
    """Tokens that a decoder generates: greedy, sampled, by beam search."""
    if model.config.decoder is None or model.config.encoder is not None or too_short(model.config):
        return []
    found, rows = [], prompts.tolist()
    for how in (Sampling(temperature=0.0, stop=(), max_tokens=4), Sampling(seed=1, stop=(), max_tokens=4)):
        with with_kernels():
            found.append([piece.token for piece in decode(model, rows, how)])
    texts = beam_search(model, Beam(width=2, max_tokens=4, eos=()), rows)
    return [torch.tensor(found), torch.tensor([best[0].tokens for best in texts])]


def _in_files(model: Model) -> dict[str, tuple[tuple[int, ...], float]]:
    """Shapes and sums of the tables that a file would hold."""
    tables = ((name, t) for name, t in dump_tensors(model, None, "") if t.ndim and len(t) >= model.lm.vocab)
    return {name: (tuple(t.shape), float(t.double().sum())) for name, t in tables}


@contextmanager
def _spare_rows_filled(model: Model, hidden: Tensor) -> Iterator[None]:
    """Fill the padding rows with values whose logits exceed those of all tokens; restore them afterwards."""
    kept = [(part, rows, part.data[rows:].clone()) for part, rows in model.vocabulary_rows()]
    wanted = model.lm.features(hidden).float()
    largest = float(model.lm(hidden).float().abs().max())
    try:
        for part, rows, _ in kept:
            spare = len(part) - rows
            if part.ndim == 2:
                loud = wanted[torch.arange(spare) % len(wanted)]
                if part.shape[1] != loud.shape[1]:  # the table of a front end of its own width
                    loud = torch.ones(spare, part.shape[1], device=part.device)
                part.data[rows:] = (127 * loud / loud.abs().amax(1, keepdim=True)).to(part.dtype)
            else:  # a bias, or the scales of int8
                part.data[rows:] = 3 * (1 + largest)
        yield
    finally:
        for part, rows, old in kept:
            part.data[rows:] = old


def tied(model: Model, again: Model) -> Outcome:
    """Tied matrices are one tensor, in the model and after saving and loading."""
    config = model.config
    if not (config.shared_embedding or (config.lm and config.lm.tied)):
        return skip("no tied matrices")
    for each in (model, again):
        fronts = [front for name in ("target", "source") if (front := getattr(each, name, None)) is not None]
        tables = [fronts[0].table, *([fronts[1].table] if config.shared_embedding else [])]
        tables += [each.lm.output] if config.lm and config.lm.tied else []
        if len({stored_tensors(table)[0].data_ptr() for table in tables}) != 1:
            return Outcome(math.inf, note="not tied before saving" if each is model else "not tied after loading")
    return Outcome(0.0)


def has_experts(model: nn.Module) -> bool:
    return any(isinstance(part, Experts) for part in model.modules())


def experts(model: nn.Module) -> Outcome:
    """Tokens sorted by expert, against every expert computing all tokens."""
    worst, limit = 0.0, 0.0
    for number, part in enumerate(each for each in model.modules() if isinstance(each, Experts)):
        weight = part.router.weight
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(2, 9, weight.shape[1], generator=generator).to(weight.device, weight.dtype)
        wanted = part.one_by_one(x)
        worst = max(worst, max_difference(part(x), wanted))
        limit = max(limit, TOLERANCE[weight.dtype] * max(1.0, float(wanted.abs().max())))
    return Outcome(worst, limit)


def adapters(model: Model, read: Any) -> Outcome:
    """LoRA adapters beside the matrices, and merged into them; `read` returns the outputs of a model.

    A model in half precision is checked in float32: rounding would hide the effect of small adapters.
    """
    if model.config.quantization != "none":
        return skip("int8 models have no adapters")
    if model.parameter_count() > LARGEST:
        return skip(f"checked up to {LARGEST:,} parameters")
    kind = next(model.parameters()).dtype
    wide = torch.promote_types(kind, torch.float32)
    note = "" if kind == wide else "in float32"
    twin = copy.deepcopy(model).to(wide)
    plain = read(twin)
    if not add_adapters(twin, 2, MATRICES):
        return skip("no matrix can have an adapter")
    twin = twin.to(wide)  # adapters start in float32
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for part in twin.modules():
            if isinstance(part, LoRALinear):
                nn.init.normal_(part.widen, 0, 0.1 * part.out_features**-0.5)
    beside = read(twin)
    merge_adapters(twin)
    merged = read(twin)
    largest = max(float(value.abs().max()) for value in plain.values())
    limit = TOLERANCE[wide] * (max(1.0, largest) if math.isfinite(largest) else 1.0)
    if not any(max_difference(plain[k], beside[k]) > limit for k in plain):
        return Outcome(math.inf, limit, "adapters have no effect")
    return Outcome(max(max_difference(beside[k], merged[k]) for k in beside), limit, note)


def int8_batches(reference: Reference) -> Outcome:
    """A sequence alone, and in a batch so large that another kernel computes the products."""
    model = reference.model
    if not any(isinstance(part, Int8Linear) for part in model.modules()):
        return skip("the model is not quantized")
    text, count = reference.prompts[0], TOGETHER
    ids = torch.tensor([text], device=reference.device)
    source = reference.source([0] * count)
    found = []
    for rows in (1, count):
        some = None if source is None else source.take([0] * rows)
        cache = (
            model.start(batch=rows, capacity=len(text))
            if some is None
            else model.start(some.inputs, attention_mask=some.attention_mask, capacity=len(text))
        )
        found.append(model.step(cache, ids.expand(rows, -1))[0])
    return Outcome(max_difference(*found), reference.limit, reference.note)
