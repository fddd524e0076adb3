"""ImageTraining: what trainings share whose examples are images alone."""

from __future__ import annotations

from typing import Any

from headway.data.images.preprocess import FILE as PREPROCESSOR
from headway.tasks.media.training import MediaTraining
from headway.tasks.vision.data import ImageData, Images


class ImageTraining(MediaTraining[Images]):
    """Images, with labels where the task or its scores need them."""

    data: ImageData

    @property
    def parts(self) -> ImageData:
        return self.data

    @property
    def sizes(self) -> dict[str, Any]:
        return {"size": self.data.preprocess.size, "channels": self.data.preprocess.channels}

    @property
    def model_files(self) -> dict[str, Any]:
        return {PREPROCESSOR: self.data.preprocess.to_dict()}
