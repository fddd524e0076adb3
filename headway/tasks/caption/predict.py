"""Captions of images: what a beam search finds, the best first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from headway.data.images.preprocess import Preprocess
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.generate.beam.search import Beam, beam_search
from headway.generate.protocol import Source
from headway.model.model import Model, evaluating
from headway.progress import track
from headway.tasks.caption.task import Caption, Settings
from headway.tasks.image import ImageExample, reads_images
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.predictor import Loaded
from headway.tasks.recipe import Recipe
from headway.tasks.seq2seq.predict import SearchPredictor, Translations
from headway.tasks.seq2seq.translate import Translation, recipe_of
from headway.tasks.vision.data import Images, decode_images, folder_preprocess, normalised, prepared

AT_ONCE = 64
"""Images, times the beams, that are captioned together on a CPU; elsewhere there is more room."""
ROOM = 1024


def caption(
    model: Model, tokenizer: Tokenizer, count: int, pixels: Callable[[slice], Tensor], beam: Beam
) -> list[list[Translation]]:
    """The best captions of `count` images; `pixels` gives some of them normalised, on the model's device."""
    check_captioner(model)
    device = next(model.parameters()).device
    size = max(1, (AT_ONCE if device.type == "cpu" else ROOM) // beam.width)
    found: list[list[Translation]] = []
    with evaluating(model), torch.autocast(device.type, enabled=False):  # close calls should not turn on the batch
        for at in track(range(0, count, size), "captioning", unit="batches"):
            source = Source(pixels(slice(at, at + size)))
            for hypotheses in beam_search(model, beam, source=source):
                texts = ((tokenizer.decode(h.tokens).strip(), h.score) for h in hypotheses)
                found.append([Translation(text, score, ()) for text, score in texts])
    return found


def caption_images(
    model: Model, tokenizer: Tokenizer, images: Images, preprocess: Preprocess, beam: Beam
) -> list[list[Translation]]:
    """The same of stored images."""
    like = next(model.parameters())
    norm = torch.tensor(preprocess.normalisation, device=like.device)

    def pixels(rows: slice) -> Tensor:
        return prepared(images.pixels(rows).to(like.device), preprocess, norm).to(like.dtype)

    return caption(model, tokenizer, len(images), pixels, beam)


def check_captioner(model: Model) -> None:
    config = model.config
    if config.kind != "encoder-decoder" or config.lm is None or not reads_images(config):
        raise DataError("D001", "this model does not describe images", "train one: headway train caption")


class CaptionPredictor(SearchPredictor[ImageExample]):
    """A captioning model in use."""

    task = Caption()

    @classmethod
    def default_recipe(cls, loaded: Loaded) -> Recipe:
        return recipe_of(loaded.model, loaded.folder, loaded.recipe, cls.task.name, Settings)

    @cached_property
    def preprocess(self) -> Preprocess:
        return folder_preprocess(self.model, self.loaded.folder)

    def predict(self, examples: Sequence[ImageExample]) -> list[Translations]:
        return [Translations(best, field="caption") for best in self.search(examples, self.beam)]

    def search(self, examples: Sequence[ImageExample], beam: Beam) -> list[list[Translation]]:
        """The best captions of each image."""
        check_captioner(self.model)
        like = next(self.model.parameters())
        norm = torch.tensor(self.preprocess.normalisation, device=like.device)

        def pixels(rows: slice) -> Tensor:
            images = decode_images(examples[rows], self.preprocess).to(like.device).float() / 255
            return normalised(images, norm).to(like.dtype)

        return caption(self.model, self.tokenizer, len(examples), pixels, beam)

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.caption.training import evaluate_source

        return evaluate_source(self.model, self.tokenizer, self.preprocess, self.recipe, source)
