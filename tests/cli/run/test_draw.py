"""`headway run` with a model that draws images; the same from Python and over HTTP. The weights are random."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("PIL")
pytest.importorskip("openai")

from headway.api import load
from headway.cli.run.args import grid_size
from headway.config import presets
from headway.config.recipe import ShapeConfig
from headway.config.shape import diffusion_config
from headway.data.images.decode import open_image
from headway.errors import DataError, UsageError
from headway.hub.folder import save_model
from headway.model.model import Transformer
from tests.cli.conftest import Run
from tests.serve.conftest import KEY, running

QUICK = ("--steps", "3", "-q", "--device", "cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = diffusion_config(ShapeConfig(depth=1, width=16, heads=2), 8, 3, 3)
    made = Transformer(replace(config, labels=("circle", "ring", "cat, tabby")))
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.2)
    return save_model(made, tmp_path_factory.mktemp("draw") / "dit")


@pytest.fixture
def draw(run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return partial(run, "run", model)


def pixels(path: str) -> np.ndarray:
    return np.asarray(open_image(path)).astype(int)


def test_a_grid_is_written_to_the_file(draw: Run) -> None:
    words = ("class=circle", "--grid", "2x3", "--seed", "1", *QUICK)
    done = draw(*words, "--out", "grid.png")
    assert done.code == 0 and done.out == "grid.png\n", done.err
    found = pixels("grid.png")
    times = -(-256 // (2 * 8 + 2))  # small images are enlarged
    assert found.shape == ((2 * 8 + 2) * times, (3 * 8 + 4) * times, 3)
    small = found[::times, ::times]
    cells = {small[y : y + 8, x : x + 8].tobytes() for y in (0, 10) for x in (0, 10, 20)}
    assert len(cells) == 6
    assert draw(*words, "--out", "again.png").code == 0
    assert Path("again.png").read_bytes() == Path("grid.png").read_bytes()
    assert draw(*words[:4], "2", *QUICK, "--out", "other.png").code == 0
    assert Path("other.png").read_bytes() != Path("grid.png").read_bytes()


def test_without_a_name_a_free_one_is_told(draw: Run) -> None:
    names = [draw("class=circle", *QUICK).out for _ in range(2)]
    assert names == ["circle.png\n", "circle-2.png\n"] and Path("circle-2.png").is_file()


def test_each_row_is_a_class_and_images_do_not_depend_on_other_classes(draw: Run) -> None:
    assert draw("class=circle,ring", "--out", "both.png", *QUICK).code == 0
    assert draw("class=ring", "--out", "one.png", *QUICK).code == 0
    both, one = pixels("both.png"), pixels("one.png")
    assert both.shape[0] // 15 == 18 and both.shape[1] // 15 == one.shape[1] // 32 == 8 * 8 + 7 * 2
    assert abs(both[::15, ::15][10:] - one[::32, ::32]).max() <= 1
    assert draw("class=cat, tabby", "class=none", "--grid", "3x1", "--out", "three.png", *QUICK).code == 0


def test_python_requests_and_lines_give_the_same_images(draw: Run, model: Path) -> None:
    bundle = load(model)
    images = bundle.draw(["circle", "circle", 1], steps=3, guidance=2.0, seed=1)
    assert images.shape == (3, 8, 8, 3) and images.dtype == np.uint8 and (images[0] != images[1]).any()
    one = bundle.draw("circle", steps=3, guidance=2.0, seed=1).astype(int)
    assert one.shape == (8, 8, 3) and abs(one - images[0]).max() <= 1
    done = draw("class=circle", "--json", "--guidance", "2", "--seed", "1", *QUICK)
    row = json.loads(done.out)
    png = row.pop("png")
    assert row == {"class": "circle", "seed": 1, "number": 0}
    assert abs(np.asarray(open_image(base64.b64decode(png))).astype(int) - one).max() <= 1
    with running(bundle, KEY) as server:
        body = {"class": "circle", "steps": 3, "guidance": 2, "seed": 1}
        (answer,) = server.post("/v1/run", {"model": server.served.id, "input": body}).json()["data"]
        assert abs(np.asarray(open_image(base64.b64decode(answer["png"]))).astype(int) - one).max() <= 1
        for wrong in ({"class": "dog"}, {"class": "ring", "steps": 10**6}, {"steps": 3}, "dog"):
            refused = server.post("/v1/run", {"model": server.served.id, "input": wrong})
            assert refused.status_code == 400 and refused.json()["error"]["code"] == "D001", refused.text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("class=dog",), DataError.exit_code),
        ((), UsageError.exit_code),
        (("class=ring", "--grid", "4"), UsageError.exit_code),
        (("class=ring", "--grid", "0x4"), UsageError.exit_code),
        (("class=ring", "class=circle", "--grid", "1x4"), UsageError.exit_code),
        (("class=ring", "--out", "grid.jpg"), UsageError.exit_code),
        (("class=ring", "--steps", "0"), UsageError.exit_code),
        (("class=ring", "--guidance", "nan"), UsageError.exit_code),
        (("class=ring", "--tokens", "3"), UsageError.exit_code),
        (("--file", "classes.txt", "--grid", "2x2"), UsageError.exit_code),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(draw: Run, words: tuple[str, ...], code: int) -> None:
    Path("classes.txt").write_text("ring\n")
    done = draw(*words, "-q", "--device", "cpu")
    assert done.code == code and not done.out and not list(Path().glob("*.png")), done.err


def test_other_models_do_not_draw(run: Run, tmp_path: Path) -> None:
    folder = save_model(Transformer(presets.preset("vit-tiny")), tmp_path / "vit")
    for words in (("class=1",), ("photo.png", "--grid", "2x2"), ("photo.png", "--steps", "3")):
        assert run("run", folder, *words, "-q").code == UsageError.exit_code
    with pytest.raises(DataError):
        load(folder).draw("a")


@pytest.mark.parametrize(("given", "size"), [("4x8", (4, 8)), ("1×2", (1, 2))])
def test_a_grid_has_rows_and_columns(given: str, size: tuple[int, int]) -> None:
    assert grid_size(given) == size
