"""Training from a model that knows something: all of it, its upper blocks, or adapters beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headway.api import load
from headway.config.presets import gpt2
from headway.config.recipe import ShapeConfig
from headway.config.shape import decoder_config
from headway.errors import ConfigError, DamagedError, NotFoundError
from headway.hub.folder import load_model
from headway.kernels.lora import LoRALinear, add_adapters, merge_adapters
from headway.model.model import Transformer
from headway.tasks.recipe import load_recipe
from headway.train.build import checkpoint_activations
from headway.train.run import Run, resume, start, train
from tests.train.conftest import SMALL, begin, events, never, quiet, stop_after


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build")


@pytest.fixture(scope="module")
def base(place: Path) -> Path:
    return train(begin(place, "model.depth=3", "model.width=32"), quiet).folder


def adapt(place: Path, base: Path, *words: str) -> Run:
    """A run that starts from the base, whose shape it takes."""
    (text, out) = f"data.train={place / 'text.txt'}", f"out={place / 'runs'}"
    return start(
        *load_recipe(
            "tiny", [*(word for word in SMALL if "model." not in word), text, out, f"model.from={base}", *words]
        )
    )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in load_model(folder).named_parameters()}


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


def test_all_of_a_model_goes_on(place: Path, base: Path) -> None:
    run = adapt(place, base)
    assert changed(weights(base), dict(run.model.named_parameters())) == set()
    assert run.task.tokenizer.backend.to_str() == load(base).require_tokenizer().backend.to_str()
    after = weights(train(run, quiet).folder)
    assert changed(weights(base), after) == set(after)


def test_frozen_blocks_stay(place: Path, base: Path) -> None:
    after = weights(train(adapt(place, base, "model.freeze=2"), quiet).folder)
    untouched = set(after) - changed(weights(base), after)
    assert untouched == {n for n in after if n.startswith(("target.", "decoder.blocks.0.", "decoder.blocks.1."))}


def test_adapters_alone_are_trained_saved_and_merged(place: Path, base: Path, tmp_path: Path) -> None:
    run = train(adapt(place, base, "model.lora=2", 'model.lora_targets=["qkv", "down"]'), quiet)
    (begun,) = events(run.folder, "start")
    assert begun["trained"] == sum(p.numel() for p in run.model.parameters() if p.requires_grad) < begun["parameters"]
    names = {n for n, p in run.model.named_parameters() if p.requires_grad}
    assert names == {
        f"decoder.blocks.{i}.{m}.{part}"
        for i in range(3)
        for m in ("attention.qkv", "ffn.down")
        for part in ("narrow", "widen")
    }
    assert not (run.folder / "model.safetensors").exists()
    ids = torch.arange(12)[None]
    run.model.eval()
    expected = run.model(ids).hidden
    merged = load(run.folder)
    assert not any(isinstance(m, LoRALinear) for m in merged.model.modules())
    assert torch.allclose(merged.model(ids).hidden, expected, atol=1e-5)
    exported = merged.save(tmp_path / "merged")
    import transformers

    theirs = transformers.AutoModelForCausalLM.from_pretrained(exported).eval()
    with torch.no_grad():
        assert torch.allclose(theirs(ids).logits, merged.model.lm(expected), atol=1e-4)
    after = changed(weights(base), weights(run.folder))
    assert after == {n for n in after if n.endswith((".qkv.weight", ".down.weight"))} and len(after) == 6


def test_frozen_blocks_have_no_adapters_that_learn(place: Path, base: Path) -> None:
    run = train(adapt(place, base, "model.lora=2", "model.freeze=2"), quiet)
    after = changed(weights(base), weights(run.folder))
    assert after == {f"decoder.blocks.2.{m}.weight" for m in ("attention.qkv", "attention.out", "ffn.up", "ffn.down")}


def test_an_adapted_run_is_resumed_with_its_base(place: Path, base: Path) -> None:
    words = ["model.lora=2", "train.save_every=4"]
    straight = train(adapt(place, base, *words), quiet)
    run = stop_after(adapt(place, base, *words), 4)
    again = train(resume(run.folder, never), quiet)
    assert changed(weights(straight.folder), weights(again.folder)) == set()
    with pytest.raises(DamagedError, match=r"adapter\.safetensors"):
        (again.folder / "adapter.safetensors").write_bytes(b"nothing")
        load_model(again.folder)


def test_a_merged_matrix_computes_the_same() -> None:
    model = Transformer(gpt2(2, 16, 2, vocab=40, length=32)).eval()
    ids = torch.arange(10)[None]
    before = model(ids).hidden
    assert add_adapters(model, 4, ("qkv", "up")) == 4
    assert torch.equal(model(ids).hidden, before)  # it starts as the model it adapts
    for module in model.modules():
        if isinstance(module, LoRALinear):
            torch.nn.init.normal_(module.widen)
    adapted = model(ids).hidden
    assert not torch.allclose(adapted, before, atol=1e-2)
    merge_adapters(model)
    assert torch.allclose(model(ids).hidden, adapted, atol=1e-5)


def test_activation_checkpointing_gives_the_same_gradients() -> None:
    gradients = []
    for again in (False, True):
        torch.manual_seed(0)
        model = Transformer(decoder_config(ShapeConfig(depth=2, width=16, heads=2, dropout=0.2), 30, 16)).train()
        if again:
            checkpoint_activations(model)
        torch.manual_seed(1)
        model(torch.arange(12)[None]).hidden.square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_mistakes_are_named(place: Path, base: Path) -> None:
    with pytest.raises(ConfigError, match=r"C004.*model\.lora = 4 .*model\.from"):
        begin(place, "model.lora=4")
    with pytest.raises(ConfigError, match=r"C003.*model\.freeze = 9"):
        adapt(place, base, "model.freeze=9")
    with pytest.raises(ConfigError, match=r"C003.*model\.lora_targets.*'nothing'"):
        adapt(place, base, "model.lora=4", "model.lora_targets=qkv,nothing")
    with pytest.raises(ConfigError, match=r"data\.length = 32"):
        adapt(place, base, "data.length=32")
    with pytest.raises(NotFoundError, match="F001"):
        adapt(place, Path("nowhere"))
