"""Models that encode what they read and generate nothing."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from torch import Tensor

from headway.errors import DataError
from headway.model.model import Model


class EncodingModel(Model):
    """A model without a decoder of tokens: the methods of generation say so."""

    gives: ClassVar[str]
    """What it gives instead of tokens, as an error says it."""

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> NoReturn:
        self._refuse()

    def extend(self, state: Any, /, ids: Tensor, attention_mask: Tensor | None = None) -> NoReturn:
        self._refuse()

    def reorder(self, state: Any, /, rows: Tensor) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise DataError("D001", f"{self.gives}, it generates nothing")
