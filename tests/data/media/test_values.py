"""Images and sounds that a row, an argument or a request names."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.data.media.values import parse_media
from headway.errors import DataError, HeadwayError


def test_a_folder_is_no_single_file(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match="photos is a folder, not one image") as error:
        parse_media("photos", tmp_path, "image")
    assert "--file" in str(error.value.hint)


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(b"")
    with pytest.raises(HeadwayError, match=r"no such file: .*cta\.png.*cat\.png"):
        parse_media("cta.png", tmp_path, "image")
    assert parse_media("cat.png", tmp_path, "image") == str(tmp_path / "cat.png")


def test_a_request_is_told_to_send_base64_and_no_path() -> None:
    for value in ("", 5, None, {}):
        with pytest.raises(DataError, match="expected the image: base64"):
            parse_media(value, None, "image")
