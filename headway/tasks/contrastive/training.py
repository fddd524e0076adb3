"""ContrastiveTraining: images near their captions, far from those of others. Letters: B pairs, N held-out pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.model import PatchesConfig, SpecialTokens
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.towers import TwoTowersConfig
from headway.config.shape import towers_config
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.data.batching.padding import Examples
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.files.rows import BadRows
from headway.data.images.augment import Draws, apply, draw
from headway.data.images.preprocess import FILE as PREPROCESSOR
from headway.data.images.preprocess import Preprocess
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.joint.towers import TwoTowers
from headway.model.model import Model
from headway.tasks.backbone import check_context
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.contrastive.captions import (
    caption_facts,
    captioned_part,
    evaluated_part,
    new_front,
    pictures,
    read_captioned,
    sheet,
)
from headway.tasks.contrastive.predict import example_vectors, image_vectors, towers_of
from headway.tasks.embedding.vectors import found_at, read_texts
from headway.tasks.metrics.bootstrap import Evaluation, mean_interval, mean_metric
from headway.tasks.recipe import Recipe
from headway.tasks.seq2seq.writing import text_tokenizer
from headway.tasks.training import ScoredTraining, TaskContext
from headway.tasks.vision.data import ImageData, Images, file_to_try, normalised

WITHIN = (1, 5)
"""Ranks at which recall is counted."""
EVAL_PAIRS = 64
"""Pairs that are set against each other for the validation loss."""
SAMPLES = 8
"""Held-out images that a sample shows."""


class Pairs(NamedTuple):
    """Images, their captions as token ids, and numbers of the captions: equal texts have equal numbers."""

    images: Images
    captions: Examples
    names: Index

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class ContrastiveTraining(ScoredTraining[Pairs]):
    """Each image has to find its caption in the batch, and each caption its image (Radford et al. 2021).

    A pair's negatives are the batch it is computed with: train.accumulate makes them fewer. An equal caption of
    another image is no negative.
    """

    recipe: Recipe
    data: ImageData
    tokenizer: Tokenizer
    primary_metric = "text_recall_1"
    higher_is_better = True

    @classmethod
    def prepare(cls, context: TaskContext) -> ContrastiveTraining:
        recipe = context.recipe
        if recipe.gpus > 1:
            raise ConfigError("C004", f"gpus = {recipe.gpus}: task contrastive compares the pairs of one process")
        data = read_captioned(recipe, BadRows(recipe.data.bad_rows))
        texts = [row.text for row in data.train.rows]
        make = context.base or context.rank_zero_first(lambda: text_tokenizer(context.folder, recipe.data, texts))
        return cls(recipe, data, make)

    @property
    def facts(self) -> dict[str, Any]:
        captions = self._train.captions, self._valid.captions
        return caption_facts(self.data, self.patches + 1, self.tokenizer.vocab_size, *captions)

    @property
    def patches(self) -> int:
        return self._front.count

    @cached_property
    def _front(self) -> PatchesConfig:
        return new_front(self.recipe, self.data.preprocess)

    @cached_property
    def chance(self) -> dict[str, float]:
        """Of vectors that have nothing to do with the pairs."""
        count = len(self._valid)
        parts = -(-count // EVAL_PAIRS)
        recall = {f"{side}_recall_{k}": min(1.0, k / count) for side in ("text", "image") for k in WITHIN}
        return {"valid": math.log(max(1.0, count / parts)), **recall}

    @cached_property
    def _train(self) -> Pairs:
        return read_pairs(self.data.train, self.tokenizer, self.recipe)

    @cached_property
    def _valid(self) -> Pairs:
        return read_pairs(self.data.valid, self.tokenizer, self.recipe)

    def config(self, base: AnyConfig | None) -> AnyConfig:
        settings, ready, length = self.recipe.settings, self.data.preprocess, self.recipe.data.length
        if base is None:
            special = SpecialTokens(**{role: self.tokenizer.special.get(role) for role in ("pad", "bos", "eos")})
            made = towers_config(self.recipe.model, self._front, self.tokenizer.vocab_size, length, special)
            return replace(
                made,
                projection=settings.projection or made.projection,
                logit_scale=round(math.log(1 / settings.temperature), 4),
            )
        if not isinstance(base, TwoTowersConfig):
            what = f"model.from = {self.recipe.model.from_}"
            raise ConfigError("C004", f"task contrastive trains two towers, for images and texts; {what} is none")
        check_context(base, length, self.recipe.model.from_)
        assert isinstance(base.image.source, PatchesConfig)
        return replace(base, image=replace(base.image, source=replace(base.image.source, image=ready.size)))

    @property
    def model_files(self) -> dict[str, Any]:
        return {PREPROCESSOR: self.data.preprocess.to_dict()}

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.data.train), batch)

    def batch(self, samples: Index) -> Batch:
        settings, seed, pairs = self.recipe.settings, self.recipe.seed, self._train
        rows = shuffle_samples(samples, len(pairs), seed)
        ids, attention_mask, _ = pairs.captions.read(rows)
        names = torch.from_numpy(pairs.names[rows])
        draws = draw(settings, seed, samples, self.data.share)
        tensors = (pairs.images.pixels(rows), ids, attention_mask, names, self.data.norm, *draws)
        return Batch(tensors, len(rows), len(rows) * (self.patches + 1) + int(attention_mask.sum()))

    @property
    def loss(self) -> Callable[..., Tensor]:
        settings, size = self.recipe.settings, self.data.preprocess.size

        def loss(
            model: TwoTowers,
            images: Tensor,
            ids: Tensor,
            attention_mask: Tensor,
            names: Tensor,
            norm: Tensor,
            *drawn: Tensor,
        ) -> Tensor:
            x = normalised(apply(settings, images, Draws(*drawn), size), norm)
            logits = model.similarity(model.image_features(x), model.text_features(ids, attention_mask))
            return pair_loss(model)(logits, names)

        return loss

    @property
    def valid_part(self) -> Pairs:
        return self._valid

    def read_test(self, source: str) -> Pairs:
        images = captioned_part(source, self.recipe, self.data.preprocess, self.bad_tests)
        return read_pairs(images, self.tokenizer, self.recipe)

    @cached_property
    def test_part(self) -> Pairs | None:
        """Those of data.test, or of the test folder beside the training images."""
        return self.read_test(self.data.test) if self.data.test else None

    def loss_and_metrics(self, model: Model, part: Pairs, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        towers = towers_of(model)
        u, v = pair_vectors(towers, part, self.data.preprocess)
        found = {name: float((rank <= k).mean()) for name, (rank, k) in ranks(u, v, part.names).items()}
        return mean_loss(towers, u, v, part.names), found

    def evaluate_in_full(self, model: Model, part: Pairs) -> Evaluation:
        return evaluate_pairs(towers_of(model), part, self.data.preprocess)

    @property
    def tries(self) -> list[str]:
        return [file_to_try(self.data.valid, self.recipe.data)]

    def sample(self, model: Model) -> str:
        """The first held-out images, each with the caption that it is nearest to."""
        rows = self.data.valid.rows[:SAMPLES]
        best = self._best_captions(towers_of(model))
        right = sum(text == row.text for text, row in zip(best, rows, strict=True))
        lines = (
            text if text == row.text else f"{text}  (its own: {row.text})" for text, row in zip(best, rows, strict=True)
        )
        return "\n".join([f"{right} of {len(rows)} find their own caption:", *lines])

    def _best_captions(self, model: TwoTowers) -> list[str]:
        some = Images(self.data.valid.store, self.data.valid.rows[:SAMPLES])
        u = image_vectors(model, some, self.data.preprocess)
        best = (u @ example_vectors(model, self._valid.captions).T).argmax(1)
        return [self.data.valid.rows[i].text for i in best.tolist()]

    def picture(self, model: Model) -> bytes:
        return sheet(self.data.valid, SAMPLES)


def read_pairs(images: Images, tokenizer: Tokenizer, recipe: Recipe) -> Pairs:
    texts, number = [row.text for row in images.rows], dict[str, int]()
    names = np.array([number.setdefault(text, len(number)) for text in texts])
    return Pairs(images, read_texts(tokenizer, texts, recipe.data.length, recipe.seed), names)


def pair_loss(model: TwoTowers) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss that the model's logits are for."""
    return symmetric_loss if model.logit_bias is None else sigmoid_loss


def symmetric_loss(logits: Tensor, names: Tensor) -> Tensor:
    """InfoNCE in both directions, summed over pairs; `names` tells equal captions, which are no negatives."""
    logits = logits.masked_fill(_repeated(names), -torch.inf)
    own = torch.arange(len(logits), device=logits.device)
    forth, back = (F.cross_entropy(each, own, reduction="sum") for each in (logits, logits.T))
    return (forth + back) / 2


def sigmoid_loss(logits: Tensor, names: Tensor) -> Tensor:
    """A decision for each image with each text, whether they belong together, summed (Zhai et al. 2023)."""
    sign = 2 * torch.eye(len(logits), device=logits.device) - 1
    return -F.logsigmoid(sign * logits).masked_fill(_repeated(names), 0.0).sum()


def _repeated(names: Tensor) -> Tensor:
    """(N, N): true for the equal captions of other pairs."""
    return (names[:, None] == names[None]).fill_diagonal_(False)


def pair_vectors(model: TwoTowers, part: Pairs, preprocess: Preprocess) -> tuple[Tensor, Tensor]:
    """(N, P) of images and of their captions."""
    return image_vectors(model, part.images, preprocess), example_vectors(model, part.captions)


def mean_loss(model: TwoTowers, u: Tensor, v: Tensor, names: Index) -> float:
    """The loss of a pair among EVAL_PAIRS others, without augmentation."""
    scale, total = float(model.logit_scale.detach().exp()), 0.0
    bias = 0.0 if model.logit_bias is None else float(model.logit_bias.detach())
    for rows in np.array_split(np.arange(len(u)), -(-len(u) // EVAL_PAIRS)):
        logits = scale * u[rows] @ v[rows].T + bias
        total += float(pair_loss(model)(logits, torch.from_numpy(names[rows])))
    return total / len(u)


def ranks(u: Tensor, v: Tensor, names: Index) -> dict[str, tuple[Index, int]]:
    """Metric → at which place each query finds its own, from 1, and up to which place that counts.

    text_recall: images that find their text; image_recall: texts that find their image.
    """
    found = {"text": found_at(u, v, names), "image": found_at(v, u, names)}
    return {f"{side}_recall_{k}": (rank, k) for side, rank in found.items() for k in WITHIN}


def evaluate_pairs(model: TwoTowers, part: Pairs, preprocess: Preprocess, bad: int = 0) -> Evaluation:
    """A model on images and captions, in full: how often each finds the other among all, and pictures of it."""
    u, v = pair_vectors(model, part, preprocess)
    hits = {name: (rank <= k).astype(np.float64) for name, (rank, k) in ranks(u, v, part.names).items()}
    first = next(iter(hits))
    cosines, best = (u @ v.T).max(1)
    texts = [row.text for row in part.images.rows]
    each = [
        {"image": row.shown, "text": row.text, "nearest": texts[i], "cosine": round(cosine, 6)}
        for row, i, cosine in zip(part.images.rows, best.tolist(), cosines.tolist(), strict=True)
    ]
    metrics = {name: mean_interval(values) for name, values in hits.items()}
    return Evaluation(
        len(part),
        metrics,
        {
            "bad_rows": bad,
            "pictures": pictures(part.images, [texts[i] for i in best.tolist()], "its own"),
            "pictures_title": "pictures with the caption they are nearest to",
        },
        each,
        mean_metric(first, hits[first]),
    )


def evaluate_source(
    model: TwoTowers, tokenizer: Tokenizer, preprocess: Preprocess, recipe: Recipe, source: str
) -> Evaluation:
    """On pairs of the user's; without a source, on what the run has not learned from."""
    bad = BadRows(recipe.data.bad_rows)
    part = read_pairs(evaluated_part(source, recipe, preprocess, bad), tokenizer, recipe)
    return evaluate_pairs(model, part, preprocess, bad.count)
