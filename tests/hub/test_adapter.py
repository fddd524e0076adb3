"""Adapter folders: what they claim is checked against their file first, and nothing is fetched for them."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from torch import Tensor

from headway.config import presets
from headway.errors import DamagedError, HeadwayError, NotFoundError
from headway.hub.adapter import CONFIG_FILE, WEIGHTS_FILE, merge_adapter, write_adapter
from headway.hub.folder import load_model, save_model
from headway.hub.weights import FORMAT, open_file, write_tensors
from headway.kernels.lora import LoRALinear, add_adapters
from headway.model.model import Transformer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
IDS = torch.arange(10)[None]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    return save_model(Transformer(presets.gpt2(2, 16, 2, vocab=40, length=16)).eval(), tmp_path / "base")


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    return make(base, tmp_path / "adapter")


def make(base: Path, folder: Path) -> Path:
    """An adapter that changes something."""
    model = load_model(base)
    add_adapters(model, 2, ["qkv"])
    for module in model.modules():
        if isinstance(module, LoRALinear):
            torch.nn.init.normal_(module.widen)
    folder.mkdir()
    write_adapter(model, folder, str(base), 2, ["qkv"])
    return folder


def say(folder: Path, **changes: Any) -> None:
    facts = json.loads((folder / CONFIG_FILE).read_text())
    (folder / CONFIG_FILE).write_text(json.dumps(facts | changes))


def refused(folder: Path, code: str) -> HeadwayError:
    with pytest.raises(HeadwayError) as caught:
        load_model(folder)
    assert caught.value.code == code, str(caught.value)
    return caught.value


def hidden(folder: Path) -> Tensor:
    with torch.no_grad():
        return load_model(folder)(IDS).hidden


def test_an_adapter_changes_its_base(adapter: Path, base: Path) -> None:
    assert not torch.allclose(hidden(adapter), hidden(base), atol=1e-2)


@pytest.mark.parametrize("rank", [1 << 30, 1 << 62, 10**400, 1 << 19, 0, -1])
def test_a_rank_out_of_bounds(adapter: Path, rank: int) -> None:
    say(adapter, rank=rank)
    assert "rank" in refused(adapter, "X001").message


@pytest.mark.parametrize("rank", [1 << 18, 200_000, 3, 1])
def test_a_rank_is_not_believed_before_the_file_is_looked_at(adapter: Path, base: Path, rank: int) -> None:
    """Nothing is allocated for it: the model has no adapter when the error comes."""
    say(adapter, rank=rank)
    model = load_model(base)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamagedError) as caught:
        merge_adapter(model, adapter)
    assert caught.value.code == "X003"
    assert not any(isinstance(module, LoRALinear) for module in model.modules())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kilobytes


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"rank": None}, "X001"),
        ({"rank": True}, "X001"),
        ({"rank": 2.0}, "X001"),
        ({"targets": None}, "X001"),
        ({"targets": []}, "X002"),
        ({"targets": ["nothing"]}, "X002"),
        ({"targets": [["qkv"], 7]}, "X002"),
        ({"targets": ["qkv", "up"]}, "X002"),
        ({"targets": ["up"]}, "X002"),
        ({"base": None}, "F002"),
        ({"base": 7}, "F002"),
        ({"base": "../nowhere"}, "F001"),
        ({"base": "/nowhere/at/all"}, "F001"),
    ],
)
def test_facts_that_do_not_fit(adapter: Path, facts: dict[str, Any], code: str) -> None:
    say(adapter, **facts)
    refused(adapter, code)


NARROW = "decoder.blocks.0.attention.qkv.narrow"


@pytest.mark.parametrize(
    ("name", "tensor", "code"),
    [
        ("stranger", torch.zeros(2), "X004"),
        (NARROW, torch.zeros(2, 17), "X003"),
        (NARROW, torch.zeros(2, 16, dtype=torch.int32), "X001"),
        (NARROW, None, "X002"),
    ],
)
def test_tensors_that_do_not_fit(adapter: Path, name: str, tensor: Tensor | None, code: str) -> None:
    opened = open_file(adapter / WEIGHTS_FILE)
    tensors = {name: opened.read(name).clone() for name in opened.names} | {name: tensor}
    write_tensors(adapter / "new", {name: tensor for name, tensor in tensors.items() if tensor is not None}, FORMAT)
    (adapter / "new").replace(adapter / WEIGHTS_FILE)
    refused(adapter, code)


def test_an_adapter_of_an_adapter(adapter: Path, base: Path, tmp_path: Path) -> None:
    second = make(adapter, tmp_path / "second")
    assert not torch.allclose(hidden(second), hidden(adapter), atol=1e-2)
    model = load_model(base)
    merge_adapter(model, adapter)
    merge_adapter(model, second)
    with torch.no_grad():
        assert torch.equal(model.eval()(IDS).hidden, hidden(second))


def test_adapters_in_a_circle(adapter: Path, tmp_path: Path) -> None:
    second = make(adapter, tmp_path / "second")
    say(adapter, base=str(second))
    refused(adapter, "X001")
    say(adapter, base=str(adapter))
    refused(adapter, "X001")


# --- the base of an adapter is never fetched ------------------------------------------------------


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Calls that would reach the hub."""
    calls: list[dict[str, Any]] = []
    real = huggingface_hub.snapshot_download

    def watched(*words: Any, **settings: Any) -> str:
        if not settings.get("local_files_only"):
            calls.append(settings)
        return real(*words, **settings)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", watched)
    return calls


@pytest.mark.parametrize("name", ["org/stranger", "hf://org/stranger", "org/stranger@v1.0"])
def test_a_base_on_the_hub_is_not_fetched(
    adapter: Path, name: str, online: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    say(adapter, base=name)
    error = refused(adapter, "F006")
    assert (type(error), error.exit_code, online) == (NotFoundError, 5, [])
    assert f"headway get {name.removeprefix('hf://')}" in str(error)
    assert str(adapter / CONFIG_FILE) in error.message


def test_a_base_in_the_cache_is_used(
    adapter: Path, base: Path, online: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = hidden(adapter)
    storage = tmp_path / "cache" / "models--org--name"
    (storage / "snapshots").mkdir(parents=True)
    (storage / "refs").mkdir()
    base.rename(storage / "snapshots" / COMMIT)
    (storage / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    say(adapter, base="org/name")
    assert torch.equal(hidden(adapter), expected)
    assert online == []
