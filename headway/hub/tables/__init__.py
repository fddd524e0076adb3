"""The tables of all families, by model_type."""

from headway.hub.family import Family
from headway.hub.tables.bert import BERT, BIGBIRD, DISTILBERT, ROBERTA
from headway.hub.tables.clip import CLIP, CLIP_TEXT, CLIP_VISION
from headway.hub.tables.gpt import GEMMA, GPT2, LLAMA, MISTRAL
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
    LLAMA,
    GEMMA,
    MISTRAL,
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
