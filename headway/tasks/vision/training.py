"""ImageTraining: what trainings share whose examples are images alone: facts, parts, files, batches of one size."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.data.images.preprocess import FILE as PREPROCESSOR
from headway.tasks.training import ScoredTraining
from headway.tasks.vision.data import ImageData, Images


class ImageTraining(ScoredTraining[Images]):
    """Images, with labels where the task or its scores need them."""

    data: ImageData
    labels: tuple[str, ...]
    tokenizer = None

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Tokens that the model reads of one image."""

    @property
    def static_shapes(self) -> bool:
        return True

    @property
    def facts(self) -> dict[str, Any]:
        data, each = self.data, self.tokens
        return {
            **data.about,
            "samples": len(data.train),
            "tokens": len(data.train) * each,
            "valid_samples": len(data.valid),
            "valid_tokens": len(data.valid) * each,
            "labels": len(self.labels),
            "size": data.preprocess.size,
            "channels": data.preprocess.channels,
        }

    @property
    def model_files(self) -> dict[str, Any]:
        return {PREPROCESSOR: self.data.preprocess.to_dict()}

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.data.train), batch)

    @property
    def valid_part(self) -> Images:
        return self.data.valid

    @cached_property
    def test_part(self) -> Images | None:
        """The images of data.test, or of the test part beside the training images."""
        return self.read_test(self.data.test) if self.data.test else None
