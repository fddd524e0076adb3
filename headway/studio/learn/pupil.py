"""A model that has learned nothing yet, and is taught one training step at a time, to show what a step does.

Letters: B batch, T tokens.
"""

from __future__ import annotations

import math
import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.api.bundle import Bundle
from headway.baselines.build import make_model
from headway.inspect.session import Session
from headway.studio.learn.tour import make_stories

BATCH = 32
STORIES = 1000
ANSWERS = 6
PARTS = {"attention": ".attention.", "feed-forward": ".ffn.", "norms": "norm"}
"""Parts of the model by what the names of their weights hold; all other weights are embeddings."""


class Pupil:
    """A new model of the same shape as a trained one, with its optimizer and its losses."""

    def __init__(self, bundle: Bundle, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = make_model(bundle.config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.99))
        self.tokenizer = bundle.require_tokenizer()
        self.readout = Session(bundle).require_readout()
        self.stories = [self.tokenizer.encode(story).ids for story in make_stories(STORIES, seed + 1)]
        self.rng = random.Random(seed)
        self.losses: list[float] = []
        self.norms: dict[str, float] = {}

    def teach(self, steps: int, lr: float) -> None:
        """Training steps: a batch of stories, the loss, its gradient, and every weight a little down the gradient."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        for _ in range(steps):
            loss = self._loss()
            self.optimizer.zero_grad()
            loss.backward()
            self.norms = gradient_norms(self.model)
            self.optimizer.step()
            self.losses.append(float(loss.detach()))

    def _loss(self) -> Tensor:
        """The mean of -ln p over all next tokens of a batch."""
        rows = [torch.tensor(ids) for ids in self.rng.sample(self.stories, BATCH)]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)  # B T
        mask = nn.utils.rnn.pad_sequence([torch.ones_like(row, dtype=torch.bool) for row in rows], batch_first=True)
        logits = self.model.lm(self.model(ids, attention_mask=mask).hidden[:, :-1])
        return F.cross_entropy(logits[mask[:, 1:]], ids[:, 1:][mask[:, 1:]])

    @torch.no_grad()
    def answers(self, text: str) -> list[dict[str, Any]]:
        """The likeliest next tokens after a text."""
        self.model.eval()
        chances = self.model.lm(self.model(torch.tensor([self.tokenizer.encode(text).ids])).hidden[0, -1]).softmax(-1)
        best, ids = chances.topk(ANSWERS)
        names = self.readout.name
        return [
            {"label": names(i), "id": i, "probability": p if math.isfinite(p) else 0.0}
            for p, i in zip(best.tolist(), ids.tolist(), strict=True)
        ]


def gradient_norms(model: nn.Module) -> dict[str, float]:
    """How long the gradient of each part is."""
    sums = dict.fromkeys(["embeddings", *PARTS], 0.0)
    for name, weight in model.named_parameters():
        part = next((part for part, sign in PARTS.items() if sign in name), "embeddings")
        sums[part] += 0.0 if weight.grad is None else float(weight.grad.square().sum())
    return {part: math.sqrt(value) for part, value in sums.items()}
