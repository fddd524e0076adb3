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

from headway.cli.run import predict
from headway.errors import ConfigError, UsageError, nearest

DEFAULT_TOKENS = 200
"""Tokens that are written where nobody says."""


def split_text(args: list[str], beam: int, *, chat: bool) -> tuple[str, list[str]]:
    """The text to go on from, which may be left out, and the settings after it."""
    first = args[0] if args else ""
    known, spaced = first.partition("=")[0] in _generation_fields(beam), re.search(r"\s", first)
    if re.match(r"[a-z_]+=", first) and ((known or not spaced) if chat else (known and not spaced)):
        return "", args
    return first, args[1:]


def read_text(arg: str) -> str:
    return sys.stdin.read().removesuffix("\n") if arg == "-" else arg


def generation_overrides(args: Sequence[str], tokens: int | None, seed: int | None, beam: int) -> dict[str, Any]:
    """What options and the words after a text set of sampling or of a beam search."""
    from headway.config.toml import parse_overrides

    plain = [arg for arg in args if "=" not in arg]
    if plain:
        raise UsageError("U001", f"{plain[0]!r} is neither the text nor key=value", "put the text in quotes")
    values = parse_overrides(args)
    if isinstance(values.get("stop_strings"), str):
        values["stop_strings"] = [values["stop_strings"]]
    options = {"max_tokens": tokens, **({"width": beam} if beam else {"seed": seed})}
    return {**{name: value for name, value in options.items() if value is not None}, **values}


def generation_settings(given: Mapping[str, Any], beam: int) -> Any:
    """A Sampling, or a Beam, with values of whoever asks and of the model's folder."""
    from headway.config.toml import build
    from headway.generate.beam.search import Beam
    from headway.generate.sampling.sampler import Sampling

    made: Any = build(Beam if beam else Sampling, {"max_tokens": DEFAULT_TOKENS, **given})
    return made


def check_args(args: Sequence[str], tokens: int | None, seed: int | None, beam: int) -> None:
    """Refuse settings that are wrong for every model."""
    from headway.config.toml import parse_overrides

    known, generation, others = _generation_fields(beam), list[str](), list[str]()
    for arg in args:
        found = predict.SETTING.match(arg)
        if found is None or re.search(r"\s", arg):
            continue  # a text to a model that reads
        if found[1] in predict.setting_names():
            others.append(arg)
        elif found[1] in known:
            generation.append(arg)
        else:
            hint = f"to write: {', '.join(known)}; for models that read: {', '.join(predict.setting_names())}"
            message = f"unknown setting {found[1]}{nearest(found[1], [*known, *predict.setting_names()])}"
            raise ConfigError("C014", message, hint)
    generation_settings(generation_overrides(generation, tokens, seed, beam), beam)
    predict.check_settings(parse_overrides([arg for arg in others if not arg.startswith("pair=")]))


def _generation_fields(beam: int) -> list[str]:
    """Names of the settings of writing."""
    from headway.generate.beam.search import Beam
    from headway.generate.sampling.sampler import Sampling

    return [field.name for field in fields(Beam if beam else Sampling)]
