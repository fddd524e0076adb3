"""Measures of drawn images: their Fréchet distance from real ones, and whether the judge sees the class asked for.

Letters: N drawn images, D features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.data.batching.permutation import Index
from headway.model.model import Model
from headway.tasks.batch import ProcessGroup
from headway.tasks.classification.predict import gather_logits
from headway.tasks.diffusion.judge import FEATURES, Judge, judged
from headway.tasks.diffusion.noise import sample_keys
from headway.tasks.diffusion.predict import as_bytes, draw_images
from headway.tasks.diffusion.task import Settings
from headway.tasks.image_classification.training import thumbnail
from headway.tasks.metrics.bootstrap import Evaluation, Numbers, mean_interval
from headway.tasks.metrics.frechet import FrechetReference, moments
from headway.tasks.vision.data import Images, evaluation_batches

SEED = 1 << 21
"""Noise of the images that are measured: the same in every evaluation."""
SHOWN = 24
"""Drawn images that a report shows."""
ABOUT = "features and classes by a small convolutional network that was trained on the training images, see judge"


@dataclass(frozen=True)
class Measure:
    """Real images, and the judge who compares drawn ones with them."""

    judge: Judge
    part: Images
    truth: Index
    """The class of each real image; drawn images have the same shares of them."""
    size: int
    settings: Settings

    @cached_property
    def real(self) -> tuple[Tensor, Tensor]:
        """Features and classes of the real images."""
        return judged(self.judge, self.part, self.size)

    @cached_property
    def reference(self) -> FrechetReference:
        return FrechetReference(self.real[0].double().numpy())

    @cached_property
    def asked(self) -> Index:
        """(N,): the classes to draw, in the shares of the real images, whatever their order."""
        count = self.settings.eval_images
        return self.truth[np.sort(np.arange(count) * len(self.truth) // count % len(self.truth))]

    def drawn(self, model: Model, guidance: float, world: ProcessGroup | None = None) -> tuple[Numbers, Numbers]:
        """Features (N, D) of drawn images, and whether each shows its class (N,)."""
        settings = replace(self.settings, guidance=guidance)
        keys, asked = sample_keys(SEED, np.arange(len(self.asked))), torch.from_numpy(self.asked)

        def features_of(rows: Index) -> Tensor:
            images = draw_images(model, settings, asked[rows], keys[rows])
            with torch.autocast(images.device.type, enabled=False):
                features, logits = self.judge(images.float())
            right = logits.argmax(1).cpu() == asked[rows]
            return torch.cat([features.cpu(), right[:, None].to(features.dtype)], 1)

        found = gather_logits(model, evaluation_batches(len(asked)), FEATURES + 1, features_of, world)
        return found[:, :-1], found[:, -1]

    def metrics(self, model: Model, world: ProcessGroup) -> dict[str, float]:
        features, right = self.drawn(model, self.settings.guidance, world)
        return {"distance": self.reference.distance(*moments(features)), "agreement": float(right.mean())}


def evaluation(
    model: Model, measure: Measure, losses: Numbers, learned: tuple[Tensor, float], labels: Sequence[str]
) -> Evaluation:
    """In full: with guidance and without. `learned`: features of training images, and how often the judge is right."""
    guidance, reference = measure.settings.guidance, measure.reference
    guided, unguided = (measure.drawn(model, strength) for strength in (guidance, 1.0))
    real = learned[0].double().numpy()
    rows = [
        _row(f"guidance {guidance:g}", *guided, reference),
        _row("no guidance", *unguided, reference),
        {**_row("training images", real, None, reference), "agreement": learned[1]},
    ]
    metrics = {
        "distance": reference.interval(guided[0]),
        "agreement": mean_interval(guided[1]),
        "distance_unguided": reference.interval(unguided[0]),
        "agreement_unguided": mean_interval(unguided[1]),
        "loss": mean_interval(losses),
    }
    details: dict[str, Any] = {"measured_by": ABOUT, "by_guidance": rows, "pictures": _pictures(model, measure, labels)}
    return Evaluation(len(measure.asked), metrics, {**details, "pictures_title": "images that the model draws"})


def _row(kind: str, features: Numbers, right: Numbers | None, reference: FrechetReference) -> dict[str, Any]:
    found = {"kind": kind, "examples": len(features), "distance": reference.distance(*moments(features))}
    return found if right is None else {**found, "agreement": float(right.mean())}


def _pictures(model: Model, measure: Measure, labels: Sequence[str]) -> list[dict[str, str]]:
    """One image of each class after the other, as a page shows them."""
    classes = np.arange(SHOWN) % len(labels)
    keys = sample_keys(SEED, np.arange(SHOWN) // len(labels))
    images = as_bytes(draw_images(model, measure.settings, torch.from_numpy(classes), keys))
    return [{"png": thumbnail(image), "text": labels[row]} for image, row in zip(images, classes.tolist(), strict=True)]
