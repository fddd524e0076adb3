"""Published models by their own config.json, old keys included: read, counted, and shrunk, equal to `transformers`."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headway.hub.family import read_config
from headway.hub.folder import load_model
from headway.hub.ignored import NAMES
from headway.hub.tables import FAMILIES
from headway.model.model import Model
from tests.hub.published import BARE, MODELS, PARAMETERS, SEPARATE_HEAD

QUICK = (
    "google-bert/bert-base-uncased", "dslim/bert-base-NER", "FacebookAI/roberta-large-mnli",
    "distilbert/distilbert-base-uncased", "google/bigbird-roberta-base", "openai-community/gpt2-medium",
    "distilbert/distilgpt2", "huggyllama/llama-7b", "lmsys/vicuna-7b-v1.5-16k", "meta-llama/Llama-3.2-1B",
    "HuggingFaceTB/SmolLM2-135M-Instruct", "google/gemma-2b", "google-t5/t5-3b", "google/flan-t5-small",
    "facebook/bart-large-cnn", "facebook/bart-large-mnli", "sshleifer/distilbart-cnn-12-6",
    "Helsinki-NLP/opus-mt-en-de", "openai/whisper-tiny", "google/vit-base-patch16-224", "facebook/dinov2-small",
    "facebook/dinov2-giant",
)  # fmt: skip
"""One of each kind; the others differ from them in sizes, labels or keys and are slow tests."""
ALL = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS]
TOLERANCE = 1e-5
VOCAB = 60


def names_in(model: str) -> tuple[str, ...]:
    return ("lm_head.weight",) if model in SEPARATE_HEAD else ()


def test_there_are_enough_models_of_every_family() -> None:
    assert len(MODELS) >= 60
    assert {config["model_type"] for config in MODELS.values()} == set(FAMILIES)
    assert set(QUICK) | set(PARAMETERS) | set(BARE) <= set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_a_published_config_is_read(name: str) -> None:
    config = MODELS[name]
    assert read_config(FAMILIES[config["model_type"]], config, names_in(name)).family == config["model_type"]


def count(config: Mapping[str, Any], names: tuple[str, ...] = ()) -> int:
    with torch.device("meta"):
        return Model(read_config(FAMILIES[config["model_type"]], config, names)).parameter_count()


@pytest.mark.parametrize("name", [n for n in PARAMETERS if PARAMETERS[n] < 2e9])
def test_the_published_count_of_weights(name: str) -> None:
    assert count(MODELS[name], names_in(name)) == PARAMETERS[name]


@pytest.mark.parametrize("name", BARE)
def test_the_published_count_of_the_bare_model(name: str) -> None:
    config = MODELS[name]
    bare = next(a for a in FAMILIES[config["model_type"]].heads if a.endswith("Model"))
    assert count(config | {"architectures": [bare]}) == BARE[name]


def oracle_of(config: Mapping[str, Any]) -> Any:
    """The model that `transformers` makes of a config.json, weights random."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    family = FAMILIES[config["model_type"]]
    name = config.get("architectures", list(family.heads))[0]
    name = {"T5WithLMHeadModel": "T5ForConditionalGeneration"}.get(name, name)
    settings = transformers.CONFIG_MAPPING[family.name].from_dict(json.loads(json.dumps(config)))
    return getattr(transformers, name)(settings).eval()


@pytest.mark.parametrize("name", ALL)
def test_the_count_of_weights_is_that_of_transformers(name: str) -> None:
    """They hold BART's and Marian's logit bias as a buffer, and Marian's sines as a weight."""
    config = MODELS[name]
    with torch.device("meta"):
        oracle = oracle_of(config)
    held = [*oracle.named_parameters(), *(b for b in oracle.named_buffers() if b[0].endswith("final_logits_bias"))]
    sines = "embed_positions" if config["model_type"] == "marian" else "-"
    theirs = sum(tensor.numel() for key, tensor in held if sines not in key)
    if name in SEPARATE_HEAD:  # which their own config does not tell either: it shows in the file
        theirs += config["d_model"] * config["vocab_size"]
    assert count(config, names_in(name)) == theirs == PARAMETERS.get(name, theirs)


# --- shrunk, and compared -------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "dim", "n_embd", "d_model"), 32),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "n_layer", "num_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"), 48),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 128),
    **dict.fromkeys(("vocab_size", "decoder_vocab_size"), VOCAB),
    **{"image_size": 32, "patch_size": 8, "block_size": 4, "num_mel_bins": 8, "encoder_layers": 2, "d_kv": 8},
    **{"max_source_positions": 20, "max_target_positions": 40},
    **{"out_features": ["stage2"], "out_indices": [2], "stage_names": ["stem", "stage1", "stage2"]},
}


def shrunk(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same switches in a model of a few thousand weights."""
    small = {key: SMALL.get(key, value) for key, value in config.items()}
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "sep_token_id"):
        if isinstance(value := config.get(key), int):
            small[key] = min(value, VOCAB - 1)
        elif value:
            small[key] = [VOCAB - 1]
    if "num_key_value_heads" in config:
        groups = config["num_attention_heads"] // config["num_key_value_heads"]
        small["num_key_value_heads"] = {1: 4, config["num_attention_heads"]: 1}.get(groups, 2)
    if "head_dim" in config:
        even = config["head_dim"] * config["num_attention_heads"] == config["hidden_size"]
        small["head_dim"] = 8 if even else 16
    if "decoder_layers" in config:
        small["decoder_layers"] = 2 if config["decoder_layers"] == config["encoder_layers"] else 1
    if isinstance(rope := config.get("rope_scaling"), dict) and "original_max_position_embeddings" in rope:
        small["rope_scaling"] = rope | {"original_max_position_embeddings": 16}
    if "id2label" in config:
        small["id2label"] = dict(list(config["id2label"].items())[:5])
        small["label2id"] = {name: int(i) for i, name in small["id2label"].items()}
    return small


def perturbed(oracle: Any, separate_head: bool) -> Any:
    """Fresh weights are so small that a wrong switch would hardly show."""
    generator = torch.Generator().manual_seed(1)
    if separate_head:
        oracle.lm_head.weight = nn.Parameter(torch.zeros_like(oracle.lm_head.weight))
    still = "embed_positions" if oracle.config.model_type == "marian" else "-"
    held = [*oracle.named_parameters(), *(b for b in oracle.named_buffers() if b[0].endswith("final_logits_bias"))]
    for name, tensor in held:
        if still not in name:
            size = 0.05 if "norm" in name.lower() or "ln_" in name else 0.1
            tensor.data += size * torch.randn(tensor.shape, generator=generator)
    return oracle


def inputs_for(config: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
    generator = torch.Generator().manual_seed(7)
    kind, architecture = config["model_type"], config.get("architectures", [""])[0]
    if kind in ("vit", "dinov2"):
        return torch.randn(2, 3, 32, 32, generator=generator), None
    tokens = torch.randint(4, VOCAB - 1, (2, 96 if kind == "big_bird" else 30), generator=generator)
    tokens[:, -1] = config["eos_token_id"] if kind == "bart" else tokens[:, -1]
    targets = torch.randint(4, VOCAB - 1, (2, 20), generator=generator)
    if kind == "whisper":
        return torch.randn(2, 8, 40, generator=generator), targets
    if "Sequence" in architecture and kind == "bart":  # reads its own input again
        return tokens, torch.cat([torch.full((2, 1), config["decoder_start_token_id"]), tokens[:, :-1]], 1)
    return tokens, targets if kind in ("t5", "bart", "marian") and "Encoder" not in architecture else None


def theirs(oracle: Any, inputs: Tensor, targets: Tensor | None) -> list[Tensor]:
    kind, name = oracle.config.model_type, type(oracle).__name__
    field = {"vit": "pixel_values", "dinov2": "pixel_values", "whisper": "input_features"}.get(kind, "input_ids")
    arguments: dict[str, Any] = {field: inputs}
    if targets is not None and "Sequence" not in name:
        arguments["decoder_input_ids"] = targets
    if name == "BigBirdForQuestionAnswering":
        arguments |= dict(token_type_ids=torch.zeros_like(inputs), question_lengths=torch.ones(2, 1).long())
    out = oracle(**arguments)
    if "start_logits" in out:
        return [torch.stack([out.start_logits, out.end_logits], -1)]
    if "prediction_logits" in out:
        return [out.prediction_logits, out.seq_relationship_logits]
    if "logits" in out:
        return [out.logits]
    pooled = [out.pooler_output] if out.get("pooler_output") is not None and kind != "dinov2" else []
    return [out.last_hidden_state, *pooled]


def ours(model: Model, inputs: Tensor, targets: Tensor | None, bare: bool) -> list[Tensor]:
    output = model(inputs, targets)
    return [*([output.hidden] if bare else []), *model.scores(output).values()]


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., float]:
    """The largest gap between headway and `transformers` on a small model with this config.json."""

    def gap(config: Mapping[str, Any], separate_head: bool = False) -> float:
        torch.manual_seed(0)
        oracle = perturbed(oracle_of(config), separate_head)
        oracle.save_pretrained(tmp_path / "model")
        (tmp_path / "model" / "config.json").write_text(json.dumps(config))
        inputs, targets = inputs_for(config)
        bare = type(oracle).__name__.endswith("Model") and not type(oracle).__name__.endswith(("HeadModel", "MTModel"))
        with torch.no_grad():
            a = theirs(oracle, inputs, targets)
            b = ours(load_model(tmp_path / "model"), inputs, targets, bare)
        assert [t.shape for t in a] == [t.shape for t in b]
        return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))

    return gap


@pytest.mark.parametrize("name", ALL)
def test_a_small_model_with_the_same_switches_agrees(name: str, compare: Callable[..., float]) -> None:
    assert compare(shrunk(MODELS[name]), name in SEPARATE_HEAD) <= TOLERANCE


# --- fields that change nothing -------------------------------------------------------------------

READ = {
    "bos_token_id", "decoder_start_token_id", "eos_token_id", "id2label", "num_labels", "pad_token_id",
    "problem_type",  # headway reads these too
    "classifier_dropout", "decoder_layerdrop", "encoder_layerdrop", "init_std", "initializer_factor",
    "initializer_range", "summary_first_dropout",  # training
    "chunk_size_feed_forward", "is_encoder_decoder", "output_attentions", "output_hidden_states", "return_dict",
    "use_cache",  # which cache, which outputs
    "summary_proj_to_labels", "summary_use_proj",  # GPT2DoubleHeadsModel
    "sep_token_id",  # BigBird finds the question in its input with it; headway's task knows where the question is
}  # fmt: skip
"""Ignored fields that the code of `transformers` names all the same."""


@pytest.mark.parametrize("kind", FAMILIES)
def test_transformers_reads_no_field_that_is_ignored(kind: str) -> None:
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    named = set(re.findall(r"config\.(\w+)", inspect.getsource(module)))
    assert named & NAMES <= READ
