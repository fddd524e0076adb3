"""`pytest -m gpu` works on a machine that has only what headway is built on: collecting tests needs no extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = (
    *("fastapi", "httpx", "openai", "prometheus_client", "pydantic", "schemathesis", "starlette", "uvicorn"),
    *("PIL", "gguf", "llguidance", "numba", "soundfile", "torch_geometric"),
    *("ipykernel", "jiwer", "jsonschema_rs", "nbclient", "nbformat", "soxr"),
)
COLLECT = """
import sys, pytest

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
import importlib.util
found = importlib.util.find_spec

def find_spec(name, package=None):
    return None if name.partition(".")[0] in {names!r} else found(name, package)

importlib.util.find_spec = find_spec
sys.exit(pytest.main(["-m", "gpu", "--collect-only", "-q", "-p", "no:schemathesis", "-p", "no:xdist"]))
"""


@pytest.mark.slow
def test_gpu_tests_are_collected_without_extras() -> None:
    root = Path(__file__).resolve().parent.parent
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(root)}
    code = COLLECT.format(names=EXTRAS)
    done = subprocess.run([sys.executable, "-c", code], cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "tests/train/test_compute.py::" in done.stdout
