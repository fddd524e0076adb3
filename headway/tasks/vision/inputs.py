"""Images as a vision model reads them: decoded and normalised as the model's folder says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headway.tasks.image import ImageExample
from headway.tasks.predictor import Loaded
from headway.tasks.vision.data import decode_images, folder_preprocess, normalised


def read_images(loaded: Loaded, examples: Sequence[ImageExample]) -> tuple[Tensor, Tensor]:
    """Bytes (B, channels, size, size) for people to see, and the model's input on its device."""
    preprocess = folder_preprocess(loaded.model, loaded.folder)
    like = next(loaded.model.parameters())
    shown = decode_images(examples, preprocess)
    norm = torch.tensor(preprocess.normalisation, device=like.device)
    return shown, normalised(shown.to(like.device).float() / 255, norm).to(like.dtype)
