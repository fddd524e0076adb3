"""Decoder families in use: every check, generation as in `transformers`, int8, adapters, balance of experts."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.checks.equivalence.suite import check_model
from headway.config.generation import Beam
from headway.generate.beam.search import beam_search
from headway.generate.decode import generate
from headway.generate.sampling.sampler import Sampling
from headway.hub.folder import load_model, save_model
from headway.kernels.lora import LoRALinear, add_adapters
from headway.model.model import Transformer
from headway.model.quantize import quantize_
from tests.parity.conftest import PAD, VOCAB, Case
from tests.parity.decoder_cases import DECODERS

MakeCase = Callable[[str], Case]
WRITERS = [name for name in DECODERS if name.endswith(("-lm", "gemma3-local", "gemma3-linear"))]
EXPERTS = [name for name in WRITERS if name.startswith(("mixtral", "qwen2-moe", "qwen3-moe"))]
ORDINARY = ("opt-narrow-lm", "opt-plain-lm")
"""Without a final norm: the kernels have no place for a map before the output matrix."""
INT8_ERROR = 0.06
"""Of the norm of the logits: 127 steps for the largest weight of a row are 0.4 %, and there are a dozen matrices."""


def prompts() -> list[list[int]]:
    ids = torch.randint(4, VOCAB, (4, 9), generator=torch.Generator().manual_seed(5)).tolist()
    return [row[:length] for row, length in zip(ids, (9, 6, 9, 3), strict=True)]


@pytest.mark.parametrize("name", WRITERS)
def test_every_check_passes(name: str, case: MakeCase) -> None:
    results = list(check_model(load_model(case(name).folder), compiled=False))
    assert [result for result in results if not result.ok] == []
    done = {result.name for result in results if result.difference is not None}
    assert {"right padding = none", "left padding = none", "packed = separate", "cached = uncached"} <= done
    assert {"decoded = recomputed", "beams = reference", "LoRA merged = beside", "saved = loaded"} <= done
    assert ("sorted = one by one" in done) == (name in EXPERTS)
    assert ("fast decoder = step" in done) == (name not in (*EXPERTS, *ORDINARY)) or not find_spec("numba")


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("name", WRITERS)
def test_texts_are_those_of_transformers(name: str, width: int, case: MakeCase) -> None:
    """Prompts of unequal length, padded on the left there."""
    this, rows = case(name), prompts()
    ids = torch.tensor([[PAD] * (9 - len(row)) + row for row in rows])
    made = this.oracle.generate(
        ids, attention_mask=(ids != PAD).long(), num_beams=width, max_new_tokens=14, do_sample=False,
        early_stopping=False, eos_token_id=2, pad_token_id=PAD,
    )[:, 9:].tolist()  # fmt: skip
    expected = [row[: row.index(2) + 1] if 2 in row else row for row in made]
    model = load_model(this.folder)
    found = beam_search(model, Beam(width=width, max_tokens=14, eos=(2,)), rows)
    assert [best.tokens for best, *_ in found] == expected
    if width == 1:
        how = Sampling(temperature=0.0, stop=(2,))
        texts = [list(generate(model, row, 14, how)) for row in rows]
        assert texts == [row[:-1] if row[-1] == 2 else row for row in expected]


@pytest.mark.parametrize("name", WRITERS)
def test_int8_is_close_and_read_back_to_the_bit(name: str, case: MakeCase, tmp_path: Path) -> None:
    whole, small = load_model(case(name).folder), load_model(case(name).folder)
    assert isinstance(small, Transformer)
    again = load_model(save_model(quantize_(small), tmp_path / "int8"))
    ids = torch.randint(4, VOCAB, (2, 12), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        right, close, same = (m.lm(m(ids).hidden) for m in (whole, small, again))
    assert torch.equal(close, same)
    error = float((close - right).norm(dim=-1).median() / right.norm(dim=-1).median())
    assert 0 < error < INT8_ERROR  # the median, since a token may be routed to other experts


@pytest.mark.parametrize("name", WRITERS)
def test_adapters_go_to_the_usual_matrices(name: str, case: MakeCase) -> None:
    model: Any = load_model(case(name).folder)
    blocks = model.config.decoder.n_layers
    experts = sum(block.routed and block.ffn.shared is None for block in model.decoder.blocks)
    assert add_adapters(model, 2, ("qkv", "out", "up", "down")) == 4 * blocks - 2 * experts
    assert isinstance(model.decoder.blocks[0].attention.qkv, LoRALinear)


@pytest.mark.parametrize("name", EXPERTS)
def test_the_balance_loss_is_that_of_transformers(name: str, case: MakeCase) -> None:
    this = case(name)
    ids, mask = torch.randint(4, VOCAB, (3, 12)), torch.ones(3, 12, dtype=torch.bool)
    mask[1, 8:] = False
    with torch.no_grad():
        expected = this.oracle(ids, attention_mask=mask.long(), output_router_logits=True).aux_loss
        model: Any = load_model(this.folder).train()
        found = model(ids, attention_mask=mask).penalty / model.config.decoder.experts.balance
    torch.testing.assert_close(found, expected)
