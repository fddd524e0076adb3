"""The batch size that a server chooses by itself: by the memory of a GPU, which the tests pretend to have."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.api import Bundle
from headway.config import presets
from headway.config.model import ModelConfig
from headway.generate.engine.engine import Engine
from headway.model.model import Model, Transformer
from headway.serve import context
from headway.serve.context import ServedModel, choose_slots, kv_cache_bytes
from headway.serve.limits import Limits

GROUPED = presets.llama(layers=3, width=32, heads=4, kv_heads=2, ff=64, vocab=64)
LEARNED = presets.gpt2(2, 16, 2, vocab=64, length=48)


@pytest.fixture(scope="module")
def model() -> Model:
    with torch.device("meta"):
        return Transformer(GROUPED).to(torch.bfloat16)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if models were on an NVIDIA GPU, with kernels for them."""
    monkeypatch.setattr(context, "device_of", lambda model: torch.device("cuda:1"))
    monkeypatch.setattr(context, "accelerates", lambda model, rows: rows == 64)


def unused(device: torch.device) -> int:
    raise AssertionError("the free memory does not matter here")


@pytest.mark.parametrize("config", [GROUPED, LEARNED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [0, 17])
def test_the_size_of_a_slot_is_what_an_engine_allocates(config: ModelConfig, dtype: torch.dtype, length: int) -> None:
    """The engine's cache has one column more, for padding."""
    made = Transformer(config).to(dtype)
    cache = Engine(made, None, slots=3, capacity=length or None).cache  # type: ignore[arg-type]
    size = sum(part.nbytes for part in (*cache.keys, *cache.values))
    assert kv_cache_bytes(made, length) == size // 3 * cache.capacity // (cache.capacity + 1)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("kernels", [False, True])
def test_without_a_gpu_or_its_kernels_there_are_eight(
    model: Model, monkeypatch: pytest.MonkeyPatch, device: str, kernels: bool
) -> None:
    monkeypatch.setattr(context, "device_of", lambda model: torch.device(device))
    monkeypatch.setattr(context, "accelerates", lambda model, rows: kernels)
    assert choose_slots(Limits(), model, lambda device: 1 << 40) == (64 if device == "cuda" and kernels else 8)


@pytest.mark.parametrize("number", [1, 8, 64, 1000])
def test_a_given_number_wins(gpu: None, model: Model, number: int) -> None:
    assert choose_slots(Limits(slots=number), model, unused) == number


@pytest.mark.usefixtures("gpu")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(free=st.integers(0, 1 << 34), length=st.integers(0, 100_000))
def test_the_cache_takes_at_most_a_quarter_of_the_memory(model: Model, free: int, length: int) -> None:
    found = choose_slots(Limits(context=length), model, lambda device: free)
    assert found == max((n for n in (64, 32, 16, 8) if 4 * n * kv_cache_bytes(model, length) <= free), default=8)


def test_the_exact_limits(gpu: None, model: Model) -> None:
    devices: list[torch.device] = []
    edge = 4 * 64 * (2048 * 3 * 2 * 2 * 8 * 2)  # tokens, layers, keys and values, heads, width, bytes

    def take(free: int) -> int:
        return choose_slots(Limits(), model, lambda device: devices.append(device) or free)  # type: ignore[func-returns-value]

    assert [take(free) for free in (edge, edge - 1, edge // 2, edge // 4, 0)] == [64, 32, 32, 16, 8]
    assert devices == [torch.device("cuda:1")] * 5


@pytest.mark.parametrize(("limits", "slots"), [({}, 8), ({"slots": 3}, 3)])
def test_the_engine_has_that_many(bundle: Bundle, limits: dict[str, int], slots: int) -> None:
    served = ServedModel(bundle, Limits(**limits))  # type: ignore[arg-type]
    assert served.engine is not None and served.engine.stats().slots == slots


def test_the_engine_asks_the_gpu_for_its_memory(bundle: Bundle, gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (4 * 16 * kv_cache_bytes(bundle.model, 20), 0))
    served = ServedModel(bundle, Limits(context=20))
    assert served.engine is not None and served.engine.stats().slots == 16
