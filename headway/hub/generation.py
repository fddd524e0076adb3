"""What a model folder says of how its model writes: generation_config.json, and config.json in older folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import ConfigError
from headway.jsonfile import read_json
from headway.settings import short


@dataclass(frozen=True)
class Generation:
    """Settings of a search; None where the folder says nothing."""

    beam: int | None = None
    length_penalty: float | None = None
    longest: int | None = None
    """Tokens after the one that the decoder starts from."""
    shortest: int | None = None
    """Of these, those before the end may come."""
    no_repeat: int | None = None
    """Tokens in a row that are not written twice."""
    rules: dict[str, Any] = field(default_factory=dict)
    """Fields of a Beam that belong to the model: tokens it has to begin or end with, and those it never writes."""


RULES = ("forced_bos_token_id", "forced_eos_token_id", "early_stopping", "bad_words_ids")
"""Keys behind `Generation.rules`: what is trained on from a model keeps to them."""


def rules_in(folder: Path | None) -> dict[str, Any]:
    """The rules of a folder as its files have them."""
    return {key: value for key, value in _said(folder).items() if key in RULES}


def read_generation(folder: Path | None) -> Generation:
    """Of a folder; without one, or without the files, nothing is said."""
    said = _said(folder)
    rules: dict[str, Any] = {"first": _token(said, "forced_bos_token_id"), "last": _token(said, "forced_eos_token_id")}
    rules = {key: value for key, value in rules.items() if value is not None}
    if said.get("early_stopping") is True:
        rules["early"] = True
    if banned := said.get("bad_words_ids"):
        rules["banned"] = _banned(banned)
    return Generation(
        beam=_number(said, "num_beams"),
        length_penalty=_number(said, "length_penalty", kinds=(int, float)),
        longest=_new_tokens(said, "max", 1),
        shortest=_new_tokens(said, "min", 0),
        no_repeat=_number(said, "no_repeat_ngram_size"),
        rules=rules,
    )


def _said(folder: Path | None) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for name in ("config.json", "generation_config.json"):  # the second is the newer place, and wins
        if folder is not None and (folder / name).is_file():
            said |= {key: value for key, value in read_json(folder / name).items() if value is not None}
    return said


def _new_tokens(said: Mapping[str, Any], bound: str, least: int) -> int | None:
    """max_length and min_length count the token that a decoder starts from; their newer forms do not, and win."""
    new, whole = _number(said, f"{bound}_new_tokens"), _number(said, f"{bound}_length")
    if new is None and whole is not None:
        new = whole - 1
    return None if new is None else max(least, new)


def _number(said: Mapping[str, Any], name: str, kinds: tuple[type, ...] = (int,)) -> Any:
    value = said.get(name)
    if value is not None and type(value) not in kinds:
        raise ConfigError("C002", f"generation_config.json: {name} = {short(value)} should be a number")
    return value


def _token(said: Mapping[str, Any], name: str) -> int | None:
    value = said.get(name)
    value = value[0] if isinstance(value, list) and value else value  # several ends: any of them will do
    if value is not None and type(value) is not int:
        raise ConfigError("C002", f"generation_config.json: {name} = {short(value)} should be a token's number")
    return value


def _banned(value: Any) -> tuple[tuple[int, ...], ...]:
    rows = value if isinstance(value, list) else [value]
    if not all(isinstance(row, list) and row and all(type(i) is int for i in row) for row in rows):
        raise ConfigError("C002", f"generation_config.json: bad_words_ids = {short(value)} should be lists of numbers")
    return tuple(tuple(row) for row in rows)
