"""Small models of `transformers` made from any config.json: the oracle of the tests of families and their switches."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headway.hub.folder import load_model
from headway.hub.tables import FAMILIES
from headway.model.model import Transformer

VOCAB = 60
SEQ2SEQ = ("t5", "mt5", "longt5", "bart", "marian", "mbart", "m2m_100", "pegasus")
SOUNDS = ("wav2vec2", "hubert")
IMAGES = ("vit", "deit", "dinov2", "clip_vision_model")


def defaults(kind: str) -> dict[str, Any]:
    """The config.json that `transformers` writes where nothing was said."""
    import transformers

    found: dict[str, Any] = json.loads(transformers.CONFIG_MAPPING[kind]().to_json_string(use_diff=False))
    return found


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


SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "dim", "n_embd", "n_embed", "d_model"), 32),
    **dict.fromkeys(("pooler_output_size", "pooler_hidden_size"), 32),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "n_layer", "num_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"), 48),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 128),
    **dict.fromkeys(("vocab_size", "decoder_vocab_size"), VOCAB),
    **{"image_size": 32, "patch_size": 8, "block_size": 4, "num_mel_bins": 8, "encoder_layers": 2, "d_kv": 8},
    **{"embedding_size": 16, "local_radius": 5},
    **{"max_source_positions": 20, "max_target_positions": 40},
    **{
        "ffn_dim": 48,
        "ffn_hidden_size": 48,
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 40,
        "sliding_window": 5,
    },
    **dict.fromkeys(("num_local_experts", "num_experts"), 4),
    **{"out_features": ["stage2"], "out_indices": [2], "stage_names": ["stem", "stage1", "stage2"]},
}


def shrunk(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same switches in a model of a few thousand weights."""
    small = {key: value if value is None else SMALL.get(key, value) for key, value in config.items()}
    for key in ("layer_types", "no_rope_layers"):  # some of both kinds, if the model has both
        if isinstance(every := config.get(key), list):
            small[key] = [every[0], every[-1]]
    if "num_experts_per_tok" in config:
        small["num_experts_per_tok"] = 2
    if config.get("word_embed_proj_dim") is not None:
        small["word_embed_proj_dim"] = 32 if config["word_embed_proj_dim"] == config["hidden_size"] else 16
    if config.get("num_kv_heads") is not None:
        small["num_kv_heads"] = 4 if config["num_kv_heads"] == config["num_attention_heads"] else 2
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "sep_token_id"):
        if isinstance(value := config.get(key), int):
            small[key] = min(value, VOCAB - 1)
        elif value:
            small[key] = [VOCAB - 1]
    if config.get("num_key_value_heads") is not None:
        groups = config["num_attention_heads"] // config["num_key_value_heads"]
        small["num_key_value_heads"] = {1: 4, config["num_attention_heads"]: 1}.get(groups, 2)
    if config.get("head_dim") is not None:
        even = config["head_dim"] * config["num_attention_heads"] == config["hidden_size"]
        small["head_dim"] = 8 if even else 16
    if "embedding_size" in config and config["embedding_size"] == config["hidden_size"]:
        small["embedding_size"] = small["hidden_size"]
    if config.get("position_buckets", 0) > 0:
        small["position_buckets"] = 16
    if config.get("layer_types"):
        small["layer_types"] = config["layer_types"][: small["num_hidden_layers"]]
    if "conv_dim" in config:
        small["conv_dim"] = [12] * len(config["conv_dim"])
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
    still = "embed_positions" if FAMILIES[oracle.config.model_type].sinusoidal_tables else "-"
    held = [*oracle.named_parameters(), *(b for b in oracle.named_buffers() if b[0].endswith("final_logits_bias"))]
    for name, tensor in held:
        if still not in name:
            size = 0.05 if "norm" in name.lower() or "ln_" in name else 0.1
            tensor.data += size * torch.randn(tensor.shape, generator=generator)
    return oracle


def inputs_for(config: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
    generator = torch.Generator().manual_seed(7)
    kind, architecture = config["model_type"], (config.get("architectures") or [""])[0]
    if kind in IMAGES:
        return torch.randn(2, 3, 32, 32, generator=generator), None
    tokens = torch.randint(4, VOCAB - 1, (2, 96 if kind == "big_bird" else 30), generator=generator)
    read_twice = re.search("Sequence|Question", architecture) and kind in SEQ2SEQ  # by the decoder too
    tokens[:, -1] = config["eos_token_id"] if kind in SEQ2SEQ else tokens[:, -1]
    targets = torch.randint(4, VOCAB - 1, (2, 20), generator=generator)
    if kind in SOUNDS:
        return torch.randn(2, 9000, generator=generator), None
    if kind == "whisper":
        return torch.randn(2, 8, 40, generator=generator), targets
    if kind == "moonshine":
        return torch.randn(2, 9000, generator=generator), targets
    if read_twice:
        first = config["eos_token_id" if kind == "mbart" else "decoder_start_token_id"]
        return tokens, torch.cat([torch.full((2, 1), first), tokens[:, :-1]], 1)
    return tokens, targets if kind in SEQ2SEQ and not re.search("Encoder|Token", architecture) else None


def theirs(oracle: Any, inputs: Tensor, targets: Tensor | None) -> list[Tensor]:
    kind, name = oracle.config.model_type, type(oracle).__name__
    field = {
        **dict.fromkeys(IMAGES, "pixel_values"),
        "whisper": "input_features",
        **dict.fromkeys(("moonshine", *SOUNDS), "input_values"),
    }.get(kind, "input_ids")
    arguments: dict[str, Any] = {field: inputs}
    if targets is not None and "Sequence" not in name and "Question" not in name:
        arguments["decoder_input_ids"] = targets
    if name == "BigBirdForQuestionAnswering":
        arguments |= dict(token_type_ids=torch.zeros_like(inputs), question_lengths=torch.ones(2, 1).long())
    out = oracle(**arguments)
    if "start_logits" in out:
        return [torch.stack([out.start_logits, out.end_logits], -1)]
    if "prediction_logits" in out:
        return [out.prediction_logits, out["sop_logits" if "sop_logits" in out else "seq_relationship_logits"]]
    if name == "ElectraForPreTraining":
        return [nn.functional.pad(out.logits[..., None], (1, 0))]
    if "logits" in out:
        return [out.logits]
    if kind == "clip_vision_model":  # its last norm is for the class token alone, ours for all
        return [oracle.post_layernorm(out.last_hidden_state)]
    if kind == "clip_text_model":
        return [out.last_hidden_state]
    pooled = [out.pooler_output] if out.get("pooler_output") is not None and kind != "dinov2" else []
    return [out.last_hidden_state, *pooled]


def ours(model: Transformer, inputs: Tensor, targets: Tensor | None, bare: bool) -> list[Tensor]:
    output = model(inputs, targets)
    return [*([output.hidden] if bare else []), *model.logits(output).values()]


def saved_oracle(config: Mapping[str, Any], folder: Path, separate_head: bool = False) -> Any:
    """A small model with this config.json, saved with the very same one."""
    torch.manual_seed(0)
    oracle = perturbed(oracle_of(config), separate_head)
    oracle.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    return oracle


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., float]:
    """The largest gap between headway and `transformers` on a small model with this config.json."""

    def gap(config: Mapping[str, Any], separate_head: bool = False) -> float:
        oracle = saved_oracle(config, tmp_path / "model", separate_head)
        inputs, targets = inputs_for(config)
        bare = type(oracle).__name__.endswith("Model") and not type(oracle).__name__.endswith(("HeadModel", "MTModel"))
        with torch.no_grad():
            a = theirs(oracle, inputs, targets)
            b = ours(load_model(tmp_path / "model"), inputs, targets, bare)
        assert [t.shape for t in a] == [t.shape for t in b]
        return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))

    return gap
