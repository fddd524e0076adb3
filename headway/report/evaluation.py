"""An evaluation as blocks: tables, calibration, mistakes. A terminal and the report's page render the same blocks.

The report reads them from run/evaluation.json and leaves out what does not have the expected type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from headway.report import format as w
from headway.runs.compare import SLICE_KEYS
from headway.runs.events import as_float

MOST_LABELS, MOST_ROWS, LETTERS, NAME = 40, 60, 300, 40
MOST_METRICS, MOST_LINES = 4, 6
PICTURE_URL = re.compile(r"data:image/(?:png|svg\+xml);base64,[A-Za-z0-9+/]+=*")
"""A picture in a report: the page may load nothing, so it holds the pixels, or the lines and letters of a drawing."""


@dataclass(frozen=True)
class Table:
    """Cells as text; the first cell of a row is its title."""

    title: str
    head: list[str]
    rows: list[list[str]]
    shares: list[list[float]] | None = None
    """The shade of each cell after the first, from 0 to 1."""


@dataclass(frozen=True)
class Calibration:
    """Accuracy by confidence."""

    error: float | None
    """Expected calibration error: the mean difference between confidence and accuracy."""
    bins: list[tuple[float, float, float | None]]
    """Confidence, accuracy, number of examples."""


@dataclass(frozen=True)
class Chart:
    """Curves over a common axis; a terminal shows none."""

    title: str
    axis: str
    """What the axis counts."""
    lines: list[tuple[str, list[float], list[float]]]
    """Name, places on the axis, values; NaN where there is none."""
    log: bool = False
    """Also draw it on a logarithmic scale, to switch to."""


@dataclass(frozen=True)
class Mistakes:
    """Texts with a wrong prediction, the most confident first, each with label and prediction."""

    rows: list[tuple[str, str]]


@dataclass(frozen=True)
class Pictures:
    """Pictures with a line below each; a terminal shows none."""

    title: str
    images: list[tuple[str, str]]
    """A data URL, and a line."""


Block = Table | Calibration | Chart | Mistakes | Pictures


def metrics_table(found: Any) -> Table | None:
    """Metrics with their confidence intervals."""
    rows = []
    for name, three in found.items() if isinstance(found, Mapping) else ():
        values = [as_float(x) for x in three] if isinstance(three, Sequence) and len(three) == 3 else []
        if values:
            value, low, high = (w.fixed(x) for x in values)
            rows.append([_name(name), value, f"{low} … {high}"])
    return Table("", ["", "value", "95 % interval"], rows) if rows else None


def blocks(details: Any) -> list[Block]:
    """The blocks of an evaluation, in the order in which they are shown."""
    if not isinstance(details, Mapping):
        return []
    found = (
        _confusion(details.get("confusion")),
        _by(details.get("labels"), "label by label", "label", partial(_key, "label"), ("precision", "recall", "f1")),
        _calibration(details.get("calibration")),
        _by(details.get("by_answer"), "with an answer and without", "", partial(_key, "kind")),
        _by(details.get("by_question"), "by question word", "", partial(_key, "kind")),
        _by(details.get("by_task"), "by task", "", partial(_key, "kind")),
        _by(details.get("by_section"), "by section of the file", "", partial(_key, "kind")),
        _by(details.get("by_model"), "beside simple models", "", partial(_key, "kind")),
        _by(
            details.get("slices"),
            str(details.get("slices_title", "by length"))[:NAME],
            _name(details.get("unit", "tokens")),
            _range,
        ),
        _by(
            details.get("by_guidance"),
            "drawn images beside real ones, by a classifier that the run has trained",
            "",
            partial(_key, "kind"),
        ),
        *map(_chart, _mappings(details.get("charts"))),
        _radii(details.get("recurrent_matrices")),
        _pictures(details.get("pictures"), details.get("pictures_title")),
        _mistakes(details.get("worst")),
    )
    return [block for block in found if block is not None]


def _confusion(found: Any) -> Table | None:
    """One row per true label, shaded by the share of each predicted label."""
    if not isinstance(found, Mapping):
        return None
    labels, counts = found.get("labels"), found.get("counts")
    if not isinstance(labels, list) or not isinstance(counts, list) or len(labels) > MOST_LABELS:
        return None
    if not all(isinstance(row, list) for row in counts):
        return None
    rows, shares = [], []
    for name, row in zip(labels, counts, strict=False):
        values = [as_float(x) or 0.0 for x in row]
        if str(name).startswith("(") and not any(values):  # a label that only predictions can have
            continue
        rows.append([_name(name), *map(w.count, values)])
        shares.append([value / (sum(values) or 1.0) for value in values])
    return Table(
        "confusion matrix: each row is a label, each column what the model predicted for it",
        ["label", *map(_name, labels)],
        rows,
        shares,
    )


def _by(
    found: Any, title: str, head: str, name: Callable[[Mapping[str, Any]], str], metrics: Sequence[str] = ()
) -> Table | None:
    """A table with one row for each part of the examples: its name, its size, its metrics."""
    rows = _mappings(found)
    names = metrics or _metrics(rows)
    cells = [[name(row), _count(row), *(w.fixed(as_float(row.get(key))) for key in names)] for row in rows]
    return Table(title, [head, "examples", *map(_name, names)], cells) if cells else None


def _calibration(found: Any) -> Calibration | None:
    if not isinstance(found, Mapping):
        return None
    read = [[as_float(b.get(k)) for k in ("confidence", "right", "examples")] for b in _mappings(found.get("bins"))]
    bins = [(sure, right, examples) for sure, right, examples in read if sure is not None and right is not None]
    return Calibration(as_float(found.get("error")), bins) if bins else None


def _chart(found: Mapping[str, Any]) -> Chart | None:
    """Curves whose values stand at `first`, `first` + `step` …; a value that is no number is a gap."""
    first, step = as_float(found.get("first", 0)), as_float(found.get("step", 1))
    lines = []
    for line in _mappings(found.get("lines"))[:MOST_LINES]:
        given = line.get("y")
        values = [as_float(y) for y in given] if isinstance(given, list) else []
        y = [math.nan if value is None else value for value in values]
        if first is not None and step is not None and not all(map(math.isnan, y)):
            lines.append((_name(line.get("name")), [first + step * place for place in range(len(y))], y))
    log = found.get("log") is True
    return Chart(_truncate(found.get("title")), _name(found.get("x_name")), lines, log) if lines else None


def _radii(found: Any) -> Table | None:
    rows = [[_name(row.get("matrix")), w.fixed(as_float(row.get("spectral_radius")))] for row in _mappings(found)]
    title = "matrices from state to state; without gates, gradients vanish where the spectral radius is below 1"
    return Table(title, ["matrix", "spectral radius"], rows) if rows else None


def _range(row: Mapping[str, Any]) -> str:
    return f"{w.count(as_float(row.get('from')))} … {w.count(as_float(row.get('to')))}"


def _mistakes(found: Any) -> Mistakes | None:
    rows = []
    for row in _mappings(found):
        line, sure = as_float(row.get("line")), as_float(row.get("probability"))
        # made-up data have no file, and an image or a sound is a file of its own, without lines
        where = f"line {line:.0f}: " if line and row.get("file") != "" else ""
        how = "" if sure is None else f" ({w.fixed(sure)})"
        said = f"{where}predicted {_plain(row.get('predicted'))}{how}, labelled {_plain(row.get('label'))}"
        rows.append((_truncate(row.get("text")), _truncate(said)))
    return Mistakes(rows) if rows else None


def _pictures(found: Any, title: Any) -> Pictures | None:
    images = [(str(row.get("png", "")), _truncate(row.get("text"))) for row in _mappings(found)]
    images = [(png, text) for png, text in images if PICTURE_URL.fullmatch(png)]
    usual = "pictures with a wrong prediction, the most confident first"
    return Pictures(title if isinstance(title, str) else usual, images) if images else None


def _metrics(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for name in dict.fromkeys(k for row in rows for k in row) if name not in SLICE_KEYS][:MOST_METRICS]


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(v) for v in value) or "none"
    return w.fixed(value) if isinstance(value, float) else str(value)


def _key(key: str, row: Mapping[str, Any]) -> str:
    return _name(row.get(key))


def _count(row: Mapping[str, Any]) -> str:
    return w.count(as_float(row.get("examples")))


def _name(value: object) -> str:
    return _truncate(str(value).replace("_", " "), NAME)


def _truncate(value: Any, letters: int = LETTERS) -> str:
    text = str(value)
    return text if len(text) <= letters else text[:letters] + "…"


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)][:MOST_ROWS] if isinstance(value, list) else []
