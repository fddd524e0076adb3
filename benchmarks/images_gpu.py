"""Training on a folder of JPEG files: the loop of `headway train` beside its bare step, for ViT-S/16.

    python benchmarks/images_gpu.py [--count 4096] [--batch 256] [--steps 150]

"decode" is the pass that decodes and resizes every file into a mapped file, once for all runs. "bare" is the compiled
step on one batch that is ready on the GPU, normalised, without augmentation; "loop" is all that a run does in a step:
reading the mapped file, copying, augmentation, logging. Both train the same model on the same number of images.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from common import clean, emit, machine
from loop import DEVICE, bare, whole
from PIL import Image

from headway.model.model import Transformer
from headway.tasks.image_classification.training import ImageClassificationTraining
from headway.tasks.recipe import Recipe, load_recipe
from headway.tasks.vision.data import normalised
from headway.train.distributed import World
from headway.train.log.events import Log
from headway.train.loop import Loop
from headway.train.optim.optimizer import make_optimizer

CLASSES = 10


def photos(folder: Path, count: int) -> None:
    """JPEG files of unequal size in a folder for each class."""

    def make(number: int) -> None:
        dice = np.random.default_rng(number)
        coarse = dice.integers(0, 255, (12, 16, 3), dtype=np.uint8)
        size = int(dice.integers(300, 500)), int(dice.integers(260, 400))
        Image.fromarray(coarse).resize(size, 3).save(folder / str(number % CLASSES) / f"{number}.jpg", quality=90)

    for name in range(CLASSES):
        (folder / str(name)).mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        list(pool.map(make, range(count)))


def recipe_of(folder: Path, args: argparse.Namespace) -> Recipe:
    words = (
        *(f"data.train={folder}", f"data.size={args.size}", "model.depth=12", f"model.width={args.width}"),
        *(f"model.heads={args.width // 64}", "model.patch=16", "images.flip=true", "images.crop=0.35"),
        *("images.policy=trivial", f"train.batch={args.batch}", "train.lr=1e-4"),
    )
    return load_recipe("images", [*words, f"train.steps={args.steps}"])[1]


def build(training: ImageClassificationTraining, steps: int, batch: int) -> Loop:
    torch.manual_seed(0)
    model = Transformer(training.config(None)).to(DEVICE).train()  # type: ignore[arg-type]
    every = steps + 1
    config = replace(
        training.recipe.train, steps=steps, epochs=None, eval_every=every, sample_every=every, save_every=every
    )
    world, width = World(0, 1, DEVICE), model.config.output_stack.d_model
    return Loop(model, training, make_optimizer(model, config, width), config, training.plan(batch), world, 1)


def alone(training: ImageClassificationTraining, args: argparse.Namespace) -> float:
    """Seconds of a bare step on images that are ready: no augmentation, nothing copied."""

    def loss(model: Transformer, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = model.classify(model(images).hidden)
        return torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")

    loop = build(training, args.steps, args.batch)
    loop.compute.loss = torch.compile(loss) if DEVICE.type == "cuda" else loss
    made = training.batch(np.arange(args.batch)).tensors
    size = training.data.preprocess.size
    pixels = made[0][..., :size, :size].float().to(DEVICE) / 255  # type: ignore[index]
    batch = [normalised(pixels, training.data.norm.to(DEVICE)), made[-2].to(DEVICE)]  # type: ignore[union-attr]
    bare(loop, batch, 5)
    return min(bare(loop, batch, args.steps // 3) for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("count", 4096), ("batch", 256), ("steps", 150), ("size", 224), ("width", 384)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    emit(**machine())
    with tempfile.TemporaryDirectory() as place:
        os.environ["HEADWAY_CACHE"] = f"{place}/cache"
        photos(Path(place) / "photos", args.count)
        recipe = recipe_of(Path(place) / "photos", args)
        start = time.perf_counter()
        training = ImageClassificationTraining.read(recipe)
        decode = time.perf_counter() - start
        emit(images=args.count, decode_s=decode, decode_images_s=args.count / decode)
        bare_s = alone(training, args)
        clean()
        log = Log(Path(place) / "log.jsonl")
        loop_s = whole(build(training, args.steps, args.batch), log, [])
        log.close()
    emit(
        batch=args.batch,
        bare_images_s=args.batch / bare_s,
        loop_images_s=args.batch / loop_s,
        share=bare_s / loop_s,
        tokens=training.tokens,
    )


if __name__ == "__main__":
    main()
