"""Self-distillation of images without labels: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headway.config.model import ModelConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import Range, above_zero, at_least, conflict, shares, within
from headway.tasks.base import FineTuning, Json, Tries
from headway.tasks.image import ImageExample, ImageTask, reads_images


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `dino` of a recipe (Caron et al. 2021)."""

    local_crops: int = 6
    """Small crops of each image, which only the student sees; the teacher sees two large ones."""
    local_size: int = 0
    """Side of a small crop in pixels, a multiple of model.patch; 0: about three sevenths of the image's side."""
    global_crop: float = 0.4
    """The smallest share of its area that a large crop keeps of an image."""
    local_crop: float = 0.05
    """The smallest share that a small crop keeps; the largest is global_crop."""
    flip: bool = False
    """Mirror half of the crops: for photos, not for digits and letters."""
    jitter: float = 0.4
    """Random brightness, contrast and saturation of four crops in five: the largest change, as a share."""
    grey: float = 0.2
    """Share of crops without colours."""
    solarize: float = 0.2
    """Share of second large crops whose bright pixels are inverted."""
    outputs: int = 4096
    """Outputs of the projection heads, which teacher and student agree on."""
    hidden: int = 2048
    """Width of the projection heads' hidden layers."""
    bottleneck: int = 256
    """Width of the projection heads' last layer but one, where vectors have length one."""
    student_temperature: float = 0.1
    """Divides the student's outputs before the softmax."""
    teacher_temperature: float = 0.07
    """Divides the teacher's outputs: lower is sharper, and should be lower than the student's."""
    first_temperature: float = 0.04
    """The teacher's temperature at the start."""
    warm_share: float = 0.1
    """Share of the budget after which the teacher has its full temperature."""
    momentum: float = 0.996
    """Share of the teacher's weights that stays in each step; it grows to 1 by a cosine over the budget."""
    centre_momentum: float = 0.9
    """The same for the mean of the teacher's outputs, which is taken off them; 1 takes nothing off."""
    freeze_last: float = 0.01
    """Share of the budget during which the last layer of the student's head stays as it is."""
    neighbours: int = 20
    """Nearest training images that vote on the label of a held-out one, in evaluation."""

    def __post_init__(self) -> None:
        at_least("dino", self, local_crops=0, local_size=0, outputs=2, hidden=1, bottleneck=1, neighbours=1)
        within("dino", self, Range(0, 1, above=True), "global_crop", "local_crop")
        within("dino", self, Range(0, 1), "grey", "solarize", "momentum", "centre_momentum")
        shares("dino", self, "jitter", "warm_share", "freeze_last")
        above_zero("dino", self, "student_temperature", "teacher_temperature", "first_temperature")
        if self.local_crop > self.global_crop:
            first, second = f"dino.local_crop = {self.local_crop}", f"dino.global_crop = {self.global_crop}"
            raise conflict(first, second, "small crops keep less than large ones")


class Dino(ImageTask):
    """Vectors of images, learned without labels."""

    name, title, noun = "dino", "self-supervised image features", "image encoder"
    pipeline_tag = "image-feature-extraction"
    Settings = Settings
    tries = Tries("drawn:circle --attention heads.png", own="photo.jpg", request={"input": "drawn:circle"})
    made_up = "pictures that headway draws"
    loss_tells = False
    fine_tuning = FineTuning(lr=5e-5)
    options = frozenset({"rollout"})
    training = "headway.tasks.dino.training:DinoTraining"
    predictor = "headway.tasks.dino.predict:DinoPredictor"

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        """An encoder of images alone, without labels; a pooler is none."""
        plain = isinstance(config, ModelConfig) and config.kind == "encoder" and config.denoise is None
        return plain and reads_images(config) and not config.labels and config.lm is None

    def render(self, found: Sequence[tuple[ImageExample, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            row = result["embedding"]
            yield f"{len(row)} numbers  {' '.join(f'{value:+.4f}' for value in row[:6])} …  {example.name}"
