"""Images and texts in one space: the loss, ranks, search, labels by text, and a model that `transformers` opens."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

Image = pytest.importorskip("PIL.Image")

from headway.api import Bundle, load  # noqa: E402
from headway.cli import main  # noqa: E402
from headway.config.model import PatchesConfig  # noqa: E402
from headway.data.images.png import png  # noqa: E402
from headway.data.images.rows import ImageRow  # noqa: E402
from headway.data.synthetic.pictures import make_pictures  # noqa: E402
from headway.errors import ConfigError, DataError, HeadwayError  # noqa: E402
from headway.hub.folder import save_model  # noqa: E402
from headway.joint.towers import TwoTowers  # noqa: E402
from headway.tasks.contrastive.captions import captioned  # noqa: E402
from headway.tasks.contrastive.predict import ContrastivePredictor  # noqa: E402
from headway.tasks.contrastive.task import Contrastive, LabelledImage, Phrase  # noqa: E402
from headway.tasks.contrastive.training import ranks, sigmoid_loss, symmetric_loss  # noqa: E402
from headway.tasks.image import ImageExample  # noqa: E402
from headway.tasks.recipe import load_recipe  # noqa: E402
from headway.tasks.training import TaskContext, make_training  # noqa: E402
from headway.train.optim.optimizer import depths  # noqa: E402
from headway.train.run import start, train  # noqa: E402

TINY = ("model.depth=1", "model.width=16", "model.heads=2", "train.batch=6", "train.steps=3", "train.eval_every=3")
LABELS = ("a small red circle", "a blue square", "a large green digit 7")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos with a table of captions beside them; one has none."""
    folder = tmp_path_factory.mktemp("photos")
    lines = ["file_name,caption"]
    for number, picture in enumerate(make_pictures(24, seed=3)):
        (folder / f"{number:02}.png").write_bytes(png(picture.pixels.transpose(1, 2, 0)))
        lines.append(f"{number:02}.png,{picture.caption if number else ''}")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    return folder


def run(out: Path, photos: Path, *words: str) -> tuple[Path, list[dict[str, Any]]]:
    log: list[dict[str, Any]] = []
    recipe = load_recipe("contrastive", [f"out={out}", f"data.train={photos}", *words])[1]
    done = train(start("run", recipe), lambda kind, **facts: log.append({"event": kind, **facts}))
    return done.folder, log


@pytest.fixture(scope="module")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_CACHE", str(out / "cache"))
        return run(out, photos, *TINY)


@pytest.fixture
def model(trained: tuple[Path, list[dict[str, Any]]]) -> Bundle:
    return load(trained[0])


def towers(bundle: Bundle) -> TwoTowers:
    assert isinstance(bundle.model, TwoTowers)
    return bundle.model


def command(capfd: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str]:
    capfd.readouterr()
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    assert isinstance(caught.value.code, int)
    return caught.value.code, capfd.readouterr().out


# --- the loss and the ranks, against loops


def test_the_loss_is_that_of_the_formula() -> None:
    logits, names = torch.randn(5, 5, dtype=torch.float64), [0, 1, 0, 2, 3]
    total = 0.0
    for table in (logits.tolist(), logits.T.tolist()):
        for i, row in enumerate(table):
            others = [math.exp(row[j]) for j in range(5) if j == i or names[j] != names[i]]
            total += -math.log(math.exp(row[i]) / sum(others)) / 2
    assert float(symmetric_loss(logits, torch.tensor(names))) == pytest.approx(total, rel=1e-9)


def test_the_sigmoid_loss_is_that_of_the_formula() -> None:
    logits, names = torch.randn(5, 5, dtype=torch.float64), [0, 1, 0, 2, 3]
    total = 0.0
    for i, row in enumerate(logits.tolist()):
        for j, logit in enumerate(row):
            if i == j or names[i] != names[j]:
                total += math.log1p(math.exp(-logit if i == j else logit))
    assert float(sigmoid_loss(logits, torch.tensor(names))) == pytest.approx(total, rel=1e-9)


def test_ranks_are_those_of_a_sorted_list() -> None:
    u, v, names = torch.randn(9, 4), torch.randn(9, 4), np.array([0, 1, 2, 3, 0, 4, 5, 6, 7])
    found = ranks(u, v, names)
    for side, (a, b) in {"text": (u, v), "image": (v, u)}.items():
        for i in range(9):
            wrong = [float(a[i] @ b[j]) for j in range(9) if names[j] != names[i]]
            assert found[f"{side}_recall_1"][0][i] == 1 + sum(w >= float(a[i] @ b[i]) for w in wrong)


# --- data and settings


def test_pairs_and_the_model_in_transformers(trained: tuple[Path, list[dict[str, Any]]], photos: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder, log = trained
    (data,) = (event for event in log if event["event"] == "data")
    assert data["samples"] + data["valid_samples"] == 23, "the photo without a caption is left out"
    assert data["chance"]["text_recall_1"] == 1 / data["valid_samples"]
    theirs = transformers.CLIPModel.from_pretrained(folder).eval()
    ready, words = (
        getattr(transformers, name).from_pretrained(folder) for name in ("AutoImageProcessor", "AutoTokenizer")
    )
    path = photos / "03.png"
    ids = words(list(LABELS), padding=True, return_tensors="pt")
    with torch.no_grad():
        images = ready(Image.open(path), return_tensors="pt").pixel_values
        shares = theirs(ids.input_ids, images, ids.attention_mask).logits_per_image.softmax(-1)[0]
    found = load(folder).classify(str(path), labels=LABELS)
    assert list(found.probabilities) == list(LABELS)
    assert list(found.probabilities.values()) == pytest.approx(shares.tolist(), abs=1e-4)


def test_images_without_captions_are_an_error() -> None:
    rows = [ImageRow(None, text="a dog"), ImageRow(None, text=" "), ImageRow(None)]
    assert captioned(rows) == rows[:1]
    with pytest.raises(DataError) as caught:
        captioned(rows[1:])
    assert caught.value.code == "D004"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("contrastive.mixup=0.2",), "C004"),
        (("contrastive.cutmix=1.0",), "C004"),
        (("contrastive.temperature=0.0",), "C003"),
        (("gpus=2",), "C004"),
        (("model.positions=rope",), "C004"),
    ],
)
def test_settings_that_cannot_be(words: tuple[str, ...], code: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        make_training(TaskContext(load_recipe("contrastive", [*TINY, *words])[1], tmp_path)).config(None)
    assert caught.value.code == code


def test_fine_tuning_keeps_the_weights_and_resizes_the_grid(
    trained: tuple[Path, list[dict[str, Any]]], photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    before = towers(load(trained[0]))
    words = ("data.size=48", "train.lr=1e-12", "train.weight_decay=0", f"model.from={trained[0]}", *TINY[3:])
    after = towers(load(run(tmp_path, photos, *words)[0]))
    assert torch.allclose(after.text.encoder.blocks[0].ffn.up.weight, before.text.encoder.blocks[0].ffn.up.weight)
    old, new = before.image.source.positions, after.image.source.positions
    assert (len(old), len(new)) == (65, 145)
    assert torch.allclose(new[0], old[0], atol=1e-5) and torch.allclose(new[1:].mean(0), old[1:].mean(0), atol=0.02)


def test_a_siglip_folder_is_tuned_with_its_own_loss(
    trained: tuple[Path, list[dict[str, Any]]], photos: Path, tmp_path: Path
) -> None:
    """Towers of the same run, joined as SigLIP joins them."""
    clip = load(trained[0])
    both = towers(clip).config
    image = replace(
        both.image,
        family="siglip_vision_model",
        source=PatchesConfig(image=both.source.image, patch=both.source.patch, class_token=False),
        encoder=replace(both.image.output_stack, dropout=0.0),
    )
    text = replace(both.text, family="siglip_text_model", encoder=replace(both.text.output_stack, causal=False))
    special = replace(both.special, pad=clip.tokenizer.special["pad"])
    joined = dict(image_pool="probe", text_pool="last", text_bias=True, logit_bias=-10.0, family="siglip")
    model = TwoTowers(replace(both, image=image, text=text, special=special, **joined)).eval()
    save_model(model, tmp_path / "siglip", clip.tokenizer, trained[0])
    words = ("train.lr=1e-3", f"model.from={tmp_path / 'siglip'}", *TINY[3:])
    folder, log = run(tmp_path, photos, *words)
    after = towers(load(folder))
    assert json.loads((folder / "config.json").read_text())["model_type"] == "siglip"
    assert after.logit_bias is not None and float(after.logit_bias.detach()) != -10.0
    first = next(event["loss"] for event in log if "loss" in event)
    assert first == pytest.approx(10.0, abs=5.0)  # at this bias every pair seems wrong, so its own decision costs ten
    assert load(folder).classify(str(photos / "03.png"), labels=LABELS).probabilities.keys() == set(LABELS)


def test_depths_count_within_each_tower(model: Bundle) -> None:
    names = [name for name, _ in towers(model).named_parameters()]
    found = depths(towers(model), names)
    assert found["logit_scale"] == found["image_projection.weight"] == 0
    for side in ("image", "text"):
        assert found[f"{side}.encoder.blocks.0.ffn.up.weight"] == 1
        assert {depth for name, depth in found.items() if name.startswith(f"{side}.source.")} == {2}


# --- inputs


def test_what_is_an_image_and_what_is_a_text(photos: Path) -> None:
    task, path = Contrastive(), str(photos / "01.png")
    assert task.parse({"input": path}) == ImageExample(path, path)
    assert task.parse({"input": "a red circle"}) == Phrase("a red circle")
    assert task.parse({"text": "circle"}) == Phrase("circle")
    assert task.parse({"image": path, "labels": "a, b"}) == LabelledImage(path, path, ("a", "b"))
    assert not isinstance(task.parse({"input": "drawn:circle"}), Phrase)
    with pytest.raises(HeadwayError) as caught:
        task.parse({"input": "missing.png"})
    assert caught.value.code == "F001"
    for wrong in ({"input": " "}, {}, {"image": path, "labels": "a"}, {"image": path, "labels": [1, 2]}):
        with pytest.raises(DataError) as refused:
            task.parse(wrong)
        assert refused.value.code == "D001"


def test_a_request_names_no_files(photos: Path) -> None:
    task = Contrastive()
    assert task.parse_request({"input": "a red circle"}) == Phrase("a red circle")
    for wrong in (str(photos / "01.png"), {"path": str(photos / "01.png")}):
        with pytest.raises(DataError):
            task.parse_request({"input": wrong})


# --- use


def test_labels_are_a_softmax_over_logits(model: Bundle, photos: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = photos / "05.png"
    vectors = model.embed([str(path), *LABELS])
    assert torch.allclose(vectors.norm(dim=1), torch.ones(4), atol=1e-5)
    shares = towers(model).similarity(vectors[:1], vectors[1:]).softmax(-1)[0].tolist()
    code, out = command(capfd, "run", model.folder, path, "--labels", ",".join(LABELS), "--json", "-q")
    found = json.loads(out)
    assert code == 0 and found["image"] == str(path)
    assert list(found["probabilities"].values()) == pytest.approx(shares, abs=1e-4)
    assert found["label"] == LABELS[max(range(3), key=shares.__getitem__)]
    with Image.open(path) as opened:
        several = [str(path), np.asarray(opened), opened, path.read_bytes()]
        for one in (*several, *model.classify(several, labels=LABELS)):
            got = (
                one
                if not isinstance(one, str | bytes | np.ndarray | Image.Image)
                else model.classify(one, labels=LABELS)
            )
            assert list(got.probabilities.values()) == pytest.approx(shares, abs=1e-4)


def test_images_are_found_by_a_text_and_texts_by_an_image(
    model: Bundle, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = sorted(map(str, photos.glob("*.png")))
    order = (model.embed(paths) @ model.embed(LABELS[0])).argsort(descending=True).tolist()
    expected = [paths[i] for i in order]
    assert [near.text for near in model.nearest(LABELS[0], paths, 3)] == expected[:3]
    plain = tmp_path / "plain"
    plain.mkdir()
    for path in photos.glob("*.png"):
        (plain / path.name).symlink_to(path)
    index = tmp_path / "photos.index"
    for _ in range(2):  # the second search reads the vectors
        words = ("run", model.folder, "--nearest", plain, "--index", index, LABELS[0], "top=3", "--json", "-q")
        code, out = command(capfd, *words)
        rows = json.loads(out)["nearest"]
        assert code == 0 and [Path(row["text"]).name for row in rows] == [Path(path).name for path in expected[:3]]
        assert index.exists()
    (tmp_path / "texts.txt").write_text("\n".join(LABELS) + "\n")
    code, out = command(capfd, "run", model.folder, "--nearest", tmp_path / "texts.txt", paths[0], "--json", "-q")
    best = int((model.embed(list(LABELS)) @ model.embed(paths[0])).argmax())
    found = json.loads(out)
    assert (code, found["image"], found["nearest"][0]["text"]) == (0, paths[0], LABELS[best])
    assert found["nearest"][0]["line"] == best + 1
    assert model.search_index([*paths[:4], "a text"]).search(paths[2], 1)[0].text == paths[2]


def test_labels_do_not_go_with_texts_or_other_models(
    model: Bundle, photos: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(capfd, "run", model.folder, "a text", "--labels", "a,b", "-q")[0] == DataError.exit_code
    assert command(capfd, "run", model.folder, photos / "01.png", "--labels", "a", "-q")[0] == DataError.exit_code
    assert command(capfd, "run", model.folder, "--nearest", photos, "a b", "--labels", "a,b", "-q")[0] == 2
    assert command(capfd, "run", model.folder, photos / "01.png", "--beam", "2", "-q")[0] == 2


def test_a_request_brings_its_labels(model: Bundle, photos: Path) -> None:
    pytest.importorskip("fastapi")
    import asyncio
    import base64
    from types import SimpleNamespace

    from headway.serve.limits import Limits
    from headway.serve.predict import Tasks

    tasks = Tasks(model, Limits(), model.config.max_length)
    raw = (photos / "05.png").read_bytes()
    body = SimpleNamespace(
        input=[{"image": base64.b64encode(raw).decode(), "labels": list(LABELS)}], pair=None, context=None
    )
    (found,) = asyncio.run(tasks.run(tasks.choose(None), tasks.check(body, tasks.choose(None))[0]))
    assert found["label"] == model.classify(raw, labels=LABELS).label
    assert tasks.embedder == "contrastive"
    texts = SimpleNamespace(input=["a red circle"], pair=None, context=None)
    (vector,) = asyncio.run(tasks.run(tasks.embedder, tasks.check(texts, tasks.embedder)[0]))
    assert vector["embedding"] == pytest.approx(model.embed("a red circle").tolist(), abs=1e-5)


def test_the_evaluation_shows_pictures(model: Bundle, photos: Path) -> None:
    found = ContrastivePredictor(model).examine(str(photos))
    assert found.examples == 23 and len(found.details["pictures"]) == 23
    assert all(picture["png"].startswith("data:image/png;base64,") for picture in found.details["pictures"])
    assert list(found.metrics) == ["text_recall_1", "text_recall_5", "image_recall_1", "image_recall_5"]
    for value, low, high in found.metrics.values():
        assert 0 <= low <= value <= high <= 1
