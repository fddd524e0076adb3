"""The survey of images, and its contact sheet."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from headway.api.dataset import next_of_images
from headway.cli import main
from headway.data.images.decode import open_image
from headway.data.images.png import png
from headway.data.profile.pictures import ImageSurvey, holds_images, survey_images

DICE = np.random.default_rng(0)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    same = DICE.integers(0, 255, (10, 12, 3), dtype=np.uint8)
    pictures = {"cat/1": same, "cat/2": DICE.integers(0, 255, (30, 20), dtype=np.uint8), "dog/3": same}
    for name, pixels in pictures.items():
        path = tmp_path / "photos" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(pixels))
    (tmp_path / "photos" / "cat" / "broken.jpg").write_bytes(b"\xff\xd8 no")
    (tmp_path / "photos" / "notes.txt").write_text("hello")
    return tmp_path / "photos"


def test_counts_sizes_broken_files_and_duplicates(photos: Path) -> None:
    found, thumbnails = survey_images(str(photos))
    assert (found.images, found.labels, found.grey, found.bad) == (3, {"cat": 2, "dog": 1}, 1, 1)
    assert found.widths == (12, 12, 20) and found.heights == (10, 10, 30)
    assert [Path(a).name for a, _ in found.duplicates] == ["3.png"] and found.others == ["notes.txt"]
    assert "broken.jpg" in found.bad_lines[0] and {name: len(x) for name, x in thumbnails.items()} == found.labels
    said = "\n".join(found.lines())
    assert "dog" in said and "single image" in said and "notes.txt" in said


def test_duplicates_between_parts_are_told_apart(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    for part in ("train", "test"):
        (tmp_path / "all" / part).symlink_to(photos)
    found, _ = survey_images(str(tmp_path / "all"))
    assert found.parts == {"train": 3, "test": 3} and found.across == 3


@pytest.mark.parametrize("name", ["sheet.png", "sheet.html"])
def test_the_command_writes_a_contact_sheet(
    photos: Path, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    with pytest.raises(SystemExit) as caught:
        main(["data", str(photos), "--sheet", str(path), "--json"])
    out, err = capfd.readouterr()
    assert not caught.value.code and json.loads(out)["images"] == 3, err
    assert "headway train images" in err and "data.bad_rows=skip" in err
    if name.endswith(".png"):
        assert open_image(path).height == 2 * 64 + 2
    else:
        page = path.read_text()
        assert page.count("<img") == 3 and "dog" in page and "http" not in page.replace("http-equiv", "")


def test_what_holds_images(photos: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 4, 4), np.uint8))
    (tmp_path / "list.csv").write_text("path,label\nphotos/cat/1.png,cat\n")
    (tmp_path / "texts.csv").write_text("path,text\nnotes.md,hello\n")
    (tmp_path / "words.txt").write_text("hello\n")
    yes = (photos, photos / "cat" / "1.png", tmp_path / "a.npz", tmp_path / "list.csv", f"{photos}/*/*.png")
    assert all(holds_images(str(each)) for each in yes)
    no = (tmp_path / "texts.csv", tmp_path / "words.txt", tmp_path / "nowhere", "org/name")
    assert not any(holds_images(str(each)) for each in no)


@pytest.mark.parametrize(
    ("labels", "captions", "recipe"), [({"a": 1, "b": 1}, 1, "images"), ({}, 1, "caption"), ({"a": 2}, 0, "dino")]
)
def test_the_next_step_fits_what_is_beside_the_images(labels: dict[str, int], captions: int, recipe: str) -> None:
    found = ImageSurvey("photos", images=2, labels=labels, captions=captions)
    assert next_of_images(found, Path("sheet.html")) == f"next: headway train {recipe} data.train=photos"


def test_options_for_texts_are_refused(photos: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["--column", "x"], ["--encoding", "latin-1"]):
        with pytest.raises(SystemExit) as caught:
            main(["data", str(photos), *words])
        assert caught.value.code == 2 and words[0] in capfd.readouterr().err
