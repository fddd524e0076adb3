"""The tables of SigLIP (Zhai et al. 2023): its two towers, and the model that joins them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.config.model import SpecialTokens
from headway.config.networks.towers import TwoTowersConfig
from headway.hub.family import Config, Family, Head, Tensor, size_in, with_defaults
from headway.hub.tables.clip import CLIP, CLIP_TEXT, CLIP_VISION, PARTS, read_parts, write_parts

_SAME = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}

_VISION = replace(
    CLIP_VISION,
    name="siglip_vision_model",
    fields=with_defaults(CLIP_VISION.fields, patch_size=16, **_SAME),
    fixed={"source.kind": "patches", "source.class_token": False},
    tensors=CLIP_VISION.tensors,
    heads={"SiglipVisionModel": Head(prefix="")},
    only={"vision_use_head": True},
    unused=(),
)
_TEXT = replace(
    CLIP_TEXT,
    name="siglip_text_model",
    fields=with_defaults(
        CLIP_TEXT.fields,
        vocab_size=32000,
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=64,
        **_SAME,
    ),
    fixed={"source.kind": "tokens", "source.positions.kind": "learned"},
    heads={"SiglipTextModel": Head(prefix="")},
    unused=("projection_size",),
)
_PROBE = {
    "query": "probe",
    "attention.qkv.weight": "attention.in_proj_weight",
    "attention.qkv.bias": "attention.in_proj_bias",
    "attention.out": "attention.out_proj",
    "norm": "layernorm",
    "ffn.up": "mlp.fc1",
    "ffn.down": "mlp.fc2",
}
SIGLIP = Family(
    name="siglip",
    fields=(),
    fixed={},
    tensors=(),
    heads={
        "SiglipModel": Head(
            tensors=(
                *(
                    Tensor(f"image_probe.{ours}", f"vision_model.head.{theirs}", "lead2" if ours == "query" else "")
                    for ours, theirs in _PROBE.items()
                ),
                Tensor("text_projection", "text_model.head"),
                Tensor("logit_scale", "logit_scale"),
                Tensor("logit_bias", "logit_bias"),
            )
        )
    },
    prefix="",
    unused=tuple(PARTS.values()),
    unneeded=CLIP.unneeded,
    towers={"image": _VISION, "text": _TEXT},
)


def read_siglip(theirs: Mapping[str, Any], names: Collection[str] = ()) -> TwoTowersConfig:
    """The config.json of a SigLIP model. It does not hold the first scale and bias, which are those of the paper."""
    towers, tables = read_parts(SIGLIP, theirs, names)
    width = towers["text"].output_stack.d_model
    return TwoTowersConfig(
        image=towers["image"],
        text=replace(towers["text"], special=SpecialTokens()),
        special=towers["text"].special,
        projection=size_in({"projection_size": tables["text"].get("projection_size") or width}, "projection_size"),
        logit_scale=math.log(10),
        logit_bias=-10.0,
        image_pool="probe",
        text_pool="last",
        text_bias=True,
        family=SIGLIP.name,
    )


def write_siglip(config: TwoTowersConfig) -> Config:
    """The config.json of a SigLIP model."""
    tables = write_parts(SIGLIP, config)
    tables["text"]["projection_size"] = config.projection
    parts = {PARTS[side]: inner for side, inner in tables.items()}
    return {"model_type": SIGLIP.name, "architectures": [next(iter(SIGLIP.heads))], **parts}
