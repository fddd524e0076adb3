"""Untrusted JSON: bounded in size and depth, finite numbers only, no key twice, errors of one line."""

from __future__ import annotations

import json
import math
import os
import re
import reprlib
from itertools import chain
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, NotFoundError

JSON_LIMIT = 64_000_000
"""The most bytes of a file."""
JSON_VALUES, JSON_DEPTH = 4_000_000, 64
"""Bounds on parsed JSON: a few bytes of text can take a hundred bytes of memory."""
CONTAINERS = frozenset((dict, list))
AGAIN = "download or copy it again"
_brief = reprlib.Repr()
_brief.maxstring = 100


def read_json(path: Path, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """Read a JSON object such as config.json, under the bounds above."""
    if not os.path.isfile(path):
        raise NotFoundError("F001", f"{show(path)}: no such file")
    try:
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(raw) > limit:
        raise _unfit(path, f"larger than {limit:,} bytes")
    return parse_json(path, raw)


def parse_json(path: Path, raw: bytes | str, values: int = JSON_VALUES) -> dict[str, Any]:
    """Parse the text of a JSON file; `path` is for the message."""
    try:
        return parse_object(raw if isinstance(raw, bytes) else raw.encode(), values)
    except ValueError as error:
        raise _unfit(path, str(error)) from None


def _unfit(path: Path, why: str) -> ConfigError:
    return ConfigError("C001", f"{show(path)}: {why}", f"correct it, or {AGAIN}")


def parse_object(raw: bytes, values: int) -> dict[str, Any]:
    """Parse a JSON object; raises a ValueError of one line."""
    openings = raw.count(b"[") + raw.count(b"{")
    if raw.count(b",") + openings > values:
        raise ValueError(f"JSON of more than {values:,} values")
    try:
        text = raw.decode()  # json would guess UTF-16 and accept broken UTF-8
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite)
        if re.search(rb"\\u[dD]", raw):  # half a surrogate pair can be neither printed nor saved
            json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise ValueError(f"not UTF-8: {error.reason} at {error.start:,}") from None
    except RecursionError:
        raise ValueError(f"JSON nested deeper than {JSON_DEPTH} levels") from None
    except ValueError as error:
        raise ValueError(f"not valid JSON: {str(error).split('; use')[0]}") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    if openings <= JSON_DEPTH:  # it cannot be nested deeper
        return value
    layer: list[Any] = [value]
    for _ in range(JSON_DEPTH):
        if not layer:
            return value
        inner = chain.from_iterable(outer.values() if type(outer) is dict else outer for outer in layer)
        layer = [item for item in inner if type(item) in CONTAINERS]
    if layer:
        raise ValueError(f"JSON nested deeper than {JSON_DEPTH} levels")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {_brief.repr(twice)} twice")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def show(path: Path | str) -> str:
    """A path on one line, whatever characters it contains."""
    return str(path) if str(path).isprintable() else ascii(str(path))


def unreadable(path: Path, error: OSError) -> NotFoundError:
    return NotFoundError("F001", f"{show(path)}: cannot be read: {error.strerror or error}")
