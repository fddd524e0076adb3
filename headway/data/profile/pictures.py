"""Survey of images: how many of each class, their sizes, broken files, duplicates; and a contact sheet of them."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headway.config.recipe import DataConfig
from headway.data.files.columns import IMAGE
from headway.data.files.readers import Flaw
from headway.data.images.arrays import IDX, idx_images
from headway.data.images.decode import Pixels, as_pixels, open_image
from headway.data.images.png import grid, png
from headway.data.images.preprocess import Preprocess
from headway.data.images.rows import (
    SUFFIXES,
    ImageRow,
    find_parts,
    image_files,
    other_files,
    read_rows,
)
from headway.data.media.listing import matching
from headway.data.media.store import decoded
from headway.data.profile.media import MediaSurvey, Tally, is_table_of, spread
from headway.errors import counted
from headway.progress import bar
from headway.resources import save_text, write_error

SHEET_CLASSES, SHEET_IMAGES, SHEET_SIDE = 40, 12, 64
"""Classes on a contact sheet, images of each, and their side in pixels."""


@dataclass
class ImageSurvey(MediaSurvey):
    """What a dataset of images holds."""

    images: int = 0
    captions: int = 0
    widths: tuple[int, int, int] = (0, 0, 0)
    """The smallest, the median and the largest."""
    heights: tuple[int, int, int] = (0, 0, 0)
    grey: int = 0

    def lines(self) -> Iterator[str]:
        yield f"{counted(self.images, 'images')}{self.part_text()}"
        if self.images:
            same = self.widths[0] == self.widths[2] and self.heights[0] == self.heights[2]
            sizes = f"{self.widths[1]} × {self.heights[1]} pixels"
            if not same:
                (w0, _, w2), (h0, _, h2) = self.widths, self.heights
                sizes = f"about {sizes}, from {w0} × {h0} to {w2} × {h2}"
            kind = "grey" if self.grey == self.images else f"{self.grey:,} of them grey" if self.grey else "in colour"
            yield f"{'all ' if same else ''}{sizes}, {kind}"
        yield from self.label_lines("image")
        if self.captions:
            yield f"{counted(self.captions, 'captions')}"
        yield from self.trouble_lines("image")


def holds_images(spec: str) -> bool:
    """Whether a spec names images: a folder of them, arrays, or a table with a column of paths or bytes."""
    path = Path(spec).expanduser()
    if path.is_dir():
        pictures = any(each.suffix.lower() in SUFFIXES for each in path.rglob("*") if each.is_file())
        return pictures or bool(idx_images(path)) or any(_is_table_of_images(each) for each in image_files(spec)[:1])
    if not path.is_file():
        return bool(matching(spec, SUFFIXES))
    named = path.suffix.lower() in SUFFIXES or path.suffix.lower() == ".npz" or IDX.fullmatch(path.name) is not None
    return named or _is_table_of_images(path)


def _is_table_of_images(path: Path) -> bool:
    """Columns of sounds do not count, though their paths may be called the same."""
    return path.suffix.lower() == ".npz" or is_table_of(path, IMAGE.names, SUFFIXES)


def survey_images(spec: str, keep: int = 20) -> tuple[ImageSurvey, dict[str, list[Pixels]]]:
    """Survey a dataset, and thumbnails of some images by label, for a contact sheet."""
    found, sizes = ImageSurvey(spec), list[tuple[int, int]]()
    tally, thumbnails = Tally(found, keep), dict[str, list[Pixels]]()
    ready = Preprocess(SHEET_SIDE, SHEET_SIDE)
    with bar("reading images", unit="images") as tick:
        for part, place in (find_parts(spec) or {"": spec}).items():
            for each in decoded(read_rows(place, DataConfig()), _whole):
                tick(1)
                if isinstance(each, Flaw):
                    tally.flaw(each)
                    continue
                row, pixels = each
                tally.example(row.shown, row.label, part, repr(pixels.shape).encode() + pixels.tobytes())
                found.images += 1
                found.grey += pixels.ndim == 2
                found.captions += bool(row.text)
                sizes.append((pixels.shape[1], pixels.shape[0]))
                shown = thumbnails.setdefault("" if row.label is None else str(row.label), [])
                if len(shown) < SHEET_IMAGES:
                    shown.append(ready.pixels(pixels))
    if sizes:
        found.widths, found.heights = (spread([size[i] for size in sizes]) for i in (0, 1))
    tally.finish(other_files(spec))
    return found, thumbnails


def _whole(row: ImageRow) -> Pixels:
    source = row.image
    return as_pixels(source, row.shown) if isinstance(source, np.ndarray) else np.asarray(open_image(source, row.shown))


def write_sheet(path: Path, survey: ImageSurvey, thumbnails: dict[str, list[Pixels]]) -> None:
    """A contact sheet: a PNG with one row for each label, or a page that also names them."""
    shown = sorted(thumbnails.items())[:SHEET_CLASSES]
    if path.suffix.lower() == ".png":
        blank = np.full((3, SHEET_SIDE, SHEET_SIDE), 255, np.uint8)
        rows = [[*images, *[blank] * (SHEET_IMAGES - len(images))] for _, images in shown]
        try:
            path.write_bytes(png(grid([image for row in rows for image in row], SHEET_IMAGES)))
        except OSError as error:
            raise write_error(path, error) from None
        return
    sections = "".join(_section(label, images, survey.labels.get(label, 0)) for label, images in shown)
    said = "".join(f"<p>{html.escape(line)}</p>" for line in survey.lines() if not line.startswith("  "))
    save_text(str(path), PAGE.format(title=html.escape(survey.spec), said=said, sections=sections))


def _section(label: str, images: list[Pixels], count: int) -> str:
    urls = (base64.b64encode(png(image.transpose(1, 2, 0))).decode() for image in images)
    pictures = "".join(f'<img alt="" src="data:image/png;base64,{url}">' for url in urls)
    title = f"{html.escape(label)} <small>{count:,}</small>" if label else "without a label"
    return f"<h2>{title}</h2><div>{pictures}</div>"


PAGE = """<!doctype html>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h2 {{ font-size: 1rem; margin: 1.2rem 0 .3rem; }} small {{ color: #777; font-weight: normal; }}
img {{ width: 64px; margin: 0 4px 4px 0; vertical-align: top; }} p {{ margin: .1rem 0; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #16181c; color: #e6e6e6; }} }}
</style>
<h1>{title}</h1>{said}{sections}
"""
