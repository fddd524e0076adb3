"""CaptionTraining: patches in, a text out; the encoder–decoder of translation with another front end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count as counted
from typing import Any

import numpy as np
from torch import Tensor

from headway.config.model import ModelConfig, PatchesConfig, SpecialTokens
from headway.config.networks.kinds import AnyConfig
from headway.config.shape import caption_config
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.data.batching.padding import Examples
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.datasets.parallel import Pair
from headway.data.files.rows import BadRows
from headway.data.images.augment import Draws, apply, draw
from headway.data.images.preprocess import FILE as PREPROCESSOR
from headway.data.images.preprocess import Preprocess
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.hub.download import resolve
from headway.hub.folder import open_folder
from headway.model.model import Model
from headway.tasks.backbone import check_context
from headway.tasks.batch import Batch
from headway.tasks.caption.predict import caption_images
from headway.tasks.contrastive.captions import (
    caption_facts,
    captioned_part,
    evaluated_part,
    new_front,
    pictures,
    read_captioned,
    sheet,
)
from headway.tasks.image import reads_images
from headway.tasks.metrics.bootstrap import Evaluation, Metric, mean_metric
from headway.tasks.metrics.translation import metrics, signature
from headway.tasks.recipe import Recipe
from headway.tasks.seq2seq.translate import beam_for
from headway.tasks.seq2seq.writing import (
    SAMPLES,
    WritingTraining,
    assessed,
    decoder_tensors,
    pair_loss,
    read_targets,
    start_token,
    text_tokenizer,
)
from headway.tasks.training import TaskContext
from headway.tasks.vision.data import ImageData, Images, file_to_try, normalised, prepared


@dataclass(frozen=True)
class Captions:
    """Images and what is said of them, as ids; a caption that is cut has no end."""

    images: Images
    target: Examples

    @cached_property
    def pairs(self) -> list[Pair]:
        return [Pair(row.shown, (row.text,), row.file, row.line) for row in self.images.rows]

    def __len__(self) -> int:
        return len(self.images)

    def some(self, count: int) -> Captions:
        """The first of them."""
        ids, types = self.target.ids[:count], self.target.token_type_ids[:count]
        return Captions(Images(self.images.store, self.images.rows[:count]), Examples(ids, types))

    def batches(self, tokens: int) -> Iterable[list[int]]:
        """In batches of about so many target tokens: captions of like length."""
        return Examples(self.target.ids, self.target.token_type_ids).batches(tokens)


@dataclass(frozen=True)
class CaptionTraining(WritingTraining[Captions]):
    """Images and their captions."""

    recipe: Recipe
    data: ImageData
    tokenizer: Tokenizer
    start: int
    """What the decoder reads first."""
    _evaluations: Any = field(default_factory=counted)

    @classmethod
    def prepare(cls, context: TaskContext) -> CaptionTraining:
        recipe = context.recipe
        if recipe.model.from_:
            check_base(open_folder(resolve(recipe.model.from_)).config, recipe.model.from_)
        data = read_captioned(recipe, BadRows(recipe.data.bad_rows))
        texts = [row.text for row in data.train.rows]
        made = context.base or context.rank_zero_first(lambda: text_tokenizer(context.folder, recipe.data, texts))
        return cls(recipe, data, made, start_token(recipe, made))

    @cached_property
    def train(self) -> Captions:  # type: ignore[override]
        return make_captions(self.data.train, self.tokenizer, self.recipe)

    @cached_property
    def valid(self) -> Captions:  # type: ignore[override]
        return make_captions(self.data.valid, self.tokenizer, self.recipe)

    @property
    def metric(self) -> str:
        return str(self.recipe.settings.metric)

    @property
    def facts(self) -> dict[str, Any]:
        targets = self.train.target, self.valid.target
        facts = caption_facts(self.data, self._front.count + 1, self.tokenizer.vocab_size, *targets)
        return {**facts, "signature": signature(self.metric)} if self.recipe.settings.eval_texts else facts

    @cached_property
    def _front(self) -> PatchesConfig:
        return new_front(self.recipe, self.data.preprocess)

    def config(self, base: AnyConfig | None) -> AnyConfig:
        length, what = self.recipe.data.length, self.recipe.model.from_
        if base is None:
            roles = {role: self.tokenizer.special.get(role) for role in ("pad", "bos", "eos")}
            special = SpecialTokens(**roles, start=self.start)
            return caption_config(self.recipe.model, self._front, self.tokenizer.vocab_size, length, special)
        check_base(base, what)
        check_context(base, length, what)
        assert isinstance(base, ModelConfig) and isinstance(base.source, PatchesConfig)
        return replace(base, source=replace(base.source, image=self.data.preprocess.size))

    @property
    def model_files(self) -> dict[str, Any]:
        return {PREPROCESSOR: self.data.preprocess.to_dict()}

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.data.train), batch)

    def batch(self, samples: Index) -> Batch:
        rows = shuffle_samples(samples, len(self.train), self.recipe.seed)
        draws = draw(self.recipe.settings, self.recipe.seed, samples, self.data.share)
        labels, real, _ = self.train.target.read(rows)
        tensors = (*decoder_tensors(labels, real, self.start), self.data.norm, *draws)
        count = int(real.sum())
        read = len(rows) * (self._front.count + 1) + count
        return Batch((self.data.train.pixels(rows), *tensors), count, read)

    def wanted(self, batch: Batch) -> Tensor | None:
        return batch.tensors[2]

    def plain_batch(self, part: Captions, rows: Index) -> Batch:
        labels, real, _ = part.target.read(rows)
        images = prepared(part.images.pixels(rows), self.data.preprocess, self.data.norm)
        return Batch((images, None, *decoder_tensors(labels, real, self.start)), int(real.sum()))

    @property
    def loss(self) -> Callable[..., Tensor]:
        settings, size = self.recipe.settings, self.data.preprocess.size
        inner = pair_loss(settings.label_smoothing, settings.r_drop)

        def loss(model: Model, images: Tensor, inputs: Tensor, targets: Tensor, norm: Tensor, *drawn: Tensor) -> Tensor:
            x = normalised(apply(settings, images, Draws(*drawn), size), norm)
            return inner(model, x, None, inputs, targets)

        return loss

    def write(self, model: Model, part: Captions) -> list[str]:
        return written(model, self.tokenizer, part, self.data.preprocess, self.recipe)

    def quick_metrics(self, texts: Sequence[str], part: Captions) -> list[Metric]:
        return [*super().quick_metrics(texts, part), exact_match(texts, part)]

    def metrics(self, texts: Sequence[str], part: Captions) -> list[Metric]:
        return caption_metrics(self.metric, texts, part)

    def assess(self, model: Model, part: Captions) -> Evaluation:
        return evaluate_captions(model, self.tokenizer, part, self.data.preprocess, self.recipe)

    def read_test(self, source: str) -> Captions:
        images = captioned_part(source, self.recipe, self.data.preprocess, self.bad_tests)
        return make_captions(images, self.tokenizer, self.recipe)

    @cached_property
    def test_part(self) -> Captions | None:
        """Those of data.test, or of the test folder beside the training images."""
        return self.read_test(self.data.test) if self.data.test else None

    @property
    def tries(self) -> list[str]:
        return [file_to_try(self.data.valid, self.recipe.data)]

    def picture(self, model: Model) -> bytes:
        return sheet(self.data.valid, SAMPLES)


def check_base(base: AnyConfig, what: str) -> None:
    """Refuse a model.from that does not describe images."""
    if base.kind != "encoder-decoder" or base.lm is None or not reads_images(base):
        raise ConfigError("C004", f"task caption trains models that describe images, model.from = {what} is none")


def make_captions(images: Images, tokenizer: Tokenizer, recipe: Recipe) -> Captions:
    return Captions(images, read_targets(tokenizer, [row.text for row in images.rows], recipe.data.length))


def written(model: Model, tokenizer: Tokenizer, part: Captions, preprocess: Preprocess, recipe: Recipe) -> list[str]:
    """The best caption of each image."""
    found = caption_images(model, tokenizer, part.images, preprocess, beam_for(recipe))
    return [best[0].text for best in found]


def caption_metrics(metric: str, texts: Sequence[str], part: Captions) -> list[Metric]:
    """Those of translations, and the exact matches."""
    return [*metrics(metric, texts, [pair.targets for pair in part.pairs]), exact_match(texts, part)]


def exact_match(texts: Sequence[str], part: Captions) -> Metric:
    """The share of captions that are right to the letter."""
    right = [float(text == pair.targets[0]) for text, pair in zip(texts, part.pairs, strict=True)]
    return mean_metric("exact_match", np.array(right))


def evaluate_captions(
    model: Model, tokenizer: Tokenizer, part: Captions, preprocess: Preprocess, recipe: Recipe, bad: int = 0
) -> Evaluation:
    """What a model says of images, against what it should have, with pictures."""
    texts = written(model, tokenizer, part, preprocess, recipe)
    found = caption_metrics(recipe.settings.metric, texts, part)
    sizes = [len(ids) for ids in part.target.ids]
    evaluation = assessed(part.pairs, texts, found, sizes, int(part.target.truncated.sum()), bad)
    evaluation.details["pictures_title"] = "pictures with their captions"
    evaluation.details["pictures"] = pictures(part.images, texts, "should be")
    return evaluation


def evaluate_source(
    model: Model, tokenizer: Tokenizer, preprocess: Preprocess, recipe: Recipe, source: str
) -> Evaluation:
    """On captions of the user's; without a source, on what the run has not learned from."""
    bad = BadRows(recipe.data.bad_rows)
    part = make_captions(evaluated_part(source, recipe, preprocess, bad), tokenizer, recipe)
    return evaluate_captions(model, tokenizer, part, preprocess, recipe, bad.count)
