"""make_front: the front end that a config describes."""

from __future__ import annotations

from headway.config.model import FrontConfig, PatchesConfig, TokensConfig
from headway.config.networks.sounds import SamplesConfig, WavesConfig
from headway.front.patches import PatchEmbedding
from headway.front.sounds import FrameEmbedding, SampleEmbedding
from headway.front.tokens import TokenEmbedding
from headway.front.waves import WaveEmbedding

Front = TokenEmbedding | PatchEmbedding | FrameEmbedding | SampleEmbedding | WaveEmbedding


def make_front(config: FrontConfig, width: int) -> Front:
    if isinstance(config, TokensConfig):
        return TokenEmbedding(config, width)
    if isinstance(config, SamplesConfig):
        return SampleEmbedding(config, width)
    if isinstance(config, WavesConfig):
        return WaveEmbedding(config, width)
    return PatchEmbedding(config, width) if isinstance(config, PatchesConfig) else FrameEmbedding(config, width)
