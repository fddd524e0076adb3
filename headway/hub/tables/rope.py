"""Rotary positions in config.json, in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.config.model import RopeConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config

_KEYS: dict[str, dict[str, str]] = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_factor",
        "high_freq_factor": "high_factor",
        "original_max_position_embeddings": "original_length",
    },
}
"""Types of rotary positions, each with their keys → our fields."""
ROPE_FIELDS = ("rope_theta", "rope_scaling", "rope_parameters")
SHARE = "partial_rotary_factor"
"""The share of a head that is rotated: a field of config.json, or of its rope_parameters."""


def read_rope(
    settings: Config,
    theirs: Mapping[str, Any],
    *,
    partial: float | None = None,
    theta: float = 10_000.0,
    stacks: Sequence[str] = ("decoder",),
) -> None:
    """Rotary positions of whole stacks. `partial` and `theta` as in `rope_settings`."""
    rope = rope_settings(settings, theirs, partial=partial, theta=theta)
    settings.update({f"{stack}.rope.{name}": value for stack in stacks for name, value in rope.items()})


def rope_settings(
    settings: Config, theirs: Mapping[str, Any], *, partial: float | None = None, theta: float = 10_000.0
) -> Config:
    """Our settings of rotary positions. config.json has rope_theta and rope_scaling, or rope_parameters with both.

    `partial` is the share of a head that is rotated if the file does not say it; None: always the whole head. `theta`
    is the base if the file has none.
    """
    found = {
        name: _one_table(name, theirs[name], settings, theirs, partial, theta)
        for name in ("rope_parameters", "rope_scaling")
        if theirs.get(name) not in (None, {})
    }
    if len(found) == 2 and found["rope_parameters"] != found["rope_scaling"]:
        both = " and ".join(f"{name} = {short(theirs[name])}" for name in found)
        raise ConfigError("C004", f"config.json: {both} do not agree", "remove the wrong one")
    return next(iter(found.values()), _one_table("rope_parameters", {}, settings, theirs, partial, theta))


def _one_table(
    name: str, rope: Any, settings: Config, theirs: Mapping[str, Any], partial: float | None, usual_theta: float
) -> Config:
    """One of the two tables as our settings. All keys have to be known, and all values of rope_theta the same."""
    if not isinstance(rope, Mapping):
        raise ConfigError("C002", f"config.json: {name} = {short(rope)} should be a table")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if not isinstance(kind, str) or kind not in _KEYS or rope.get("type", kind) != kind:
        raise ConfigError("C022", f"config.json: rope type {short(kind)}; headway knows {', '.join(_KEYS)}")
    keys = _KEYS[kind]
    for key, value in rope.items():
        if key == SHARE and (partial is not None or value == 1):
            continue
        if key not in (*keys, "rope_type", "type", "rope_theta") and value is not None:
            what = f"unknown field {short(key)} = {short(value)} in {name} of type {kind}"
            raise ConfigError("C021", f"config.json: {what}", "it may change what the model computes")
    theta = theirs.get("rope_theta", usual_theta)
    inner = rope.get("rope_theta", theta)
    if inner is not theta and inner != theta and "rope_theta" in theirs:
        both = f"rope_theta = {short(theta)} and {name}.rope_theta = {short(inner)}"
        raise ConfigError("C004", f"config.json: {both} do not agree", "remove the wrong one")
    usual = {"original_max_position_embeddings": settings["target.positions.length"]}
    for key in keys:
        if key not in rope and key not in usual:
            raise ConfigError("C004", f'config.json: rope type {kind} needs "{key}"')
    scaling = {"scaling": kind} if keys else {}
    if partial is not None:
        scaling["partial"] = rope.get(SHARE, theirs.get(SHARE, partial))
    return {"theta": inner, **scaling, **{ours: rope.get(key, usual.get(key)) for key, ours in keys.items()}}


def write_rope(theirs: Config, rope: RopeConfig) -> None:
    theirs["rope_theta"] = rope.theta  # transformers 5 still reads this place of older versions
    if rope.scaling == "linear":
        theirs["rope_scaling"] = {"rope_type": "linear", "factor": rope.factor}
    elif rope.scaling == "llama3":
        theirs["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": rope.factor,
            "low_freq_factor": rope.low_factor,
            "high_freq_factor": rope.high_factor,
            "original_max_position_embeddings": rope.original_length,
        }
