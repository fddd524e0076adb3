"""Files below a folder with links; and what an error about a missing column says of the table."""

from __future__ import annotations

from pathlib import Path

from headway.data.images.rows import image_files
from headway.data.media.listing import below, columns_there
from headway.data.sounds.rows import sound_files


def test_columns_of_a_table_are_listed(tmp_path: Path) -> None:
    table = tmp_path / "clips.csv"
    table.write_text("file,bird\na.wav,robin\n", encoding="utf-8")
    assert columns_there(str(table), 2) == '; there are "file", "bird"'
    assert columns_there(str(tmp_path / "robin" / "a.wav"), 0) == ""
    assert columns_there("", 3) == ""  # made up


def test_links_are_followed_but_not_round_and_round(tmp_path: Path) -> None:
    there, data = tmp_path / "there", tmp_path / "data"
    for folder in (there, data / "dog"):
        folder.mkdir(parents=True)
        (folder / "1.png").write_bytes(b"x")
    (data / "cat").symlink_to(there)
    (there / "back").symlink_to(data)
    (data / "dog" / "loop").symlink_to(data / "dog")
    found = [path.relative_to(data).as_posix() for path in below(data)]
    assert found == ["cat/1.png", "dog/1.png"]


def test_a_link_to_nothing_is_not_among_the_files_of_a_run(tmp_path: Path) -> None:
    for name in ("1.png", "1.wav"):
        (tmp_path / name).write_bytes(b"x")
        (tmp_path / f"gone{name}").symlink_to("nowhere")
    assert [path.name for path in image_files(str(tmp_path))] == ["1.png"]
    assert [path.name for path in sound_files(str(tmp_path))] == ["1.wav"]
