"""Linear maps by oneDNN equal torch's own, in values and gradients; and the CPU alone decides which is used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from headway.config.presets import vit
from headway.kernels import linear as module
from headway.kernels.linear import Linear, linear, onednn_is_faster
from headway.model.model import Transformer


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """oneDNN's product on any CPU and for any size; shapes of the products that it computed."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    seen: list[tuple[int, ...]] = []
    product = module._product

    def counted(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        seen.append(tuple(x.shape))
        return product(x, weight, bias)

    monkeypatch.setattr(module, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(module, "LEAST", 0)
    monkeypatch.setattr(module, "_product", counted)
    return seen


@pytest.mark.parametrize("shape", [(7, 24), (2, 5, 24), (2, 3, 4, 24), (1, 24), (24,)])
@pytest.mark.parametrize("biased", [True, False])
def test_values_and_gradients(shape: tuple[int, ...], biased: bool, onednn: list[tuple[int, ...]]) -> None:
    x, weight = torch.randn(shape), torch.randn(40, 24)
    bias, out = torch.randn(40) if biased else None, torch.randn(*shape[:-1], 40)
    if x.ndim == 1:
        x, out = x[None], out[None]
    results = []
    for make in (linear, F.linear):
        leaves = [t.clone().requires_grad_() for t in (x, weight, bias) if t is not None]
        y = make(*leaves)
        y.backward(out)
        results.append([y.detach(), *(leaf.grad for leaf in leaves)])
    assert len(onednn) == 3
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_frozen_weights_and_inputs_have_no_gradient(onednn: list[tuple[int, ...]]) -> None:
    x, weight = torch.randn(8, 16), torch.randn(12, 16, requires_grad=True)
    linear(x, weight).sum().backward()
    assert len(onednn) == 2 and weight.grad is not None, "the input's gradient costs nothing"
    with torch.no_grad():
        assert not linear(x, weight).requires_grad


def test_transposed_and_sliced_inputs(onednn: list[tuple[int, ...]]) -> None:
    x, weight = torch.randn(16, 30), torch.randn(20, 32)
    for ours, theirs in ((linear(x.t(), weight[:, ::2]), x.t() @ weight[:, ::2].t()),):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_model_and_its_gradients(onednn: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, images = Transformer(vit(2, 32, 2)), torch.randn(2, 3, 224, 224)
    results = []
    for faster in (True, False):
        monkeypatch.setattr(module, "onednn_is_faster", lambda faster=faster: faster)
        model.zero_grad()
        hidden = model(images).hidden
        hidden.square().mean().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        results.append([hidden.detach(), *gradients])
        assert bool(onednn) is True
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        (torch.randn(8, 16, dtype=torch.float64), torch.randn(4, 16, dtype=torch.float64)),
        (torch.randn(8, 16).bfloat16(), torch.randn(4, 16).bfloat16()),
        (torch.randn(8, 16, device="meta"), torch.randn(4, 16, device="meta")),
    ],
)
def test_other_types_are_torchs(x: torch.Tensor, weight: torch.Tensor, onednn: list[tuple[int, ...]]) -> None:
    assert linear(x, weight).shape == (8, 4) and not onednn


def test_small_products_are_torchs(onednn: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST", 8 * 16 * 4)
    for rows, used in ((7, 0), (8, 1)):
        linear(torch.randn(rows, 16), torch.randn(4, 16))
        assert len(onednn) == used


def test_autocast_is_torchs(onednn: list[tuple[int, ...]]) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(torch.randn(8, 16), torch.randn(4, 16)).dtype == torch.bfloat16
    assert not onednn


def test_compiled_is_torchs(onednn: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real choice is traced, on any CPU
    x, weight = torch.randn(64, 256), torch.randn(128, 256)
    compiled = torch.compile(linear, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, weight), F.linear(x, weight))


@pytest.mark.parametrize(
    ("vendor", "capability", "faster"),
    [("AuthenticAMD", "AVX512", True), ("AuthenticAMD", "AVX2", False), ("GenuineIntel", "AVX512", False)],
)
def test_the_cpu_decides(
    vendor: str, capability: str, faster: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nvendor_id : {vendor}\n")
    monkeypatch.setattr(module, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    onednn_is_faster.cache_clear()
    try:
        assert onednn_is_faster() is faster
    finally:
        onednn_is_faster.cache_clear()


def test_matrices_of_models_are_of_this_kind() -> None:
    matrices = [m for m in Transformer(vit(1, 16, 2)).modules() if isinstance(m, torch.nn.Linear)]
    assert matrices and all(type(matrix) is Linear for matrix in matrices)
