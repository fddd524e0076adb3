"""Image classification: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from headway.config.augment import AugmentConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import shares
from headway.tasks.base import FineTuning, Json, Tries
from headway.tasks.image import ImageExample, ImageTask, reads_images
from headway.tasks.media.task import label_lines


@dataclass(frozen=True, kw_only=True)
class Settings(AugmentConfig):
    """Section `images` of a recipe."""

    pool: Literal["first", "mean"] = "first"
    """What represents an image: the vector of the class token, as in ViT, or the mean over all patches."""
    dropout: float = 0.0
    """Dropout before the classifier."""
    label_smoothing: float = 0.0
    """Share of each label that is spread over all labels (Szegedy et al. 2016)."""

    def __post_init__(self) -> None:
        self.check_augment("images")
        shares("images", self, "dropout", "label_smoothing")


class ImageClassification(ImageTask):
    """One label for an image."""

    name, title, noun, pipeline_tag = "images", "image classification", "image classifier", "image-classification"
    beside = "labels"
    Settings = Settings
    tries = Tries("drawn:circle", own="photo.jpg", request={"input": "drawn:circle"})
    made_up = "pictures that headway draws"
    fine_tuning = FineTuning(lr=5e-5)
    options = frozenset({"rollout"})
    training = "headway.tasks.image_classification.training:ImageClassificationTraining"
    predictor = "headway.tasks.image_classification.predict:ImageClassificationPredictor"

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return config.classify is not None and config.classify.labels > 1 and reads_images(config)

    def render(self, found: Sequence[tuple[ImageExample, Json]], *, colours: bool) -> Iterator[str]:
        return label_lines([(example.name, result) for example, result in found])
