"""Routes of the page that compares runs: what can be compared, the facts, the curves."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from headway.errors import UsageError
from headway.hub.run_names import run_folders
from headway.runs.history import History
from headway.studio.context import Studio
from headway.studio.routes.run import Place, Share, check_part
from headway.studio.runs.compared import MOST_RUNS, compared, comparisons, overlaid
from headway.studio.runs.curves import Axis

Names = Annotated[list[str], Query(max_length=MOST_RUNS)]
Folder = Annotated[str, Query(max_length=255)]
Baseline = Annotated[str, Query(max_length=520)]


def router(studio: Studio) -> APIRouter:
    made = APIRouter(prefix="/api/compare")

    def read(runs: list[str], of: str) -> tuple[list[str], list[History]]:
        """The runs by name, or all runs of a comparison."""
        names = list(dict.fromkeys(runs))
        if of:
            names = [f"{of}/{path.name}" for path in run_folders(studio.comparison_folder(of))][:MOST_RUNS]
        if not names:
            raise UsageError("U001", "no runs to compare", "choose some on the page of runs")
        return names, [studio.histories.read(studio.run_folder(name)) for name in names]

    @made.get("/known")
    def known() -> dict[str, Any]:
        """The runs that can be chosen, and the comparisons that have been made."""
        return {
            "runs": [path.name for path in reversed(run_folders(studio.runs))],
            "comparisons": comparisons(studio.runs),
        }

    @made.get("")
    def facts(run: Names = [], of: Folder = "", base: Baseline = "") -> dict[str, Any]:  # noqa: B006 — FastAPI copies it
        """What the runs have in common, how they differ, what came of them."""
        names, runs = read(run, of)
        return compared(names, runs, base)

    @made.get("/curves")
    def curves(
        run: Names = [], of: Folder = "",  # noqa: B006 — FastAPI copies it
        axis: Axis = "step", low: Place = None, high: Place = None, smooth: Share = 0.025,
    ) -> dict[str, Any]:  # fmt: skip
        """The curves of all runs over a part of an axis."""
        check_part(low, high)
        return overlaid(read(run, of)[1], axis, low, high, smooth)

    return made
