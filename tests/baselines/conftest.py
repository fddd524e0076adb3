"""Small baselines of every kind, with weights large enough that they have opinions."""

from __future__ import annotations

from typing import Any

import torch

from headway.baselines.build import make_model
from headway.config.model import LMHeadConfig, PositionConfig, SpecialTokens, TokensConfig
from headway.config.networks.baseline import BaselineConfig
from headway.model.model import Transformer

VOCAB, SOURCE_VOCAB = 13, 11


def tokens(vocab: int, network: str, length: int = 32) -> TokensConfig:
    kind: Any = "learned" if network == "conv" else "none"
    return TokensConfig(vocab=vocab, positions=PositionConfig(kind=kind, length=length))


def small_config(network: Any = "lstm", source: bool = True, **settings: Any) -> BaselineConfig:
    return BaselineConfig(
        network=network,
        source=tokens(SOURCE_VOCAB, network) if source else None,
        target=tokens(VOCAB, network),
        special=SpecialTokens(start=1, eos=2, pad=0),
        **{"width": 8, "depth": 2, "lm": LMHeadConfig(tied=False), **settings},
    )


def small(network: Any = "lstm", source: bool = True, seed: int = 0, **settings: Any) -> Transformer:
    """In float64, where differences mean something."""
    torch.manual_seed(seed)
    made = make_model(small_config(network, source, **settings)).double().eval()
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made


KINDS: list[dict[str, Any]] = [
    {"network": "elman", "source": False},
    {"network": "gru", "source": False},
    {"network": "lstm", "source": False},
    {"network": "conv", "source": False, "kernel": 2},
    {"network": "elman"},
    {"network": "gru", "bidirectional": True},
    {"network": "lstm"},
    {"network": "lstm", "bidirectional": True, "attention": "dot"},
    {"network": "gru", "attention": "general"},
    {"network": "elman", "attention": "additive"},
    {"network": "lstm", "bidirectional": True, "attention": "additive"},
    {"network": "conv"},
    {"network": "conv", "kernel": 1, "depth": 1},
    {"network": "gru", "context": True},
    {"network": "lstm", "context": True, "bidirectional": True},
]
"""Language models first; then encoder–decoders."""


def named(kind: dict[str, Any]) -> str:
    return "-".join(str(k if v is True else "lm" if v is False else v) for k, v in kind.items())
