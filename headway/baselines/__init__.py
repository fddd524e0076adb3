"""Networks that came before the transformer. They share decoding, losses and files with it, not the forward pass."""

from __future__ import annotations

from typing import cast

from headway.baselines.convolutional import Convolutional
from headway.baselines.recurrent import Recurrent
from headway.config.baselines import BaselineConfig
from headway.config.model import ModelConfig
from headway.model.model import Model


def make_model(config: ModelConfig | BaselineConfig) -> Model:
    """The model of a config. A baseline has what tasks, trainer and decoding use of a Model, and nothing else of it."""
    if isinstance(config, ModelConfig):
        return Model(config)
    return cast(Model, Convolutional(config) if config.network == "conv" else Recurrent(config))
