"""Images over HTTP: base64, uploaded files, and what must not be read."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

Image = pytest.importorskip("PIL.Image")

from headway.api import Bundle, load  # noqa: E402
from headway.config import presets  # noqa: E402
from headway.config.model import ClassifyHeadConfig  # noqa: E402
from headway.data.images.png import png  # noqa: E402
from headway.data.images.preprocess import FILE, Preprocess  # noqa: E402
from headway.hub.folder import save_model, write_side_files  # noqa: E402
from headway.model.model import Transformer  # noqa: E402
from tests.serve.conftest import KEY, Running, refusal, running  # noqa: E402

PHOTO = png(np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8))
TEXT = base64.b64encode(PHOTO).decode()


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    torch.manual_seed(0)
    base = presets.preset("vit-tiny")
    model = Transformer(replace(base, classify=ClassifyHeadConfig(labels=3), labels=("a", "b", "c"))).eval()
    folder = save_model(model, tmp_path_factory.mktemp("vision") / "vit")
    size = base.source.image  # type: ignore[union-attr]
    write_side_files(folder, {FILE: Preprocess(size, size).to_dict()})
    return load(folder)


@pytest.fixture(scope="module")
def server(vision: Bundle) -> Iterator[Running]:
    with running(vision, KEY, image_bytes=200_000, image_pixels=1_000_000) as made:
        yield made


def ask(server: Running, given: Any) -> Any:
    return server.post("/v1/run", {"model": server.served.id, "input": given})


def test_base64_and_uploads_give_what_python_gives(server: Running, vision: Bundle) -> None:
    expected = vision.classify(PHOTO).to_dict()
    for given in (TEXT, f"data:image/png;base64,{TEXT}", {"image": TEXT}, [TEXT]):
        answer = ask(server, given)
        assert answer.status_code == 200, answer.text
        (row,) = answer.json()["data"]
        assert row["label"] == expected["label"] and row["probability"] == pytest.approx(
            expected["probability"], abs=1e-5
        )
    uploaded = server.post("/v1/run", PHOTO, **{"content-type": "image/png"})
    assert uploaded.json()["data"][0]["label"] == expected["label"]


@pytest.mark.parametrize(
    "given", ["/etc/passwd", "photo.png", "", 7, {"path": "/etc/hostname"}, {"image": None}, TEXT[:99]]
)
def test_no_image_and_no_files_of_the_server(server: Running, given: Any) -> None:
    status, _ = refusal(ask(server, given))
    assert status == 400 and server.idle()


def test_large_images_are_refused_before_they_are_decoded(server: Running) -> None:
    with io.BytesIO() as file:
        Image.new("1", (2000, 2000)).save(file, "PNG")
        raw = file.getvalue()
    assert refusal(ask(server, base64.b64encode(raw).decode())) == (400, "D001")
    assert server.post("/v1/run", b"x" * 250_000, **{"content-type": "image/png"}).status_code == 413


def test_an_upload_to_a_model_of_texts_is_refused(reciter: Running, tmp_path: Path) -> None:
    assert reciter.post("/v1/run", PHOTO, **{"content-type": "image/png"}).status_code in (400, 415)
