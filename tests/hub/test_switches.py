"""Switches of every family and head against `transformers`: activations, tied and untied matrices, copies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.errors import ConfigError, DamagedError
from headway.hub.family import prefix_of, tied_copies_of
from headway.hub.folder import load_model
from headway.hub.tables import FAMILIES
from headway.hub.tables.bert import ACTIVATIONS
from headway.hub.weights import open_weights, write_weights
from tests.hub.conftest import SEQ2SEQ, SOUNDS, defaults, inputs_for, ours, saved_oracle, shrunk, theirs
from tests.parity.decoder_cases import KINDS

TOLERANCE = 1e-5
HEADED = [(kind, architecture) for kind, family in FAMILIES.items() for architecture in family.heads]
ACTIVATION = {
    "distilbert": "activation",
    **dict.fromkeys(("gpt2", "opt"), "activation_function"),
    **dict.fromkeys(("gemma2", "gemma3_text"), "hidden_activation"),
    "falcon": "activation",
    **dict.fromkeys(("t5", "mt5", "longt5"), "feed_forward_proj"),
    **dict.fromkeys(("bart", "marian", "mbart", "m2m_100", "pegasus", "whisper"), "activation_function"),
    "moonshine": "decoder_hidden_act",
    "modernbert": "hidden_activation",
}
"""Elsewhere it is hidden_act."""


def small(kind: str, architecture: str, **changes: Any) -> dict[str, Any]:
    """The family's default switches in a small model."""
    config = defaults(kind) | {"architectures": [architecture], "num_random_blocks": 1}
    config = {k: v for k, v in config.items() if k not in ("dense_act_fn", "is_gated_act")}
    if "pad_token_id" in config and config["pad_token_id"] is None:
        config["pad_token_id"] = 1
    if kind in ("t5", "mt5", "longt5"):
        config["decoder_start_token_id"] = 0
        config["initializer_factor"] = 0.3  # logits that are not scaled down are large otherwise, and so is rounding
    if kind != "big_bird":
        del config["num_random_blocks"]
    return shrunk(config) | changes


@pytest.mark.parametrize(
    "activation", [pytest.param(a, marks=() if a == "relu" else pytest.mark.slow) for a in ACTIVATIONS]
)
@pytest.mark.parametrize(("kind", "architecture"), [pair for pair in HEADED if pair[0] != "bloom"])  # it has one
def test_any_activation_in_any_head(
    kind: str, architecture: str, activation: str, compare: Callable[..., float]
) -> None:
    field = ACTIVATION.get(kind, "hidden_act")
    assert compare(small(kind, architecture, **{field: activation})) <= TOLERANCE


@pytest.mark.parametrize("gated", [True, False])
def test_the_activation_of_t5_may_stand_in_two_fields(gated: bool, compare: Callable[..., float]) -> None:
    changes = {"feed_forward_proj": "relu", "dense_act_fn": "silu", "is_gated_act": gated}
    assert compare(small("t5", "T5ForConditionalGeneration", **changes)) <= TOLERANCE


# --- one matrix or two ----------------------------------------------------------------------------

LM = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "gemma": "GemmaForCausalLM",
    "mistral": "MistralForCausalLM",
    **{kind: next(iter(FAMILIES[kind].heads)) for kind in sorted(KINDS)},
    "bart": "BartForConditionalGeneration",
    "marian": "MarianMTModel",
    "mbart": "MBartForConditionalGeneration",
    "m2m_100": "M2M100ForConditionalGeneration",
    "pegasus": "PegasusForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
    "moonshine": "MoonshineForConditionalGeneration",
}


def output_of(oracle: Any) -> Tensor:
    weight: Tensor = oracle.get_output_embeddings().weight
    return weight


@pytest.mark.parametrize("kind", LM)
def test_an_untied_output_matrix_is_built(kind: str, compare: Callable[..., float], tmp_path: Path) -> None:
    config = small(kind, LM[kind], tie_word_embeddings=False)
    oracle = saved_oracle(config, tmp_path / "one")
    assert not torch.equal(output_of(oracle), oracle.get_input_embeddings().weight)
    if kind in SEQ2SEQ:  # to them the word unties the two sides as well, which headway does not have
        with pytest.raises(DamagedError) as caught:
            load_model(tmp_path / "one")
        assert caught.value.code == "X009"
        side = oracle.model.shared.weight
        for part in (oracle.model.encoder, oracle.model.decoder):
            part.embed_tokens.weight = side
        oracle.save_pretrained(tmp_path / "one")
        (tmp_path / "one" / "config.json").write_text(json.dumps(config))
        inputs, targets = inputs_for(config)
        with torch.no_grad():
            (a,), (b,) = (
                theirs(oracle, inputs, targets),
                ours(load_model(tmp_path / "one"), inputs, targets, bare=False),
            )
        assert float((a - b).abs().max()) <= TOLERANCE
    else:
        assert compare(config) <= TOLERANCE


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [(k, a) for k, a in HEADED if FAMILIES[k].only.get("tie_word_embeddings") and FAMILIES[k].heads[a].tied_copies],
)
def test_an_untied_output_matrix_of_an_encoder_is_refused_by_name(kind: str, architecture: str, tmp_path: Path) -> None:
    saved_oracle(small(kind, architecture, tie_word_embeddings=False), tmp_path / "model")
    with pytest.raises(ConfigError, match="tie_word_embeddings") as caught:
        load_model(tmp_path / "model")
    assert caught.value.code == "C022"


def tied_names(kind: str, architecture: str, names: list[str]) -> list[tuple[str, str]]:
    """Second names that a file of this architecture may hold, each with the name it has there."""
    family = FAMILIES[kind]
    found = tied_copies_of(family, architecture, prefix_of(family, architecture))
    return [(copy, next(o for o in originals if o in names)) for copy, originals in found.items() if copy not in names]


def logits(folder: Path, kind: str) -> Tensor:
    model = load_model(folder)
    tokens = torch.arange(4, 24)[None]
    shape = {"whisper": (1, 8, 40), **dict.fromkeys(("moonshine", *SOUNDS), (1, 9000))}.get(kind)
    inputs = tokens if shape is None else torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(inputs, tokens if model.config.kind == "encoder-decoder" else None).hidden


@pytest.mark.parametrize(
    ("kind", "architecture"), [(k, a) for k, a in HEADED if FAMILIES[k].tied_copies or FAMILIES[k].heads[a].tied_copies]
)
def test_a_copy_equals_what_it_copies_or_is_refused(kind: str, architecture: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    config = small(kind, architecture)
    saved_oracle(config | ({"tie_word_embeddings": True} if "tie_word_embeddings" in config else {}), folder)
    opened = open_weights(folder)
    tensors = {name: opened.read(name).clone() for name in opened.names}
    pairs = tied_names(kind, architecture, list(tensors))
    assert pairs
    expected = logits(folder, kind)

    def store(changed: dict[str, Tensor]) -> None:
        for path in folder.glob("*.safetensors"):
            path.unlink()
        write_weights(folder, changed)

    for copy, original in pairs:
        if "decoder" in copy and load_model(folder).config.decoder is None and kind == "t5":
            continue  # an encoder alone has no use for it
        store(tensors | {copy: tensors[original].clone()})
        assert torch.equal(logits(folder, kind), expected)
        other = tensors[original].clone()
        other.view(-1)[3] += 1e-3
        store(tensors | {copy: other})
        with pytest.raises(DamagedError) as caught:
            load_model(folder)
        assert caught.value.code == "X009"
        assert copy in caught.value.message and original in caught.value.message
        store({name: tensor for name, tensor in tensors.items() if name != original} | {copy: tensors[original]})
        assert torch.equal(logits(folder, kind), expected)
        store(tensors)


def test_stored_sines_are_those_that_are_computed(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    oracle = saved_oracle(small("marian", "MarianMTModel"), folder)
    name = "model.encoder.embed_positions.weight"
    sines = oracle.get_parameter(name).detach().clone()
    opened = open_weights(folder)
    tensors = {key: opened.read(key).clone() for key in opened.names if key != name}
    for table, good in ((sines, True), (sines.half(), True), (sines + 0.1, False), (sines[:, :-1], False)):
        for path in folder.glob("*.safetensors"):
            path.unlink()
        write_weights(folder, tensors | {name: table.contiguous()})
        if good:
            load_model(folder)
        else:
            with pytest.raises(DamagedError) as caught:
                load_model(folder)
            assert caught.value.code == "X009" and name in caught.value.message
