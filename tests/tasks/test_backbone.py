"""Heads that a task adds to a trained encoder: with the layers of its family, so that the layout of the family fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.config.model import ClassifyHeadConfig, ModelConfig, SpanHeadConfig, TagHeadConfig
from headway.hub.family import read_config, write_config
from headway.hub.tables import FAMILIES
from headway.tasks.backbone import before_output

KINDS: dict[str, dict[str, Any]] = {
    **{kind: {"dense": "tanh"} for kind in ("bert", "albert", "xlm-roberta", "mpnet")},
    **{kind: {"dense": "gelu"} for kind in ("electra", "deberta-v2")},
    "modernbert": {"dense": "gelu", "dense_bias": False, "dense_norm": True},
}


def base_of(kind: str) -> ModelConfig:
    config = read_config(FAMILIES[kind], {"model_type": kind})
    return replace(config, lm=None, nsp=None, classify=None, tag=None, span=None, labels=())


def saved_as(config: ModelConfig) -> ModelConfig:
    family = FAMILIES[config.family]
    return read_config(family, write_config(family, config))


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_head_has_the_layers_of_the_family(kind: str) -> None:
    base, names = base_of(kind), ("a", "b", "c")
    assert before_output(base, "classify") == KINDS[kind]
    classify = ClassifyHeadConfig(labels=3, **before_output(base, "classify"))
    tag, span = (before_output(base, head) for head in ("tag", "span"))
    made: list[dict[str, Any]] = [
        {"classify": classify, "labels": names},
        {"tag": TagHeadConfig(labels=3, **tag), "labels": names},
        {"span": SpanHeadConfig(**span)},
    ]
    for heads in made:
        config = replace(base, **heads)
        back = saved_as(config)
        for name in ("classify", "tag", "span"):
            head = getattr(config, name)
            expected = None if head is None else replace(head, **{"several": False} if name == "classify" else {})
            assert getattr(back, name) == expected


def test_other_models_have_no_such_layers() -> None:
    assert before_output(None, "tag") == {}
    assert before_output(replace(base_of("bert"), family="headway"), "classify") == {}
