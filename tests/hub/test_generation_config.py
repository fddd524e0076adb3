"""How a folder says its model writes."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from headway.errors import ConfigError
from headway.generate.sampling.sampler import Sampling
from headway.hub.generation_config import (
    BY_KIND,
    SUPPORTED,
    UNSUPPORTED,
    WITHOUT_EFFECT,
    GenerationSettings,
    read_generation,
)


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
    assert read_generation(None) == read_generation(tmp_path) == GenerationSettings()
    write(tmp_path, "config.json", early_stopping=False, forced_eos_token_id=[7, 8])
    assert read_generation(tmp_path) == GenerationSettings(rules={"last": 7}, sampling={"last": 7}, search={"last": 7})


@pytest.mark.parametrize("said", [
    {"num_beams": "4"}, {"num_beams": True}, {"max_length": 2.5}, {"length_penalty": "x"}, {"bad_words_ids": [[]]},
    {"bad_words_ids": [3]}, {"forced_bos_token_id": "a"}, {"no_repeat_ngram_size": "3"}, {"min_length": 1.5},
    {"max_new_tokens": "9"},
])  # fmt: skip
def test_a_value_of_the_wrong_kind(tmp_path: Path, said: dict[str, Any]) -> None:
    write(tmp_path, "generation_config.json", **said)
    with pytest.raises(ConfigError, match=next(iter(said))):
        read_generation(tmp_path)


def test_every_field_of_the_format_is_classified() -> None:
    """Followed, without effect on the text, or named in a note: none is passed over in silence."""
    transformers = pytest.importorskip("transformers")
    fields = {*vars(transformers.GenerationConfig())}
    classes = [{*SUPPORTED}, {*WITHOUT_EFFECT}, {*UNSUPPORTED}]
    assert fields - set().union(*classes) == set()
    assert all(not a & b for a, b in combinations(classes, 2))
    assert {*SUPPORTED} - fields <= {"forced_decoder_ids"}, "a name that the format does not have"
    assert all(WITHOUT_EFFECT.values())


SET: dict[str, Any] = {"constraints": [[1]], "dola_layers": "high", "force_words_ids": [[1]], "max_time": 2.0,
                       "watermarking_config": {"bias": 2.0}, "top_h": 0.4}  # fmt: skip


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_followed_is_named(tmp_path: Path, name: str) -> None:
    off = UNSUPPORTED[name]
    write(tmp_path, "generation_config.json", **{name: off[0] if off else None}, transformers_version="5")
    assert read_generation(tmp_path).notes(encodes=True) == read_generation(tmp_path).notes(encodes=False) == ()
    value = SET.get(name, True if off[:1] == (False,) else 3)
    for place in ("config.json", "generation_config.json"):
        write(tmp_path, "generation_config.json")
        write(tmp_path, place, **{name: value})
        for encodes in (True, False):
            (note,) = read_generation(tmp_path).notes(encodes=encodes)
            assert f"{name} = {value!r}" in note


def test_what_nobody_knows_is_named(tmp_path: Path) -> None:
    """In the newer file; the older one is about the model."""
    write(tmp_path, "generation_config.json", top_q=3, cache_implementation="static")
    write(tmp_path, "config.json", hidden_size=3, _attn_implementation_autoset=True)
    assert "top_q = 3" in read_generation(tmp_path).notes(encodes=False)[0]
    assert "cache" not in read_generation(tmp_path).notes(encodes=False)[0]


def test_what_one_kind_of_model_follows_and_the_other_does_not(tmp_path: Path) -> None:
    write(tmp_path, "generation_config.json", do_sample=True, stop_strings=["x"], num_beams=3, forced_bos_token_id=4)
    found = read_generation(tmp_path)
    named = [{name for name in BY_KIND if f"{name} =" in found.notes(encodes=encodes)[0]} for encodes in (True, False)]
    assert named == [{"do_sample", "stop_strings"}, {"num_beams", "forced_bos_token_id"}]


@pytest.mark.parametrize(("said", "wanted"), [
    ({}, {}),
    ({"do_sample": False, "temperature": 0.5}, {"temperature": 0.0}),
    ({"do_sample": True}, {"temperature": 1.0, "top_k": 50}),
    ({"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 0},
     {"temperature": 0.6, "top_p": 0.9, "top_k": 0}),
    ({"temperature": 0.6, "top_k": -1}, {"temperature": 0.6, "top_k": 0}),
    ({"typical_p": 0.9, "epsilon_cutoff": 3e-4, "eta_cutoff": 1e-3, "min_p": 0.1},
     {"typical_p": 0.9, "epsilon": 3e-4, "eta": 1e-3, "min_p": 0.1}),
    ({"stop_strings": "\n"}, {"stop_strings": ("\n",)}),
    ({"max_length": 20}, {}),
    ({"max_length": 4096, "min_length": 3}, {"max_length": 4096, "min_length": 3}),
    ({"max_length": 4096, "max_new_tokens": 9, "min_length": 3, "min_new_tokens": 2},
     {"max_tokens": 9, "min_tokens": 2}),
    ({"eos_token_id": 3, "bad_words_ids": [[3], [4]], "suppress_tokens": [5]}, {"banned": ((4,), (5,))}),
])  # fmt: skip
def test_how_a_decoder_draws(tmp_path: Path, said: dict[str, Any], wanted: dict[str, Any]) -> None:
    write(tmp_path, "generation_config.json", **said)
    found = read_generation(tmp_path)
    assert found.sampling == wanted
    assert Sampling(**found.fields({"seed": 3})) == Sampling(**wanted, seed=3)


def test_older_folders_that_list_the_usual_values_say_nothing(tmp_path: Path) -> None:
    write(tmp_path, "config.json", do_sample=False, temperature=1.0, top_k=50, top_p=1.0, repetition_penalty=1.0,
          num_return_sequences=1, max_length=20, early_stopping=False, num_beam_groups=1)  # fmt: skip
    found = read_generation(tmp_path)
    assert found.sampling == found.search == found.rules == found.ignored == {}
    write(tmp_path, "config.json", do_sample=True, temperature=0.7)
    assert read_generation(tmp_path).sampling == {"temperature": 0.7, "top_k": 50}


def test_what_somebody_asks_for_wins(tmp_path: Path) -> None:
    write(tmp_path, "generation_config.json", temperature=0.6, top_p=0.9, max_length=99, early_stopping="never")
    found = read_generation(tmp_path)
    assert found.fields({"top_p": 0.5}) == {"temperature": 0.6, "top_p": 0.5, "max_length": 99}
    assert found.fields({"max_tokens": 7}) == {"temperature": 0.6, "top_p": 0.9, "max_tokens": 7}
    assert found.fields({"width": 2}, beam=True) == {"max_length": 99, "early": "never", "width": 2}
    line = found.taken({"top_p": 0.5, "max_tokens": 3})
    assert "temperature = 0.6" in line and "top_p" not in line and "max_length" not in line
    assert GenerationSettings().taken({}) == ""


@pytest.mark.parametrize("said", [
    {"do_sample": "yes"}, {"temperature": "hot"}, {"top_k": 1.5}, {"stop_strings": [1]}, {"stop_strings": [""]},
    {"suppress_tokens": 3}, {"suppress_tokens": ["a"]}, {"begin_suppress_tokens": [1.5]}, {"sequence_bias": [[3, 1.0]]},
    {"sequence_bias": [[[3], "x"]]}, {"exponential_decay_length_penalty": [1]}, {"forced_decoder_ids": [[1]]},
    {"forced_decoder_ids": [[1, "a"]]}, {"early_stopping": "soon"}, {"eos_token_id": "a"}, {"eos_token_id": [1, "a"]},
    {"encoder_no_repeat_ngram_size": 2.0}, {"repetition_penalty": "1"},
])  # fmt: skip
def test_a_newer_value_of_the_wrong_kind(tmp_path: Path, said: dict[str, Any]) -> None:
    write(tmp_path, "generation_config.json", **said)
    with pytest.raises(ConfigError) as error:
        read_generation(tmp_path)
    assert error.value.code == "C002" and next(iter(said)) in error.value.message
