"""Tables of wav2vec 2.0 (Baevski et al. 2020) and HuBERT (Hsu et al. 2021)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headway.config.model import ModelConfig
from headway.hub.family import Config, Family, Field, Head, Tensor, size_in, switch
from headway.hub.tables.bert import ACTIVATIONS

_CONVOLUTIONS = 12
"""More than any published model has."""
_TAPS = "encoder.pos_conv_embed.conv"


def _tensors() -> Iterator[Tensor]:
    for i in range(_CONVOLUTIONS):
        yield Tensor(f"source.convolutions.{i}", f"feature_extractor.conv_layers.{i}.conv")
        yield Tensor(f"source.norms.{i}", f"feature_extractor.conv_layers.{i}.layer_norm")
    yield Tensor("source.project_norm", "feature_projection.layer_norm")
    yield Tensor("source.project", "feature_projection.projection")
    yield Tensor("source.place.gain", f"{_TAPS}.parametrizations.weight.original0", "lead2")
    yield Tensor("source.place.convolution.weight", f"{_TAPS}.parametrizations.weight.original1")
    yield Tensor("source.place.convolution.bias", f"{_TAPS}.bias")
    yield Tensor("source.mask", "masked_spec_embed")
    for norm in ("source.norm", "encoder.norm"):  # after the positions, or after the blocks
        yield Tensor(norm, "encoder.layer_norm")
    ours, theirs = "encoder.blocks.{i}", "encoder.layers.{i}"
    yield Tensor(f"{ours}.attention.qkv", "|".join(f"{theirs}.attention.{part}_proj" for part in "qkv"))
    yield Tensor(f"{ours}.attention.out", f"{theirs}.attention.out_proj")
    yield Tensor(f"{ours}.residual1.norm", f"{theirs}.layer_norm")
    yield Tensor(f"{ours}.ffn.up", f"{theirs}.feed_forward.intermediate_dense")
    yield Tensor(f"{ours}.ffn.down", f"{theirs}.feed_forward.output_dense")
    yield Tensor(f"{ours}.residual2.norm", f"{theirs}.final_layer_norm")


def _read(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    first = switch(theirs, "do_stable_layer_norm", False)
    settings["encoder.norm_at"] = "pre" if first else "post"
    settings["encoder.final_norm"], settings["source.norm"] = first, not first
    masks = [theirs.get(name, usual) for name, usual in (("mask_time_prob", 0.05), ("mask_feature_prob", 0.0))]
    settings["source.mask_token"] = any(n.endswith("masked_spec_embed") for n in names) if names else any(masks)
    if "tag.labels" in settings:
        settings["tag.labels"] = size_in({"vocab_size": theirs.get("vocab_size", 32)}, "vocab_size")
        settings["tag.dropout"] = theirs.get("final_dropout", 0.1)


def _write(theirs: Config, config: ModelConfig) -> None:
    assert config.encoder is not None and config.source is not None and config.source.kind == "waves"
    theirs["do_stable_layer_norm"] = config.encoder.norm_at == "pre"
    theirs["mask_time_prob"] = 0.05 if config.source.mask_token else 0.0
    if config.tag is not None:
        theirs |= {"vocab_size": config.tag.labels, "final_dropout": config.tag.dropout}


_FIELDS = (
    Field("hidden_size", "encoder.d_model", 768),
    Field("num_hidden_layers", "encoder.n_layers", 12),
    Field("num_attention_heads", "encoder.n_heads", 12),
    Field("intermediate_size", "encoder.d_ff", 3072),
    Field("hidden_act", "encoder.activation", "gelu", ACTIVATIONS),
    Field("hidden_dropout", "encoder.dropout source.dropout", 0.1),
    Field("activation_dropout", "encoder.activation_dropout", 0.1),
    Field("attention_dropout", "encoder.attention_dropout", 0.1),
    Field("feat_proj_dropout", "source.project_dropout", 0.0),
    Field("layer_norm_eps", "encoder.norm_eps source.norm_eps", 1e-5),
    Field("feat_extract_norm", "source.norm_in", "group", {"group": "first", "layer": "all"}),
    Field("conv_dim", "source.channels", (512,) * 7),
    Field("conv_kernel", "source.kernels", (10, 3, 3, 3, 3, 2, 2)),
    Field("conv_stride", "source.strides", (5, 2, 2, 2, 2, 2, 2)),
    Field("conv_bias", "source.bias", False),
    Field("num_conv_pos_embeddings", "source.place_kernel", 128),
    Field("num_conv_pos_embedding_groups", "source.place_groups", 16),
)
_TRAINING = (
    *("apply_spec_augment", "mask_channel_length", "mask_channel_min_space", "mask_channel_other"),
    *("mask_channel_prob", "mask_channel_selection", "mask_time_min_space", "mask_time_other", "mask_time_selection"),
    *(f"mask_{axis}_{what}" for axis in ("time", "feature") for what in ("prob", "length", "min_masks")),
    *("ctc_loss_reduction", "ctc_zero_infinity", "final_dropout", "feat_quantizer_dropout", "feat_extract_dropout"),
    "hidden_dropout_prob",
    *("contrastive_logits_temperature", "num_negatives", "diversity_loss_weight"),
)
_OTHER_HEADS = (
    *("num_codevectors_per_group", "num_codevector_groups", "codevector_dim", "proj_codevector_dim"),
    *("classifier_proj_size", "tdnn_dim", "tdnn_kernel", "tdnn_dilation", "xvector_output_dim"),
    *("adapter_kernel_size", "adapter_stride", "num_adapter_layers", "output_hidden_size"),
)

WAV2VEC2 = Family(
    name="wav2vec2",
    fields=_FIELDS,
    fixed={"source.kind": "waves"},
    tensors=tuple(_tensors()),
    heads={
        "Wav2Vec2Model": Head(prefix=""),
        "Wav2Vec2ForCTC": Head({"tag.labels": 32}, (Tensor("tag.output", "lm_head"),)),
    },
    prefix="wav2vec2.",
    only={"feat_extract_activation": "gelu", "use_weighted_layer_sum": False, "add_adapter": False},
    unused=("vocab_size", "do_stable_layer_norm", "num_feat_extract_layers", *_TRAINING, *_OTHER_HEADS),
    tied_copies={  # the names of older files
        f"{{prefix}}{_TAPS}.weight_{old}": f"{{prefix}}{_TAPS}.parametrizations.weight.original{new}"
        for new, old in enumerate("gv")
    },
    special={"pad": 0, "bos": 1, "eos": 2},
    on_read=_read,
    on_write=_write,
)

HUBERT = replace(
    WAV2VEC2,
    name="hubert",
    fields=(*_FIELDS, Field("feat_proj_layer_norm", "source.project_norm", True)),
    heads={name.replace("Wav2Vec2", "Hubert"): head for name, head in WAV2VEC2.heads.items()},
    prefix="hubert.",
    only={**WAV2VEC2.only, "conv_pos_batch_norm": False},
)
