"""The tables of all families, by model_type."""

from collections.abc import Callable
from typing import NamedTuple

from headway.config.networks.towers import TwoTowersConfig
from headway.hub.family import Config, Family
from headway.hub.tables.bert import BERT, BIGBIRD, CAMEMBERT, DISTILBERT, ROBERTA, XLM_ROBERTA
from headway.hub.tables.clip import CLIP, CLIP_TEXT, CLIP_VISION, read_clip, write_clip
from headway.hub.tables.decoders.gemma import GEMMA, GEMMA2, GEMMA3
from headway.hub.tables.decoders.gpt import BLOOM, GPT2, OPT
from headway.hub.tables.decoders.llama import GRANITE, LLAMA, MISTRAL, OLMO2, PHI3, SMOLLM3, STARCODER2
from headway.hub.tables.decoders.mixtures import MIXTRAL, QWEN2_MOE, QWEN3_MOE
from headway.hub.tables.decoders.parallel import COHERE, FALCON, GPT_NEOX, STABLELM
from headway.hub.tables.decoders.qwen import QWEN2, QWEN3
from headway.hub.tables.encoders.albert import ALBERT
from headway.hub.tables.encoders.deberta import DEBERTA
from headway.hub.tables.encoders.electra import ELECTRA
from headway.hub.tables.encoders.modernbert import MODERNBERT
from headway.hub.tables.encoders.mpnet import MPNET
from headway.hub.tables.encoders.nomic import NOMIC_BERT
from headway.hub.tables.mbart import M2M_100, MBART, PEGASUS
from headway.hub.tables.moonshine import MOONSHINE
from headway.hub.tables.seq2seq import BART, MARIAN, WHISPER
from headway.hub.tables.siglip import SIGLIP, read_siglip, write_siglip
from headway.hub.tables.t5 import LONGT5, MT5, T5
from headway.hub.tables.vision import DEIT, DINOV2, VIT
from headway.hub.tables.wav2vec2 import HUBERT, WAV2VEC2


class Towers(NamedTuple):
    """A family of models with two towers, and its config.json in both directions."""

    family: Family
    read: Callable[..., TwoTowersConfig]
    """(config.json, names of tensors)"""
    write: Callable[[TwoTowersConfig], Config]


_ALL = (
    BERT,
    ROBERTA,
    XLM_ROBERTA,
    CAMEMBERT,
    DISTILBERT,
    BIGBIRD,
    MPNET,
    ELECTRA,
    ALBERT,
    DEBERTA,
    MODERNBERT,
    NOMIC_BERT,
    GPT2,
    OPT,
    BLOOM,
    GPT_NEOX,
    FALCON,
    LLAMA,
    MISTRAL,
    MIXTRAL,
    GEMMA,
    GEMMA2,
    GEMMA3,
    QWEN2,
    QWEN3,
    QWEN2_MOE,
    QWEN3_MOE,
    PHI3,
    GRANITE,
    OLMO2,
    SMOLLM3,
    STARCODER2,
    STABLELM,
    COHERE,
    T5,
    MT5,
    LONGT5,
    BART,
    MARIAN,
    MBART,
    M2M_100,
    PEGASUS,
    WHISPER,
    MOONSHINE,
    WAV2VEC2,
    HUBERT,
    VIT,
    DEIT,
    DINOV2,
    CLIP_VISION,
    CLIP_TEXT,
)
TOWERS: dict[str, Towers] = {
    CLIP.name: Towers(CLIP, read_clip, write_clip),
    SIGLIP.name: Towers(SIGLIP, read_siglip, write_siglip),
}
"""Families of models with two towers, whose config.json has a table for each."""
FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}
