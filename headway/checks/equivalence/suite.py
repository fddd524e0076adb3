"""All checks of a model, in the order in which `headway check` prints them; those of one forward pass are here."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.baselines.ngram import NGram
from headway.checks.equivalence import beam, decoding, text, weights
from headway.checks.equivalence.fusion import FusionChecks
from headway.checks.equivalence.graph import GraphChecks
from headway.checks.equivalence.memory import MemoryChecks
from headway.checks.equivalence.reference import (
    LARGEST,
    ROUNDING,
    SHORTEST,
    Reference,
    exact_copy,
    make_reference,
    pad,
    random_input,
    too_short,
)
from headway.checks.equivalence.result import TOLERANCE, CheckResult, Outcome, max_difference, skip
from headway.checks.equivalence.series import SeriesChecks
from headway.checks.equivalence.words import WordChecks
from headway.config.model import FramesConfig, PatchesConfig, TokensConfig, max_positions
from headway.config.networks.baseline import BaselineConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.sounds import OverSamples
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import HeadwayError
from headway.generate.decode import Sampling, generate
from headway.hub.convert import dump_tensors
from headway.hub.folder import load_model, save_model
from headway.joint.fusion import Fusion
from headway.joint.graph import GraphModel
from headway.joint.memory import MemoryModel
from headway.joint.series import SeriesModel
from headway.joint.towers import TwoTowers
from headway.joint.words import WordVectors
from headway.kernels.sparse.tiles import long_from
from headway.model.model import Model, Output, Transformer, evaluating
from headway.progress import bar

LENGTHS = (5, 37, 22)
"""Lengths of the sequences: different, and one longer than T5's exact position buckets."""
LONGEST = 8192
"""The longest sequence that is made longer for a sparse pattern: all its pairs are computed too."""
Check = Callable[[], Outcome]
BESIDE: tuple[
    tuple[type, Callable[..., FusionChecks | SeriesChecks | GraphChecks | WordChecks | MemoryChecks]], ...
] = (
    (Fusion, FusionChecks),
    (SeriesModel, SeriesChecks),
    (GraphModel, GraphChecks),
    (WordVectors, WordChecks),
    (MemoryModel, MemoryChecks),
)
"""The checks of models beside the transformer, which read neither tokens nor images alone."""


@torch.no_grad()  # on a generator it gives the caller its own mode back between two results
def check_model(
    model: Model, tokenizer: Tokenizer | None = None, *, compiled: bool = True, seed: int = 0
) -> Iterator[CheckResult]:
    """Yield each result when it is known. The model is unchanged afterwards."""
    if isinstance(model, TwoTowers):
        yield from _check_towers(model, compiled, seed)
        return
    beside = next((checks for kind, checks in BESIDE if isinstance(model, kind)), None)
    if beside is not None:
        with evaluating(model):
            for name, check in beside(model, seed).table(compiled):
                yield _result(name, check)
        yield _result("saved = loaded", lambda: _saved(model, _loaded(model)))
        return
    with evaluating(model):
        checks = _ModelChecks(model, tokenizer, seed)
        for name, check in checks.table().items():
            yield _result(name, check)
        if compiled:
            yield _result("compiled = eager", checks.compiling)


def _check_towers(model: TwoTowers, compiled: bool, seed: int) -> Iterator[CheckResult]:
    """The checks of each tower, and that both are saved together."""
    for name in ("image", "text"):
        for result in check_model(getattr(model, name), compiled=compiled, seed=seed):
            yield replace(result, name=f"{name}: {result.name}")
    yield _result("saved = loaded", lambda: _saved(model, _loaded(model)))


def _loaded(model: Model) -> Model:
    """The model after saving and loading."""
    like = next(model.parameters())
    with tempfile.TemporaryDirectory(prefix="headway-check-") as folder:
        save_model(model, Path(folder) / "model")
        return load_model(Path(folder) / "model", dtype=like.dtype, device=like.device)


def _saved(model: Model, loaded: Model) -> Outcome:
    """Saved and loaded: the same bits."""
    before, after = (dict(dump_tensors(m, None, "")) for m in (model, loaded))
    worst = max(max_difference(before[name], after[name]) for name in before)
    return Outcome(worst, 0.0, "" if loaded.config.family == model.config.family else "in headway's own layout")


def _result(name: str, check: Check) -> CheckResult:
    """The result of a check; one that raises an error has failed."""
    try:
        with bar(f"checking: {name}"):
            return CheckResult(name, *check())
    except Exception as error:  # other checks may show where the error is
        known = f"{error.code}: {error.message}" if isinstance(error, HeadwayError) else ""
        return CheckResult(name, math.inf, note=known or f"{type(error).__name__}: {error}")


class _ModelChecks:
    """A few random sequences with their outputs, each computed alone; every other path must give the same."""

    def __init__(self, model: Model, tokenizer: Tokenizer | None, seed: int) -> None:
        self.model, self.config, self.tokenizer, self.seed = model, model.config, tokenizer, seed
        self.generator = torch.Generator().manual_seed(seed)
        self.device = next(model.parameters()).device
        self.dtype = next(model.parameters()).dtype
        self.two_stacks = bool(self.config.encoder and self.config.decoder)
        self.lengths = _lengths(self.config, self.device)
        self.inputs = [self._input(n) for n in self.lengths]
        self.targets = [self._tokens(n, self.config.target) for n in reversed(self.lengths)]
        self.alone = [self._read(x[None], t[None]) for x, t in zip(self.inputs, self.targets, strict=True)]
        largest = max(1.0, *(float(s.abs().max()) for scores in self.alone for s in scores.values()))
        rounded = self.dtype if self.config.quantization == "none" else torch.bfloat16  # the precision of int8 products
        self.limit = TOLERANCE[rounded] * (largest if largest < float("inf") else 1.0)

    def table(self) -> dict[str, Check]:
        """Name → check, in the order of the output."""
        return {
            "right padding = none": lambda: self.padding(left=False),
            "left padding = none": lambda: self.padding(left=True),
            "batch = single": self.batching,
            "packed = separate": self.packing,
            **({"probabilities sum to 1": self.distributions} if isinstance(self.model, NGram) else {}),
            "cached = uncached": self.caching,
            "reordered = fresh": self.reordering,
            **self._generation(),
            "segments matter": lambda: text.segments(self.model, self.tokenizer, self._encode, self.limit),
            "spare rows closed": lambda: weights.spare_rows(self.model, self.limit),
            **({"sorted = one by one": lambda: weights.experts(self.model)} if weights.has_experts(self.model) else {}),
            "LoRA merged = beside": lambda: weights.adapters(self.model, self._read_first),
            "maps = eager weights": self.maps,
            "saved = loaded": lambda: _saved(self.model, self.loaded),
            "tied = one matrix": lambda: weights.tied(self.model, self.loaded),
        }

    def _generation(self) -> dict[str, Check]:
        """Checks of generation; a note if the model does not generate."""
        note = self._decodes() or (f"the context is shorter than {SHORTEST} tokens" if too_short(self.config) else "")
        if note:
            return {"decoded = recomputed": lambda: skip(note)}
        return {
            "fast decoder = step": lambda: decoding.fast_decoder(self.reference),
            "decoded = recomputed": lambda: self.decoding.decoded(),
            "engine = alone": lambda: self.decoding.engine(),
            "prefix cache = fresh": lambda: self.decoding.prefix(),
            "speculative = plain": lambda: self.decoding.speculative(),
            "scored = recomputed": lambda: decoding.scored(self.reference),
            "outgrown = last half": lambda: self.decoding.outgrown(),
            "beam readers = step": lambda: beam.readers(self.reference),
            "beams = reference": lambda: beam.searches(self.reference),
            "int8 alone = together": lambda: weights.int8_batches(self.reference),
            "chat held = fresh": lambda: text.chat(self.reference, self.tokenizer),
        }

    @cached_property
    def reference(self) -> Reference:
        return make_reference(self.model, self.seed)

    @cached_property
    def decoding(self) -> decoding.DecodingChecks:
        return decoding.DecodingChecks(self.reference)

    def _outcome(self, worst: float) -> Outcome:
        """A difference above the limit may still be rounding: some models amplify it at some tokens."""
        if worst <= self.limit or not math.isfinite(worst):
            return Outcome(worst, self.limit)
        limit = max(self.limit, ROUNDING[torch.float32] * self.rounding_error)
        return Outcome(worst, limit, f"rounding: {self.rounding_error:.0e}")

    @cached_property
    def rounding_error(self) -> float:
        """The largest difference of the outputs from those in float64."""
        if self.model.parameter_count() > LARGEST:
            return 0.0
        exact, worst = exact_copy(self.model), 0.0
        for x, t, alone in zip(self.inputs, self.targets, self.alone, strict=True):
            right = self._read(x[None].double() if x.is_floating_point() else x[None], t[None], model=exact)
            worst = max(worst, *(max_difference(alone[name], right[name]) for name in alone))
        return worst if math.isfinite(worst) else 0.0

    def _encode(self, ids: Tensor, **masks: Tensor | None) -> dict[str, Tensor]:
        here = {name: None if mask is None else mask.to(self.device) for name, mask in masks.items()}
        assert isinstance(self.model, Transformer)
        output = self.model.encode(ids.to(self.device), **here)  # type: ignore[arg-type]
        return {"hidden": output.hidden, **({} if self.config.decoder else self.model.logits(output))}

    def _read_first(self, model: Model) -> dict[str, Tensor]:
        """The outputs of another model for an input, in that model's dtype."""
        inputs = self.inputs[1][None]
        inputs = inputs.to(next(model.parameters()).dtype) if inputs.is_floating_point() else inputs
        return self._read(inputs, self.targets[1][None], model=model)

    def _tokens(self, length: int, front: object) -> Tensor:
        return random_input(front if isinstance(front, TokensConfig) else None, length, self.generator).to(self.device)

    def _input(self, length: int) -> Tensor:
        if isinstance(self.model, NGram):  # its own text: random tokens would reach none of its longer contexts
            first = torch.randint(self.model.config.vocab, (1,), generator=self.generator).tolist()
            how = Sampling(seed=length + self.seed, stop=())
            return torch.tensor([*first, *generate(self.model, first, length - 1, how)], device=self.device)
        front = self.config.source if self.config.encoder else self.config.target
        made = random_input(front, length, self.generator)
        return made.to(self.device, self.dtype) if made.is_floating_point() else made.to(self.device)

    def _read(
        self, inputs: Tensor, targets: Tensor, *, model: Model | None = None, **masks: Tensor | None
    ) -> dict[str, Tensor]:
        model = model or self.model
        output: Output = model(inputs, targets if self.two_stacks else None, **masks)
        numbers = isinstance(model, NGram)  # of rows in a table: how large they are says nothing of rounding
        return {**({} if numbers else {"hidden": output.hidden}), **model.logits(output)}

    def padding(self, *, left: bool) -> Outcome:
        front = self.config.source
        frames, samples = isinstance(front, FramesConfig), isinstance(front, OverSamples)
        sounds = frames or samples
        if isinstance(front, PatchesConfig) or (left and sounds):
            return skip("audio is padded on the right" if sounds else "images have no padding")
        inputs, attention_mask = pad(self.inputs, left=left)
        targets, target_mask = pad(self.targets, left=left)
        batch = self._read(inputs, targets, attention_mask=attention_mask, target_attention_mask=target_mask)
        if self.two_stacks:
            return self._outcome(self._against_alone(batch, target_mask))
        width, stride = front.span() if isinstance(front, OverSamples) else (1, 2 if frames else 1)
        return self._outcome(self._against_alone(batch, attention_mask[:, width - 1 :: stride]))

    def _against_alone(self, batch: dict[str, Tensor], attention_mask: Tensor) -> float:
        worst = 0.0
        for i, alone in enumerate(self.alone):
            for name, score in alone.items():
                mine = batch[name][i]
                if score.shape[1:] != mine.shape:  # one output per token: compare those of real tokens
                    mine = mine[attention_mask[i]]
                worst = max(worst, max_difference(mine, score[0]))
        return worst

    def batching(self) -> Outcome:
        """A batch of four copies of an input."""
        x, t = self.inputs[1], self.targets[1]
        batch = self._read(torch.stack([x] * 4), torch.stack([t] * 4))
        pairs = ((batch[k][i], self.alone[1][k][0]) for i in range(4) for k in batch)
        return self._outcome(max(max_difference(a, b) for a, b in pairs))

    def packing(self) -> Outcome:
        """All sequences packed in one row, without attention between them."""
        if not isinstance(self.config.source or self.config.target, TokensConfig):
            return skip("only text is packed")
        if isinstance(self.config, BaselineConfig):
            return skip("the model takes one sequence per row")
        pooled = {n for n in self.alone[0] if self.alone[0][n].ndim == 2}
        segment_ids = [
            torch.cat([torch.full_like(r, i + 1) for i, r in enumerate(rows)]) for rows in (self.inputs, self.targets)
        ]
        inputs, targets = (torch.cat(rows)[None] for rows in (self.inputs, self.targets))
        first, second = (ids[None] for ids in segment_ids)
        packed = self._read(inputs, targets, attention_mask=first, target_attention_mask=second)
        own = segment_ids[1] if self.two_stacks else segment_ids[0]
        pairs = (
            (packed[k][0][own == i + 1], alone[k][0])
            for i, alone in enumerate(self.alone)
            for k in alone
            if k not in pooled
        )
        return self._outcome(max(max_difference(a, b) for a, b in pairs))

    def distributions(self) -> Outcome:
        """An n-gram model writes no softmax: its logits are log-probabilities already."""
        worst = max(float(scores["lm"].double().logsumexp(-1).abs().max()) for scores in self.alone)
        return Outcome(worst, TOLERANCE[self.dtype])

    def _decodes(self) -> str:
        return "" if self.config.decoder and self.config.lm else "the model does not generate"

    def caching(self) -> Outcome:
        """Left-padded prompts through the KV cache, three tokens and then one at a time."""
        if note := self._decodes():
            return skip(note)
        ids, attention_mask = pad(self.targets if self.config.encoder else self.inputs, left=True)
        cache = self._start(ids.shape[1])
        parts, at = [], 0
        for size in (3, *[1] * (ids.shape[1] - 3)) if ids.shape[1] > 3 else (1,) * ids.shape[1]:
            span = slice(at, at + size)
            parts.append(self.model.lm(self.model.extend(cache, ids[:, span], attention_mask[:, span])))
            at += size
        cached = torch.cat(parts, 1)
        worst = max(max_difference(cached[i][attention_mask[i]], alone["lm"][0]) for i, alone in enumerate(self.alone))
        return self._outcome(worst)

    def _start(self, capacity: int) -> Any:
        if not self.config.encoder:
            return self.model.start(batch=len(self.inputs), capacity=capacity)
        inputs, attention_mask = pad(self.inputs, left=False)
        return self.model.start(inputs, attention_mask=attention_mask, capacity=capacity)

    def reordering(self) -> Outcome:
        """Rows of the KV cache that are reordered half-way continue as if they had always been there."""
        if note := self._decodes():
            return skip(note)
        ids, attention_mask = pad(self.targets if self.config.encoder else self.inputs, left=True)
        if ids.shape[1] < 2:
            return skip("the context is one token")
        rows = torch.tensor([2, 0, 0], device=self.device)
        cache = self._start(ids.shape[1])
        self.model.extend(cache, ids[:, :-1], attention_mask[:, :-1])
        moved = self.model.reorder(cache, rows)
        scores = self.model.step(moved, ids[rows, -1:], attention_mask[rows, -1:])
        worst = max(max_difference(scores[i], self.alone[r]["lm"][0, -1]) for i, r in enumerate(rows.tolist()))
        return self._outcome(worst)

    def maps(self) -> Outcome:
        """Attention maps that are recomputed beside the fused kernel, and its output, against the eager backend."""
        seen: dict[str, list[Tensor]] = {}

        def hook(name: str, make: Callable[[], Tensor]) -> None:
            if name.endswith("weights"):
                seen.setdefault(name, []).append(make())

        x, t = self.inputs[1][None], self.targets[1][None]
        targets = t if self.two_stacks else None
        fast = self.model(x, targets).hidden
        hidden = [self.model(x, targets, backend=b, hook=hook).hidden for b in ("fused", "eager")]
        if not seen:
            return skip("the model has no attention")
        rows = max(float((m.sum(-1) - 1).abs().max()) for pair in seen.values() for m in pair)
        worst = max(
            [
                max_difference(*hidden),
                max_difference(fast, hidden[1]),
                rows,
                *(max_difference(*pair) for pair in seen.values()),
            ]
        )
        return self._outcome(worst)

    @cached_property
    def loaded(self) -> Model:
        return _loaded(self.model)

    def compiling(self) -> Outcome:
        if self.device.type == "cpu" and not shutil.which("g++") and not shutil.which("clang++"):
            return skip("no C++ compiler here")
        compiled = torch.compile(self.model)
        output = compiled(self.inputs[1][None], self.targets[1][None] if self.two_stacks else None)
        batch = {"hidden": output.hidden, **self.model.logits(output)}
        worst = max(max_difference(batch[k], alone) for k, alone in self.alone[1].items())
        return self._outcome(worst)


def _lengths(config: AnyConfig, device: torch.device) -> list[int]:
    """Lengths at which a sparse pattern hides something, and has a kernel of its own, within the model's context."""
    reach = 0
    for stack in (config.encoder, config.decoder):
        least = None if stack is None else long_from(stack, device)
        if least is not None and least <= LONGEST:
            reach = max(reach, least + 3)
    fronts = (f for f in (config.source, config.target) if f is not None)
    limits = [limit for limit in map(max_positions, fronts) if limit is not None]
    return [min([n, *limits]) for n in (LENGTHS[0], max(LENGTHS[1], reach), LENGTHS[2])]
