"""The words of `headway compare`: what is varied, over which seeds, on which equal terms. No torch here."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, cast

from headway.errors import ConfigError, HeadwayError, UsageError, nearest

PATH_KEYS = ("data.train", "data.valid", "data.test")
"""Settings in which a comma separates files, not values to compare."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
RECIPE = "recipe"
"""A varied word that is no setting: whole recipes side by side."""
MOST_VARIANTS = 1000
Equal = Literal["", "params", "flops", "time"]
TERMS = ("params", "flops", "time")


@dataclass(frozen=True)
class Grid:
    """The variants to compare."""

    common: tuple[str, ...]
    """Settings that all runs share."""
    keys: tuple[str, ...]
    """The settings that are varied."""
    variants: tuple[tuple[str, ...], ...]
    """`key=value` settings of each variant; the first setting changes slowest."""
    seeds: tuple[int, ...] | None = None
    """None: `count` seeds, starting with the recipe's own."""
    count: int = 1
    together: bool = False
    """All varied settings change together."""
    equal: Equal = ""
    """What all variants have as much of as the first one: parameters, FLOPs of training, or time."""
    against: str = ""
    """The name of the variant that the others are compared with; empty is the first."""
    lengths: tuple[int, ...] = ()
    """Lengths at which each language model is evaluated after its training."""

    def seeds_from(self, first: int) -> tuple[int, ...]:
        return self.seeds or tuple(range(first, first + self.count))

    @property
    def reference(self) -> int:
        """The index of the variant that the others are compared with."""
        names = variant_names(self)
        wanted = self.against.replace("+", " ")
        if not wanted:
            return 0
        if wanted not in names:
            raise UsageError(
                "U001", f"against={self.against} is no variant{nearest(wanted, names)}", f"one of {', '.join(names)}"
            )
        return names.index(wanted)


def grid(args: Sequence[str]) -> Grid:
    """Parse settings: `key=a,b` is varied, `seeds=` is a count or a list, all others are common.

    Settings that change together are joined by +: `model.kind+model.attention=lstm+none,lstm+dot`. `equal=`, `against=`
    and `lengths=` are words of the comparison.
    """
    common, varied, seeds, count = [], [], None, 1
    own: dict[str, str] = {}
    for arg in args:
        key, equals, raw = arg.partition("=")
        values = [raw] if key in PATH_KEYS else split_values(raw)
        if key == "seeds":
            count, seeds = _seeds(arg, values)
        elif key in ("equal", "against", "lengths"):
            own[key] = raw
        elif equals and len(values) > 1:
            varied.append([_joined(key, value) for value in values])
        else:
            common.append(arg)
    variants = tuple(tuple(itertools.chain(*each)) for each in itertools.product(*varied))
    if len(variants) < 2 and not (seeds or count > 1):
        raise UsageError(
            "U001",
            "nothing to compare: no setting has two values",
            "try: headway compare tiny model.norm=layernorm,dyt",
        )
    if len(variants) > MOST_VARIANTS:
        raise UsageError("U001", f"{len(variants):,} variants: the limit is {MOST_VARIANTS:,}", "vary fewer settings")
    keys = tuple(arg.partition("=")[0] for each in varied for arg in each[0])
    _check_twice(keys, variants, common)
    found = Grid(
        *(tuple(common), keys, variants, seeds, count, len(varied) == 1 and len(keys) > 1),
        equal=_equal(own.get("equal", "")),
        against=own.get("against", ""),
        lengths=_lengths(own["lengths"]) if "lengths" in own else (),
    )
    assert found.reference < len(variants)  # a wrong against= is found here
    return found


def _check_twice(keys: Sequence[str], variants: Sequence[tuple[str, ...]], common: Sequence[str]) -> None:
    """Refuse what would be trained twice, or would hide another word."""
    if doubled := sorted({key for key in keys if keys.count(key) > 1}):
        raise UsageError("U001", f"{doubled[0]} is varied twice")
    if hidden := next((arg for arg in common if arg.partition("=")[0] in keys), None):
        raise UsageError("U001", f"{hidden} is given, and varied as well", "leave one of the two out")
    if again := next((args for i, args in enumerate(variants) if args in variants[:i]), None):
        raise UsageError("U001", f"{' '.join(again)} is there twice", "leave one of the two out")


def _equal(given: str) -> Equal:
    if given and given not in TERMS:
        raise ConfigError("C003", f"equal={given}{nearest(given, TERMS)}", f"one of {', '.join(TERMS)}")
    return cast(Equal, given)


def _lengths(given: str) -> tuple[int, ...]:
    values = given.split(",")
    if not all(re.fullmatch(r"[1-9]\d{0,6}", value) for value in values) or len(set(values)) < len(values):
        raise ConfigError("C003", f"lengths={given} should be a list of different numbers of tokens")
    return tuple(sorted(int(value) for value in values))


def _joined(key: str, value: str) -> list[str]:
    """`key=value` for each of the settings that change together."""
    keys = key.split("+")
    values = value.split("+") if len(keys) > 1 else [value]
    if len(keys) != len(values):
        raise UsageError("U001", f"{key} are {len(keys)} settings, {value} has {len(values)} values")
    return [f"{k}={v}" for k, v in zip(keys, values, strict=True)]


def split_values(raw: str) -> list[str]:
    """Split at commas that are not inside brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in raw:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += letter
    return parts


def _seeds(arg: str, values: list[str]) -> tuple[int, tuple[int, ...] | None]:
    if not all(re.fullmatch(r"\d{1,9}", value) for value in values) or len(set(values)) < len(values):
        raise ConfigError("C003", f"{arg} should be a number of seeds, or a list of different seeds")
    if len(values) > 1:
        return len(values), tuple(int(value) for value in values)
    if not 1 <= int(values[0]) <= 1000:
        raise ConfigError("C003", f"{arg} should be from 1 to 1000")
    return int(values[0]), None


def variant_names(plan: Grid) -> list[str]:
    """A name for each variant: its values. Where settings change together, a number gets its setting's name, unless it
    is the same as in the first variant. So do true and false, which say nothing alone."""
    names = []
    for args in plan.variants:
        shown = []
        for arg, usual in zip(args, plan.variants[0], strict=True):
            key, _, value = arg.partition("=")
            bare = value not in ("true", "false", "") and not (plan.together and NUMBER.fullmatch(value))
            if bare:
                shown.append(value)
            elif not plan.together or arg != usual or args == plan.variants[0]:
                shown.append(f"{key.rpartition('.')[2]}={value or 'none'}")
        names.append(" ".join(shown) or "all")
    return names


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors inside say which variant they are of."""
    try:
        yield
    except HeadwayError as error:
        raise type(error)(error.code, f"variant {name}: {error.message}", error.hint) from error
