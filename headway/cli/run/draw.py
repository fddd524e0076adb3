"""`headway run` with a model that draws images: a grid of them in a PNG file, one class in each row."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from headway.cli.run.args import RunArgs, grid_size
from headway.cli.run.screen import colours
from headway.cli.run.stream import Say
from headway.errors import DataError, UsageError, counted
from headway.hub.weights import writing
from headway.tasks.base import Task

COLUMNS = 8
"""Images of each class where --grid does not say how many."""
LEAST = 256
"""Pixels that a picture has at least: small images are enlarged."""


def draw(task: Task, args: RunArgs, predictor: Any, say: Say) -> None:
    """Draw images of the classes of the command line. With --json they are lines on stdout, and no file is written."""
    from headway.data.images.png import enlarged, grid, png

    labels = predictor.model.config.labels
    given = [*args.texts, *args.classes]
    classes = [name for names in given for name in ([names] if names in labels else names.split(","))]
    rows, columns = grid_size(args.grid) if args.grid else (len(classes), 1 if args.json else COLUMNS)
    if rows < len(classes):
        hint = f"such as --grid {len(classes)}x{columns}"
        raise UsageError("U001", f"--grid {args.grid} has {rows} rows for {counted(len(classes), 'classes')}", hint)
    if args.out and not args.out.lower().endswith(".png"):
        raise UsageError("U001", f"--out {args.out}: images are written as a PNG file", "such as --out grid.png")
    examples = [_example(task, args, raw) for raw in _raws(classes, rows, columns)]
    found = predictor.predict(examples)
    results = [each.to_dict() for each in found]
    if args.json:
        for result in results:
            print(json.dumps(result, ensure_ascii=False))
        return
    path = Path(args.out) if args.out else _free_name(classes[0])
    data = png(enlarged(grid([each.image for each in found], columns), LEAST))
    with writing(path, len(data)):
        path.write_bytes(data)
    print(path)
    for line in task.render(list(zip(examples, results, strict=True)), colours=colours()):
        say(line)


def _raws(classes: list[str], rows: int, columns: int) -> list[dict[str, Any]]:
    """One class in each row, in turn; images of a class are numbered, whatever other classes are asked for."""
    found, numbers = [], dict.fromkeys(classes, 0)
    for row in range(rows):
        name = classes[row % len(classes)]
        for _ in range(columns):
            found.append({"class": name, "number": numbers[name]})
            numbers[name] += 1
    return found


def _example(task: Task, args: RunArgs, raw: dict[str, Any]) -> Any:
    given = {"seed": args.seed, "steps": args.steps, "guidance": args.guidance}
    try:
        return task.parse(raw | {name: value for name, value in given.items() if value is not None})
    except DataError as error:
        raise UsageError("U001", error.message, error.hint) from None


def _free_name(label: str) -> Path:
    """A name in this folder that no file has yet: circle.png, circle-2.png …"""
    stem = re.sub(r"[^\w-]+", "-", label)[:40].strip("-") or "images"
    names = (Path(f"{stem}{f'-{number}' if number > 1 else ''}.png") for number in range(1, 1 << 20))
    return next(name for name in names if not name.exists())
