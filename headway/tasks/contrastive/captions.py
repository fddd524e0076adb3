"""Images with captions, for tasks that learn from both: which rows count, facts of a run, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.config.model import PatchesConfig
from headway.config.shape import vision_config
from headway.data.batching.padding import Examples
from headway.data.files.rows import BadRows
from headway.data.images.png import enlarged, grid, png
from headway.data.images.preprocess import Preprocess
from headway.data.images.rows import ImageRow
from headway.data.media.listing import columns_there
from headway.errors import DataError
from headway.tasks.image_classification.training import SHOWN, SHOWN_SIDE, thumbnail
from headway.tasks.recipe import Recipe
from headway.tasks.vision.data import ImageData, Images, load_images, read_store


def captioned(rows: Sequence[ImageRow]) -> list[ImageRow]:
    """Rows with a caption; an error where none has one."""
    found = [row for row in rows if row.text.strip()]
    if not found:
        where = rows[0].file if rows else "the data"
        hint = "a table with a column of images and one of captions (data.text=COLUMN), such as metadata.csv"
        hint += columns_there(rows[0].file, rows[0].line) if rows else ""
        raise DataError("D004", f"{where}: the images have no captions", hint)
    return found


def read_captioned(recipe: Recipe, bad: BadRows) -> ImageData:
    """The images of a recipe that have a caption."""
    return load_images(recipe, bad, captioned)


def captioned_part(source: str, recipe: Recipe, preprocess: Preprocess, bad: BadRows) -> Images:
    """The images of a spec that have a caption, as a trained model reads them."""
    store = read_store(source, recipe.data, preprocess, bad)
    return Images(store, captioned(store.rows))


def evaluated_part(source: str, recipe: Recipe, preprocess: Preprocess, bad: BadRows) -> Images:
    """Images of the user's; without a source, what the run has not learned from."""
    source = source or recipe.data.test or recipe.data.valid
    return captioned_part(source, recipe, preprocess, bad) if source else read_captioned(recipe, bad).valid


def new_front(recipe: Recipe, preprocess: Preprocess) -> PatchesConfig:
    """The front end for images of a new model; a pretrained one has its own."""
    front = vision_config(recipe.model, preprocess.size, preprocess.channels).source
    assert isinstance(front, PatchesConfig)
    return front


def caption_facts(data: ImageData, each: int, vocab: int, train: Examples, valid: Examples) -> dict[str, Any]:
    """Facts of a run: `each` image has so many tokens, beside those of its caption."""
    return {
        **data.about,
        "samples": len(train),
        "tokens": len(train) * each + int(train.lengths.sum()),
        "valid_samples": len(valid),
        "valid_tokens": len(valid) * each + int(valid.lengths.sum()),
        "vocab": vocab,
        "size": data.preprocess.size,
        "channels": data.preprocess.channels,
        "cut": int(train.truncated.sum() + valid.truncated.sum()),
        "length_99": train.length_99,
    }


def sheet(images: Images, count: int) -> bytes:
    """The first images side by side, as a PNG file."""
    pixels = [images.store.pixels[row.place] for row in images.rows[:count]]
    return png(enlarged(grid(pixels, count), 2 * SHOWN_SIDE))


def pictures(images: Images, texts: Sequence[str], otherwise: str) -> list[dict[str, str]]:
    """The first images for a report, with a text for each, and after `otherwise` the caption where it differs."""
    return [
        {
            "png": thumbnail(images.store.pixels[row.place]),
            "text": text if text == row.text else f"{text} — {otherwise}: {row.text}",
        }
        for row, text in zip(images.rows[:SHOWN], texts, strict=False)
    ]
