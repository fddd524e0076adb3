"""What a model beside the single transformer does not have, for code that takes any config. No torch here."""

from __future__ import annotations

from typing import ClassVar, Literal


class WithoutHeads:
    """A config without labels, int8 weights, and the heads that only a `ModelConfig` describes."""

    quantization: ClassVar[str] = "none"
    labels: ClassVar[tuple[str, ...]] = ()
    nsp: ClassVar[None] = None
    classify: ClassVar[None] = None
    tag: ClassVar[None] = None
    span: ClassVar[None] = None
    denoise: ClassVar[None] = None


class WithoutDecoder:
    """A config of a model that encodes, and generates nothing."""

    kind: ClassVar[Literal["encoder"]] = "encoder"
    decoder: ClassVar[None] = None
    target: ClassVar[None] = None
    shared_embedding: ClassVar[bool] = False
    lm: ClassVar[None] = None
    nsp: ClassVar[None] = None
    span: ClassVar[None] = None
    denoise: ClassVar[None] = None
    quantization: ClassVar[str] = "none"
