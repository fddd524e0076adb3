"""DinoTraining: a student learns to agree with its own moving average on crops of images. Letters: B images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from headway.baselines.build import make_model
from headway.config.model import DistillConfig, ModelConfig, PatchesConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.shape import vision_config
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.datasets.labeled import label_set, parse_labels
from headway.data.files.rows import BadRows
from headway.data.images.heatmap import by_head
from headway.data.images.png import png
from headway.data.images.rows import ImageRow
from headway.errors import ConfigError
from headway.joint.distillation import Student
from headway.model.model import Model, evaluating
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.dino.crops import LARGE, draw_crops, make_crops, small_side
from headway.tasks.dino.features import Scores, features, label_numbers, score_features
from headway.tasks.dino.loss import (
    collapse_measures,
    distillation_loss,
    last_layer_is_free,
    momentum,
    student_outputs,
    targets,
    teacher_outputs,
)
from headway.tasks.dino.task import Settings
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.features import nearest_labels
from headway.tasks.recipe import Recipe
from headway.tasks.training import TaskContext
from headway.tasks.vision.attention import class_attention
from headway.tasks.vision.data import ImageData, Images, file_to_try, load_images, prepared, read_store
from headway.tasks.vision.training import ImageTraining

MEASURED, AT_ONCE = 512, 64
"""Held-out images that the loss is measured on, and how many at a time."""
SHOWN, SHOWN_SIDE = 4, 128
"""Held-out images whose attention the report shows, and pixels of each picture."""
SAMPLED, BANK = 16, 1024
"""Held-out images of a sample, and training images among which it looks for the nearest."""


@dataclass(frozen=True)
class DinoTraining(ImageTraining):
    """Images; their labels, where there are some, only tell how good the features are."""

    recipe: Recipe
    data: ImageData
    labels: tuple[str, ...]
    higher_is_better = True
    guesser = "an encoder with random weights"

    @classmethod
    def prepare(cls, context: TaskContext) -> DinoTraining:
        return cls.read(context.recipe)

    @classmethod
    def read(cls, recipe: Recipe) -> DinoTraining:
        """Read the images of a recipe."""
        bad = BadRows(recipe.data.bad_rows)
        named = partial(_named, bad=bad, column=recipe.data.label) if recipe.data.train else _by_colour
        data = load_images(recipe, bad, named)
        known = [row for row in (*data.train.rows, *data.valid.rows) if row.label is not None]
        whole = len(known) == len(data.train) + len(data.valid)
        labels = label_set(data.train.rows, "single") if whole else ()
        return cls(recipe, data, labels if len(labels) > 1 else ())

    @property
    def settings(self) -> Settings:
        found: Settings = self.recipe.settings
        return found

    @property
    def primary_metric(self) -> str:  # type: ignore[override]
        """Without labels, how much the outputs tell images apart."""
        return "knn" if self.labels else "information"

    @cached_property
    def front(self) -> PatchesConfig:
        """Of a new model; a pretrained one may have other patches."""
        base = None
        if self.recipe.model.from_:
            from headway.hub.download import resolve
            from headway.hub.folder import open_folder

            base = open_folder(resolve(self.recipe.model.from_)).config
        front = self.config(base).source
        assert isinstance(front, PatchesConfig)
        return front

    @cached_property
    def small(self) -> int:
        """Side of a small crop."""
        return small_side(self.settings, self.front.image, self.front.patch)

    @property
    def tokens(self) -> int:
        """Of all crops of an image that the student reads."""
        small = (self.small // self.front.patch) ** 2 + 1
        return LARGE * (self.front.count + 1) + self.settings.local_crops * small

    @cached_property
    def chance(self) -> dict[str, float]:
        """Of an encoder with random weights: features of images tell something even then."""
        if not self.labels:
            return {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.recipe.seed)
            config = vision_config(self.recipe.model, self.data.preprocess.size, self.data.preprocess.channels)
            device = "cuda" if torch.cuda.is_available() else "cpu"
            scores = self._scores(make_model(config).to(device), self.data.valid)
        return {name: value for name, value in scores.metrics.items() if name in scores.right}

    def config(self, base: AnyConfig | None) -> AnyConfig:
        settings, ready = self.settings, self.data.preprocess
        if self.recipe.model.lora:
            raise ConfigError("C004", f"model.lora = {self.recipe.model.lora}: task dino trains whole encoders")
        if base is None:
            base = vision_config(self.recipe.model, ready.size, ready.channels)
        if not isinstance(base, ModelConfig) or not isinstance(base.source, PatchesConfig) or base.decoder is not None:
            raise ConfigError(
                "C004", f"task dino trains vision encoders, model.from = {self.recipe.model.from_} is none"
            )
        patch, size = base.source.patch, settings.local_size
        if size and (size % patch or size > ready.size):
            what = f"dino.local_size = {size} should be a multiple of the patch, {patch}, and at most {ready.size}"
            raise ConfigError("C003", what)
        assert base.encoder is not None
        return replace(
            base,
            source=replace(base.source, image=ready.size),
            encoder=replace(base.encoder, drop_path=self.recipe.model.drop_path or base.encoder.drop_path),
            distill=DistillConfig(outputs=settings.outputs, hidden=settings.hidden, bottleneck=settings.bottleneck),
            classify=None,
            labels=(),
        )

    def batch(self, samples: Index) -> Batch:
        seed, train = self.recipe.seed, self.data.train
        images = train.pixels(shuffle_samples(samples, len(train), seed))
        drawn = draw_crops(self.settings, seed, samples, self.data.share)
        return Batch((images, *drawn, self.data.norm), len(samples), len(samples) * self.tokens)

    @property
    def loss(self) -> Callable[..., Tensor]:
        settings, size, small = self.settings, self.data.preprocess.size, self.small

        def loss(model: Student, images: Tensor, *rest: Tensor) -> Tensor:
            crops = make_crops(settings, images, rest[:-1], size, small, rest[-1])
            student = student_outputs(model, crops, last_layer_is_free(settings, model))
            teacher = teacher_outputs(model, crops)
            with torch.no_grad():
                rows = teacher.flatten(0, 1)
                model.distill.seen.add_(torch.cat([rows.sum(0), rows.new_full((1,), len(rows))]))
            return distillation_loss(settings, targets(settings, model, teacher), student)

        return loss

    @torch.no_grad()
    def after_step(self, model: Model, share: float, world: ProcessGroup) -> None:
        """The teacher follows the student, the centre the mean of the teacher's outputs."""
        assert isinstance(model, Student)
        distill, settings = model.distill, self.settings
        distill.follow(model, momentum(settings, share))
        if world.size > 1:
            distill.seen.copy_(torch.tensor(world.sum(*distill.seen.tolist())))
        mean = distill.seen[:-1] / distill.seen[-1]
        mean = torch.where(mean.isfinite().all(), mean, distill.centre)  # a step that was left out
        first = (distill.share == 0) & (settings.centre_momentum < 1)  # 0 is no centre: it begins as the first mean
        distill.centre.lerp_(mean, torch.where(first, 1.0, 1 - settings.centre_momentum))
        distill.seen.zero_()
        distill.share.fill_(share)

    def read_test(self, source: str) -> Images:
        return read_part(source, self.recipe, self.data, self.bad_tests)

    def loss_and_metrics(self, model: Model, part: Images, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        assert isinstance(model, Student)
        if world.size > 1:
            model.unshard()  # type: ignore[operator]  # the teacher is used without a forward pass of the model
        loss, measures = self.measure(model, part)
        return loss, {**self._scores(model.finished(), part).metrics, **measures}

    def measure(self, model: Student, part: Images) -> tuple[float, dict[str, float]]:
        """The loss of held-out images, the same crops each time, and the measures of a collapse."""
        device, total, wanted = next(model.parameters()).device, 0.0, []
        count = min(MEASURED, len(part))
        with evaluating(model):
            for rows in np.array_split(np.arange(count), -(-count // AT_ONCE)):
                drawn = draw_crops(self.settings, self.recipe.seed, rows, self.data.share)
                images, *rest = (t.to(device) for t in (part.pixels(rows), *drawn, self.data.norm))
                size = self.data.preprocess.size
                crops = make_crops(self.settings, images, tuple(rest[:-1]), size, self.small, rest[-1])
                student = student_outputs(model, crops, None)
                wanted.append(targets(self.settings, model, teacher_outputs(model, crops)))
                total += float(distillation_loss(self.settings, wanted[-1], student))
        return total / count, collapse_measures(torch.cat([each.flatten(0, 1) for each in wanted]))

    def _scores(self, model: Model, part: Images) -> Scores:
        data = self.data
        return score_features(model, data.train, part, data.preprocess, self.labels, self.settings.neighbours)

    def evaluate_in_full(self, model: Model, part: Images) -> Evaluation:
        return self._scores(model.finished(), part).evaluation()

    @property
    def tries(self) -> list[str]:
        return [file_to_try(self.data.valid, self.recipe.data), "--attention", "heads.png"]

    def sample(self, model: Model) -> str:
        """Held-out images by the label of their nearest training image."""
        held = Images(self.data.valid.store, self.data.valid.rows[:SAMPLED])
        some = Images(self.data.train.store, self.data.train.rows[:BANK])
        if not self.labels:
            return f"the features of held-out images spread {self._scores(model.finished(), held).spread:.2f}"
        ours, theirs = (features(model.finished(), each, self.data.preprocess) for each in (some, held))
        known = label_numbers(some.rows, self.labels).to(ours.device)
        found = [self.labels[i] for i in nearest_labels(ours, known, theirs, 1, len(self.labels)).tolist()]
        pairs = [(guess, str(row.label)) for guess, row in zip(found, held.rows, strict=True)]
        said = ", ".join(guess if guess == label else f"{guess} for {label}" for guess, label in pairs)
        right = sum(guess == label for guess, label in pairs)
        return f"the nearest training image has the same label for {right} of {len(pairs)}: {said}"

    def picture(self, model: Model) -> bytes:
        """The class token's attention in the last layer, head by head."""
        some = Images(self.data.valid.store, self.data.valid.rows[:SHOWN])
        device, whole = next(model.parameters()).device, self.front.image // self.front.patch * self.front.patch
        preprocess = self.data.preprocess
        pixels, norm = some.pixels().to(device), torch.tensor(preprocess.normalisation, device=device)
        shown = prepared(pixels, preprocess, torch.tensor([[0.0], [1.0]], device=device))[..., :whole, :whole]
        maps = class_attention(model.finished(), prepared(pixels, preprocess, norm)).cpu().numpy()
        return png(by_head((shown * 255).round().byte().cpu().numpy(), maps, side=SHOWN_SIDE))


def _named(rows: Sequence[ImageRow], bad: BadRows, column: str) -> list[ImageRow]:
    """Rows with labels as names; where some have none, labels are left alone."""
    return list(rows) if any(row.label is None for row in rows) else parse_labels(rows, "single", bad, column)


def _by_colour(rows: Sequence[ImageRow]) -> list[ImageRow]:
    """Drawn pictures with their colours as labels: a short run without labels finds colours, not yet figures."""
    return [replace(row, label=row.text.split()[2]) for row in rows]  # a small red circle …


def read_part(spec: str, recipe: Recipe, data: ImageData, bad: BadRows) -> Images:
    store = read_store(spec, recipe.data, data.preprocess, bad)
    return Images(store, _named(store.rows, bad, recipe.data.label))


def evaluate_source(model: Model, recipe: Recipe, source: str) -> Evaluation:
    """Label images of the user's by the training images; without a source, those that the run held out."""
    training = DinoTraining.read(recipe)
    source = source or recipe.data.test
    bad = BadRows(recipe.data.bad_rows)
    part = read_part(source, recipe, training.data, bad) if source else training.data.valid
    found = training.evaluate_in_full(model, part)
    return replace(found, details={**found.details, "bad_rows": bad.count})
