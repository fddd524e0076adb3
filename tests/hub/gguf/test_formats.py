"""Quantization formats: bit for bit as the gguf package dequantizes them, without the package for the common ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.errors import NotFoundError
from headway.hub.gguf import formats
from headway.hub.gguf.formats import FORMATS, format_of

gguf = pytest.importorskip("gguf")
PACKAGED = ("Q5_0", "Q5_1", "Q2_K", "Q3_K", "IQ4_NL", "TQ2_0")


def dequantized(name: str, raw: np.ndarray) -> tuple[Any, Any]:
    """What headway and the package make of the same bytes."""
    kind = gguf.GGMLQuantizationType[name]
    form = format_of(int(kind))
    assert form is not None
    assert (form.name, form.items, form.size) == (name, *gguf.GGML_QUANT_SIZES[kind])
    out = np.full(raw.size // form.size * form.items, np.nan, np.float32)
    with np.errstate(all="ignore"):  # random scales may be infinite
        form.dequantize(raw, out)
        theirs = gguf.quants.dequantize(raw.reshape(1, -1), kind).reshape(-1)
    return out, theirs.view(np.float32) if theirs.dtype != np.float32 else theirs


@pytest.mark.parametrize("name", [*(form.name for form in FORMATS.values()), *PACKAGED])
def test_any_bytes_are_dequantized_as_by_the_package(name: str) -> None:
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    raw = np.random.default_rng(0).integers(0, 256, 97 * size, dtype=np.uint8)
    ours, theirs = dequantized(name, raw)
    assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))  # NaN and the sign of zero included


@pytest.mark.parametrize("name", ["Q4_1", "Q6_K", "F16", "Q5_0"])
def test_long_tensors_are_dequantized_in_chunks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = gguf.GGMLQuantizationType[name]
    size = gguf.GGML_QUANT_SIZES[kind][1]
    raw = np.random.default_rng(1).integers(0, 60, 1000 * size, dtype=np.uint8)
    form, seen = format_of(int(kind)), list[int]()
    assert form is not None

    def convert(blocks: Any, out: Any) -> None:
        seen.append(len(blocks))
        form.convert(blocks, out)

    out = np.empty(1000 * form.items, np.float32)
    formats.Format(name, form.items, size, convert, chunk=300 * form.items).dequantize(raw, out)
    assert seen == [300, 300, 300, 100]
    assert np.array_equal(out, dequantized(name, raw)[1])


def test_only_rare_formats_need_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    format_of.cache_clear()
    for number, form in FORMATS.items():
        assert format_of(number) is form
    with pytest.raises(NotFoundError) as caught:
        format_of(int(gguf.GGMLQuantizationType.Q5_0))
    assert (caught.value.code, caught.value.hint) == ("F003", "pip install 'headway[gguf]'")


def test_a_number_without_a_format() -> None:
    assert format_of(10_000) is None
