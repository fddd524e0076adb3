"""Draw how far gradients reach, for the page docs/compared/gradients.md: an SVG of finished runs of language models.

python benchmarks/gradient_reach.py RUN RUN … > docs/images/gradient-reach.svg

Each run's curve is in its run/evaluation.json (details → charts). Curves are named after model.kind, and those of runs
without clipping are dashed. The axis of the norms is logarithmic.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from headway.report.charts import Scale, tick_name
from headway.tasks.recipe import load_run_recipe

WIDTH, HEIGHT, LEFT, TOP = 640, 300, 56, 12
COLOURS = {"elman": "#d1495b", "gru": "#c98b1b", "lstm": "#3a86c8", "conv": "#7a9e3b", "transformer": "#7b5ea7"}
LOWEST = 1e-8
GREY = "#8a8a8a"


def curve(folder: Path) -> tuple[str, bool, list[float]]:
    """A run's kind, whether it clips gradients, and the norms from k = 1 on."""
    recipe = load_run_recipe(folder)
    found = json.loads((folder / "run" / "evaluation.json").read_text(encoding="utf-8"))
    return recipe.model.kind, recipe.train.clip > 0, found["details"]["charts"][0]["lines"][0]["y"]


def draw(curves: list[tuple[str, bool, list[float]]]) -> str:
    seen = [max(value, LOWEST) for _, _, values in curves for value in values]
    x_scale = Scale(1, max(len(values) for _, _, values in curves))
    y_scale = Scale(10.0 ** math.floor(math.log10(min(seen))), 10.0 ** math.ceil(math.log10(max(seen))), log=True)

    def across(k: float) -> float:
        return LEFT + float(x_scale(k)) * WIDTH  # type: ignore[arg-type]

    def up(value: float) -> float:
        return TOP + (1 - float(y_scale(max(value, LOWEST)))) * HEIGHT  # type: ignore[arg-type]

    parts = []
    for tick in y_scale.ticks():
        parts.append(f'<path d="M{LEFT} {up(tick):.1f}h{WIDTH}" stroke="{GREY}" stroke-opacity=".25"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{up(tick) + 4:.1f}" text-anchor="end">{tick_name(tick)}</text>')
    for tick in (1, *x_scale.ticks()):
        parts.append(f'<text x="{across(tick):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{tick:g}</text>')
    for row, (kind, clips, values) in enumerate(curves):
        path = "M" + "L".join(f"{across(k):.1f} {up(value):.1f}" for k, value in enumerate(values, 1))
        dashes = "" if clips else ' stroke-dasharray="5 4"'
        look = f'stroke="{COLOURS[kind]}" stroke-width="2"{dashes}'
        name = kind if clips else f"{kind}, not clipped"
        parts.append(f'<path d="{path}" fill="none" {look}/>')
        parts.append(f'<path d="M{LEFT + WIDTH - 150} {TOP + 12 + 18 * row}h24" {look}/>')
        parts.append(f'<text x="{LEFT + WIDTH - 120}" y="{TOP + 16 + 18 * row}">{name}</text>')
    middle = LEFT + WIDTH / 2
    parts.append(f'<text x="{middle}" y="{TOP + HEIGHT + 34}" text-anchor="middle">tokens back (k)</text>')
    size = f"0 0 {LEFT + WIDTH + 12} {TOP + HEIGHT + 42}"
    font = f'font-family="sans-serif" font-size="12" fill="{GREY}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" {font}>'
    return "\n".join([head, *parts, "</svg>"])


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    print(draw([curve(Path(name)) for name in sys.argv[1:]]))


if __name__ == "__main__":
    main()
