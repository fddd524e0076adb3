"""Pictures of where a vision model looks, as `headway run --rollout` and `--attention` write them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.cli.run.args import RunArgs
    from headway.cli.run.stream import Say

ROLLOUTS = ("attention", "gradient")
"""Values of rollout=…: attention rollout, and the gradient-weighted one."""


def check_picture(option: str, path: str) -> None:
    """Refuse a name that no picture can be written to, before the model is loaded."""
    if Path(path).suffix.lower() != ".png":
        raise UsageError("U001", f"{option} {path}: the picture is a PNG file", f"headway run M … {option} a.png")
    if not Path(os.path.expanduser(path)).absolute().parent.is_dir():
        raise UsageError("U001", f"{option} {path}: there is no folder {Path(path).parent}", "make the folder first")


def draw_attention(bundle: Any, images: Sequence[Any], args: RunArgs, say: Say) -> None:
    """Write the pictures that the options ask for."""
    from headway.data.images.heatmap import beside, by_head
    from headway.data.images.png import png
    from headway.hub.weights import writing

    shown = bundle.shown_pixels(images)
    made = {}
    if args.rollout:
        gradient = args.settings.get("rollout") == "gradient"
        made[args.rollout] = beside(shown, bundle.rollout(images, gradient=gradient))
    if args.attention:
        made[args.attention] = by_head(shown, bundle.class_attention(images, args.settings.get("layer")))
    for name, sheet in made.items():
        path, data = Path(os.path.expanduser(name)), png(sheet)
        with writing(path.absolute().parent, len(data)):
            path.write_bytes(data)
        say(f"wrote {name}: {sheet.shape[1]} × {sheet.shape[0]} pixels")


def draw_series(name: str, found: Sequence[tuple[Any, Mapping[str, Any]]], say: Say) -> None:
    """Write a picture of series and what is predicted to follow, one below the other."""
    import numpy as np

    from headway.data.images.png import png
    from headway.data.series.plot import picture
    from headway.hub.weights import writing
    from headway.tasks.series.curves import drawn_curves

    sheet = np.concatenate([picture(drawn_curves(example, result)) for example, result in found])
    path, data = Path(os.path.expanduser(name)), png(sheet)
    with writing(path.absolute().parent, len(data)):
        path.write_bytes(data)
    say(f"wrote {name}: {sheet.shape[1]} × {sheet.shape[0]} pixels")
