"""Labels for 1,000 JPEG files on the CPU: headway beside a `transformers` pipeline with the same batch.

    python benchmarks/images_cpu.py                 # made-up photos, a model of ViT-S/16's shape
    python benchmarks/images_cpu.py --count 200     # fewer

Both decode the files, prepare them and compute in float32. The labels have to be the same.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import transformers
from common import alternate, emit, machine, ratio
from PIL import Image

import headway
from headway.config.model import ClassifyHeadConfig
from headway.config.presets import vit
from headway.data.images.preprocess import FILE, Preprocess
from headway.hub.folder import save_model, write_side_files
from headway.model.model import Transformer

LABELS = tuple(f"class {i}" for i in range(10))


def made_up(folder: Path, count: int) -> list[str]:
    """Photos of unequal size: smooth noise, which a JPEG file holds well."""
    dice, paths = np.random.default_rng(0), []
    for number in range(count):
        coarse = dice.integers(0, 255, (12, 16, 3), dtype=np.uint8)
        size = int(dice.integers(300, 500)), int(dice.integers(240, 400))
        path = folder / f"{number}.jpg"
        Image.fromarray(coarse).resize(size, 3).save(path, quality=90)
        paths.append(str(path))
    return paths


def small_vit(folder: Path) -> Path:
    """12 layers, 384 wide, 6 heads, patches of 16 pixels; its weights are those of the seed."""
    torch.manual_seed(0)
    config = replace(vit(12, 384, 6), classify=ClassifyHeadConfig(labels=len(LABELS)), labels=LABELS)
    model = Transformer(config)
    for parameter in model.classify.parameters():
        torch.nn.init.normal_(parameter)  # labels that differ from image to image
    made = save_model(model, folder / "model")
    write_side_files(made, {FILE: Preprocess(224, 224, "squash", 2).to_dict()})
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        paths, folder = made_up(Path(place), given.count), small_vit(Path(place))
        ours = headway.load(folder)
        theirs = transformers.pipeline("image-classification", model=str(folder), batch_size=given.batch, top_k=1)

        def pipeline() -> list[str]:
            return [found[0]["label"] for found in theirs(paths)]

        def mine() -> list[str]:
            return [found.label for found in ours.classify(paths)]

        same = float(np.mean([a == b for a, b in zip(mine(), pipeline(), strict=True)]))
        times = alternate({"transformers": pipeline, "headway": mine}, given.rounds, warm=0)
    emit(
        images=given.count,
        batch=given.batch,
        transformers_s=min(times["transformers"]),
        headway_s=min(times["headway"]),
        ratio=ratio(times, "headway", "transformers"),
        same_labels=same,
        transformers=transformers.__version__,
        **machine(),
    )


if __name__ == "__main__":
    main()
