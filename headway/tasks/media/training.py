"""MediaTraining: what trainings share whose examples are all read as tensors of one shape: facts, parts, batches."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, Protocol, TypeVar

from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.tasks.training import ScoredTraining


class Part(Protocol):
    """Examples of a run."""

    def __len__(self) -> int: ...


class Data(Protocol):
    """Training and validation examples of a run."""

    @property
    def train(self) -> Part: ...
    @property
    def valid(self) -> Any: ...
    @property
    def test(self) -> str: ...
    @property
    def about(self) -> dict[str, Any]: ...


P = TypeVar("P", bound=Part)


class MediaTraining(ScoredTraining[P]):
    """Images or sounds, with labels where the task or its scores need them."""

    labels: tuple[str, ...]
    tokenizer = None

    @property
    @abstractmethod
    def parts(self) -> Data:
        """The data of the run."""

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Tokens that the model reads of one example."""

    @property
    @abstractmethod
    def sizes(self) -> dict[str, Any]:
        """Facts about the shape of examples."""

    @property
    def static_shapes(self) -> bool:
        return True

    @property
    def facts(self) -> dict[str, Any]:
        data, each = self.parts, self.tokens
        return {
            **data.about,
            "samples": len(data.train),
            "tokens": len(data.train) * each,
            "valid_samples": len(data.valid),
            "valid_tokens": len(data.valid) * each,
            "labels": len(self.labels),
            **self.sizes,
        }

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.parts.train), batch)

    @property
    def valid_part(self) -> P:
        found: P = self.parts.valid
        return found

    @cached_property
    def test_part(self) -> P | None:
        """The examples of data.test, or of the test part beside the training examples."""
        return self.read_test(self.parts.test) if self.parts.test else None
