"""How a folder says its model writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.errors import ConfigError
from headway.hub.generation import Generation, read_generation


def write(folder: Path, name: str, **said: Any) -> None:
    (folder / name).write_text(json.dumps(said))


def test_the_newer_place_wins(tmp_path: Path) -> None:
    write(tmp_path, "config.json", num_beams=2, max_length=100, forced_eos_token_id=0, length_penalty=2)
    write(tmp_path, "generation_config.json", num_beams=6, forced_bos_token_id=5, bad_words_ids=[[9], [1, 2]],
          early_stopping=True, max_length=None)  # fmt: skip
    found = read_generation(tmp_path)
    assert (found.beam, found.length_penalty, found.longest) == (6, 2, 99)
    assert (found.shortest, found.no_repeat) == (None, None)
    assert found.rules == {"first": 5, "last": 0, "banned": ((9,), (1, 2)), "early": True}


def test_how_long_and_without_repeating(tmp_path: Path) -> None:
    """max_length and min_length count a decoder's first token, as for bart-large-cnn; what is newer does not."""
    write(tmp_path, "config.json", max_length=142, min_length=56, no_repeat_ngram_size=3)
    found = read_generation(tmp_path)
    assert (found.longest, found.shortest, found.no_repeat) == (141, 55, 3)
    write(tmp_path, "generation_config.json", max_new_tokens=30, min_new_tokens=7)
    found = read_generation(tmp_path)
    assert (found.longest, found.shortest, found.no_repeat) == (30, 7, 3)
    write(tmp_path, "generation_config.json", max_new_tokens=0, min_new_tokens=0)
    found = read_generation(tmp_path)
    assert (found.longest, found.shortest) == (1, 0)
    write(tmp_path, "config.json", max_length=1, min_length=0)
    write(tmp_path, "generation_config.json")
    found = read_generation(tmp_path)
    assert (found.longest, found.shortest) == (1, 0)


def test_nothing_said(tmp_path: Path) -> None:
    assert read_generation(None) == read_generation(tmp_path) == Generation()
    write(tmp_path, "config.json", early_stopping=False, forced_eos_token_id=[7, 8])
    assert read_generation(tmp_path) == Generation(rules={"last": 7})


@pytest.mark.parametrize("said", [
    {"num_beams": "4"}, {"num_beams": True}, {"max_length": 2.5}, {"length_penalty": "x"}, {"bad_words_ids": [[]]},
    {"bad_words_ids": [3]}, {"forced_bos_token_id": "a"}, {"no_repeat_ngram_size": "3"}, {"min_length": 1.5},
    {"max_new_tokens": "9"},
])  # fmt: skip
def test_a_value_of_the_wrong_kind(tmp_path: Path, said: dict[str, Any]) -> None:
    write(tmp_path, "generation_config.json", **said)
    with pytest.raises(ConfigError, match=next(iter(said))):
        read_generation(tmp_path)
