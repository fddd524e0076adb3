"""Predicting with an image–text model: vectors of images and texts, and labels by text prompts.

Letters: N things, P width of the shared space, K labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.batching.padding import Examples, inference_batch_tokens
from headway.data.images.preprocess import Preprocess
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.joint.towers import TwoTowers
from headway.model.model import Model, evaluating
from headway.tasks.classification.predict import Prediction, as_predictions
from headway.tasks.contrastive.task import Contrastive, LabelledImage, Phrase, parse_labels
from headway.tasks.embedding.predict import Vector
from headway.tasks.embedding.vectors import Near, nearest_of, read_texts
from headway.tasks.image import ImageExample, example_of
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.predictor import Predictor
from headway.tasks.vision.data import Images, decode_images, evaluation_batches, folder_preprocess, normalised, prepared

AT_ONCE = 64
"""Images that are decoded and read together."""


def towers_of(model: Model) -> TwoTowers:
    if not isinstance(model, TwoTowers):
        raise DataError("D001", "this model has no two towers for images and texts", "headway train contrastive")
    return model


def text_vectors(model: TwoTowers, tokenizer: Tokenizer, texts: Sequence[str]) -> Tensor:
    """(N, P) of length one, on the CPU; long texts are cut before their end token."""
    if not texts:
        return torch.empty(0, model.config.projection)
    return example_vectors(model, read_texts(tokenizer, texts, model.config.max_length))


@torch.no_grad()
def example_vectors(model: TwoTowers, examples: Examples) -> Tensor:
    """The same of token ids."""
    device, found = next(model.parameters()).device, torch.empty(len(examples), model.config.projection)
    with evaluating(model):
        for rows in examples.batches(inference_batch_tokens(device)):
            ids, attention_mask, _ = examples.read(rows)
            found[rows] = _unit(model.text_features(ids.to(device), attention_mask.to(device)))
    return found


@torch.no_grad()
def image_vectors(model: TwoTowers, images: Images, preprocess: Preprocess) -> Tensor:
    """(N, P) of stored images, of length one, on the CPU."""
    like, found = next(model.parameters()), torch.empty(len(images), model.config.projection)
    norm = torch.tensor(preprocess.normalisation, device=like.device)
    with evaluating(model):
        for rows in evaluation_batches(len(images)):
            pixels = prepared(images.pixels(rows).to(like.device), preprocess, norm)
            found[rows] = _unit(model.image_features(pixels.to(like.dtype)))
    return found


def _unit(features: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=-1).cpu()


class ContrastivePredictor(Predictor[ImageExample | Phrase, Vector | Prediction]):
    """An image–text model in use."""

    task = Contrastive()

    @cached_property
    def preprocess(self) -> Preprocess:
        return folder_preprocess(self.model, self.loaded.folder)

    def encode(self, things: Sequence[Any]) -> Tensor:
        """(N, P) of images and texts, in their order."""
        examples = [self.example(thing, number) for number, thing in enumerate(things, start=1)]
        model = towers_of(self.model)
        found = torch.empty(len(examples), model.config.projection)
        texts = [i for i, each in enumerate(examples) if isinstance(each, Phrase)]
        images = [i for i, each in enumerate(examples) if not isinstance(each, Phrase)]
        if texts:
            found[texts] = text_vectors(model, self.tokenizer, [examples[i].text for i in texts])
        for at in range(0, len(images), AT_ONCE):
            rows = images[at : at + AT_ONCE]
            found[rows] = self._image_vectors(model, [examples[i] for i in rows])
        return found

    def example(self, thing: Any, number: int = 1) -> Any:
        """An example from whatever Python hands in: a text or a path, bytes, an array, an image of Pillow."""
        if isinstance(thing, ImageExample | Phrase):
            return thing
        return self.task.parse({"input": thing}) if isinstance(thing, str) else example_of(thing, number)

    def shown(self, example: ImageExample | Phrase) -> str:
        """What a person knows an example by."""
        return example.text if isinstance(example, Phrase) else example.name

    def nearest(self, query: Any, things: Sequence[Any], k: int = 5) -> list[Near]:
        """The things with the highest cosine to the query, the best first."""
        examples = [self.example(thing, number) for number, thing in enumerate(things, start=1)]
        return nearest_of(self.encode([query])[0], self.encode(examples), lambda i: self.shown(examples[i]), k)

    def _image_vectors(self, model: TwoTowers, examples: Sequence[Any]) -> Tensor:
        like = next(model.parameters())
        norm = torch.tensor(self.preprocess.normalisation, device=like.device)
        pixels = normalised(decode_images(examples, self.preprocess).to(like.device).float() / 255, norm)
        with evaluating(model):
            return _unit(model.image_features(pixels.to(like.dtype)))

    def predict(self, examples: Sequence[ImageExample | Phrase]) -> list[Vector | Prediction]:
        """A vector; for an image with labels, how likely each of them is."""
        vectors = self.encode(examples)
        known: dict[tuple[str, ...], Tensor] = {}
        return [self._prediction(each, vectors[i], known) for i, each in enumerate(examples)]

    def classify(self, examples: Sequence[ImageExample], labels: Sequence[str]) -> list[Prediction]:
        """How likely each of the labels is for each image."""
        among = parse_labels(list(labels))
        found = self.predict([LabelledImage(each.image, each.name, among) for each in examples])
        return [each for each in found if isinstance(each, Prediction)]

    def _prediction(
        self, example: ImageExample | Phrase, vector: Tensor, known: dict[tuple[str, ...], Tensor]
    ) -> Vector | Prediction:
        labels = example.labels if isinstance(example, LabelledImage) else self.options.labels
        if not labels:
            return Vector(vector.tolist())
        if isinstance(example, Phrase):
            raise DataError("D001", f"labels are for images, and {example.text[:40]!r} is a text")
        model = towers_of(self.model)
        if labels not in known:
            known[labels] = text_vectors(model, self.tokenizer, labels)
        scale = float(model.logit_scale.detach().exp())
        logits = (scale * known[labels] @ vector).double().numpy()
        return as_predictions("single", labels, logits[None])[0]

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.contrastive.training import evaluate_source

        return evaluate_source(towers_of(self.model), self.tokenizer, self.preprocess, self.recipe, source)
