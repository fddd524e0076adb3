"""Predictions for the page: a filled form to examples, predictions as plain values, pictures if a task has them."""

from __future__ import annotations

import base64
import math
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.api.predictions import run_options
from headway.config.recipe import DataConfig
from headway.data.files.rows import BadRows
from headway.data.graphs.graph import Graph
from headway.errors import ConfigError, DataError
from headway.studio.play.describe import NUMBERS, tasks_of
from headway.tasks.image import reads_images

if TYPE_CHECKING:
    import threading

    from headway.api.bundle import Bundle
    from headway.data.images.decode import Pixels
    from headway.tasks.base import Task

Json = dict[str, Any]
DRAWN_NODES = 40
"""Nodes of a graph that can still be told apart on a circle."""
OWN = ("count", "seed", "steps", "guidance", "look")
"""Options that the page itself turns into inputs or pictures."""


@dataclass(frozen=True)
class Asked:
    """A request to /v1/run as `serve.predict.Tasks` checks it."""

    input: list[Any]
    pair: str | None = None
    context: str | None = None


def predict(bundle: Bundle, lock: threading.Lock, name: str, form: Mapping[str, Any]) -> Json:
    """What the task says of a filled form. Empty fields are left out."""
    given = filled(form)
    tasks = tasks_of(bundle)
    verb = tasks.choose(name)
    task = tasks.tasks[verb]
    check_form(task, given)
    examples = _examples(task, given) or tasks.check(_asked(task, given), verb)[0]
    options = {key: value for key, value in given.items() if key in task.options and key not in (*OWN, task.second)}
    predictor = task.load_predictor()(bundle, None, run_options(**options))
    began = time.perf_counter()
    with lock:
        results = [_finite(each.to_dict()) for each in predictor.predict(examples)]
        seconds = time.perf_counter() - began
        looks = _pictures(bundle, task, examples, str(given.get("look", "")))
    found = list(zip(examples, results, strict=True))
    count, limit = predictor.truncated(examples)
    return {
        "results": results,
        "inputs": [task.echo(example) for example in examples],
        "lines": list(task.render(found, colours=False)),
        "truncated": limit if count else 0,
        "seconds": seconds,
        "written": {name: write(results[0]) for name, write in task.formats.items()},
        "curves": _curves(found) if "plot" in task.options else [],
        "graph": _graph(examples[0]) if task.takes == "graph" else None,
        **looks,
    }


def filled(form: Mapping[str, Any]) -> Json:
    """A form without its empty fields."""
    return {name: value for name, value in form.items() if value not in ("", None, False)}


def check_form(task: Task, given: Mapping[str, Any]) -> None:
    """A request may bring what no form does."""
    for name, value in given.items():
        nested = name == "input" and task.takes in ("table", "graph") and isinstance(value, dict | list)
        if not isinstance(value, str) and not nested and not (name != "input" and isinstance(value, int | float)):
            raise ConfigError("C002", f"{name}: expected a text, found {type(value).__name__}")
    for name, (least, most) in NUMBERS.items():
        value = given.get(name, least)
        if type(value) is not int or not least <= value <= most:
            raise ConfigError("C003", f"{name} = {str(value)[:20]} should be a whole number from {least} to {most:,}")


def _asked(task: Task, given: Mapping[str, Any]) -> Asked:
    """The inputs of a form: one, one in each line, or as many images as are to be drawn."""
    value = given.get("input", "")
    second = {task.second: str(given[task.second])} if task.second in given else {}
    if "class" in task.options:
        return Asked([*_drawings(value, given)])
    if task.joined:
        return Asked([{task.takes: value, task.joined: given[task.joined]} if task.joined in given else value])
    if "nearest" in task.options and task.takes == "text":
        return Asked([line for line in str(value).splitlines() if line.strip()] or [""])
    if "labels" in given:
        return Asked([{"image": value, "labels": given["labels"]}])
    return Asked([value], **second)


def _drawings(label: Any, given: Mapping[str, Any]) -> list[Json]:
    asked = {key: given[key] for key in ("seed", "steps", "guidance") if key in given}
    return [{"class": label, "number": number, **asked} for number in range(given.get("count", 1))]


def _examples(task: Task, given: Mapping[str, Any]) -> list[Any]:
    """The example of a table with a header, as it stands in a file; none for other inputs."""
    text = given.get("input")
    if task.takes != "table" or not isinstance(text, str) or "\n" not in text.strip():
        return []
    head = text.strip().splitlines()[0]
    if head[0] in "{[" or not re.search(r"[A-Za-z_]", head):
        return []
    with tempfile.TemporaryDirectory(prefix="headway-") as folder:
        path = Path(folder) / ("pasted.tsv" if "\t" in head else "pasted.csv")
        path.write_text(text, encoding="utf-8")
        found = [item.example for item in task.inputs(str(path), DataConfig(), BadRows())]
    if not found:
        raise DataError("D002", "the table has no rows", "paste a header and the lines below it")
    return found[:1]


def _curves(found: Sequence[tuple[Any, Json]]) -> list[Json]:
    """What was read and what is predicted to follow, as numbers to draw."""
    from headway.tasks.series.curves import drawn_curves

    drawn = [curve for example, result in found for curve in drawn_curves(example, result)]
    return [{each.name: _plain(getattr(curve, each.name)) for each in fields(curve)} for curve in drawn]


def _graph(example: Any) -> Json | None:
    """A graph that is small enough to draw: names and values of its nodes, and its edges."""
    if not isinstance(example, Graph) or len(example.nodes) > DRAWN_NODES:  # a package of others may have its own
        return None
    told = [", ".join(str(value) for value in values.values() if value not in ("", None)) for values in example.nodes]
    names = [example.node_name(number) for number in range(len(told))]
    return {"names": names, "values": told, "edges": example.edges.tolist()}


def _plain(value: Any) -> Any:
    """Arrays as lists."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return _finite(value.tolist()) if hasattr(value, "tolist") else value


def _finite(value: Any) -> Any:
    """The same without infinities and NaN, which JSON does not have: they are null."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _pictures(bundle: Bundle, task: Task, examples: Sequence[Any], look: str) -> Json:
    """The image as the model read it, and where the model looked."""
    from headway.data.images.heatmap import by_head, overlaid, picture

    if task.takes != "image" or not reads_images(bundle.config):
        return {}
    images = [example.image for example in examples]
    shown = bundle.shown_pixels(images)
    found = {"picture": _url(picture(shown[0]))}
    if "rollout" in task.options and look in ("rollout", "gradient"):
        found["look"] = _url(overlaid(shown[0], bundle.rollout(images, gradient=look == "gradient")[0]))
    elif "rollout" in task.options and look == "heads":
        found["look"] = _url(by_head(shown[:1], bundle.class_attention(images)[:1], columns=3, side=144))
    return found


def _url(pixels: Pixels) -> str:
    from headway.data.images.png import png

    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()
