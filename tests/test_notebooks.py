"""The notebooks of docs/: they run from the first cell to the last, and are kept without outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient")

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "docs" / "notebooks").glob("*.ipynb"))


def outputs(notebook: Any, kind: str) -> list[str]:
    """What the cells show in a format."""
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    return [output["data"][kind] for output in shown if kind in output["data"]]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(path, as_version=4)
    assert not [cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")]
    (tmp_path / "here").mkdir()
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path / "here")}}).execute()
    tables = outputs(notebook, "text/html")
    assert len(tables) >= 8 and sum("<svg" in table for table in tables) == 1
    said = "".join(o.get("text", "") for cell in notebook.cells for o in cell.get("outputs", ()))
    assert "step 60" in said and len(list((tmp_path / "here" / "runs").glob("**/run/report.html"))) == 6


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
