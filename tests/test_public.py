"""What a user meets first: the public names, and the import and the help, quick because they import nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from inspect import getdoc, signature
from pathlib import Path

import pytest

import headway

ROOT = Path(__file__).resolve().parent.parent

HEAVY = {
    "torch", "numpy", "transformers", "tokenizers", "safetensors", "huggingface_hub", "pyarrow", "jinja2",
    "PIL", "soundfile", "fastapi", "uvicorn",
}  # fmt: skip


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


def test_runs_are_read_without_a_model_or_a_report() -> None:
    """`load("last")` looks the run up; nothing else of it is needed."""
    code = "import sys, headway.runs.history, headway.runs.compare, headway.runs.prune; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    names = done.stdout.split()
    assert "headway.runs.history" in names
    assert not [name for name in names if name == "torch" or name.startswith(("headway.report", "headway.train"))]


def test_a_heavy_import_is_seen() -> None:
    assert "numpy" in imported("-c", "import numpy")


def test_the_public_names_are_these() -> None:
    """A name more or less is a promise made or broken: change this list on purpose."""
    verbs = {"compare", "data", "evaluate", "load", "preset", "run", "runs", "train"}
    assert {*headway.__all__} == {"Bundle", "HeadwayError", "ModelConfig", "Run", *verbs}
    assert dir(headway) == sorted({*headway.__all__} - {"Bundle"})
    assert set(headway._HOME) == set(headway.__all__)


def test_train_is_a_package_that_can_be_called(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("ab " * 200)
    small = ["model.depth=1", "model.width=16", "model.heads=2", "data.length=8", "train.batch=2", "train.steps=5"]
    data = {"train": str(tmp_path / "text.txt")}
    folder = headway.train("tiny", *small, data=data, out=str(tmp_path / "runs"), train={"steps": 3}).folder
    assert folder == tmp_path / "runs" / "tiny-0001" and (folder / "model.safetensors").exists()
    assert "steps = 3" in (folder / "run" / "recipe.toml").read_text()


@pytest.mark.parametrize("name", ["data", "runs", "train"])
def test_a_package_can_be_a_verb(name: str) -> None:
    package, verb = import_module(f"headway.{name}"), getattr(import_module("headway.api.verbs"), name)
    assert getattr(headway, name) is package and package.__path__
    assert signature(package) == signature(verb) and package.__doc__ == verb.__doc__


@pytest.mark.parametrize("name", sorted(set(headway.__all__)))
def test_each_public_name_is_documented_with_an_example(name: str) -> None:
    found = getattr(headway, name)
    home = getattr(import_module(headway._HOME[name].partition(":")[0]), name)
    assert found is home or found is import_module(f"headway.{name}")
    assert found.__doc__ and (name in ("HeadwayError", "ModelConfig", "preset") or "`" in found.__doc__)


def test_every_method_of_a_model_and_a_run_is_documented() -> None:
    for kind in (headway.Bundle, headway.Run):
        methods = [name for name in dir(kind) if name not in getattr(kind, "__dataclass_fields__", {})]
        assert not [name for name in methods if not name.startswith("_") and not getdoc(getattr(kind, name))]


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="'headway' has no attribute 'lode'"):
        headway.lode  # noqa: B018


@pytest.mark.parametrize(
    "start", [("-c", "import sys; from headway.cli import main; sys.exit(main())"), ("-m", "headway")]
)
@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_help_is_light(start: tuple[str, ...], word: str) -> None:
    names = imported(*start, word)
    assert "headway" in names
    assert names & HEAVY == set()
