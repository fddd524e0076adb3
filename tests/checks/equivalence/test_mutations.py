"""`headway check` itself: correct models pass, and each mutation of the code fails the check that is about it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.baselines.recurrent import Recurrent
from headway.checks.equivalence import suite as check
from headway.checks.equivalence import weights as weightcheck
from headway.checks.equivalence.result import CheckResult
from headway.checks.equivalence.suite import check_model
from headway.config.model import LMHeadConfig, PositionConfig, SpecialTokens, TokensConfig
from headway.config.networks.baseline import BaselineConfig
from headway.config.presets import bert, gpt2, llama, t5, transformer, vit
from headway.front import tokens
from headway.generate import decode, speculative
from headway.generate import prefix_cache as prefix
from headway.generate.beam import rules as beams
from headway.generate.engine import engine, runner, sequence
from headway.generate.engine import slot_cache as slots
from headway.generate.sampling import sampler as sampling
from headway.kernels import lora as lowrank
from headway.model import cache, heads, masks
from headway.model.model import Transformer
from headway.model.quantize import quantize_

hostplan = pytest.importorskip("headway.generate.accel.cpu.plan")

VOCAB = 90  # no multiple of 64: the tables have spare rows
MARIAN = transformer(2, 32, 4, 48, dropout=0.0)
T5 = t5(2, 32, 4, 48)
LSTM = BaselineConfig(
    network="lstm",
    width=24,
    target=TokensConfig(vocab=VOCAB, positions=PositionConfig(kind="none")),
    special=SpecialTokens(eos=1),
)


def vocab_of(config: Any) -> Any:
    fronts = {name: replace(getattr(config, name), vocab=VOCAB) for name in ("source", "target")}
    return replace(config, **fronts)


MODELS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: Transformer(gpt2(2, 32, 4, vocab=VOCAB, length=64)),
    "llama": lambda: Transformer(llama(2, 32, 4, 2, 48, vocab=VOCAB)),
    "bert": lambda: Transformer(bert(2, 32, 4, vocab=VOCAB, length=64)),
    "marian": lambda: Transformer(vocab_of(replace(MARIAN, lm=LMHeadConfig(bias="fixed")))),
    "t5": lambda: Transformer(vocab_of(T5)),
    "vit": lambda: Transformer(vit(2, 32, 4, image=16, patch=4, labels=3)),
    "lstm": lambda: Recurrent(LSTM),
    "int8": lambda: quantize_(Transformer(gpt2(2, 64, 4, vocab=VOCAB, length=64))),
    "bfloat16": lambda: Transformer(llama(2, 32, 4, 2, 48, vocab=VOCAB)).bfloat16(),
}


def made(name: str) -> Any:
    """Fresh weights, as they start: small ones, which hide mistakes best."""
    torch.manual_seed(0)
    return MODELS[name]()


def rows(model: Any) -> dict[str, CheckResult]:
    return {row.name: row for row in check_model(model, compiled=False)}


def failed(model: Any) -> set[str]:
    return {row.name for row in rows(model).values() if not row.ok}


GENERATED = {"decoded = recomputed", "scored = recomputed", "beams = reference"}
DECODERS = {"engine = alone", "prefix cache = fresh", "speculative = plain"}
SHOWN: dict[str, set[str]] = {
    "gpt2": GENERATED | DECODERS | {"fast decoder = step", "outgrown = last half", "spare rows closed"},
    "llama": GENERATED | DECODERS | {"fast decoder = step", "spare rows closed"},
    "bert": {"segments matter", "spare rows closed", "LoRA merged = beside", "tied = one matrix"},
    "marian": GENERATED | {"beam readers = step", "spare rows closed", "tied = one matrix"},
    "t5": GENERATED | {"spare rows closed", "LoRA merged = beside"},
    "vit": {"LoRA merged = beside"},
    "lstm": GENERATED | {"spare rows closed"},
    "int8": GENERATED | DECODERS | {"fast decoder = step", "int8 alone = together", "spare rows closed"},
    "bfloat16": GENERATED | DECODERS,
}
"""Rows that must not be left out."""


@pytest.mark.parametrize("name", MODELS)
def test_models_that_are_right_pass(name: str) -> None:
    model = made(name)
    before = copy.deepcopy(model.state_dict())
    found = rows(model)
    assert {row.name: row for row in found.values() if not row.ok} == {}
    assert {row for row in SHOWN[name] if found[row].difference is None} == set()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_whatever_is_drawn(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    found = list(check_model(MODELS[name](), compiled=False, seed=seed))
    assert [row for row in found if not row.ok] == []
    assert not any("too close" in row.note for row in found)


# --- mistakes ---------------------------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def fast_scale(patch: Patch) -> None:
    """The attention of the fast decoder is scaled a tenth too much: the factor that both devices begin with."""
    plan = hostplan.Plan.__init__

    def init(self: Any, model: Transformer, *rest: Any) -> None:
        stack = model.config.decoder
        twin = copy.copy(model)
        twin.config = replace(model.config, decoder=replace(stack, scale=1.1 * (stack.scale or stack.head_width**-0.5)))
        plan(self, twin, *rest)

    patch.setattr(hostplan.Plan, "__init__", init)


def fast_epsilon(patch: Patch) -> None:
    right = hostplan._normed
    patch.setattr(hostplan, "_normed", lambda norm: (*right(norm)[:2], right(norm)[2] * 10, *right(norm)[3:]))


def no_length_penalty(patch: Patch) -> None:
    right = beams.Rules.settle

    def settle(self: beams.Rules, *rest: Any) -> Any:
        self.beam = replace(self.beam, length_penalty=0.0)
        return right(self, *rest)

    patch.setattr(beams.Rules, "settle", settle)


def beams_ignore_eos(patch: Patch) -> None:
    right = beams.Rules.__init__
    patch.setattr(beams.Rules, "__init__", lambda self, beam, eos, limits: right(self, beam, eos[:0], limits))


def never_early(patch: Patch) -> None:
    right = beams.Rules.__init__
    patch.setattr(
        beams.Rules, "__init__", lambda self, beam, eos, limits: right(self, replace(beam, early=False), eos, limits)
    )


def no_minimum(patch: Patch) -> None:
    right = beams.Search.rules

    def rules(self: beams.Search, *rest: Any) -> Tensor:
        self.beam = replace(self.beam, min_tokens=0)
        return right(self, *rest)

    patch.setattr(beams.Search, "rules", rules)


def segments_ignored(patch: Patch) -> None:
    right = tokens.TokenEmbedding.forward
    patch.setattr(
        tokens.TokenEmbedding,
        "forward",
        lambda self, ids, attention_mask=None, token_type_ids=None, layout=None: right(
            self, ids, attention_mask, None, layout
        ),
    )


def logits_uncut(patch: Patch) -> None:
    patch.setattr(heads.LMHead, "forward", lambda self, x: self.output(self.features(x)))


def loss_uncut(patch: Patch) -> None:
    patch.setattr(heads.LMHead, "padded_logits", lambda self, x: self.output(self.features(x)))


def files_uncut(patch: Patch) -> None:
    right = weightcheck.dump_tensors
    patch.setattr(
        weightcheck,
        "dump_tensors",
        lambda model, *rest: (
            (n, model.lm.output.weight if len(t) == model.lm.vocab and t.ndim == 2 else t)
            for n, t in right(model, *rest)
        ),
    )


def engine_mixes_rows(patch: Patch) -> None:
    """A slot's new keys go to its neighbour as well."""
    right = slots.SlotStep.update

    def update(self: slots.SlotStep, layer: int, k: Tensor, v: Tensor) -> Any:
        found = right(self, layer, k, v)
        keys = self.cache.keys[layer]
        keys[(self.index + 1) % len(keys), :, self.target] = k.transpose(1, 2)
        return found

    patch.setattr(slots.SlotStep, "update", update)


def slots_lend_too_much(patch: Patch) -> None:
    patch.setattr(slots, "common_prefix", lambda a, b: min(len(a), len(b)))


def stale_prefix(patch: Patch) -> None:
    patch.setattr(prefix, "common_prefix", lambda a, b: min(len(a), len(b)))


def stale_fast_prefix(patch: Patch) -> None:
    patch.setattr(runner, "common_prefix", lambda a, b: min(len(a), len(b)))


def eos_ignored(patch: Patch) -> None:
    right = decode._sequences

    def found(*given: Any) -> Any:
        sequences = right(*given)
        for each in sequences:
            each.stop = ()
        return sequences

    patch.setattr(decode, "_sequences", found)


def engine_ignores_eos(patch: Patch) -> None:
    right = engine.Engine._sequence

    def found(*given: Any) -> Any:
        made = right(*given)
        made.stop = ()
        return made

    patch.setattr(engine.Engine, "_sequence", found)


def positions_after_padding(patch: Patch) -> None:
    """Those of what follows left padding are one too high."""
    right = cache.KVCache.reserve

    def reserve(self: cache.KVCache, steps: int, attention_mask: Tensor | None = None) -> Any:
        positions, mask = right(self, steps, attention_mask)
        return (positions + 1 if attention_mask is None and self.padded else positions), mask

    patch.setattr(cache.KVCache, "reserve", reserve)


def padded_positions(patch: Patch) -> None:
    patch.setattr(
        masks,
        "token_positions",
        lambda attention_mask: torch.arange(attention_mask.shape[1]).expand(attention_mask.shape),
    )


def layer_not_advanced(patch: Patch) -> None:
    """The second layer's keys and values of a step are written over those of the step before."""
    right = cache.KVCache.update

    def update(self: cache.KVCache, layer: int, k: Tensor, v: Tensor) -> Any:
        if layer == 1 and self.length:
            self.keys[layer][:, :, self.length - 1 : self.span - 1] = k
            self.values[layer][:, :, self.length - 1 : self.span - 1] = v
            return self.keys[layer][:, :, : self.span], self.values[layer][:, :, : self.span]
        return right(self, layer, k, v)

    patch.setattr(cache.KVCache, "update", update)


def no_repetition_penalty(patch: Patch) -> None:
    patch.setattr(sampling, "penalise_repetition", lambda logits, seen, penalty: logits)


def one_draw_for_all(patch: Patch) -> None:
    patch.setattr(sampling, "uniform", lambda seed, position: 0.5)


def guesses_taken_unseen(patch: Patch) -> None:
    right = speculative.SpeculativeDecoder.step

    def step(self: Any, state: Any, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        found = right(self, state, ids, attention_mask)
        return found.roll(1, 1) if self.accepted else found

    patch.setattr(speculative.SpeculativeDecoder, "step", step)


def whole_text_slides(patch: Patch) -> None:
    def slide(self: Any, room: int | None) -> None:
        if room is not None and len(self.tokens) - self.begin > room:
            self.begin = len(self.tokens) - room

    patch.setattr(sequence.Sequence, "slide", slide)


def half_an_adapter(patch: Patch) -> None:
    right = lowrank.LoRALinear.merged

    def merged(self: lowrank.LoRALinear) -> Any:
        with torch.no_grad():
            self.widen *= 0.5
        return right(self)

    patch.setattr(lowrank.LoRALinear, "merged", merged)


def untied_on_loading(patch: Patch) -> None:
    right = check.load_model

    def load(*given: Any, **more: Any) -> Transformer:
        model = right(*given, **more)
        model.lm.output.weight = torch.nn.Parameter(model.lm.output.weight.detach().clone())
        return model

    patch.setattr(check, "load_model", load)


MISTAKES: list[tuple[Callable[[Patch], None], str, str]] = [
    (fast_scale, "gpt2", "fast decoder = step"),
    (fast_scale, "marian", "beam readers = step"),
    (fast_scale, "int8", "fast decoder = step"),
    (fast_epsilon, "llama", "fast decoder = step"),
    (fast_epsilon, "gpt2", "fast decoder = step"),
    (no_length_penalty, "gpt2", "beams = reference"),
    (no_length_penalty, "marian", "beams = reference"),
    (no_length_penalty, "lstm", "beams = reference"),
    (beams_ignore_eos, "llama", "beams = reference"),
    (never_early, "llama", "beams = reference"),
    (no_minimum, "t5", "beams = reference"),
    (segments_ignored, "bert", "segments matter"),
    (logits_uncut, "bert", "spare rows closed"),
    (loss_uncut, "gpt2", "spare rows closed"),
    (files_uncut, "gpt2", "spare rows closed"),
    (engine_mixes_rows, "llama", "engine = alone"),
    (slots_lend_too_much, "gpt2", "engine = alone"),
    (stale_prefix, "gpt2", "prefix cache = fresh"),
    (stale_fast_prefix, "llama", "prefix cache = fresh"),
    (eos_ignored, "gpt2", "decoded = recomputed"),
    (eos_ignored, "lstm", "decoded = recomputed"),
    (engine_ignores_eos, "gpt2", "engine = alone"),
    (positions_after_padding, "gpt2", "decoded = recomputed"),
    (padded_positions, "bert", "left padding = none"),
    (layer_not_advanced, "llama", "cached = uncached"),
    (layer_not_advanced, "t5", "decoded = recomputed"),
    (no_repetition_penalty, "gpt2", "decoded = recomputed"),
    (no_repetition_penalty, "gpt2", "engine = alone"),
    (one_draw_for_all, "llama", "decoded = recomputed"),
    (guesses_taken_unseen, "gpt2", "speculative = plain"),
    (whole_text_slides, "gpt2", "outgrown = last half"),
    (half_an_adapter, "vit", "LoRA merged = beside"),
    (untied_on_loading, "marian", "tied = one matrix"),
]


@pytest.mark.parametrize(("mistake", "name", "row"), MISTAKES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_mistake_is_noticed(
    mistake: Callable[[Patch], None], name: str, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(name)
    mistake(monkeypatch)
    assert row in failed(model)
