"""Beam search on a CPU: the kernels against the model itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from headway.config.model import ModelConfig
from headway.config.presets import llama, t5, transformer
from headway.errors import DataError
from headway.generate.accel import dispatch as fast
from headway.generate.beam import search as beams
from headway.generate.beam.search import Beam, beam_search
from headway.generate.protocol import Source
from headway.model.model import Transformer
from tests.generate.conftest import made

hostbeam = pytest.importorskip("headway.generate.accel.cpu.beam")

BASE = transformer(2, 32, 4, 48, dropout=0.0)
SEQ2SEQ = replace(BASE, source=replace(BASE.source, vocab=90), target=replace(BASE.target, vocab=90))
PRE: dict[str, Any] = {"norm_at": "pre", "final_norm": True}


def with_stacks(decoder: dict[str, Any], **fields: Any) -> ModelConfig:
    return replace(
        SEQ2SEQ, encoder=replace(SEQ2SEQ.encoder, **fields), decoder=replace(SEQ2SEQ.decoder, **decoder, **fields)
    )


TRANSLATORS = {
    "norms after": SEQ2SEQ,
    "norms before": with_stacks({}, **PRE),
    "shared keys": with_stacks({"n_kv_heads": 2}, **PRE),
    "gated": with_stacks({"gated": True, "activation": "silu", "ffn_bias": False, "scale": 0.3}, **PRE),
    "biased scores": replace(SEQ2SEQ, lm=replace(SEQ2SEQ.lm, bias="fixed")),
}
SEARCHES = {
    "early": Beam(width=4, max_tokens=14, early=True, eos=tuple(range(3, 90, 2))),
    "greedy": Beam(width=1, max_tokens=9),
    "groups": Beam(width=6, groups=2, diversity=0.5, n_best=3, max_tokens=9),
    "banned": Beam(width=4, max_tokens=12, n_best=2, banned=((5,), (9,), (31,)), eos=tuple(range(3, 90, 3))),
    "no repeats": Beam(width=3, max_tokens=12, no_repeat=2, min_tokens=3, eos=tuple(range(3, 90, 3))),
}


def search(model: Transformer, beam: Beam, source: Source, reader: Any, **prompts: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beams, "beam_decoder", lambda model, inputs, width: reader(model, width))
        return beam_search(model, beam, source=source, **prompts)


def agree(found: Any, wanted: Any, abs: float = 1e-4) -> None:
    assert [[h.tokens for h in texts] for texts in found] == [[h.tokens for h in texts] for texts in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=abs)


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("rules", SEARCHES)
def test_beams_are_those_of_the_model(name: str, rules: str) -> None:
    """Sources of unequal length, one of them empty; texts end at different times."""
    model, beam = made(TRANSLATORS[name]), SEARCHES[rules]
    source = Source(torch.randint(3, 90, (5, 9)), torch.arange(9) < torch.tensor([9, 4, 7, 0, 1])[:, None])
    wanted = search(model, beam, source, lambda model, width: model)
    assert len({len(texts[0].tokens) for texts in wanted}) > 1 or rules != "early"
    agree(search(model, beam, source, hostbeam.CpuBeamDecoder), wanted)


def test_prompts_are_read_first() -> None:
    model, source = made(SEQ2SEQ), Source(torch.randint(3, 90, (3, 7)))
    prompts = [[4, 17], [5, 30], [4, 31]]
    found = [search(model, Beam(width=3, max_tokens=8), source, each, prompts=prompts)
             for each in (hostbeam.CpuBeamDecoder, lambda model, width: model)]  # fmt: skip
    agree(*found)


@torch.no_grad()
def test_rows_may_change_places_with_those_of_another_source() -> None:
    model = made(SEQ2SEQ)
    source, first, then = torch.randint(3, 90, (3, 6)), torch.tensor([[4], [5], [6]]), torch.tensor([[7], [8], [9]])
    found = []
    for reader in (model, hostbeam.CpuBeamDecoder(model, 2)):
        state = reader.start(source, capacity=9)
        reader.step(state, first)
        found.append(reader.step(reader.reorder(state, torch.tensor([2, 0, 1])), then).clone())
    torch.testing.assert_close(*found, atol=2e-4, rtol=2e-4)


def test_who_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of rows, and by what a way can do."""
    model, small, decoder = made(SEQ2SEQ), made(SEQ2SEQ, int8=True), made(llama(2, 64, 4, 2, 96, 300))
    relative, shared = made(t5(2, 32, 4, 48)), made(TRANSLATORS["shared keys"])

    def kinds(model: Transformer) -> list[type]:
        return [type(fast.beam_decoder(model, inputs, 4)) for inputs in (1, 4, 8, 9)]

    assert kinds(model) == kinds(small) == [Transformer] * 4
    monkeypatch.setattr(fast, "MIN_WEIGHTS", 0)
    kernels = hostbeam.CpuBeamDecoder
    assert kinds(model) == kinds(small) == kinds(shared) == [kernels] * 2 + [Transformer] * 2
    assert kinds(decoder) == kinds(relative) == kinds(made(SEQ2SEQ).double()) == [Transformer] * 4


def test_a_search_leaves_the_threads_as_they_were() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        source = Source(torch.ones(1, 3, dtype=torch.long))
        search(made(SEQ2SEQ), Beam(width=2, max_tokens=3), source, hostbeam.CpuBeamDecoder)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_scores_that_are_no_numbers_are_said_to_be() -> None:
    model = made(SEQ2SEQ)
    model.lm.output.weight.data[:] = torch.nan
    for reader in (hostbeam.CpuBeamDecoder, lambda model, width: model):
        with pytest.raises(DataError, match="not numbers"):
            search(model, Beam(width=2, max_tokens=3), Source(torch.ones(1, 3, dtype=torch.long)), reader)
