"""The words after `headway run MODEL`: texts, and settings of how to write or how to read.

Which of them a model takes depends on what it is for, and that is known once it is loaded; what none could take is
refused before, as loading may take minutes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from headway.cli.run import predict as reading
from headway.errors import ConfigError, UsageError, nearest

TOKENS = 200
"""Tokens that are written where nobody says."""


def split_text(words: list[str], beam: int, *, chat: bool) -> tuple[str, list[str]]:
    """The text to go on from, which may be left out, and the settings after it."""
    first = words[0] if words else ""
    known, spaced = first.partition("=")[0] in _writing(beam), re.search(r"\s", first)
    if re.match(r"[a-z_]+=", first) and ((known or not spaced) if chat else (known and not spaced)):
        return "", words
    return first, words[1:]


def given_text(word: str) -> str:
    return sys.stdin.read().removesuffix("\n") if word == "-" else word


def given_by(words: Sequence[str], tokens: int | None, seed: int | None, beam: int) -> dict[str, Any]:
    """What options and the words after a text set of sampling or of a beam search."""
    from headway.config.toml import parse_overrides

    plain = [word for word in words if "=" not in word]
    if plain:
        raise UsageError("U001", f"{plain[0]!r} is neither the text nor key=value", "put the text in quotes")
    values = parse_overrides(words)
    if isinstance(values.get("stop_strings"), str):
        values["stop_strings"] = [values["stop_strings"]]
    options = {"max_tokens": tokens, **({"width": beam} if beam else {"seed": seed})}
    return {**{name: value for name, value in options.items() if value is not None}, **values}


def settings_of(given: Mapping[str, Any], beam: int) -> Any:
    """A Sampling, or a Beam, with values of whoever asks and of the model's folder."""
    from headway.config.toml import build
    from headway.generate.beam.search import Beam
    from headway.generate.sampling.sampler import Sampling

    made: Any = build(Beam if beam else Sampling, {"max_tokens": TOKENS, **given})
    return made


def check(words: Sequence[str], tokens: int | None, seed: int | None, beam: int) -> None:
    """Refuse settings that are wrong for every model."""
    from headway.config.toml import parse_overrides

    known, writing, others = _writing(beam), list[str](), list[str]()
    for word in words:
        found = reading.SETTING.match(word)
        if found is None or re.search(r"\s", word):
            continue  # a text to a model that reads
        if found[1] in reading.SETTINGS:
            others.append(word)
        elif found[1] in known:
            writing.append(word)
        else:
            hint = f"to write: {', '.join(known)}; for models that read: {', '.join(reading.SETTINGS)}"
            message = f"unknown setting {found[1]}{nearest(found[1], [*known, *reading.SETTINGS])}"
            raise ConfigError("C014", message, hint)
    settings_of(given_by(writing, tokens, seed, beam), beam)
    reading.check_settings(parse_overrides([word for word in others if not word.startswith("pair=")]))


def _writing(beam: int) -> list[str]:
    """Names of the settings of writing."""
    from headway.generate.beam.search import Beam
    from headway.generate.sampling.sampler import Sampling

    return [field.name for field in fields(Beam if beam else Sampling)]
