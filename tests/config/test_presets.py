"""Every preset is the model its name promises: its size is the published one, and `transformers` agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import headway
from headway.config.model import FramesConfig, ModelConfig, PatchesConfig, TokensConfig
from headway.config.presets import PRESETS, preset
from headway.errors import NotFoundError
from headway.hub.convert import dump_tensors
from headway.hub.folder import describe, load_model, save_model
from headway.hub.tables import FAMILIES
from headway.model.model import Transformer

PUBLISHED: dict[str, tuple[float, float, int]] = {
    # openai-community/gpt2 … gpt2-xl on the hub; Radford et al. 2019, table 2 has them rounded (and 117M for 124M)
    "gpt2": (124_439_808, 0, 12),
    "gpt2-medium": (354_823_168, 0, 16),
    "gpt2-large": (774_030_080, 0, 20),
    "gpt2-xl": (1_557_611_200, 0, 25),
    # Brown et al. 2020, table 2.1: 175.0B
    "gpt3": (175e9, 0.01, 96),
    # meta-llama/Llama-3.2-1B and Meta-Llama-3-8B on the hub
    "llama-1b": (1_235_814_400, 0, 32),
    "llama-8b": (8_030_261_248, 0, 32),
    # Devlin et al. 2019, section 3: 110M and 340M; exact: BertForPreTraining of transformers, output matrix tied
    "bert-base": (110_106_428, 0, 12),
    "bert-large": (336_226_108, 0, 16),
    # BigBirdForPreTraining of transformers with its default config, which is google/bigbird-roberta-base
    "bigbird-base": (128_112_824, 0, 12),
    # Vaswani et al. 2017, table 3: 65M and 213M, in millions and without saying what is counted
    "transformer-base": (65e6, 0.05, 8),
    "transformer-big": (213e6, 0.05, 16),
    # google-t5/t5-small and t5-base on the hub; Raffel et al. 2020, section 3.7: 60M and 220M
    "t5-small": (60_506_624, 0, 8),
    "t5-base": (222_903_552, 0, 12),
    # google/vit-base-patch16-224 and vit-large-patch16-224 on the hub; Dosovitskiy et al. 2021, table 1: 86M, 307M
    "vit-b16": (86_567_656, 0, 12),
    "vit-l16": (304_326_632, 0, 16),
    # openai/whisper-tiny and whisper-base on the hub; Radford et al. 2022, table 1: 39M and 74M
    "whisper-tiny": (37_760_640, 0, 6),
    "whisper-base": (72_593_920, 0, 8),
}
"""Preset → number of weights, tied ones counted once; the share by which it may differ; heads, which no count shows."""

SMALL = sorted(name for name in PRESETS if "tiny" in name)


def on_meta(name: str) -> Transformer:
    with torch.device("meta"):
        return Transformer(preset(name))


@pytest.mark.parametrize("name", PRESETS)
def test_the_size_is_the_published_one(name: str) -> None:
    model = on_meta(name)
    count = model.parameter_count()
    if name not in PUBLISHED:
        assert name in SMALL
        assert count < 5e6
        return
    published, share, heads = PUBLISHED[name]
    assert abs(count - published) <= share * published, f"{count:,}"
    stacks = [stack for stack in (model.config.encoder, model.config.decoder) if stack is not None]
    assert {stack.n_heads for stack in stacks} == {heads}


def test_only_presets_have_published_sizes() -> None:
    assert set(PUBLISHED) <= set(PRESETS)
    assert set(PRESETS) - set(PUBLISHED) <= set(SMALL)


@pytest.mark.parametrize("name", [name for name in PRESETS if preset(name).family in FAMILIES])
def test_transformers_builds_the_same_from_its_config(name: str) -> None:
    """Every preset of a family is expressed by it, and what `transformers` makes of that has the same weights."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    model = on_meta(name)
    family, theirs = describe(model)
    assert family is FAMILIES[model.config.family]
    made = getattr(transformers, theirs["architectures"][0])
    with torch.device("meta"):
        oracle = made(made.config_class.from_dict(theirs))
    assert sum(parameter.numel() for parameter in oracle.parameters()) == model.parameter_count()
    ours = [tuple(tensor.shape) for _, tensor in dump_tensors(model, family, theirs["architectures"][0])]
    assert sorted(ours) == sorted(tuple(parameter.shape) for parameter in oracle.parameters())


def example(config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Inputs, and targets where the model has a decoder beside its encoder."""
    front = config.source or config.target
    inputs: torch.Tensor
    if isinstance(front, PatchesConfig):
        inputs = torch.randn(2, front.channels, front.image, front.image)
    elif isinstance(front, FramesConfig):
        inputs = torch.randn(2, front.channels, 24)
    else:
        assert isinstance(front, TokensConfig)
        inputs = torch.randint(front.vocab, (2, 9))
    if config.kind != "encoder-decoder":
        return inputs, None
    assert config.target is not None
    return inputs, torch.randint(config.target.vocab, (2, 7))


@pytest.mark.parametrize("name", SMALL)
def test_a_small_preset_runs_trains_and_survives_saving(name: str, tmp_path: Path) -> None:
    model = Transformer(preset(name))
    inputs, targets = example(model.config)
    model.train()
    scores = model.logits(model(inputs, targets))
    assert scores
    sum(score.float().square().mean() for score in scores.values()).backward()  # type: ignore[union-attr]
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name
    model.eval()
    folder = save_model(model, tmp_path / "model")
    again = load_model(folder)
    assert again.config == model.config
    with torch.no_grad():
        pair = [m.logits(m(inputs, targets)) for m in (model, again)]
    assert pair[0].keys() == pair[1].keys()
    for head in pair[0]:
        assert torch.equal(pair[0][head], pair[1][head]), head


@pytest.mark.parametrize("name", SMALL)
def test_transformers_opens_the_folder_of_a_small_preset(name: str, tmp_path: Path) -> None:
    from transformers import AutoConfig

    model = on_meta(name)
    family, theirs = describe(model)
    assert family is not None
    assert theirs["model_type"] == model.config.family == family.name
    (tmp_path / "config.json").write_text(json.dumps(theirs))
    opened: Any = AutoConfig.from_pretrained(tmp_path)
    assert opened.model_type == family.name
    assert opened.architectures == theirs["architectures"]


def test_the_seed_decides_the_weights_of_a_preset() -> None:
    def first(seed: int) -> torch.Tensor:
        return next(headway.load("vit-tiny", seed=seed).model.parameters()).detach()

    assert torch.equal(first(3), first(3))
    assert not torch.equal(first(3), first(4))


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(NotFoundError, match=r'F001.*"gpt3-tiny" — did you mean "gpt2-tiny"\?') as caught:
        preset("gpt3-tiny")
    assert all(name in caught.value.hint for name in PRESETS)
