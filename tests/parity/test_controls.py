"""Controls: one wrong field must show. A parity test that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from headway.config.model import LayerConfig, ModelConfig, RelativeConfig, RopeConfig, SparseConfig
from headway.hub.convert import load_tensors
from headway.hub.folder import load_model, open_folder
from headway.model.model import Transformer
from tests.parity.conftest import CASES, Batch, Case

GLOBAL, LOCAL = RopeConfig(theta=160_000.0), RopeConfig()
WRONG: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-mlm": ("bert-mlm", "encoder", dict(activation="gelu_tanh")),
    "bert norm": ("bert-mlm", "encoder", dict(norm_eps=1e-3)),
    "roberta-mlm": ("roberta-mlm", "source.positions", dict(offset=1, length=63)),
    "distilbert-mlm": ("distilbert-mlm", "encoder", dict(activation="relu")),
    "gpt2-lm": ("gpt2-lm", "decoder", dict(activation="gelu")),
    "llama-lm": ("llama-lm", "decoder", dict(rope=RopeConfig(theta=500.0))),
    "llama3": ("llama3", "decoder", dict(rope=RopeConfig(theta=500_000.0))),
    "mistral-lm": ("mistral-lm", "decoder", dict(window=4)),
    "gemma-lm": ("gemma-lm", "target", dict(scale=1.0)),
    "gemma norm": ("gemma-lm", "decoder", dict(norm_offset=0.0)),
    "mixtral count": ("mixtral-lm", "decoder.experts", dict(top_k=3)),
    "mixtral weights": ("mixtral-lm", "decoder.experts", dict(normalised=False)),
    "qwen2 window": ("qwen2-windowed-lm", "decoder", dict(pattern=(), rope=RopeConfig())),
    "qwen3 base": ("qwen3-lm", "decoder", dict(rope=RopeConfig(theta=500.0))),
    "qwen3 order": ("qwen3-windowed-lm", "decoder", dict(pattern=(LayerConfig(rope=RopeConfig()),) * 2)),
    "qwen3-moe weights": ("qwen3-moe-lm", "decoder.experts", dict(normalised=True)),
    "qwen2-moe weights": ("qwen2-moe-lm", "decoder.experts", dict(normalised=True)),
    "phi3 share": ("phi3-partial-lm", "decoder", dict(rope=RopeConfig(partial=1.0))),
    "gemma2 scores": ("gemma2-lm", "decoder", dict(softcap=None)),
    "gemma2 logits": ("gemma2-lm", "lm", dict(softcap=None)),
    "gemma2 scale": ("gemma2-lm", "decoder", dict(scale=None)),
    "gemma3 local base": (
        "gemma3-lm",
        "decoder",
        dict(pattern=(LayerConfig(window=5, rope=RopeConfig(theta=1e6)), LayerConfig(rope=RopeConfig(theta=1e6)))),
    ),
    "granite residual": ("granite-lm", "decoder", dict(residual_scale=1.0)),
    "granite logits": ("granite-lm", "lm", dict(scale=1.0)),
    "olmo2 norms": ("olmo2-lm", "decoder", dict(norm_at="post")),
    "smollm3 rope": ("smollm3-lm", "decoder", dict(pattern=(), rope=RopeConfig(theta=2e6))),
    "starcoder2 window": ("starcoder2-lm", "decoder", dict(window=4)),
    "stablelm share": ("stablelm-lm", "decoder", dict(rope=RopeConfig(partial=0.5))),
    "cohere logits": ("cohere-lm", "lm", dict(scale=1.0)),
    "neox branches": ("neox-lm", "decoder", dict(parallel="none")),
    "falcon base": ("falcon-new-lm", "decoder", dict(rope=RopeConfig(theta=500.0))),
    "falcon-lm": ("falcon-lm", "decoder", dict(activation="relu")),
    "bloom slopes": ("bloom-lm", "decoder", dict(alibi=False)),
    "opt offset": ("opt-lm", "target.positions", dict(offset=1, length=65)),
    "opt order": ("opt-narrow-lm", "decoder", dict(norm_at="branch")),
    "t5 distance": ("t5-lm", "decoder", dict(relative=RelativeConfig(max_distance=128))),
    "t5 scale": ("t5-lm", "encoder", dict(scale=None)),
    "t5 output": ("t5-lm", "lm", dict(scale=1.0)),
    "bart-lm": ("bart-lm", "encoder", dict(norm_at="pre")),
    "marian-lm": ("marian-lm", "source.positions", dict(layout="interleaved")),
    "xlm-roberta-mlm": ("xlm-roberta-mlm", "source.positions", dict(offset=1, length=63)),
    "camembert-mlm": ("camembert-mlm", "encoder", dict(norm_eps=1e-3)),
    "mpnet bias": ("mpnet-mlm", "encoder", dict(relative=RelativeConfig(max_distance=32))),
    "electra discriminator": ("electra-discriminator", "encoder", dict(norm_eps=1e-2)),
    "albert-mlm": ("albert-mlm", "encoder", dict(activation="gelu")),
    "modernbert window": (
        "modernbert-mlm",
        "encoder",
        dict(pattern=(LayerConfig(rope=GLOBAL), *[LayerConfig(window=3, rope=LOCAL)] * 2)),
    ),
    "modernbert base": (
        "modernbert-mlm",
        "encoder",
        dict(pattern=(LayerConfig(rope=GLOBAL), *[LayerConfig(window=4, rope=GLOBAL)] * 2)),
    ),
    "nomic base": ("nomic-mlm", "encoder", dict(rope=RopeConfig())),
    "deberta scale": ("deberta-mlm", "encoder", dict(scale=None)),
    "deberta buckets": ("deberta-mlm", "encoder.distances", dict(max_distance=20)),
    "deberta distances": ("deberta-every-distance", "encoder.distances", dict(buckets=9, max_distance=40)),
    "mt5 gate": ("mt5-lm", "encoder", dict(activation="relu")),
    "mt5 output": ("mt5-lm", "lm", dict(scale=32**-0.5)),
    "longt5 window": ("longt5-lm", "encoder", dict(window=4)),
    "mbart scale": ("mbart-lm", "source", dict(scale=1.0)),
    "m2m-100 sines": ("m2m-100-lm", "source.positions", dict(layout="halves")),
    "m2m-100 first": ("m2m-100-lm", "target.positions", dict(offset=0)),
    "pegasus sines": ("pegasus-lm", "source.positions", dict(layout="fairseq")),
    "vit-classify": ("vit-classify", "encoder", dict(norm_eps=1e-2)),
    "deit-classify": ("deit-classify", "encoder", dict(norm_eps=1e-2)),
    "dinov2-classify": ("dinov2-classify", "encoder", dict(norm_eps=1e-2)),
    "whisper-lm": ("whisper-lm", "decoder", dict(activation="relu")),
    "moonshine share": ("moonshine-lm", "encoder", dict(rope=RopeConfig(partial=1.0))),
    "moonshine-lm": ("moonshine-lm", "decoder", dict(activation="gelu")),
    "bigbird dense": ("bigbird-mlm", "encoder", dict(sparse=None)),
    "bigbird count": ("bigbird-mlm", "encoder", dict(sparse=SparseConfig(block=4, random=1))),
}


def changed(config: Any, path: str, fields: dict[str, Any]) -> Any:
    first, _, rest = path.partition(".")
    if not first:
        return replace(config, **fields)
    return replace(config, **{first: changed(getattr(config, first), rest, fields)})


@pytest.mark.parametrize("control", WRONG)
def test_one_wrong_field_shows(control: str, case: Callable[[str], Case], batch: Callable[..., Batch]) -> None:
    name, path, fields = WRONG[control]
    this = case(name)
    inputs = batch(this.config, CASES[name][0])
    opened = open_folder(this.folder)
    wrong_config: ModelConfig = changed(opened.config, path, fields)
    assert wrong_config != opened.config
    with torch.device("meta"):
        wrong = Transformer(wrong_config)
    load_tensors(wrong, opened.family, opened.architecture, opened.weights)
    wrong.eval()
    with torch.no_grad():
        a, b = (m.logits(m(inputs.inputs, inputs.targets)) for m in (load_model(this.folder), wrong))
    worst = max(float((a[h] - b[h]).abs().max()) for h in a)
    assert worst > 1e-4  # ten times what the parity tests allow
