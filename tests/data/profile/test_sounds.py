"""The survey of sounds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headway.api.dataset import next_of_sounds
from headway.cli import main
from headway.data.profile.pictures import holds_images
from headway.data.profile.sounds import SoundSurvey, holds_sounds, survey_sounds
from headway.data.sounds.wav import wav_bytes

DICE = np.random.default_rng(0)


def noise(seconds: float, rate: int = 8000, loud: float = 0.5) -> bytes:
    return wav_bytes((loud * DICE.uniform(-1, 1, round(seconds * rate))).astype(np.float32), rate)


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    same = noise(0.5)
    files = {"cat/1.wav": same, "cat/2.wav": noise(2, 16000, 3), "dog/3.wav": same, "dog/4.wav": noise(1, loud=0.001)}
    for name, raw in {**files, "cat/broken.wav": same[:60]}.items():
        path = tmp_path / "clips" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
    (tmp_path / "clips" / "notes.txt").write_text("hello")
    return tmp_path / "clips"


def test_counts_seconds_rates_broken_files_and_duplicates(clips: Path) -> None:
    found = survey_sounds(str(clips))
    assert (found.sounds, found.labels, found.bad) == (4, {"cat": 2, "dog": 2}, 1)
    assert found.lengths == (0.5, 1.0, 2.0) and found.seconds == 4.0
    assert found.rates == {8000: 3, 16000: 1} and found.channels == {1: 4}
    assert (found.silent, found.clipped) == (1, 1)
    assert [Path(a).name for a, _ in found.duplicates] == ["3.wav"] and found.others == ["notes.txt"]
    assert "broken.wav" in found.bad_lines[0]


def test_the_command(clips: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--json"], ["--bad"], ["--sheet", "x.html"]):
        with pytest.raises(SystemExit) as caught:
            main(["data", str(clips), *words])
        out, err = capsys.readouterr()
        assert caught.value.code == (2 if "--sheet" in words else 0), err
        if "--json" in words:
            assert json.loads(out)["sounds"] == 4
        elif words == ["--bad"]:
            assert "broken.wav" in out and len(out.splitlines()) == 1
        elif not words:
            assert "4 sounds" in out and "at 16,000 Hz" in out and "headway train audio_classification" in err


def test_what_is_a_dataset_of_sounds(clips: Path, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(f"path,label\n{clips}/cat/1.wav,a\n")
    (tmp_path / "texts.csv").write_text("path,label\nsome words,a\n")
    for spec in (clips, clips / "cat" / "1.wav", f"{clips}/*/*.wav", tmp_path / "list.csv"):
        assert holds_sounds(str(spec)) and not holds_images(str(spec))
    assert not holds_sounds(str(tmp_path / "texts.csv"))
    assert next_of_sounds(SoundSurvey("x")) == ""
    assert next_of_sounds(SoundSurvey("x", sounds=3, labels={"a": 1})) == ""
