"""Fusion: an image and a sound read together, by one stack (early) or by two encoders with cross-attention (late).

Letters: B batch, T tokens, M width of the model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headway.config.networks.fusion import FusionConfig
from headway.errors import DataError
from headway.front.patches import PatchEmbedding
from headway.joint.encoding import EncodingModel
from headway.model.attention import Backend, Hook, scoped
from headway.model.heads import ClassifyHead
from headway.model.init import initialise
from headway.model.masks import Layout
from headway.model.model import Output, Transformer
from headway.model.stack import Stack


class Fusion(EncodingModel):
    """Two front ends, and the stacks that the kind of fusion needs; the head reads the class token of the image."""

    gives = "this model gives labels to images with sounds"

    def __init__(self, config: FusionConfig) -> None:
        super().__init__()
        self.config: FusionConfig = config
        width = config.encoder.d_model
        if config.fusion == "early":
            self.image_front, self.sound_front = (
                PatchEmbedding(config.image, width),
                PatchEmbedding(config.sound, width),
            )
            self.modality = nn.Parameter(torch.zeros(2, width))
            self.encoder = Stack(config.encoder)
        if config.fusion in ("late", "image"):
            self.image = Transformer(config.image_encoder)
        if config.fusion in ("late", "sound"):
            self.sound = Transformer(config.sound_encoder)
        if config.joint is not None:
            self.joint = Stack(config.joint)
        self.classify = ClassifyHead(config.classify, config.encoder)
        initialise(self, config.image_encoder)
        if config.fusion == "early":
            nn.init.normal_(self.modality, std=config.init.std)

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        target_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """Hidden states of images (B, C, height, width) as `inputs`, with the spectrograms of sounds as `targets`."""
        if targets is None:
            raise DataError("D001", "a model of images with sounds needs both")
        kind = self.config.fusion
        if kind == "early":
            parts = (self.image_front(inputs).x + self.modality[0], self.sound_front(targets).x + self.modality[1])
            x = torch.cat(parts, 1)
            hidden = self.encoder(
                x, Layout.of(x.shape[1], None, x.device), backend=backend, hook=scoped(hook, "encoder")
            )
            return Output(hidden, None)
        if kind == "sound":
            return self.sound.encode(targets, backend=backend, hook=scoped(hook, "sound"))
        image: Output = self.image.encode(inputs, backend=backend, hook=scoped(hook, "image"))
        if kind == "image":
            return image
        memory = self.sound.encode(targets, backend=backend, hook=scoped(hook, "sound")).hidden
        layout = Layout.of(image.hidden.shape[1], None, memory.device)
        hidden = self.joint(image.hidden, layout, memory=memory, backend=backend, hook=scoped(hook, "joint"))
        return Output(hidden, None, memory)
