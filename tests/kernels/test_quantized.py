"""Int8 matrices: close to what they stand for, the fast product equal to the plain one, models that still agree."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.checks.equivalence.suite import check_model
from headway.config import presets
from headway.config.model import ModelConfig
from headway.errors import DivergedError
from headway.kernels.quantized import Int8Embedding, Int8Linear, Int8Matrix
from headway.model.model import Transformer
from headway.model.quantize import quantize_

VOCAB = 50


def tiny(kind: str) -> ModelConfig:
    """Small, and with matrices of whose columns torch's product takes some and not others."""
    if kind == "gpt2":
        return presets.gpt2(2, 64, 2, vocab=VOCAB, length=64)
    if kind == "llama":
        return presets.llama(2, 64, 4, 2, 128, vocab=VOCAB)
    if kind == "odd":
        return presets.gpt2(1, 36, 2, vocab=VOCAB, length=64)
    config = presets.t5(1, 32, 2, 64)
    assert kind == "t5" and config.target is not None
    front = replace(config.target, vocab=VOCAB)
    return replace(config, source=front, target=front)


def made(kind: str) -> Transformer:
    torch.manual_seed(0)
    return Transformer(tiny(kind)).eval()


@given(rows=st.integers(0, 70), outputs=st.integers(1, 70), columns=st.integers(1, 130), seed=st.integers(0, 9999))
@settings(max_examples=60, deadline=None)
def test_the_product_equals_the_plain_one(rows: int, outputs: int, columns: int, seed: int) -> None:
    torch.manual_seed(seed)
    matrix = Int8Matrix(torch.randn(outputs, columns))
    x = torch.randn(rows, columns)
    found, plain = matrix(x), matrix.reference(x).to(x.dtype)
    assert found.shape == (rows, outputs) and found.dtype == torch.float32
    # the order of the sum may change which way the result is rounded, by one part in 2^8 at most
    torch.testing.assert_close(found, plain, rtol=2**-7, atol=1e-4 * columns**0.5)


@given(
    rows=st.integers(2, 200),
    at=st.integers(0, 199),
    outputs=st.integers(1, 70),
    columns=st.sampled_from([1, 31, 32, 36, 64, 100, 768, 1000]),
    seed=st.integers(0, 9999),
)
@settings(max_examples=80, deadline=None)
def test_a_row_is_the_same_to_the_bit_alone_and_among_others(
    rows: int, at: int, outputs: int, columns: int, seed: int
) -> None:
    torch.manual_seed(seed)
    matrix, at = Int8Matrix(torch.randn(outputs, columns)), at % rows
    x = torch.randn(rows, columns)
    together = matrix.product(x)
    assert torch.equal(matrix.product(x[at]), together[at])
    assert torch.equal(matrix.product(x[at:]), together[at:])
    strided = torch.randn(columns, rows).copy_(x.T).T
    assert not strided.is_contiguous() or columns == 1
    assert torch.equal(matrix.product(strided), together)
    wide = torch.cat([x, torch.randn(rows, 3)], 1)[:, :columns]
    assert torch.equal(matrix.product(wide[None, ::2])[0], together[::2])


@given(scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e6]), seed=st.integers(0, 999))
@settings(max_examples=20, deadline=None)
def test_a_row_is_off_by_half_a_step_at_most(scale: float, seed: int) -> None:
    torch.manual_seed(seed)
    exact = torch.randn(12, 40) * scale * torch.logspace(-3, 3, 12)[:, None]  # rows of very unequal size
    rows = Int8Matrix(exact).dequantized_rows(torch.arange(12))
    step = exact.abs().amax(1, keepdim=True) / 127
    # the scale is rounded to bfloat16, so the largest weight may be cut off by another half step
    assert bool(((rows - exact).abs() <= 1.02 * step * 0.5 + 0.26 * step).all())
    assert float(((rows - exact).abs() / step).mean()) < 0.27  # evenly rounded: a quarter of a step


def test_rows_of_zeros_stay_zeros_and_signs_are_kept() -> None:
    matrix = Int8Matrix(torch.tensor([[0.0, 0.0], [-1.0, 1.0], [0.5, -2.0]]))
    assert matrix.weight.tolist() == [[0, 0], [-127, 127], [32, -127]]
    assert matrix.dequantized_rows(torch.tensor([0])).tolist() == [[0.0, 0.0]]
    assert not matrix(torch.ones(3, 2))[:, 0].any()


@pytest.mark.parametrize("kind", ["gpt2", "llama", "odd", "t5"])
def test_a_quantized_model_is_close_to_its_own_and_proves_itself(kind: str) -> None:
    model = made(kind)
    whole = copy.deepcopy(model)
    assert quantize_(model) is model and model.config == replace(whole.config, quantization="int8")
    assert model.parameter_count() == whole.parameter_count()
    ids = torch.randint(VOCAB, (2, 20))
    targets = ids if model.config.encoder else None
    with torch.no_grad():
        a, b = (m.lm(m(ids, targets).hidden) for m in (whole, model))
    gap = float((a - b).norm() / a.norm())
    assert 1e-4 < gap < 0.03
    rows = list(check_model(model, compiled=False))
    assert [row.name for row in rows if not row.ok] == []
    differences = [row.difference for row in rows if row.difference is not None]
    assert len(differences) > 5 and max(differences) < 0.05  # one way of reading or the other: all but the same


def test_what_is_quantized_and_what_is_not() -> None:
    model = quantize_(made("gpt2"))
    matrices = {name for name, m in model.named_modules(remove_duplicate=False) if isinstance(m, Int8Linear)}
    blocks = {
        f"decoder.blocks.{i}.{n}" for i in (0, 1) for n in ("attention.qkv", "attention.out", "ffn.up", "ffn.down")
    }
    assert matrices == blocks | {"lm.output"}
    assert not [
        name
        for name, _ in model.named_parameters()
        if "norm" not in name and "bias" not in name and "positions" not in name
    ]
    assert not any(p.requires_grad for p in model.parameters())
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_a_tied_table_is_the_output_matrix() -> None:
    model, whole = quantize_(made("gpt2")), made("gpt2")
    assert isinstance(model.target.table, Int8Embedding) and isinstance(model.lm.output, Int8Linear)
    assert model.target.table.matrix is model.lm.output.matrix
    ids = torch.arange(VOCAB)[None]
    torch.testing.assert_close(model.target.table(ids), whole.target.table(ids), rtol=0, atol=5e-4)
    torch.testing.assert_close(model.lm.output.weight, whole.lm.output.weight, rtol=0, atol=5e-4)


def test_an_untied_table_is_left_alone() -> None:
    config = tiny("llama")
    assert config.lm is not None
    torch.manual_seed(0)
    model = quantize_(Transformer(replace(config, lm=replace(config.lm, tied=False))))
    assert isinstance(model.target.table, torch.nn.Embedding) and isinstance(model.lm.output, Int8Linear)


def test_types_of_numbers() -> None:
    model = quantize_(made("llama"))
    before = model.lm.output.matrix.scale.clone()
    tiny_scale = Int8Matrix(torch.full((1, 32), 1e-10))
    tiny_scale.half()
    assert float(tiny_scale.scale) > 0 and tiny_scale.scale.dtype == torch.bfloat16
    model.to(torch.float16)
    assert torch.equal(model.lm.output.matrix.scale, before) and model.lm.output.matrix.weight.dtype == torch.int8
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        hidden = model.to(dtype)(torch.tensor([[1, 2, 3]])).hidden
        assert hidden.dtype == dtype and bool(hidden.isfinite().all())
        assert model.start(capacity=4).keys[0].dtype == dtype
    assert model.target.table(torch.tensor([[1]])).dtype == torch.float64


def test_quantizing_twice_changes_nothing_and_damage_is_refused() -> None:
    model = quantize_(made("gpt2"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    quantize_(model)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    broken = made("gpt2")
    with torch.no_grad():
        broken.decoder.blocks[0].ffn.up.weight[3, 4] = float("nan")
    with pytest.raises(DivergedError, match="up has weights that are not finite"):
        quantize_(broken)


def test_steps_equal_one_pass() -> None:
    """Products are the same to the bit; attention sums in another order, which may change how its result is rounded."""
    model = quantize_(made("gpt2"))
    ids = torch.randint(VOCAB, (1, 64))
    cache = model.start(capacity=64)
    steps = torch.cat([model.step(cache, ids[:, i : i + 1]) for i in range(64)])
    torch.testing.assert_close(steps, model.lm(model(ids).hidden)[0], rtol=0.01, atol=0.01)
