"""make_front: the front end that a config describes."""

from __future__ import annotations

from headway.config.model import FrontConfig, PatchesConfig, SamplesConfig, TokensConfig
from headway.front.patches import PatchEmbedding
from headway.front.sounds import FrameEmbedding, SampleEmbedding
from headway.front.tokens import TokenEmbedding

Front = TokenEmbedding | PatchEmbedding | FrameEmbedding | SampleEmbedding


def make_front(config: FrontConfig, width: int) -> Front:
    if isinstance(config, TokensConfig):
        return TokenEmbedding(config, width)
    if isinstance(config, SamplesConfig):
        return SampleEmbedding(config, width)
    return PatchEmbedding(config, width) if isinstance(config, PatchesConfig) else FrameEmbedding(config, width)
