"""What may change in a recipe when its run is resumed, and what did.

Every setting stands in exactly one of the two sets below; a test walks over all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from headway.config.toml import short
from headway.errors import ConfigError
from headway.tasks.recipe import SETTINGS, Recipe, batch_size

FREE = frozenset(
    {
        *("out", "gpus", "data.workers"),
        # by path only: train/provenance.py compares what the files hold
        *("data.train", "data.valid", "data.test", "model.from"),
        *("train.steps", "train.minutes", "train.epochs", "train.accumulate"),
        *("train.lr", "train.schedule", "train.warmup", "train.final_lr", "train.weight_decay", "train.betas"),
        *("train.layer_decay", "train.unfreeze", "train.clip", "train.average", "train.on_nan"),
        *("train.dtype", "train.compile", "train.record", "train.checkpointing"),
        *("train.sinks", "train.eval_every", "train.sample_every", "train.save_every", "train.keep"),
    }
)
"""How long, how fast, how often, and where: the state of a run means the same with another value."""
FIXED = frozenset(
    {
        *("task", "seed"),
        *("data.text", "data.pair", "data.label", "data.bad_rows", "data.lines", "data.rows", "data.length"),
        *("data.tokenizer", "data.vocab", "data.lower", "data.overlap", "data.noise"),
        *("model.kind", "model.attention", "model.bidirectional", "model.kernel", "model.lora", "model.lora_targets"),
        *("model.freeze", "model.depth", "model.encoder_depth", "model.width", "model.ff", "model.heads"),
        *("model.kv_heads", "model.norm", "model.norm_at", "model.residual", "model.positions", "model.activation"),
        *("model.gated", "model.bias", "model.window", "model.tied", "model.dropout"),
        *("train.batch", "train.batch_tokens", "train.optimizer"),
        # a checkpoint has running means and best weights only where the run asked for them
        *("train.ema", "train.patience", "train.keep_best"),
    }
)
"""What is learned, from what, in which order, and how it is measured."""


class Change(NamedTuple):
    """A setting with another value than before."""

    key: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.key} {_shown(self.before)} → {_shown(self.now)}"


def flat(config: Any, where: str = "") -> dict[str, Any]:
    """All settings of a recipe by their dotted names."""
    found: dict[str, Any] = {}
    for field in fields(config):
        name = config.task if field.name == SETTINGS else field.name.rstrip("_")
        key, value = where + name, getattr(config, field.name)
        found |= flat(value, f"{key}.") if is_dataclass(value) else {key: value}
    return found


def recipe_changes(before: Recipe, now: Recipe) -> list[Change]:
    """The settings that differ, in the order of the recipe."""
    was, current = flat(before), flat(now)
    return [Change(key, was.get(key), value) for key, value in current.items() if was.get(key) != value]


def check_changes(before: Recipe, now: Recipe) -> list[Change]:
    """The changes of a resumed recipe; an error if one of them would make it another run."""
    changes = recipe_changes(before, now)
    if refused := [change for change in changes if change.key not in FREE]:
        listed = "; ".join(map(str, refused))
        hint = "go on with the value before, or start a new run: headway train RECIPE"
        raise ConfigError("C040", f"a resumed run cannot change {listed}", hint)
    if (old := batch_size(before)) != (new := batch_size(now)):
        why = f"train.accumulate = {now.train.accumulate} makes the batch {new} sequences instead of {old}"
        raise ConfigError("C040", why, f"take a number of parts that divides {old}")
    return changes


def value_changes(before: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> list[Change]:
    """Plain nested values that differ; what only one of the two knows, another version of headway has added."""
    found = []
    for key in before.keys() & now.keys():
        old, new = before[key], now[key]
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += value_changes(old, new, f"{where}{key}.")
        elif old != new:
            found.append(Change(where + key, old, new))
    return sorted(found, key=lambda change: change.key)


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "unset"
    return value if isinstance(value, str) and len(value) <= 100 else short(value)
