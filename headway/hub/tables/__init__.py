"""The tables of all families, by model_type."""

from headway.hub.family import Family
from headway.hub.tables.bert import BERT, BIGBIRD, DISTILBERT, ROBERTA
from headway.hub.tables.clip import CLIP, CLIP_TEXT, CLIP_VISION
from headway.hub.tables.decoders.gemma import GEMMA, GEMMA2, GEMMA3
from headway.hub.tables.decoders.gpt import BLOOM, GPT2, OPT
from headway.hub.tables.decoders.llama import GRANITE, LLAMA, MISTRAL, OLMO2, PHI3, SMOLLM3, STARCODER2
from headway.hub.tables.decoders.mixtures import MIXTRAL, QWEN3_MOE
from headway.hub.tables.decoders.parallel import COHERE, FALCON, GPT_NEOX, STABLELM
from headway.hub.tables.decoders.qwen import QWEN2, QWEN3
from headway.hub.tables.moonshine import MOONSHINE
from headway.hub.tables.seq2seq import BART, MARIAN, WHISPER
from headway.hub.tables.t5 import T5
from headway.hub.tables.vision import DEIT, DINOV2, VIT

_ALL = (
    BERT,
    ROBERTA,
    DISTILBERT,
    BIGBIRD,
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
    QWEN3_MOE,
    PHI3,
    GRANITE,
    OLMO2,
    SMOLLM3,
    STARCODER2,
    STABLELM,
    COHERE,
    T5,
    BART,
    MARIAN,
    WHISPER,
    MOONSHINE,
    VIT,
    DEIT,
    DINOV2,
    CLIP_VISION,
    CLIP_TEXT,
)
TOWERS: dict[str, Family] = {CLIP.name: CLIP}
"""Families of models with two towers, whose config.json has a table for each."""
FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}
