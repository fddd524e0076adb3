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
    "deberta scale": ("deberta-mlm", "encoder", dict(scale=None)),
    "deberta buckets": ("deberta-mlm", "encoder.distances", dict(max_distance=20)),
    "deberta distances": ("deberta-every-distance", "encoder.distances", dict(buckets=9, max_distance=40)),
    "mt5 gate": ("mt5-lm", "encoder", dict(activation="relu")),
    "mt5 output": ("mt5-lm", "lm", dict(scale=32**-0.5)),
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
