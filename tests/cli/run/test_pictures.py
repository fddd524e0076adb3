"""`headway run --rollout` and `--attention` with an untrained vision model."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.api import load
from headway.config.model import ClassifyHeadConfig, ModelConfig, PatchesConfig, StackConfig
from headway.data.images.heatmap import coloured, overlaid, smooth
from headway.data.images.png import png
from headway.hub.folder import save_model
from headway.model.model import Transformer
from tests.cli.conftest import Run

pytest.importorskip("PIL")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Images of 14 pixels: patches of four leave two of them out."""
    torch.manual_seed(0)
    stack = StackConfig(d_model=16, n_layers=2, n_heads=2, d_ff=16, norm_eps=1e-12)
    head, front = ClassifyHeadConfig(labels=2, pool="first"), PatchesConfig(image=14, patch=4)
    config = ModelConfig(encoder=stack, source=front, classify=head, labels=("cat", "dog"), family="vit")
    return str(save_model(Transformer(config), tmp_path_factory.mktemp("vit") / "vit", None))


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    Path("a.png").write_bytes(png(pixels))
    Path("b.png").write_bytes(png(pixels[::-1]))
    return partial(run, "run", "--device", "cpu")


def size(path: str) -> tuple[int, int]:
    from PIL import Image

    with Image.open(path) as image:
        return image.size


def test_pictures_are_beside_the_prediction(run: Run, model: str) -> None:
    done = run(model, "a.png", "b.png", "--rollout", "look.png", "--attention", "heads.png", "layer=0", "--json")
    assert done.code == 0, done.err
    assert [json.loads(line)["label"] in ("cat", "dog") for line in done.out.splitlines()] == [True, True]
    side = 288  # 12 pixels that patches cover, 24 times
    assert size("look.png") == (2 * side + 24, 2 * side + 24) and size("heads.png") == (3 * side + 32, 2 * side + 24)
    plain = Path("look.png").read_bytes()
    assert run(model, "a.png", "b.png", "--rollout", "look.png", "rollout=gradient").code == 0
    assert Path("look.png").read_bytes() != plain
    last = Path("heads.png").read_bytes()
    assert run(model, "a.png", "b.png", "--attention", "heads.png").code == 0
    assert Path("heads.png").read_bytes() != last


@pytest.mark.parametrize(
    "words",
    [
        ["a.png", "--rollout", "look.jpg"],
        ["a.png", "--rollout", "none/look.png"],
        ["a.png", "--rollout", "look.png", "rollout=magic"],
        ["a.png", "rollout=gradient"],
        ["a.png", "layer=1", "--rollout", "look.png"],
        ["a.png", "--attention", "look.png", "layer=-1"],
        ["--file", "a.png", "--rollout", "look.png"],
    ],
)
def test_mistakes_are_refused(run: Run, model: str, words: list[str]) -> None:
    done = run(model, *words)
    assert done.code == 2 and "U001" in done.err and not Path("look.png").exists()


def test_a_layer_that_the_model_lacks_is_named(run: Run, model: str) -> None:
    done = run(model, "a.png", "--attention", "look.png", "layer=2")
    assert done.code == 4 and "D001" in done.err and not Path("look.png").exists()


def test_python_gets_arrays(run: Run, model: str) -> None:
    bundle = load(model)
    one, several = bundle.rollout("a.png"), bundle.rollout(["a.png", "b.png"], gradient=True)
    assert one.shape == (3, 3) and several.shape == (2, 3, 3) and 0 < one.sum() < 1
    np.testing.assert_allclose(bundle.rollout(["b.png", "a.png"])[1], one, rtol=1e-5)
    assert bundle.class_attention("a.png").shape == (2, 3, 3)


def test_the_hottest_patch_is_the_brightest_place() -> None:
    heat = np.zeros((3, 3), dtype=np.float32)
    heat[1, 2] = 1
    large = smooth(heat, 30)
    assert large[15, 25] == pytest.approx(1, abs=0.06) and large[:, :10].max() == 0 and large.max() <= 1
    np.testing.assert_allclose(smooth(np.full((2, 2), 0.5, np.float32), 7), 0.5)
    light = coloured(np.linspace(0, 1, 20, dtype=np.float32)[None]).astype(int).sum(-1)[0]
    assert (np.diff(light) > 0).all()
    drawn = overlaid(np.full((1, 6, 6), 90, np.uint8), heat).astype(int).sum(-1)
    assert drawn.shape == (288, 288) and np.unravel_index(drawn.argmax(), drawn.shape)[1] > 190
