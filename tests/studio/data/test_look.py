"""A look at data finds what `headway data` finds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headway.api.dataset import profile
from headway.data.images.png import png
from headway.data.sounds.wav import wav_bytes
from headway.errors import ConfigError, DataError, HeadwayError, NotFoundError
from headway.studio.data.look import ROWS, look


def table(path: Path, rows: int = 60) -> str:
    path.write_text("id,review,verdict\n" + "".join(f"{i},a text of {i} words,{'ab'[i % 2]}\n" for i in range(rows)))
    return str(path)


def test_rows_have_their_survey_their_roles_and_the_words_to_train_on_them(tmp_path: Path) -> None:
    spec = table(tmp_path / "reviews.csv")
    found = look(spec)
    assert (found["kind"], found["recipe"], found["task"]["name"]) == ("rows", "classify", "classify")
    assert json.dumps(found["facts"]) == json.dumps(profile(spec).to_dict())
    assert found["roles"] == {"review": ("text", "data.text"), "verdict": ("label", "data.label")}
    assert found["words"] == [f"data.train={spec}"]
    assert len(found["head"]["rows"]) == ROWS and found["head"]["rows"][0] == ["0", "a text of 0 words", "a"]
    json.dumps(found, allow_nan=False)


def test_bad_rows_and_overlap_lead_to_words(tmp_path: Path) -> None:
    spec, valid = table(tmp_path / "reviews.csv"), table(tmp_path / "valid.csv", 5)
    with open(spec, "a", encoding="utf-8") as file:
        file.write("61,,a\n62,text,\n")
    found = look(spec, valid)
    assert found["words"] == [f"data.train={spec}", f"data.valid={valid}", "data.bad_rows=skip"]
    assert found["facts"]["bad"] == 2 and found["facts"]["bad_lines"][0].endswith(
        'reviews.csv:62: column "review": empty'
    )
    assert found["facts"]["overlap"]["equal"] == 5


def test_a_text_shows_its_paragraphs(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("One.\nTwo.\n\nThree.\n")
    found = look(str(tmp_path / "book.txt"))
    assert found["head"] == {"columns": ["paragraphs"], "rows": [["One. Two."], ["Three."]], "lines": [1, 4]}
    assert found["recipe"] == "lm"


def test_images_come_with_a_contact_sheet(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(3):
            (tmp_path / name / f"{i}.png").write_bytes(png(np.full((8, 8, 3), 20 * i + len(name), np.uint8)))
    (tmp_path / "cat" / "broken.png").write_bytes(b"no image")
    found = look(str(tmp_path))
    assert (found["kind"], found["recipe"]) == ("images", "images")
    assert [(row["label"], len(row["images"])) for row in found["sheet"]] == [("cat", 3), ("dog", 3)]
    assert found["facts"]["labels"] == {"cat": 3, "dog": 3} and found["words"][-1] == "data.bad_rows=skip"


def test_sounds_and_pairs_are_looked_at(tmp_path: Path) -> None:
    for name in ("low", "high"):
        (tmp_path / "sounds" / name).mkdir(parents=True)
        sound = np.sin(np.arange(800) * (0.1 if name == "low" else 0.9)).astype(np.float32)
        (tmp_path / "sounds" / name / "1.wav").write_bytes(wav_bytes(sound, 8000))
    found = look(str(tmp_path / "sounds"))
    assert (found["kind"], found["recipe"], found["facts"]["sounds"]) == ("sounds", "audio_classification", 2)
    (tmp_path / "a.en").write_text("the dog\nthe cat\n")
    (tmp_path / "a.de").write_text("der Hund\ndie Katze\n")
    found = look(f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}")
    assert (found["kind"], found["recipe"], found["head"]["rows"][0]) == ("pairs", "translate", ["the dog", "der Hund"])


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "binary.txt").write_bytes(b"\x7fELF" + bytes(3000))
    (tmp_path / "empty").mkdir()
    for spec, kind, code in (
        ("nowhere.csv", NotFoundError, "F001"),
        (str(tmp_path / "binary.txt"), DataError, "D003"),
        (str(tmp_path / "empty"), DataError, "D002"),
        ("  ", HeadwayError, "U001"),
        ("a\0b", HeadwayError, "F001"),
    ):
        with pytest.raises(kind) as caught:
            look(spec)
        assert caught.value.code == code, spec
    with pytest.raises(ConfigError):
        look(str(tmp_path / "binary.txt"), encoding="klingon")


def test_nothing_is_fetched_that_nobody_asked_for() -> None:
    with pytest.raises(NotFoundError, match="no such file: org/name") as caught:
        look("org/name")
    assert "hf://org/name" in caught.value.hint
