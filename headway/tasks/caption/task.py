"""Image captioning: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from headway.config.augment import AugmentConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import conflict
from headway.tasks.base import FineTuning, Json, Tries
from headway.tasks.image import ImageExample, ImageTask, reads_images
from headway.tasks.seq2seq.task import OutputSettings


@dataclass(frozen=True, kw_only=True)
class Settings(OutputSettings, AugmentConfig):
    """Section `caption` of a recipe."""

    metric: Literal["bleu", "rouge"] = "bleu"
    """The metric of generated captions, beside the share that is right to the letter."""

    def __post_init__(self) -> None:
        self.check_output("caption")
        self.check_augment("caption")
        if self.mixes:
            name = "mixup" if self.mixup else "cutmix"
            raise conflict(f"caption.{name} = {getattr(self, name)}", "task = caption", "captions cannot be mixed")


class Caption(ImageTask):
    """A text that describes an image."""

    name, title, noun, pipeline_tag = "caption", "image captioning", "captioning model", "image-to-text"
    beside = "captions"
    Settings = Settings
    tries = Tries("drawn:circle", own="photo.jpg", request={"input": "drawn:circle"})
    made_up = "pictures that headway draws, with captions"
    options = frozenset({"n_best", "beam"})
    predicts_tokens = True
    fine_tuning = FineTuning(lr=5e-5, epochs=(2, 10), keep_best=True)
    training = "headway.tasks.caption.training:CaptionTraining"
    predictor = "headway.tasks.caption.predict:CaptionPredictor"

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return config.kind == "encoder-decoder" and config.lm is not None and reads_images(config)

    def render(self, found: Sequence[tuple[ImageExample, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            if len(found) > 1 and "best" in result:
                yield example.name
            for each in result.get("best", ()):
                yield f"{each['score']:9.4f}  {each['caption']}"
            if "best" not in result:
                yield f"{result['caption']}  {example.name}" if len(found) > 1 else result["caption"]
