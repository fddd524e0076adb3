"""What a user meets first: the import and the help, both quick because nothing heavy is imported for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

HEAVY = {
    "torch",
    "numpy",
    "transformers",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "pyarrow",
    "jinja2",
    "PIL",
    "soundfile",
    "fastapi",
    "uvicorn",
}


def imported(*arguments: str) -> set[str]:
    """Top-level names of all that a fresh Python imports when it is started with these arguments."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    report = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in report}


def test_the_import_is_light() -> None:
    names = imported("-c", "import headway")
    assert "headway" in names
    assert names & HEAVY == set()


def test_a_heavy_import_is_seen() -> None:
    assert "numpy" in imported("-c", "import numpy")


@pytest.mark.parametrize(
    ("needs", "start"),
    [
        ("cli", ("-c", "import sys; from headway.cli import main; sys.exit(main())")),
        ("__main__", ("-m", "headway")),
    ],
)
def test_the_help_is_light(needs: str, start: tuple[str, ...]) -> None:
    if not any((ROOT / "headway").glob(f"{needs}*")):
        pytest.skip(f"headway.{needs} is not written yet")
    names = imported(*start, "--help")
    assert "headway" in names
    assert names & HEAVY == set()
