"""The configs of all kinds of models. No torch here."""

from __future__ import annotations

from collections.abc import Collection

from headway.config.model import ModelConfig
from headway.config.networks.baseline import BaselineConfig
from headway.config.networks.fusion import FusionConfig
from headway.config.networks.graph import GraphConfig
from headway.config.networks.memory import MemoryConfig
from headway.config.networks.ngram import NGramConfig
from headway.config.networks.series import SeriesConfig
from headway.config.networks.towers import TwoTowersConfig
from headway.config.networks.words import WordVectorsConfig

BesideConfig = (
    BaselineConfig
    | NGramConfig
    | TwoTowersConfig
    | FusionConfig
    | SeriesConfig
    | GraphConfig
    | WordVectorsConfig
    | MemoryConfig
)
"""The config of a model beside the single transformer."""
AnyConfig = ModelConfig | BesideConfig
"""The config of any model. Code for all models uses what all have in common; mypy checks it."""

MARKS: dict[str, type[BesideConfig]] = {
    "network": BaselineConfig,
    "ngrams": NGramConfig,
    "projection": TwoTowersConfig,
    "fusion": FusionConfig,
    "look_back": SeriesConfig,
    "hops": GraphConfig,
    "ngram_rows": WordVectorsConfig,
    "n_hops": MemoryConfig,
}
"""A field that only this kind of config has."""


def kind_of_config(fields: Collection[str]) -> type[AnyConfig]:
    """The kind of a config with these fields, as a file holds it."""
    return next((kind for mark, kind in MARKS.items() if mark in fields), ModelConfig)
