"""Student: a vision transformer in self-distillation (DINO), with projection heads and a teacher that follows it."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import DistillConfig, ModelConfig, StackConfig
from headway.front.patches import PatchEmbedding
from headway.kernels.linear import Linear, linear
from headway.model.init import initialise
from headway.model.model import Transformer


class ProjectionHead(nn.Module):
    """DINO's head (Caron et al. 2021): three layers to a vector of length one, and its cosines with the outputs."""

    def __init__(self, config: DistillConfig, stack: StackConfig) -> None:
        super().__init__()
        self.layer1 = Linear(stack.d_model, config.hidden)
        self.layer2 = Linear(config.hidden, config.hidden)
        self.layer3 = Linear(config.hidden, config.bottleneck)
        self.output = Linear(config.bottleneck, config.outputs, bias=False)

    def forward(self, x: Tensor, free: Tensor | None = None) -> Tensor:
        """(B, M) to (B, outputs). `free` is the share of its gradient that the last layer gets."""
        x = self.layer3(F.gelu(self.layer2(F.gelu(self.layer1(x)))))
        rows = F.normalize(self.output.weight, dim=-1)  # weight normalization with its length held at one
        if free is not None:
            rows = rows.detach() + free * (rows - rows.detach())
        x = F.normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1)
        return linear(x, rows)


class Distillation(nn.Module):
    """What self-distillation adds to a model: projection heads, and a teacher whose weights follow the model's.

    Checkpoints hold all of it; gradients change only `head`.
    """

    centre: Tensor
    """The running mean of the teacher's outputs, which is taken off them."""
    share: Tensor
    """The share of the budget that is spent: schedules inside the loss are functions of it."""
    seen: Tensor
    """The sum of the teacher's outputs in the current step, and how many there were; 0 between steps."""

    def __init__(self, config: ModelConfig, own: DistillConfig) -> None:
        super().__init__()
        stack, front = config.encoder, config.source
        assert stack is not None and front is not None
        calm = replace(stack, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, drop_path=0.0)
        self.head, self.teacher_head = ProjectionHead(own, stack), ProjectionHead(own, stack)
        self.teacher = Transformer(
            replace(config, distill=None, encoder=calm, source=replace(front, dropout=0.0))  # a teacher does not drop
        )
        self.teacher.requires_grad_(False)
        self.teacher_head.requires_grad_(False)
        self.register_buffer("centre", torch.zeros(own.outputs))
        self.register_buffer("share", torch.zeros(()))
        self.register_buffer("seen", torch.zeros(own.outputs + 1), persistent=False)

    @torch.no_grad()
    def start(self, model: Transformer) -> None:
        """The teacher begins as the model."""
        self.follow(model, 0.0)

    @torch.no_grad()
    def follow(self, model: Transformer, momentum: float) -> None:
        """Move the teacher's weights towards the model's, of which they are a moving average."""
        ours = dict(model.named_parameters())
        pairs = [(p, ours[name]) for name, p in self.teacher.named_parameters()]
        pairs += list(zip(self.teacher_head.parameters(), self.head.parameters(), strict=True))
        if not momentum:
            for teacher, student in pairs:
                teacher.copy_(student)
        else:
            teachers, students = zip(*pairs, strict=True)
            torch._foreach_lerp_(teachers, students, 1 - momentum)


class Student(Transformer):
    """A model that learns from its own teacher. Its run saves the teacher."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert config.distill is not None and isinstance(self.source, PatchEmbedding)
        self.distill = Distillation(config, config.distill)
        self.source.any_size = True  # small crops are among the images
        initialise(self.distill, config)
        self.distill.start(self)

    def finished(self) -> Transformer:
        return self.distill.teacher
