"""What each set of kernels can compute, as tables of config fields and values; everything else is refused.

A field that is not in a table must have its default, which is what a model had before the field existed. So a field
added to a config is refused until the kernels know it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from torch import nn

from headway.config.model import (
    LayerConfig,
    LMHeadConfig,
    ModelConfig,
    PositionConfig,
    RopeConfig,
    StackConfig,
    TokensConfig,
)
from headway.kernels.linear import Linear
from headway.kernels.quantized import Int8Linear, Int8Matrix
from headway.model.attention import Attention
from headway.model.feed_forward import FeedForward
from headway.model.heads import LMHead
from headway.model.model import Transformer
from headway.model.norms import LayerNorm, RMSNorm
from headway.model.stack import Block, Residual, Stack

Rule = Callable[[Any], bool]


def anything(value: object) -> bool:
    return True


def exactly(*values: object) -> Rule:
    return lambda value: any(value is known or value == known for known in values)


def of_any(*names: str) -> dict[str, Rule]:
    """Fields of any value: the kernels use them, or a part of the model that stays as it is."""
    return dict.fromkeys(names, anything)


def _part(rules: Mapping[str, Rule]) -> Rule:
    return lambda part: within(part, rules)


def _part_or_none(rules: Mapping[str, Rule]) -> Rule:
    return lambda part: part is None or within(part, rules)


def within(part: Any, rules: Mapping[str, Rule]) -> bool:
    """Whether every field of a config has a value that the rules allow, or its default if no rule names it."""
    return first_refused(part, rules) is None


def first_refused(part: Any, rules: Mapping[str, Rule]) -> str | None:
    """The first field of a config with a value that the rules do not allow."""
    for field in fields(part):
        value, rule = getattr(part, field.name), rules.get(field.name)
        if not (value == _default(field) if rule is None else rule(value)):
            return field.name
    return None


def _default(field: Field[Any]) -> object:
    """MISSING if there is none; no value equals it."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


ROPE = of_any(
    "theta", "scaling", "factor", "low_factor", "high_factor", "original_length", "partial"
)  # `rotary_angles`
POSITIONS = of_any("kind", "length", "offset", "layout") | {"every_layer": exactly(False)}
TOKENS = of_any("kind", "vocab", "width", "project", "segments", "scale", "norm", "norm_bias", "norm_eps", "dropout")
"""The front end stays the model's own."""
TOKENS |= {"positions": _part(POSITIONS)}
HEAD = of_any("tied", "bias", "scale", "dense_bias") | {"transform": exactly(None), "softcap": exactly(None)}
STACK: dict[str, Rule] = {
    **of_any("d_model", "n_heads", "d_ff", "n_kv_heads", "d_head", "cross", "norm_eps", "norm_offset", "final_norm"),
    **of_any("gated", "qkv_bias", "out_bias", "ffn_bias"),
    **of_any("dropout", "attention_dropout", "activation_dropout", "drop_path"),  # off while a model generates
    "n_layers": lambda count: count > 0,
    "causal": exactly(True),
    "norm": exactly("layernorm", "rmsnorm"),
    "norm_bias": exactly(True),
    "norm_at": exactly("pre", "post"),
    "first_norm": exactly(True),
    "residual": exactly(True),
    "residual_scale": exactly(1.0),
    "parallel": exactly("none"),
    "layer_scale": exactly(None),
    "activation": exactly("relu", "gelu", "gelu_tanh", "silu", "tanh"),
    "key_bias": anything,  # without one the keys' part of the bias is zero
    "scale": lambda scale: scale is None or scale != 0,
    "softcap": exactly(None),
    "qk_norm": exactly("none"),
    "window": exactly(None),
    "pattern": exactly(()),
    "shared": anything,
    "experts": exactly(None),
    "rope": _part_or_none(ROPE),
    "relative": exactly(None),
    "distances": exactly(None),
    "alibi": exactly(False),
    "sparse": exactly(None),
    "modulation": exactly(False),
}
MODEL: dict[str, Rule] = {
    **of_any("encoder", "source", "condition", "shared_embedding"),  # the encoder stays the model's own
    **of_any(
        "nsp", "classify", "tag", "span", "denoise", "distill", "special", "labels", "init", "family"
    ),  # not used by a step
    "decoder": _part_or_none(STACK),
    "target": _part_or_none(TOKENS),
    "lm": _part_or_none(HEAD),
    "quantization": exactly("none", "int8"),  # see MATRICES too
}

LAYER = of_any("window") | {"rope": _part_or_none(ROPE), "dense": exactly(False)}
CPU_STACK = {
    **(STACK | of_any("norm_bias", "norm_at", "first_norm", "residual_scale", "parallel", "softcap", "qk_norm")),
    **of_any("window", "alibi"),
    "pattern": lambda layers: all(within(layer, LAYER) for layer in layers),
}
CPU = {**MODEL, "decoder": _part_or_none(CPU_STACK), "lm": _part_or_none(HEAD | of_any("softcap"))}
"""Numba's kernels, for sampling and for beam search."""
CUDA_STACK = STACK | {"norm_at": exactly("pre")}
CUDA = {**MODEL, "decoder": _part_or_none(CUDA_STACK), "quantization": exactly("none")}
"""Triton's kernels for sampling."""
CUDA_BEAMS = {**MODEL, "decoder": _part_or_none(STACK | {"rope": exactly(None)}), "quantization": exactly("none")}

KNOWN_CONFIGS = (ModelConfig, StackConfig, LayerConfig, RopeConfig, TokensConfig, PositionConfig, LMHeadConfig)
"""The configs whose fields are in the tables above."""
MODULES = {Stack, Block, Attention, Residual, FeedForward, LayerNorm, RMSNorm, LMHead, nn.ModuleList}
"""The modules that the kernels replace …"""
MATRICES: dict[type, set[type]] = {nn.Linear: {nn.Linear, Linear}, Int8Linear: {Int8Linear, Int8Matrix}}
"""… and these, by the kind of matrix."""


def can(model: Transformer, rules: Mapping[str, Rule], *matrices: type) -> bool:
    """Whether kernels with these rules, for these kinds of matrices, compute what the model does."""
    config = model.config
    if not within(config, rules):
        return False
    stack, head = config.decoder, config.lm
    if stack is None or head is None or config.target is None:
        return False
    norms = stack.final_norm == (stack.norm_at != "post")
    scaled = head.scale == 1 or head.bias == "none"
    straight = model.lm.project is None  # no map before the output matrix
    return norms and scaled and straight and stack.head_width % 2 == 0 and _made_of(model, matrices)


def _made_of(model: Transformer, matrices: tuple[type, ...]) -> bool:
    """Whether the decoder and its head consist of modules that the kernels replace, without hooks."""
    known = MODULES.union(*(MATRICES[kind] for kind in matrices))
    parts = [*model.decoder.modules(), *model.lm.modules()]
    alike = len({parameter.dtype for part in (model.decoder, model.lm) for parameter in part.parameters()}) == 1
    return alike and all(type(part) in known for part in parts) and not has_hooks(*parts)


def has_hooks(*parts: nn.Module) -> bool:
    """Whether one of them has a hook, which only the module itself would call."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in parts)


def is_int8(model: Transformer) -> bool:
    return any(type(part) is Int8Linear for part in (*model.decoder.modules(), model.lm.output))
