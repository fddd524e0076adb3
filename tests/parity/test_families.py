"""Every family and head against `transformers`, in float32, to 1e-5: alone, padded, saved and loaded back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.hub.convert import dump_tensors
from headway.hub.folder import describe, load_model, open_folder, save_model
from headway.model.model import Transformer
from tests.parity.conftest import CASES, Batch, Case
from tests.parity.decoder_cases import ABSOLUTE, KINDS

TOLERANCE = 1e-5
SOUNDS = ("whisper", "moonshine", "wav2vec2", "hubert")
PADDABLE = [n for n in CASES if not n.startswith(("vit", "deit", "dinov2", *SOUNDS))]
MakeCase = Callable[[str], Case]
MakeBatch = Callable[..., Batch]


def ours(model: Transformer, batch: Batch) -> dict[str, Tensor]:
    output = model(
        batch.inputs,
        batch.targets,
        attention_mask=batch.attention_mask,
        target_attention_mask=batch.target_attention_mask,
    )
    return model.logits(output) or {"hidden": output.hidden}


def theirs(case: Case, batch: Batch, oracle: Any = None) -> dict[str, Tensor]:
    """The oracle's scores under our heads' names."""
    model = case.oracle if oracle is None else oracle
    kind, name = case.config.model_type, type(model).__name__
    images = dict.fromkeys(("vit", "deit", "dinov2"), "pixel_values")
    field = {**images, "whisper": "input_features", **dict.fromkeys(SOUNDS[1:], "input_values")}.get(kind, "input_ids")
    arguments: dict[str, Any] = {field: batch.inputs}
    if batch.attention_mask is not None:
        arguments["attention_mask"] = batch.attention_mask.long()
        if kind in (
            "bert",
            "gpt2",
            "llama",
            "gemma",
            "mistral",
            "big_bird",
            "electra",
            "albert",
            "modernbert",
            "nomic_bert",
            "deberta-v2",
            *(KINDS - ABSOLUTE),
        ):  # left alone, they count padding as positions
            arguments["position_ids"] = (batch.attention_mask.cumsum(-1) - 1).clamp(min=0)
    if batch.targets is not None and "Sequence" not in name and "Question" not in name:
        arguments["decoder_input_ids"] = batch.targets
        if batch.target_attention_mask is not None:
            arguments["decoder_attention_mask"] = batch.target_attention_mask.long()
    if name == "BigBirdForQuestionAnswering":
        arguments |= dict(token_type_ids=torch.zeros_like(batch.inputs), question_lengths=torch.ones(3, 1).long())
    with torch.no_grad():
        out = model(**arguments)
    if "start_logits" in out:
        return {"span": torch.stack([out.start_logits, out.end_logits], -1)}
    if "prediction_logits" in out:
        second = "sop_logits" if "sop_logits" in out else "seq_relationship_logits"
        return {"lm": out.prediction_logits, "nsp": out[second]}
    if name == "ElectraForPreTraining":
        return {"tag": torch.nn.functional.pad(out.logits[..., None], (1, 0))}
    if "logits" in out:
        head = {"ForCTC": "tag", "Next": "nsp", "Sequence": "classify", "Image": "classify", "Token": "tag"}
        return {next((h for word, h in head.items() if word in name), "lm"): out.logits}
    if out.get("pooler_output") is not None and kind != "dinov2":
        return {"classify": out.pooler_output}
    return {"hidden": out.last_hidden_state}


def takes_left_padding(case: Case) -> bool:
    """Whether `transformers` gives left-padded rows their own positions at all."""
    if case.config.model_type in ("distilbert", "bart", "marian", "big_bird", "mpnet", "mbart", "pegasus"):
        return False
    roberta = {"roberta", "xlm-roberta", "camembert"}
    poolers = {"bert", "albert", "nomic_bert", *roberta}
    pooled = case.name in (poolers | {"nomic"}) or case.name.endswith(("classify", "pretraining", "nsp"))
    first_token = {*poolers, "electra", "modernbert", "deberta-v2", "t5", "mt5"}
    return not (pooled and case.config.model_type in first_token) and not case.name.endswith("t5-span")


def gap(a: dict[str, Tensor], b: dict[str, Tensor], batch: Batch) -> float:
    """Largest difference over real positions."""
    assert a.keys() == b.keys()
    attention_mask = batch.attention_mask if batch.targets is None else batch.target_attention_mask
    worst = 0.0
    for name in a:
        assert a[name].shape == b[name].shape
        difference = (a[name] - b[name]).abs()
        if attention_mask is not None and difference.shape[:2] == attention_mask.shape:
            difference = difference[attention_mask]
        worst = max(worst, float(difference.max()))
    return worst


@pytest.mark.parametrize("name", CASES)
def test_scores_agree(name: str, case: MakeCase, batch: MakeBatch) -> None:
    this = case(name)
    inputs = batch(this.config, CASES[name][0])
    with torch.no_grad():
        worst = gap(ours(load_model(this.folder), inputs), theirs(this, inputs), inputs)
    assert worst <= TOLERANCE


@pytest.mark.parametrize("pad", ["right", "left"])
@pytest.mark.parametrize("name", PADDABLE)
def test_padded_batches_agree(name: str, pad: str, case: MakeCase, batch: MakeBatch) -> None:
    this = case(name)
    if pad == "left" and not takes_left_padding(this):
        pytest.skip("the oracle takes no position_ids, pools the padding, or counts blocks from it")
    inputs = batch(this.config, CASES[name][0], pad)
    with torch.no_grad():
        worst = gap(ours(load_model(this.folder), inputs), theirs(this, inputs), inputs)
    assert worst <= TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_transformers_loads_what_headway_saved(name: str, case: MakeCase, batch: MakeBatch, tmp_path: Path) -> None:
    this = case(name)
    model = load_model(this.folder)
    save_model(model, tmp_path / "saved")
    back, info = type(this.oracle).from_pretrained(tmp_path / "saved", output_loading_info=True)
    # what the oracle asks for and never uses: BigBird's pooler beside other heads, Marian's table of sines
    missing = {k for k in info["missing_keys"] if "bert.pooler" not in k and "embed_positions" not in k}
    assert not missing and not info["unexpected_keys"] and not info["mismatched_keys"], info
    inputs = batch(this.config, CASES[name][0])
    worst = gap(theirs(this, inputs, back.eval()), theirs(this, inputs), inputs)
    assert worst <= TOLERANCE  # a field that pads heads for speed is not written: other sums, the same weights
    again = load_model(tmp_path / "saved")
    assert again.config == model.config
    for a, b in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", CASES)
def test_the_family_describes_its_own_model(name: str, case: MakeCase) -> None:
    this = case(name)
    opened = open_folder(this.folder)
    family, written = describe(load_model(this.folder))
    assert family is opened.family
    assert written["architectures"] == [CASES[name][0]]


def loss_of(scores: Tensor) -> Tensor:
    """Any loss will do, if it is the same on both sides: cross-entropy against a fixed label pattern."""
    flat = scores.flatten(0, -2)
    labels = torch.arange(len(flat)) % flat.shape[-1]
    return torch.nn.functional.cross_entropy(flat, labels)


GROUPS = ["bert-mlm", "gpt2-lm", "llama-lm", "t5-lm", "moonshine-lm", "vit-classify"]
GROUPS += ["mpnet-mlm", "albert-mlm", "deberta-mlm", "modernbert-mlm", "mbart-lm", "m2m-100-lm", "wav2vec2-ctc"]
GROUPS += [
    "qwen3-moe-lm",
    "gemma2-lm",
    "gemma3-lm",
    "olmo2-lm",
    "neox-lm",
    "falcon-new-lm",
    "cohere-lm",
    "opt-narrow-lm",
]
"""One of each kind of block."""


@pytest.mark.parametrize("name", GROUPS)
def test_gradients_agree(name: str, case: MakeCase, batch: MakeBatch, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    this = case(name)
    inputs = batch(this.config, CASES[name][0])
    model = load_model(this.folder)
    oracle = type(this.oracle).from_pretrained(this.folder).eval()
    loss_of(next(iter(ours(model, inputs).values()))).backward()
    fields = {"vit-classify": "pixel_values", "moonshine-lm": "input_values", "wav2vec2-ctc": "input_values"}
    arguments = {fields.get(name, "input_ids"): inputs.inputs}
    if inputs.targets is not None:
        arguments["decoder_input_ids"] = inputs.targets
    loss_of(oracle(**arguments).logits).backward()
    for side in (model, oracle):  # a gradient in place of its weight goes through the same naming
        for parameter in side.parameters():
            parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    oracle.save_pretrained(tmp_path)
    expected = load_file(tmp_path / "model.safetensors")
    opened = open_folder(this.folder)
    found = dict(dump_tensors(model, opened.family, opened.architecture))
    assert found.keys() == expected.keys()
    size = max(float(t.abs().max()) for t in expected.values())
    buffers = dict(oracle.named_buffers())
    for key, tensor in ((key, tensor) for key, tensor in expected.items() if key not in buffers):
        assert float((found[key] - tensor).abs().max()) <= TOLERANCE * max(1.0, size), key
