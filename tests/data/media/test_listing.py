"""What an error about a missing column says of the table."""

from __future__ import annotations

from pathlib import Path

from headway.data.media.listing import columns_there


def test_columns_of_a_table_are_listed(tmp_path: Path) -> None:
    table = tmp_path / "clips.csv"
    table.write_text("file,bird\na.wav,robin\n", encoding="utf-8")
    assert columns_there(str(table), 2) == '; there are "file", "bird"'
    assert columns_there(str(tmp_path / "robin" / "a.wav"), 0) == ""
    assert columns_there("", 3) == ""  # made up
