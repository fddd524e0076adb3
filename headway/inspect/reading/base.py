"""An input as a model reads it: the arguments of its forward pass, and what stands at each position of each stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

MEMORIES = "memories"
"""Under this name stand the sentences that the hops of a memory network look at."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """What stands at one position: a token of a text, a patch, a frame, a node."""

    label: str
    """As people read it."""
    id: int | None = None
    special: bool = False
    """Whether it separates or surrounds, and is no part of the input: [CLS], <s>, the class token."""
    span: tuple[int, int] = (0, 0)
    """Its characters in the text; the same numbers twice for what is no part of it."""

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "id": self.id, "special": self.special, "span": list(self.span)}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Positions that form a picture: patches of an image, or of a spectrogram."""

    rows: int
    columns: int
    leading: int
    """Positions before the first patch."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One input, ready for the model."""

    medium: str
    """text, image, sound, table or graph, as tasks call it."""
    text: str
    """What the input is called: the text itself, or the name of a file."""
    args: tuple[Tensor, ...]
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the forward pass, by name."""
    tokens: Mapping[str, tuple[Token, ...]]
    """By the kind of the stack, or under the empty name for the only one."""
    grids: Mapping[str, Grid] = field(default_factory=dict)
    target: str = ""
    """What the decoder of an encoder–decoder reads."""
    blank: int | None = None
    """The token that stands for a word to be filled in."""
    picture: NDArray[np.uint8] | None = None
    """(channels, height, width): the image that the patches cover."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """What the model's task says of the input, where that is no text."""

    def reaches(self, kind: str) -> bool:
        """Whether this input goes through a stack: a model of two towers has one for images, and one for texts."""
        return kind in self.tokens or "" in self.tokens or not self.tokens

    def of(self, kind: str) -> tuple[Token, ...]:
        return self.tokens.get(kind, self.tokens.get("", ()))
