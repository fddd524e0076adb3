"""All checks of a model, in the order in which `headway check` prints them; those of one forward pass are here."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from headway.checks.equivalence import beam, decoding, text, weights
from headway.checks.equivalence.reference import (
    LARGEST,
    ROUNDING,
    SHORTEST,
    exact_copy,
    make_reference,
    pad,
    random_input,
    too_short,
)
from headway.checks.equivalence.result import TOLERANCE, CheckResult, max_difference
from headway.config.baselines import BaselineConfig
from headway.config.model import FramesConfig, ModelConfig, PatchesConfig, TokensConfig, max_positions
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import HeadwayError
from headway.hub.convert import dump_tensors
from headway.hub.folder import load_model, save_model
from headway.model.cache import KVCache
from headway.model.model import Model, Output

LENGTHS = (5, 37, 22)
"""Lengths of the sequences: different, and one longer than T5's exact position buckets."""
Check = Callable[[], CheckResult | Iterable[CheckResult]]


@torch.no_grad()
def check_model(
    model: Model, tokenizer: Tokenizer | None = None, *, compiled: bool = True, seed: int = 0
) -> Iterator[CheckResult]:
    """Yield each result when it is known. The model is unchanged afterwards."""
    was_training = model.training
    model.eval()
    try:
        checks = _ModelChecks(model, tokenizer, seed)
        for names, check in checks.table():
            yield from _rows(names, check)
        if compiled:
            yield from _rows(("compiled = eager",), checks.compiling)
    finally:
        model.train(was_training)


def _rows(names: Sequence[str], check: Check) -> Iterator[CheckResult]:
    """The results of a check. If it raises an error, the results that are missing have failed."""
    done = 0
    try:
        found = check()
        for row in [found] if isinstance(found, CheckResult) else found:
            done += 1
            yield row
    except Exception as error:  # a failed check; other checks may show where the error is
        known = isinstance(error, HeadwayError)
        note = f"{error.code}: {error.message}" if known else f"{type(error).__name__}: {error}"  # type: ignore[attr-defined]
        yield from (CheckResult(name, math.inf, note=note) for name in names[done:])


class _ModelChecks:
    """A few random sequences with their outputs, each computed alone; every other path must give the same."""

    def __init__(self, model: Model, tokenizer: Tokenizer | None, seed: int) -> None:
        self.model, self.config, self.tokenizer, self.seed = model, model.config, tokenizer, seed
        self.generator = torch.Generator().manual_seed(seed)
        self.device = next(model.parameters()).device
        self.dtype = next(model.parameters()).dtype
        self.lengths = _lengths(self.config)
        self.inputs = [self._input(n) for n in self.lengths]
        self.targets = [self._tokens(n, self.config.target) for n in reversed(self.lengths)]
        self.alone = [self._read(x[None], t[None]) for x, t in zip(self.inputs, self.targets, strict=True)]
        largest = max(1.0, *(float(s.abs().max()) for scores in self.alone for s in scores.values()))
        rounded = self.dtype if self.config.quantization == "none" else torch.bfloat16  # the precision of int8 products
        self.limit = TOLERANCE[rounded] * (largest if largest < float("inf") else 1.0)

    def table(self) -> list[tuple[Sequence[str], Check]]:
        """Names of results, and the check that yields them."""
        return [
            (("right padding = none", "left padding = none"), self.padding),
            (("batch = single",), self.batching),
            (("packed = separate",), self.packing),
            (("cached = uncached",), self.caching),
            (("reordered = fresh",), self.reordering),
            *self._generating(),
            ((text.SEGMENTS,), self.segments),
            ((weights.SPARE,), lambda: weights.spare_rows(self.model, self.limit)),
            ((weights.ADAPTERS,), self.adapters),
            (("maps = eager weights",), self.maps),
            (("saved = loaded", weights.TIED), self.saving),
        ]

    def _generating(self) -> list[tuple[Sequence[str], Check]]:
        """Checks of generation; a note if the model does not generate."""
        note = self._decodes() or (f"the context is shorter than {SHORTEST} tokens" if too_short(self.config) else "")
        if note:
            return [(("decoded = recomputed",), lambda: CheckResult("decoded = recomputed", None, note=note))]
        return [
            *(((name,), partial(self._check_decoding, check)) for name, check in decoding.CHECKS.items()),
            ((beam.READERS,), lambda: beam.readers(self.decoding_checks.reference)),
            ((beam.SEARCH,), lambda: beam.searches(self.decoding_checks.reference)),
            ((weights.INT8,), lambda: weights.int8_batches(self.decoding_checks.reference)),
            ((text.CHAT,), lambda: text.chat(self.decoding_checks.reference, self.tokenizer)),
        ]

    @cached_property
    def decoding_checks(self) -> decoding.DecodingChecks:
        return decoding.DecodingChecks(make_reference(self.model, self.seed))

    def _check_decoding(self, check: Callable[[decoding.DecodingChecks], CheckResult]) -> CheckResult:
        return check(self.decoding_checks)

    def segments(self) -> CheckResult:
        return text.segments(self.model, self.tokenizer, self._encode, self.limit)

    def _row(self, name: str, worst: float) -> CheckResult:
        """A difference above the limit may still be rounding: some models amplify it at some tokens."""
        if worst <= self.limit or not math.isfinite(worst):
            return CheckResult(name, worst, self.limit)
        return CheckResult(
            name,
            worst,
            max(self.limit, ROUNDING[torch.float32] * self.rounding_error),
            f"rounding: {self.rounding_error:.0e}",
        )

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
        output = self.model.encode(ids.to(self.device), **here)  # type: ignore[arg-type]
        return {"hidden": output.hidden, **({} if self.config.decoder else self.model.logits(output))}

    def adapters(self) -> CheckResult:
        def read(model: Model) -> dict[str, Tensor]:
            inputs = self.inputs[1][None]
            inputs = inputs.to(next(model.parameters()).dtype) if inputs.is_floating_point() else inputs
            return self._read(inputs, self.targets[1][None], model=model)

        return weights.adapters(self.model, read)

    def _tokens(self, length: int, front: object) -> Tensor:
        return random_input(front if isinstance(front, TokensConfig) else None, length, self.generator).to(self.device)

    def _input(self, length: int) -> Tensor:
        front = self.config.source if self.config.encoder else self.config.target
        made = random_input(front, length, self.generator)
        return made.to(self.device, self.dtype) if made.is_floating_point() else made.to(self.device)

    @property
    def images(self) -> bool:
        return isinstance(self.config.source, PatchesConfig)

    def _read(
        self, inputs: Tensor, targets: Tensor, *, model: Model | None = None, **masks: Tensor | None
    ) -> dict[str, Tensor]:
        model = model or self.model
        output: Output = model(inputs, targets if self.config.encoder and self.config.decoder else None, **masks)
        return {"hidden": output.hidden, **model.logits(output)}

    def padding(self) -> Iterator[CheckResult]:
        for side in ("right", "left"):
            name = f"{side} padding = none"
            if self.images or (side == "left" and isinstance(self.config.source, FramesConfig)):
                yield CheckResult(
                    name,
                    None,
                    note="images have no padding" if self.images else "audio is padded on the right",
                )
                continue
            inputs, attention_mask = pad(self.inputs, left=side == "left")
            targets, target_attention_mask = pad(self.targets, left=side == "left")
            batch = self._read(
                inputs, targets, attention_mask=attention_mask, target_attention_mask=target_attention_mask
            )
            own = target_attention_mask if self.config.encoder and self.config.decoder else attention_mask
            if isinstance(self.config.source, FramesConfig) and not self.config.decoder:
                own = attention_mask[:, ::2]
            yield self._row(name, self._against_alone(batch, own))

    def _against_alone(self, batch: dict[str, Tensor], attention_mask: Tensor) -> float:
        worst = 0.0
        for i, alone in enumerate(self.alone):
            for name, score in alone.items():
                mine = batch[name][i]
                if score.shape[1:] != mine.shape:  # one output per token: compare those of real tokens
                    mine = mine[attention_mask[i]]
                worst = max(worst, max_difference(mine, score[0]))
        return worst

    def batching(self) -> CheckResult:
        """A batch of four copies of an input."""
        x, t = self.inputs[1], self.targets[1]
        batch = self._read(torch.stack([x] * 4), torch.stack([t] * 4))
        pairs = ((batch[k][i], self.alone[1][k][0]) for i in range(4) for k in batch)
        return self._row("batch = single", max(max_difference(a, b) for a, b in pairs))

    def packing(self) -> CheckResult:
        """All sequences packed in one row, without attention between them."""
        if not isinstance(self.config.source or self.config.target, TokensConfig):
            return CheckResult("packed = separate", None, note="only text is packed")
        if isinstance(self.config, BaselineConfig):
            return CheckResult("packed = separate", None, note="the model takes one sequence per row")
        pooled = {n for n in self.alone[0] if self.alone[0][n].ndim == 2}
        segment_ids = [
            torch.cat([torch.full_like(r, i + 1) for i, r in enumerate(rows)]) for rows in (self.inputs, self.targets)
        ]
        packed = self._read(
            torch.cat(self.inputs)[None],
            torch.cat(self.targets)[None],
            attention_mask=segment_ids[0][None],
            target_attention_mask=segment_ids[1][None],
        )
        own = segment_ids[1] if self.config.encoder and self.config.decoder else segment_ids[0]
        pairs = (
            (packed[k][0][own == i + 1], alone[k][0])
            for i, alone in enumerate(self.alone)
            for k in alone
            if k not in pooled
        )
        return self._row("packed = separate", max(max_difference(a, b) for a, b in pairs))

    def _decodes(self) -> str:
        return "" if self.config.decoder and self.config.lm else "the model does not generate"

    def caching(self) -> CheckResult:
        """Left-padded prompts through the KV cache, three tokens and then one at a time."""
        if note := self._decodes():
            return CheckResult("cached = uncached", None, note=note)
        ids, attention_mask = pad(self.targets if self.config.encoder else self.inputs, left=True)
        cache = self._start(ids.shape[1])
        parts, at = [], 0
        for size in (3, *[1] * (ids.shape[1] - 3)) if ids.shape[1] > 3 else (1,) * ids.shape[1]:
            span = slice(at, at + size)
            parts.append(self.model.lm(self.model.extend(cache, ids[:, span], attention_mask[:, span])))
            at += size
        cached = torch.cat(parts, 1)
        worst = max(max_difference(cached[i][attention_mask[i]], alone["lm"][0]) for i, alone in enumerate(self.alone))
        return self._row("cached = uncached", worst)

    def _start(self, capacity: int) -> KVCache:
        if not self.config.encoder:
            return self.model.start(batch=len(self.inputs), capacity=capacity)
        inputs, attention_mask = pad(self.inputs, left=False)
        return self.model.start(inputs, attention_mask=attention_mask, capacity=capacity)

    def reordering(self) -> CheckResult:
        """Rows of the KV cache that are reordered half-way continue as if they had always been there."""
        if note := self._decodes():
            return CheckResult("reordered = fresh", None, note=note)
        ids, attention_mask = pad(self.targets if self.config.encoder else self.inputs, left=True)
        if ids.shape[1] < 2:
            return CheckResult("reordered = fresh", None, note="the context is one token")
        rows = torch.tensor([2, 0, 0], device=self.device)
        cache = self._start(ids.shape[1])
        self.model.extend(cache, ids[:, :-1], attention_mask[:, :-1])
        moved = self.model.reorder(cache, rows)
        scores = self.model.step(moved, ids[rows, -1:], attention_mask[rows, -1:])
        worst = max(max_difference(scores[i], self.alone[r]["lm"][0, -1]) for i, r in enumerate(rows.tolist()))
        return self._row("reordered = fresh", worst)

    def maps(self) -> CheckResult:
        """Attention maps that are recomputed beside the fused kernel, and its output, against the eager backend."""
        seen: dict[str, list[Tensor]] = {}

        def hook(name: str, make: Callable[[], Tensor]) -> None:
            if name.endswith("weights"):
                seen.setdefault(name, []).append(make())

        x, t = self.inputs[1][None], self.targets[1][None]
        targets = t if self.config.encoder and self.config.decoder else None
        hidden = [self.model(x, targets, backend=b, hook=hook).hidden for b in ("fused", "eager")]
        if not seen:
            return CheckResult("maps = eager weights", None, note="the model has no attention")
        rows = max(float((m.sum(-1) - 1).abs().max()) for pair in seen.values() for m in pair)
        worst = max([max_difference(*hidden), rows, *(max_difference(*pair) for pair in seen.values())])
        return self._row("maps = eager weights", worst)

    def saving(self) -> Iterator[CheckResult]:
        """Saved and loaded: the same bits, and tied matrices are still one."""
        with tempfile.TemporaryDirectory(prefix="headway-check-") as folder:
            save_model(self.model, Path(folder) / "model")
            again = load_model(Path(folder) / "model", dtype=self.dtype, device=self.device)
            pair = [dict(dump_tensors(m, None, "")) for m in (self.model, again)]
            worst = max(max_difference(pair[0][name], pair[1][name]) for name in pair[0])
            note = "" if again.config.family == self.config.family else "in headway's own layout"
            yield CheckResult("saved = loaded", worst, 0.0, note)
            yield weights.tied(self.model, again)

    def compiling(self) -> CheckResult:
        if self.device.type == "cpu" and not shutil.which("g++") and not shutil.which("clang++"):
            return CheckResult("compiled = eager", None, note="no C++ compiler here")
        compiled = torch.compile(self.model)
        x, t = self.inputs[1][None], self.targets[1][None]
        targets = t if self.config.encoder and self.config.decoder else None
        output = compiled(x, targets)
        batch = {"hidden": output.hidden, **self.model.logits(output)}
        worst = max(max_difference(batch[k], self.alone[1][k]) for k in batch)
        return self._row("compiled = eager", worst)


def _lengths(config: ModelConfig) -> list[int]:
    """Lengths at which a window or BigBird's pattern masks something, within the model's context."""
    reach = 0
    for stack in (config.encoder, config.decoder):
        if stack is not None and stack.sparse is not None:
            reach = max(reach, (5 + 2 * stack.sparse.random) * stack.sparse.block + 3)
        if stack is not None and stack.window is not None and stack.window <= 1024:
            reach = max(reach, stack.window + 3)
    fronts = (f for f in (config.source, config.target) if f is not None)
    limits = [limit for limit in map(max_positions, fronts) if limit is not None]
    return [min([n, *limits]) for n in (LENGTHS[0], max(LENGTHS[1], reach), LENGTHS[2])]
