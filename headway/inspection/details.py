"""What a run's evaluation has to show beside its figures, as a section of the report.

It comes from run/evaluation.json, a file like any other: what is not of the kind expected is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import HeadwayError
from headway.inspection import wording as w
from headway.inspection.charts import Line, Panel, Scale, draw
from headway.inspection.tape import real
from headway.jsonfile import read_json

FILE = "evaluation.json"
LIMIT = 4_000_000
MOST_LABELS, MOST_ROWS, LETTERS = 40, 60, 300
ON = {"test": "the test data", "valid": "the validation data"}
KNOWN = ("from", "to", "examples")


def read_details(folder: Path) -> dict[str, Any] | None:
    """The evaluation that a finished run has left; None where there is none that can be read."""
    try:
        return read_json(folder / "run" / FILE, limit=LIMIT)
    except HeadwayError:
        return None


def section(found: Mapping[str, Any] | None) -> str:
    """Figures with intervals, who is taken for whom, whether confidence is deserved, and where it goes wrong."""
    if not isinstance(found, Mapping):
        return ""
    details = found.get("details")
    inside = details if isinstance(details, Mapping) else {}
    parts = (
        _figures(found.get("figures")),
        _confusion(inside.get("confusion")),
        _labels(inside.get("labels")),
        _calibration(inside.get("calibration")),
        _kinds(inside.get("by_answer"), "With an answer and without"),
        _kinds(inside.get("by_question"), "By the word that asks"),
        _slices(inside.get("slices"), inside.get("unit", "tokens")),
        _worst(inside.get("worst")),
    )
    body = "".join(part for part in parts if part)
    on = ON.get(str(found.get("data")), "the data")
    count = w.count(real(found.get("examples")))
    return f"<section><h2>On {on}: {escape(count)} examples</h2>{body}</section>" if body else ""


def _figures(figures: Any) -> str:
    rows = []
    for name, three in figures.items() if isinstance(figures, Mapping) else ():
        numbers = [real(x) for x in three] if isinstance(three, Sequence) and len(three) == 3 else []
        if numbers:
            value, low, high = (escape(w.fixed(x)) for x in numbers)
            rows.append([_words(name), value, f"{low} … {high}"])
    return _table(["", "value", "95 % of resamples"], rows)


def _confusion(found: Any) -> str:
    """A row for each true label, shaded by the share of it that a label was given to."""
    if not isinstance(found, Mapping):
        return ""
    labels, counts = found.get("labels"), found.get("counts")
    if not isinstance(labels, list) or not isinstance(counts, list) or len(labels) > MOST_LABELS:
        return ""
    if not all(isinstance(row, list) for row in counts):
        return ""
    rows = []
    for name, row in zip(labels, counts, strict=False):
        values = [real(x) or 0.0 for x in row]
        whole = sum(values) or 1.0
        cells = "".join(
            f'<td style="background:color-mix(in srgb, var(--train) {70 * v / whole:.0f}%, transparent)">'
            f"{escape(w.count(v))}</td>"
            for v in values
        )
        rows.append(f'<tr><th scope="row">{_text(name, 40)}</th>{cells}</tr>')
    top = "".join(f'<th scope="col">{_text(name, 40)}</th>' for name in labels)
    return (
        '<h3>Who is taken for whom</h3><p class="meta">A row for each true label, a column for each label given.</p>'
        f'<div class="wide"><table><thead><tr><td></td>{top}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _labels(found: Any) -> str:
    names = ("precision", "recall", "f1")
    rows = [
        [_text(row.get("label"), 60), escape(w.count(real(row.get("examples")))), *(_share(row.get(k)) for k in names)]
        for row in _mappings(found)
    ]
    return _table(["label", "examples", *names], rows, "Label by label")


def _calibration(found: Any) -> str:
    """How often the model is right, by how sure it is: on the dotted line confidence is what it says."""
    if not isinstance(found, Mapping):
        return ""
    points = [(real(b.get("confidence")), real(b.get("right"))) for b in _mappings(found.get("bins"))]
    sure = [(a, b) for a, b in points if a is not None and b is not None]
    if not sure:
        return ""
    x, y = (np.array(side, dtype=np.float64) for side in zip(*sure, strict=True))
    ends = np.array([0.0, 1.0])
    error = real(found.get("error"))
    panel = Panel(
        key="calibration",
        title="Is it as right as it is sure?",
        describe="Share of right answers by confidence; the dotted line is where both agree.",
        lines=[
            Line(name="share that is right", look="valid", x=x, y=y),
            Line(name="confidence", look="limit", x=ends, y=ends),
        ],
        tall=True,
    )
    axis = "".join(f'<span style="left:{100 * t:.0f}%">{t:.1f}</span>' for t in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
    gap = "" if error is None else f'<p class="meta">Expected gap of the two: {w.fixed(error)}.</p>'
    return (
        f'<h3>Calibration</h3>{gap}<div style="--gutter:4.4rem;max-width:34rem">{draw(panel, Scale(0.0, 1.0), [])}'
        f'<div class="axis">{axis}</div><p class="axis-name">confidence</p></div>'
    )


def _kinds(found: Any, title: str) -> str:
    rows = _mappings(found)
    names = [name for name in dict.fromkeys(k for row in rows for k in row) if name not in ("kind", "examples")][:4]
    cells = [
        [_text(row.get("kind"), 40), escape(w.count(real(row.get("examples")))), *(_share(row.get(n)) for n in names)]
        for row in rows
    ]
    return _table(["", "examples", *(_words(name) for name in names)], cells, title)


def _slices(found: Any, unit: Any) -> str:
    rows = _mappings(found)
    names = [name for name in dict.fromkeys(k for row in rows for k in row) if name not in KNOWN][:4]
    cells = [
        [
            f"{escape(w.count(real(row.get('from'))))} … {escape(w.count(real(row.get('to'))))}",
            escape(w.count(real(row.get("examples")))),
            *(_share(row.get(name)) for name in names),
        ]
        for row in rows
    ]
    return _table([_words(unit), "examples", *(_words(name) for name in names)], cells, "By length")


def _worst(found: Any) -> str:
    items = []
    for row in _mappings(found):
        line, sure = real(row.get("line")), real(row.get("probability"))
        where = "" if line is None else f"line {line:.0f}: "
        how = "" if sure is None else f" ({w.fixed(sure)})"
        said = f"{_plain(row.get('label'))} taken for {_plain(row.get('predicted'))}{how}"
        items.append(f"<li>{_text(row.get('text'))}<p>{escape(where)}{_text(said)}</p></li>")
    return f'<h3>Surest mistakes</h3><ol class="advice">{"".join(items)}</ol>' if items else ""


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(v) for v in value) or "none"
    return w.fixed(value) if isinstance(value, float) else str(value)


def _share(value: Any) -> str:
    return escape(w.fixed(real(value)))


def _words(name: object) -> str:
    return _text(str(name).replace("_", " "), 40)


def _text(value: Any, letters: int = LETTERS) -> str:
    text = str(value)
    return escape(text if len(text) <= letters else text[:letters] + "…")


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)][:MOST_ROWS] if isinstance(value, list) else []


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> str:
    """Cells are HTML already; the first of a row names it."""
    if not rows:
        return ""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows
    )
    name = f"<h3>{title}</h3>" if title else ""
    return f'{name}<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
