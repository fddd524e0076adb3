"""How the images of a run are chosen to be prepared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.data.images.png import png
from headway.errors import ConfigError
from headway.tasks.recipe import load_recipe
from headway.tasks.vision.data import choose_preprocess


@pytest.mark.parametrize("how", ["broken", "link"])
def test_an_image_that_cannot_be_read_does_not_count_for_the_size(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "cat"
    folder.mkdir()
    (folder / "2.png").write_bytes(png(np.zeros((48, 50), np.uint8)))
    if how == "link":
        (folder / "1.png").symlink_to("nowhere")
    else:
        (folder / "1.png").write_bytes(b"\x89PNG")
    recipe = load_recipe("images", [f"data.train={tmp_path}"])[1]
    found = choose_preprocess(recipe, str(tmp_path))
    assert (found.size, found.channels) == (48, 1)


def test_a_side_that_would_fill_the_memory_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data.size = 100000 .*4096"):
        load_recipe("images", [f"data.train={tmp_path}", "data.size=100000"])
