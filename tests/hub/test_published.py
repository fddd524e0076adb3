"""Published models by their own config.json, old keys included: read, counted, and shrunk, equal to `transformers`."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from headway.hub.family import read_config
from headway.hub.ignored import NAMES
from headway.hub.tables import FAMILIES
from headway.model.model import Transformer
from tests.hub.conftest import oracle_of, shrunk
from tests.hub.published import BARE, MODELS, PARAMETERS, SEPARATE_HEAD

QUICK = (
    "google-bert/bert-base-uncased", "dslim/bert-base-NER", "FacebookAI/roberta-large-mnli",
    "distilbert/distilbert-base-uncased", "google/bigbird-roberta-base", "openai-community/gpt2-medium",
    "distilbert/distilgpt2", "huggyllama/llama-7b", "lmsys/vicuna-7b-v1.5-16k", "meta-llama/Llama-3.2-1B",
    "HuggingFaceTB/SmolLM2-135M-Instruct", "google/gemma-2b", "mistralai/Mistral-7B-v0.1",
    "google-t5/t5-3b", "google/flan-t5-small",
    "facebook/bart-large-cnn", "facebook/bart-large-mnli", "sshleifer/distilbart-cnn-12-6",
    "Helsinki-NLP/opus-mt-en-de", "openai/whisper-tiny", "UsefulSensors/moonshine-tiny",
    "FacebookAI/xlm-roberta-base", "BAAI/bge-reranker-v2-m3", "almanach/camembert-base", "microsoft/mpnet-base",
    "google/electra-small-discriminator", "albert/albert-base-v2", "answerdotai/ModernBERT-base",
    "microsoft/deberta-v3-base", "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli",
    "google/electra-base-generator", "google/mt5-small",
    "facebook/mbart-large-50", "facebook/nllb-200-distilled-600M", "google/pegasus-xsum",
    "facebook/wav2vec2-base-960h", "facebook/hubert-large-ls960-ft",
    "google/vit-base-patch16-224", "facebook/dinov2-small",
    "facebook/deit-tiny-distilled-patch16-224",
    "facebook/dinov2-giant",
    "Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen1.5-MoE-A2.7B",
    "mistralai/Mixtral-8x7B-v0.1",
    "microsoft/Phi-3-mini-4k-instruct", "google/gemma-2-2b", "google/gemma-3-1b-it", "google/gemma-3-270m",
    "ibm-granite/granite-3.0-2b-base", "allenai/OLMo-2-0425-1B", "HuggingFaceTB/SmolLM3-3B", "bigcode/starcoder2-3b",
    "stabilityai/stablelm-2-1_6b", "CohereForAI/aya-23-8B", "EleutherAI/pythia-70m", "EleutherAI/gpt-neox-20b",
    "tiiuae/falcon-7b", "tiiuae/falcon-40b", "bigscience/bloom-560m", "facebook/opt-125m", "facebook/opt-350m",
)  # fmt: skip
"""One of each kind; the others differ from them in sizes, labels or keys and are slow tests."""
ALL = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS]
TOLERANCE = 1e-5


def names_in(model: str) -> tuple[str, ...]:
    return ("lm_head.weight",) if model in SEPARATE_HEAD else ()


def test_there_are_enough_models_of_every_family() -> None:
    assert len(MODELS) >= 120
    towers = {"clip_vision_model", "clip_text_model"}  # published inside CLIP's files: tests/parity/test_clip.py
    own_code = {"nomic_bert"}  # whose published file is for code of its own, which headway never runs
    assert {config["model_type"] for config in MODELS.values()} == set(FAMILIES) - towers - own_code
    assert set(QUICK) | set(PARAMETERS) | set(BARE) <= set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_a_published_config_is_read(name: str) -> None:
    config = MODELS[name]
    assert read_config(FAMILIES[config["model_type"]], config, names_in(name)).family == config["model_type"]


def count(config: Mapping[str, Any], names: tuple[str, ...] = ()) -> int:
    with torch.device("meta"):
        return Transformer(read_config(FAMILIES[config["model_type"]], config, names)).parameter_count()


@pytest.mark.parametrize("name", [n for n in PARAMETERS if PARAMETERS[n] < 2e9])
def test_the_published_count_of_weights(name: str) -> None:
    assert count(MODELS[name], names_in(name)) == PARAMETERS[name]


@pytest.mark.parametrize("name", BARE)
def test_the_published_count_of_the_bare_model(name: str) -> None:
    config = MODELS[name]
    bare = next(a for a in FAMILIES[config["model_type"]].heads if a.endswith("Model"))
    assert count(config | {"architectures": [bare]}) == BARE[name]


@pytest.mark.parametrize("name", ALL)
def test_the_count_of_weights_is_that_of_transformers(name: str) -> None:
    """They hold BART's and Marian's logit bias as a buffer, and the sines of some families as a weight."""
    config = MODELS[name]
    with torch.device("meta"):
        oracle = oracle_of(config)
    held = [*oracle.named_parameters(), *(b for b in oracle.named_buffers() if b[0].endswith("final_logits_bias"))]
    sines = "embed_positions" if FAMILIES[config["model_type"]].sinusoidal_tables else "-"
    theirs = sum(tensor.numel() for key, tensor in held if sines not in key)
    if name in SEPARATE_HEAD:  # which their own config does not tell either: it shows in the file
        theirs += config["d_model"] * config["vocab_size"]
    assert count(config, names_in(name)) == theirs == PARAMETERS.get(name, theirs)


@pytest.mark.parametrize("name", ALL)
def test_a_small_model_with_the_same_switches_agrees(name: str, compare: Callable[..., float]) -> None:
    assert compare(shrunk(MODELS[name]), name in SEPARATE_HEAD) <= TOLERANCE


# --- fields that change nothing -------------------------------------------------------------------

READ = {
    "bos_token_id", "decoder_start_token_id", "eos_token_id", "id2label", "num_labels", "pad_token_id",
    "problem_type",  # headway reads these too
    "classifier_dropout", "decoder_layerdrop", "encoder_layerdrop", "init_std", "initializer_factor",
    "initializer_range", "layerdrop", "summary_first_dropout",  # training
    "_name_or_path",  # for a message of wav2vec 2.0
    "chunk_size_feed_forward", "is_encoder_decoder", "output_attentions", "output_hidden_states", "return_dict",
    "use_cache",  # which cache, which outputs
    "summary_proj_to_labels", "summary_use_proj",  # GPT2DoubleHeadsModel
    "pretraining_tp", "dtype",  # OPT's training; BLOOM's products in parts; another attention kernel
    "sep_token_id",  # BigBird finds the question in its input with it; headway's task knows where the question is
}  # fmt: skip
"""Ignored fields that the code of `transformers` names all the same."""


@pytest.mark.parametrize("kind", FAMILIES)
def test_transformers_reads_no_field_that_is_ignored(kind: str) -> None:
    kind = "clip" if kind.startswith("clip_") else kind.removesuffix("_text").replace("-", "_")
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    named = set(re.findall(r"config\.(\w+)", inspect.getsource(module)))
    assert named & NAMES <= READ


def test_defaults_of_generation_may_stand_in_a_config() -> None:
    """What `transformers` takes out of a config.json before it makes a model of it."""
    import transformers

    assert set(transformers.GenerationConfig._get_default_generation_params()) <= NAMES
