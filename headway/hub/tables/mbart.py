"""Tables of encoder–decoders with norms first: mBART (Liu et al. 2020), M2M-100 (Fan et al. 2021), Pegasus (2020)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.hub.family import Config, Head, Tensor, with_defaults
from headway.hub.tables.bert import after_padding
from headway.hub.tables.seq2seq import BART, MARIAN, by_last_token, read_bart

_FRONTS = ("source", "target")
_NORMS = tuple(Tensor(f"{side}.norm", f"{side}.layer_norm") for side in ("encoder", "decoder"))
_NORMS_FIRST = {"normalize_before": True, "add_final_layer_norm": True}


def _norms_first(fixed: Mapping[str, Any]) -> Config:
    """The same settings, with the defaults of norms."""
    return {path: value for path, value in fixed.items() if not path.endswith(("norm_at", "final_norm"))}


MBART = replace(
    BART,
    name="mbart",
    fixed=_norms_first(BART.fixed),
    tensors=(*BART.tensors, *_NORMS),
    heads={name.replace("Bart", "MBart"): head for name, head in BART.heads.items()}
    | {"MBartForSequenceClassification": by_last_token(2)},
    only={**BART.only, **_NORMS_FIRST},
    special={"pad": 1, "bos": 0, "eos": 2},
)


def _read_m2m(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    for front in _FRONTS:
        settings[f"{front}.positions.offset"] = after_padding(settings)
    read_bart(settings, {"scale_embedding": True, **theirs}, names)


_SINES = {"positions.kind": "sinusoidal", "positions.layout": "fairseq", "norm": False}

M2M_100 = replace(
    MBART,
    name="m2m_100",
    fields=with_defaults(BART.fields, vocab_size=128112, activation_function="relu", attention_dropout=0.1),
    fixed={**MBART.fixed, **{f"{front}.{key}": value for front in _FRONTS for key, value in _SINES.items()}},
    heads={
        "M2M100ForConditionalGeneration": Head(
            {"lm.tied": True},
            (Tensor("lm.output.weight", "lm_head.weight"),),
            tied_copies=BART.heads["BartForConditionalGeneration"].tied_copies,
        ),
        "M2M100Model": Head(prefix=""),
    },
    only={},
    unneeded=("embed_positions.weights",),
    special=BART.special,
    on_read=_read_m2m,
)
"""NLLB (2022) is of this family."""

PEGASUS = replace(
    MARIAN,
    name="pegasus",
    fields=with_defaults(MARIAN.fields, vocab_size=50265),
    fixed=_norms_first(MARIAN.fixed),
    tensors=(*MARIAN.tensors, *_NORMS),
    heads={"PegasusForConditionalGeneration": MARIAN.heads["MarianMTModel"], "PegasusModel": Head(prefix="")},
    only={**MARIAN.only, **_NORMS_FIRST},
    unused=BART.unused,
    special={"pad": 0, "eos": 1, "start": 0},
    on_read=read_bart,
    on_write=BART.on_write,
)
