"""An inspection as one self-contained page, which works offline and can be mailed."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from headway.errors import DataError
from headway.inspect.heads import HeadStats, Maps
from headway.inspect.patching import place_of
from headway.inspect.show.terminal import part_line, spelled, strongest
from headway.inspect.trace import DIGITS, Pass
from headway.report.format import brief, number, percent
from headway.report.page import render_macro, render_page
from headway.resources import save_text

SHARES = ("previous", "next", "self", "first", "separator", "same")
LARGEST = 16_000_000
"""The most weights of a page: about 20 MB, which a browser still opens."""


def write_page(
    path: Path,
    name: str,
    overview: Mapping[str, Any],
    seen: Pass,
    why: Mapping[str, Any] | None = None,
    patching: Mapping[str, Any] | None = None,
) -> None:
    """Write the page of a pass; `why` and `patching` are an attribution and a patching as plain values."""
    save_text(str(path), page(name, overview, seen, why, patching))


def page(
    name: str,
    overview: Mapping[str, Any],
    seen: Pass,
    why: Mapping[str, Any] | None = None,
    patching: Mapping[str, Any] | None = None,
) -> str:
    """The page as a text."""
    count = sum(seen.attention(kind, 0).size * seen.part(kind).layers for kind in seen.kinds)
    if count > LARGEST:
        message = f"a page of {count:,} attention weights is too large for a browser; the limit is {LARGEST:,}"
        raise DataError("D001", message, "give a shorter input, or --json")
    stats = {kind: seen.head_stats(kind) for kind in seen.kinds}
    values = {
        "title": f"Inside {name}",
        "about": f"{seen.reading.medium} {seen.reading.text[:200]!r}, {brief(overview['parameters'])} parameters",
        "changes": [repr(change) for change in seen.changes],
        "flow": [_flow(part) for part in overview["parts"]],
        "answers": seen.readout is not None,
        "likely": any(p is not None for p in seen.probabilities()),
        "place": seen.readout is not None and seen.grid() is None and len(seen.logits()) > 1,
        "said": json.dumps(seen.reading.said, indent=1, ensure_ascii=False)[:2000]
        if seen.reading.said and not seen.readout
        else "",
        "stats": _stats_table([each for some in stats.values() for each in some]),
        "lens": _has_lens(seen),
        "why": None if why is None else {"answer": why["answer"], "about": _why_about(why)},
        "patching": None if patching is None else _patching(patching),
        "layers": [_layers(seen, kind) for kind in seen.kinds if not seen.part(kind).cross],
        "data": Markup(_json(_data(seen, stats, why))),
    }
    return render_page("inspect.html", values, script="inspect.js")


def _json(values: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(values, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def packed(maps: Maps) -> str:
    """Weights as bytes in base64: square roots, so that small weights keep more digits than large ones."""
    steps = np.rint(255 * np.sqrt(np.clip(maps, 0, 1))).astype(np.uint8)
    return base64.b64encode(steps.tobytes()).decode()


def _has_lens(seen: Pass) -> bool:
    return (
        seen.readout is not None
        and seen.part().stack is not None
        and seen.readout.head != "span"
        and not seen.readout.number
    )


def _data(seen: Pass, stats: Mapping[str, Sequence[HeadStats]], why: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the script of the page draws."""
    output = seen.part().kind
    chosen = "cross" if "cross" in seen.kinds else output
    best = strongest(stats[chosen], None, None)
    found: dict[str, Any] = {
        "kinds": {kind: _kind(seen, kind, stats[kind]) for kind in seen.kinds},
        "output": output,
        "causal": seen.part().config.causal,
        "start": {"kind": chosen, "layer": best.layer, "head": best.head},
        "place": 0,
        "picture": _picture(seen),
    }
    if seen.readout is not None:
        found["place"] = min(place_of(seen, None), len(seen.tokens) - 1)
        found["number"] = seen.readout.number
        rows = seen.predictions(6)
        if seen.readout.head == "span":
            ends = [
                (end, spelled(seen, each)) for end, row in zip(("start", "end"), rows, strict=True) for each in row[:3]
            ]
            rows = [[replace(each, label=f"{end}: {each.label}") for end, each in ends]]
        found["predictions"] = _answers(rows)
        likely = seen.probabilities()
        found["probabilities"] = [None if p is None else round(p, 3) for p in likely]
    if _has_lens(seen):
        found["lens"] = [_answers(layer) for layer in seen.lens(3)]
    if why is not None:
        found["why"] = {"tokens": why["tokens"], "values": why["values"]}
    return found


def _kind(seen: Pass, kind: str, stats: Sequence[HeadStats]) -> dict[str, Any]:
    part, grid, tokens = seen.part(kind), seen.grid(kind), seen.tokens_of(kind)
    numbers = [
        {
            "looks_at": each.looks_at,
            "entropy": round(each.entropy, 3),
            "keys": round(each.keys, 2),
            "distance": None if each.distance is None else round(each.distance, 2),
            "shares": {name: round(share, 3) for name, share in each.shares.items()},
        }
        for each in stats
    ]
    return {
        "layers": part.layers,
        "heads": part.config.n_heads,
        "tokens": [token.label for token in tokens],
        "special": [int(token.special) for token in tokens],
        "keys": [token.label for token in seen.keys_of(kind)] if part.cross else None,
        "grid": vars(grid) if grid is not None and not part.cross else None,
        "stats": numbers,
        "maps": packed(seen.attention(kind)),
    }


def _answers(rows: Sequence[Sequence[Any]]) -> list[list[list[Any]]]:
    return [[[answer.label, round(answer.probability, DIGITS)] for answer in row] for row in rows]


def _picture(seen: Pass) -> dict[str, Any] | None:
    image = seen.reading.picture
    if image is None:
        return None
    channels, high, wide = image.shape
    size = {"channels": channels, "height": high, "width": wide}
    return {**size, "bytes": base64.b64encode(image.tobytes()).decode()}


def _flow(part: Mapping[str, Any]) -> dict[str, str]:
    return {
        "name": f"{part['of']} {part['part']}",
        "told": f"{part_line(part)}; {brief(part['parameters'])} parameters",
    }


def _stats_table(stats: Sequence[HeadStats]) -> tuple[list[str], list[list[str]]]:
    head = ["head", "looks at", "entropy", "keys", "distance", *SHARES]
    rows = [
        [
            f"{each.kind} {each.layer}.{each.head}",
            each.looks_at,
            f"{each.entropy:.2f}",
            f"{each.keys:.1f}",
            "" if each.distance is None else f"{each.distance:.1f}",
            *(percent(each.shares[name]) if name in each.shares else "" for name in SHARES),
        ]
        for each in stats
    ]
    return head, rows


def _layers(seen: Pass, kind: str) -> dict[str, Any]:
    """Lengths of vectors and receptive fields, layer by layer."""
    norms, field = seen.norms(kind), seen.receptive(kind)
    branches = [name for name in norms if name != "residual"]
    rows = [["embeddings", number(float(norms["residual"][0].mean())), *("" for _ in (*branches, 1, 2))]]
    for layer in range(seen.part(kind).layers):
        rows.append(
            [
                f"layer {layer}",
                number(float(norms["residual"][layer + 1].mean())),
                *(number(float(norms[name][layer].mean())) for name in branches),
                number(float(field["reach"][layer].mean())),
                number(float(field["most"][layer].mean())),
            ]
        )
    return {"kind": kind, "head": ["", "residual", *branches, "reached by", "most from"], "rows": rows}


def _why_about(why: Mapping[str, Any]) -> str:
    sums = "" if why["gap"] is None else f"; the values sum to the difference within {why['gap']:.2%}"
    method = str(why["method"]).replace("_", " ")
    return f"{method}: the logit is {why['logit']:.3g}, {why['baseline']:.3g} without any input{sums}."


def _patching(found: Mapping[str, Any]) -> dict[str, Any]:
    first, second = found["answers"]
    labels = [a if a == b else f"{a} → {b}" for a, b in zip(*found["tokens"], strict=True)]
    heads = [str(i) for i in range(len(found["heads"][0]))]
    return {
        "about": f"0 is the answer to the first input ({first!r}), 1 that to the second ({second!r}).",
        "positions": _table(labels, found["positions"]),
        "heads": _table(heads, found["heads"]),
    }


def _table(labels: Sequence[str], values: Sequence[Sequence[float]]) -> Markup:
    rows = [
        [f"layer {layer}", *(f"{value:.2f}" if abs(value) >= 0.005 else "·" for value in row)]
        for layer, row in enumerate(values)
    ]
    return render_macro("tables.html", "table", ["", *labels], rows, "", "heat")
