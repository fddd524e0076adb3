"""make_model: the model that any config describes."""

from __future__ import annotations

from headway.baselines.convolutional import Convolutional
from headway.baselines.graph import GraphNetwork
from headway.baselines.memory import MemoryNetwork
from headway.baselines.ngram import NGram
from headway.baselines.recurrent import Recurrent
from headway.config.model import ModelConfig
from headway.config.networks.fusion import FusionConfig
from headway.config.networks.graph import GraphConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.memory import MemoryConfig
from headway.config.networks.ngram import NGramConfig
from headway.config.networks.series import SeriesConfig
from headway.config.networks.towers import TwoTowersConfig
from headway.config.networks.words import WordVectorsConfig
from headway.joint.distillation import Student
from headway.joint.fusion import Fusion
from headway.joint.graph import GraphTransformer
from headway.joint.memory import StoryTransformer
from headway.joint.series import SeriesModel
from headway.joint.towers import TwoTowers
from headway.joint.words import WordVectors
from headway.model.model import Model, Transformer


def make_model(config: AnyConfig) -> Model:
    """A new model with initial weights."""
    if isinstance(config, ModelConfig):
        return Transformer(config) if config.distill is None else Student(config)
    if isinstance(config, TwoTowersConfig):
        return TwoTowers(config)
    if isinstance(config, FusionConfig):
        return Fusion(config)
    if isinstance(config, SeriesConfig):
        return SeriesModel(config)
    if isinstance(config, WordVectorsConfig):
        return WordVectors(config)
    if isinstance(config, GraphConfig):
        return GraphTransformer(config) if config.layer == "attention" else GraphNetwork(config)
    if isinstance(config, MemoryConfig):
        return MemoryNetwork(config) if config.encoder is None else StoryTransformer(config)
    if isinstance(config, NGramConfig):
        return NGram(config)
    return Convolutional(config) if config.network == "conv" else Recurrent(config)
