"""DINO's loss: the student gives every crop the outputs that the teacher gives other crops of the same image.

Letters: B images, K outputs, V crops.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headway.joint.distillation import Student
from headway.model.model import Transformer
from headway.tasks.dino.crops import LARGE, Crops
from headway.tasks.dino.task import Settings
from headway.tasks.losses.tokens import upcast


def student_outputs(model: Student, crops: Crops, free: Tensor | None) -> Tensor:
    """(V, B, K), large crops first."""
    each = len(crops.large) // LARGE
    found = [model.distill.head(_class_vectors(model, x), free) for x in crops if x is not None]
    return upcast(torch.cat(found)).unflatten(0, (-1, each))  # type: ignore[no-any-return]


@torch.no_grad()
def teacher_outputs(model: Student, crops: Crops) -> Tensor:
    """(2, B, K)"""
    found = model.distill.teacher_head(_class_vectors(model.distill.teacher, crops.large))
    return upcast(found).unflatten(0, (LARGE, -1))  # type: ignore[no-any-return]


def _class_vectors(model: Transformer, images: Tensor) -> Tensor:
    hidden: Tensor = model(images.to(next(model.parameters()).dtype)).hidden
    return hidden[:, 0]


def targets(settings: Settings, model: Student, teacher: Tensor) -> Tensor:
    """Probabilities (2, B, K): centred, which keeps any output from winning always, and sharpened."""
    low, high, share = settings.first_temperature, settings.teacher_temperature, model.distill.share
    temperature = low + (high - low) * (share / max(settings.warm_share, 1e-9)).clamp(max=1)
    return ((teacher - model.distill.centre) / temperature).softmax(-1)


def distillation_loss(settings: Settings, wanted: Tensor, student: Tensor) -> Tensor:
    """The cross entropy of all pairs of a teacher's crop and another crop: the mean over pairs, summed over images."""
    found = (student / settings.student_temperature).log_softmax(-1)
    both = -torch.einsum("gbk,vbk->gv", wanted, found)
    return (both.sum() - both.diagonal().sum()) / (LARGE * (len(student) - 1))


def last_layer_is_free(settings: Settings, model: Student) -> Tensor:
    """0 while the last layer of the head stays as it is, then 1."""
    return (model.distill.share >= settings.freeze_last).to(model.distill.share.dtype)


def momentum(settings: Settings, share: float) -> float:
    """From the setting to 1 by a cosine."""
    return 1 - (1 - settings.momentum) * (1 + math.cos(math.pi * min(1.0, share))) / 2


def collapse_measures(wanted: Tensor) -> dict[str, float]:
    """Of the teacher's probabilities (N, K), as shares of log K.

    entropy: of their mean; 0 if one output takes all. information: how much less entropy each has than the mean; 0 if
    all images get the same, which is a collapse.
    """
    most = math.log(wanted.shape[-1])
    mean, each = _entropy(wanted.double().mean(0)), _entropy(wanted.double()).mean()
    return {"entropy": float(mean) / most, "information": float(mean - each) / most}


def _entropy(p: Tensor) -> Tensor:
    found: Tensor = torch.special.xlogy(p, p).sum(-1)
    return -found
