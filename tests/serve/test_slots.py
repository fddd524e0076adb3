"""How many texts a server writes at one time where it is not told: by the memory of a GPU that is not here."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.api import Bundle
from headway.config import presets
from headway.config.model import ModelConfig
from headway.generate.engine.engine import Engine
from headway.model.model import Model
from headway.serve import context as slots
from headway.serve.context import ServedModel
from headway.serve.limits import Limits

GROUPED = presets.llama(layers=3, width=32, heads=4, kv_heads=2, ff=64, vocab=64)
LEARNED = presets.gpt2(2, 16, 2, vocab=64, length=48)


@pytest.fixture(scope="module")
def model() -> Model:
    with torch.device("meta"):
        return Model(GROUPED).to(torch.bfloat16)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if models were on an NVIDIA GPU, with kernels for them."""
    monkeypatch.setattr(slots, "device_of", lambda model: torch.device("cuda:1"))
    monkeypatch.setattr(slots, "accelerates", lambda model, rows: rows == 64)


def nobody(device: torch.device) -> int:
    raise AssertionError("nobody needs to know")


@pytest.mark.parametrize("config", [GROUPED, LEARNED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("context", [0, 17])
def test_a_slot_is_as_large_as_what_is_allocated(config: ModelConfig, dtype: torch.dtype, context: int) -> None:
    """Slow twin: the cache of an engine, which has a column more for padding."""
    made = Model(config).to(dtype)
    cache = Engine(made, None, slots=3, capacity=context or None).cache  # type: ignore[arg-type]
    size = sum(part.nbytes for part in (*cache.keys, *cache.values))
    assert slots.kv_cache_bytes(made, context) == size // 3 * cache.capacity // (cache.capacity + 1)


def test_on_a_cpu(bundle: Bundle) -> None:
    assert slots.choose_slots(Limits(), bundle.model, nobody) == 8
    served = ServedModel(bundle, Limits())
    assert served.engine is not None and served.engine.stats().slots == 8


def test_a_number_that_was_given_is_kept(gpu: None, model: Model, bundle: Bundle) -> None:
    for number in (1, 8, 64, 1000):
        assert slots.choose_slots(Limits(slots=number), model, nobody) == number
    served = ServedModel(bundle, Limits(slots=3))
    assert served.engine is not None and served.engine.stats().slots == 3


def test_a_gpu_without_kernels(gpu: None, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "accelerates", lambda model, rows: False)
    assert slots.choose_slots(Limits(), model, nobody) == 8


def test_kernels_of_a_cpu_are_not_enough(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "accelerates", lambda model, rows: True)
    assert slots.choose_slots(Limits(), model, nobody) == 8


@pytest.mark.usefixtures("gpu")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(free=st.integers(0, 1 << 34), context=st.integers(0, 100_000))
def test_the_most_that_a_quarter_of_the_memory_holds(model: Model, free: int, context: int) -> None:
    found = slots.choose_slots(Limits(context=context), model, lambda device: free)
    size = slots.kv_cache_bytes(model, context)
    assert found == max((n for n in (64, 32, 16, 8) if 4 * n * size <= free), default=8)


def test_at_the_very_edge(gpu: None, model: Model) -> None:
    asked: list[torch.device] = []
    edge = 4 * 64 * (2048 * 3 * 2 * 2 * 8 * 2)  # tokens, layers, keys and values, heads, width, bytes

    def take(free: int) -> int:
        return slots.choose_slots(Limits(), model, lambda device: asked.append(device) or free)  # type: ignore[func-returns-value]

    assert (take(edge), take(edge - 1), take(edge // 2), take(edge // 4), take(0)) == (64, 32, 32, 16, 8)
    assert asked == [torch.device("cuda:1")] * 5


def test_the_server_takes_what_is_found(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "device_of", lambda model: torch.device("cuda:1"))
    monkeypatch.setattr(slots, "accelerates", lambda model, rows: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (4 * 16 * slots.kv_cache_bytes(bundle.model, 20), 0))
    served = ServedModel(bundle, Limits(context=20))
    assert served.engine is not None and served.engine.stats().slots == 16
