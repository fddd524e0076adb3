"""Survey of images: how many of each class, their sizes, broken files, duplicates; and a contact sheet of them."""

from __future__ import annotations

import base64
import hashlib
import html
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headway.config.recipe import DataConfig
from headway.data.files.columns import IMAGE
from headway.data.files.locate import file_format
from headway.data.files.readers import Flaw
from headway.data.files.rows import peek
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
from headway.data.media.listing import TABLES, matching
from headway.data.media.store import decoded
from headway.errors import HeadwayError, counted
from headway.jsonfile import show
from headway.progress import bar
from headway.resources import save_text, write_error

SHEET_CLASSES, SHEET_IMAGES, SHEET_SIDE = 40, 12, 64
"""Classes on a contact sheet, images of each, and their side in pixels."""
SHOWN_CLASSES, SHOWN_DUPLICATES = 12, 5


@dataclass
class ImageSurvey:
    """What a dataset of images holds."""

    spec: str
    images: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    """Images of each part of the dataset, if it is divided."""
    labels: dict[str, int] = field(default_factory=dict)
    captions: int = 0
    widths: tuple[int, int, int] = (0, 0, 0)
    """The smallest, the median and the largest."""
    heights: tuple[int, int, int] = (0, 0, 0)
    grey: int = 0
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    """Images whose pixels are equal: the later one and the first one."""
    across: int = 0
    """Duplicates between training data and other parts."""
    bad: int = 0
    bad_lines: tuple[str, ...] = ()
    others: list[str] = field(default_factory=list)
    """Files that are no images."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        parts = ", ".join(f"{count:,} {part}" for part, count in self.parts.items())
        yield f"{counted(self.images, 'images')}{f': {parts}' if parts else ''}"
        if self.images:
            same = self.widths[0] == self.widths[2] and self.heights[0] == self.heights[2]
            sizes = f"{self.widths[1]} × {self.heights[1]} pixels"
            if not same:
                (w0, _, w2), (h0, _, h2) = self.widths, self.heights
                sizes = f"about {sizes}, from {w0} × {h0} to {w2} × {h2}"
            kind = "grey" if self.grey == self.images else f"{self.grey:,} of them grey" if self.grey else "in colour"
            yield f"{'all ' if same else ''}{sizes}, {kind}"
        yield from self._label_lines()
        if self.captions:
            yield f"{counted(self.captions, 'captions')}"
        if self.duplicates:
            some = ", ".join(f"{a} = {b}" for a, b in self.duplicates[:SHOWN_DUPLICATES])
            between = f", {self.across:,} of them of training images in other parts" if self.across else ""
            yield f"{counted(len(self.duplicates), 'duplicates')}{between}: {some}"
        if self.others:
            yield f"{counted(len(self.others), 'files')} left out, no images: {', '.join(self.others[:3])}"
        if self.bad:
            yield f"{counted(self.bad, 'bad images')}, the first:"
            yield from (f"  {line}" for line in self.bad_lines[:SHOWN_DUPLICATES])

    def _label_lines(self) -> Iterator[str]:
        if not self.labels:
            return
        yield f"{counted(len(self.labels), 'labels')}:"
        ordered = sorted(self.labels.items(), key=lambda pair: -pair[1])
        for name, count in ordered[:SHOWN_CLASSES]:
            yield f"  {count:8,}  {count / sum(self.labels.values()):6.1%}  {name}"
        if len(ordered) > SHOWN_CLASSES:
            yield f"  … and {len(ordered) - SHOWN_CLASSES:,} more, the rarest with {ordered[-1][1]:,}"
        if single := [name for name, count in ordered if count == 1]:
            yield f"  {counted(len(single), 'labels')} with a single image: {', '.join(single[:3])}"


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
    """Whether a column with a usual name holds the bytes of images, or paths that end as those of images do."""
    if file_format(path)[0] not in TABLES:
        return path.suffix.lower() == ".npz"
    try:
        values = [row.values for row in peek(path)[1][:5]]
    except HeadwayError:
        return False
    for row in values:
        for name in (each for each in row if each.lower() in IMAGE.names):
            value = row[name]
            if isinstance(value, bytes) or (isinstance(value, dict) and "bytes" in value):
                return True
            if isinstance(value, str) and Path(value).suffix.lower() in SUFFIXES:
                return True
    return False


def survey_images(spec: str, keep: int = 20) -> tuple[ImageSurvey, dict[str, list[Pixels]]]:
    """Survey a dataset, and thumbnails of some images by label, for a contact sheet."""
    found, seen, sizes = ImageSurvey(spec), dict[bytes, tuple[str, str]](), list[tuple[int, int]]()
    labels, thumbnails, flaws = Counter[str](), dict[str, list[Pixels]](), list[str]()
    ready = Preprocess(SHEET_SIDE, SHEET_SIDE)
    parts = find_parts(spec) or {"": spec}
    with bar("reading images", unit="images") as tick:
        for part, place in parts.items():
            for each in decoded(read_rows(place, DataConfig()), _whole):
                tick(1)
                if isinstance(each, Flaw):
                    found.bad += 1
                    where = f"{show(each.file)}:{each.line}" if each.line else show(each.file)
                    flaws += [f"{where}: {each.reason}"][: keep - len(flaws)]
                    continue
                row, pixels = each
                _count(found, row, pixels, part, seen)
                sizes.append((pixels.shape[1], pixels.shape[0]))
                label = "" if row.label is None else str(row.label)
                labels[label] += row.label is not None
                shown = thumbnails.setdefault(label, [])
                if len(shown) < SHEET_IMAGES:
                    shown.append(ready.pixels(pixels))
    if sizes:
        found.widths, found.heights = (_spread([size[i] for size in sizes]) for i in (0, 1))
    found.labels, found.bad_lines = {k: v for k, v in sorted(labels.items()) if v}, tuple(flaws)
    found.others = other_files(spec)
    return found, thumbnails


def _whole(row: ImageRow) -> Pixels:
    source = row.image
    return as_pixels(source, row.shown) if isinstance(source, np.ndarray) else np.asarray(open_image(source, row.shown))


def _count(found: ImageSurvey, row: ImageRow, pixels: Pixels, part: str, seen: dict[bytes, tuple[str, str]]) -> None:
    found.images += 1
    found.grey += pixels.ndim == 2
    found.captions += bool(row.text)
    if part:
        found.parts[part] = found.parts.get(part, 0) + 1
    digest = hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).digest()
    if digest in seen:
        name, first_part = seen[digest]
        found.duplicates.append((row.shown, name))
        found.across += first_part != part and "train" in (first_part, part)
    else:
        seen[digest] = row.shown, part


def _spread(values: list[int]) -> tuple[int, int, int]:
    values = sorted(values)
    return values[0], values[len(values) // 2], values[-1]


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
