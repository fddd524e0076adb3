"""Heads of decoders, tensors of their blocks, and settings that differ between blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.config.model import LayerConfig, RopeConfig, StackConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Head, Tensor, span_head

SCORE = Head(
    {"classify.labels": 2, "classify.pool": "last", "classify.bias": False},
    (Tensor("classify.output", "score"),),
    labels="classify.labels",
)


def lm_head(table: str, output: str = "lm_head", *more: Tensor) -> Head:
    tied_copies = {f"{output}.weight": f"{{prefix}}{table}.weight"}
    return Head({"lm.tied": True}, (Tensor("lm.output.weight", f"{output}.weight"), *more), tied_copies=tied_copies)


def tag_head(output: str) -> Head:
    return Head({"tag.labels": 2}, (Tensor("tag.output", output),), labels="tag.labels")


def heads(words: str, *others: str, span: str | None = None, table: str = "embed_tokens") -> dict[str, Head]:
    """The heads of a Llama-like family: words and what follows them in the names of classes. The first is the lm head.

    `span` is the prefix of the base model beside the head for spans; None: the usual one.
    """
    known = {
        "ForSequenceClassification": SCORE,
        "ForTokenClassification": tag_head("score"),
        "ForQuestionAnswering": span_head(span),
    }
    every = {"ForCausalLM": lm_head(table), "Model": Head(prefix=""), **{name: known[name] for name in others}}
    return {words + name: head for name, head in every.items()}


def read_tag_dropout(settings: Config, theirs: Mapping[str, Any], usual: float = 0.1) -> None:
    said = (theirs.get("classifier_dropout"), theirs.get("hidden_dropout"))
    if "tag.labels" in settings:
        settings["tag.dropout"] = next((value for value in said if value is not None), usual)


def blocks(*pairs: tuple[str, str] | tuple[str, str, str] | tuple[str, str, str, str]) -> tuple[Tensor, ...]:
    """Tensors of each block: our name, theirs, and what else a `Tensor` has."""
    return tuple(Tensor(f"decoder.blocks.{{i}}.{ours}", *rest) for ours, *rest in pairs)


# --- blocks that differ -----------------------------------------------------------------------------------------------

FULL, SLIDING = "full_attention", "sliding_attention"


def count_of(settings: Config, stack: str = "decoder") -> int:
    """The number of blocks, checked."""
    count = settings[f"{stack}.n_layers"]
    if type(count) is not int or not 0 <= count <= 1000:
        raise ConfigError("C003", f"config.json: {short(count)} layers are outside 0 … 1000")
    return count


def layer_types(settings: Config, theirs: Mapping[str, Any], usual: Sequence[str], stack: str = "decoder") -> list[str]:
    """For each block, whether its attention is full or has a window."""
    found = theirs.get("layer_types")
    if found is None:
        return list(usual)
    if not isinstance(found, list) or len(found) != count_of(settings, stack) or set(found) - {FULL, SLIDING}:
        what = f"config.json: layer_types = {short(found)}; headway knows lists of {FULL} and {SLIDING}"
        raise ConfigError("C022", what, "give one for each layer")
    return found


def set_layers(settings: Config, layers: Sequence[Config], stack: str = "decoder") -> None:
    """Settings of each block as the shortest pattern that repeats; where all are alike, as those of the stack."""
    period = next(
        (p for p in range(1, len(layers)) if all(a == layers[i % p] for i, a in enumerate(layers))), len(layers)
    )
    if period > 1:
        settings[f"{stack}.pattern"] = tuple(dict(layer) for layer in layers[:period])
        return
    for layer in layers[:1]:
        settings.update({f"{stack}.{name}": value for name, value in layer.items() if name != "dense"})


def layers_of(stack: StackConfig) -> list[LayerConfig]:
    """What each block has of its own."""
    every = [stack.layer(number) for number in range(stack.n_layers)]
    return [
        LayerConfig(window=one.window, rope=one.rope, dense=stack.experts is not None and one.experts is None)
        for one in every
    ]


def write_windows(theirs: Config, stack: StackConfig) -> None:
    """sliding_window and layer_types."""
    windows = [layer.window for layer in layers_of(stack)]
    theirs["sliding_window"] = next((window for window in windows if window is not None), None)
    theirs["layer_types"] = [FULL if window is None else SLIDING for window in windows]


def rope_of(stack: StackConfig, windowed: bool | None = None) -> RopeConfig | None:
    """The rotary positions of the first block that has any, among all blocks, or those with or without a window."""
    layers = [layer for layer in layers_of(stack) if windowed is None or windowed == (layer.window is not None)]
    return next((layer.rope for layer in layers if layer.rope is not None), None)
