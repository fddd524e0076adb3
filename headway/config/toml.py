"""TOML and `key=value` words to dataclasses and back, with strict types and keys. No torch here.

Precedence: default < preset < file < override. Mistakes are found before torch is imported.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from headway.config.keys import did_you_mean
from headway.errors import ConfigError, NotFoundError
from headway.errors import short as short

T = TypeVar("T")


def build(cls: type[T], data: Mapping[str, Any], where: str = "", source: str = "") -> T:
    """Build a dataclass from nested plain values; `source` is the TOML text, for line numbers in errors."""
    known = {key_of(f.name): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = {key_of(name): hint for name, hint in typing.get_type_hints(cls).items()}
    for key in data:
        if key not in known:
            path = _join(where, key)
            close = did_you_mean(path, [_join(where, name) for name in known])
            raise ConfigError("C014", f"unknown setting {short(path)}{line_of(source, path)}{close}")
    values = {k: _convert(hints[k], v, _join(where, k), source) for k, v in data.items()}
    for name, f in known.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise ConfigError("C004", f'setting "{_join(where, name)}" is missing')
    return cls(**{known[key].name: value for key, value in values.items()})


def key_of(name: str) -> str:
    """A field's key in files: without the underscore of names such as `from_`, which are Python keywords."""
    return name.rstrip("_")


def _convert(hint: Any, value: Any, where: str, source: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:  # a section that its owner has built already
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_union(args, value, where, source)
    if origin is Literal:
        if value in args and type(value) in {type(a) for a in args}:
            return value
        choices = ", ".join(repr(a) for a in args)
        raise ConfigError("C003", f"{where} = {short(value)}{line_of(source, where)} is not one of {choices}")
    if dataclasses.is_dataclass(hint):
        if type(value) is hint:
            return value
        if isinstance(value, Mapping):
            return build(typing.cast(type, hint), value, where, source)
    elif origin is tuple and isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_convert(args[0], v, where, source) for v in value)
    elif hint is float and type(value) in (int, float):
        if not abs(value) <= sys.float_info.max:  # false for NaN, too
            raise ConfigError("C003", f"{where} = {short(value)}{line_of(source, where)} is not a finite number")
        return float(value)
    elif type(value) is hint:
        return value
    raise ConfigError("C002", f"{where} = {short(value)}{line_of(source, where)} should be {type_name(hint)}")


def _convert_union(args: tuple[Any, ...], value: Any, where: str, source: str) -> Any:
    if value is None and type(None) in args:
        return None
    options = [a for a in args if a is not type(None)]
    tables = [a for a in options if dataclasses.is_dataclass(a)]
    if isinstance(value, Mapping) and len(tables) > 1:  # front ends have a `kind`
        kind, by_kind = value.get("kind"), {dataclasses.fields(t)[0].default: t for t in tables}
        if not isinstance(kind, str) or kind not in by_kind:
            kinds = ", ".join(repr(k) for k in by_kind)
            raise ConfigError(
                "C003", f"{where}.kind = {short(kind)}{line_of(source, f'{where}.kind')} is not one of {kinds}"
            )
        return build(typing.cast(type, by_kind[kind]), value, where, source)
    for option in options[:-1]:
        try:
            return _convert(option, value, where, source)
        except ConfigError:
            continue
    return _convert(options[-1], value, where, source)


def to_dict(config: Any) -> dict[str, Any]:
    """Nested plain values; None is left out, since TOML has no null."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return to_dict(value)
        return [plain(each) for each in value] if isinstance(value, tuple) else value

    pairs = ((key_of(f.name), getattr(config, f.name)) for f in dataclasses.fields(config))
    return {name: plain(value) for name, value in pairs if value is not None}


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """The values of a TOML file, and its text."""
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text), text
    except FileNotFoundError:
        raise NotFoundError("F001", f"no such file: {path}") from None
    except OSError as error:
        raise NotFoundError("F001", f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError("C001", f"{path} is not valid TOML: {error}") from None


def to_toml(data: Mapping[str, Any], where: str = "") -> str:
    """Nested plain values as TOML: simple keys first, then one table per mapping."""
    lines = [f"{k} = {_text(v)}" for k, v in data.items() if not isinstance(v, Mapping)]
    for key, value in data.items():
        if isinstance(value, Mapping):
            path = _join(where, key)
            body = to_toml(value, path)
            lines += ["", f"[{path}]", body] if body.strip() else ["", f"[{path}]"]
    return "\n".join(lines).strip("\n") + ("\n" if not where else "")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON allows it, TOML does not


def parse_overrides(items: Sequence[str]) -> dict[str, Any]:
    """Nested values from words such as `a.b=1`. A value that is not TOML is a string."""
    result: dict[str, Any] = {}
    for item in items:
        key, equals, raw = item.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*", key):
            raise ConfigError("C001", f"{short(item)} is not key=value")
        node = result
        *parents, last = key.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ConfigError("C004", f"{short(item)}: {'.'.join(parents)} already has a plain value")
        node[last] = _scalar(raw)
    return result


def _scalar(raw: str) -> Any:
    try:
        return tomllib.loads(f"x = {raw}")["x"]
    except (ValueError, RecursionError):
        return raw


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`; tables are merged."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def line_of(source: str, path: str) -> str:
    """The line of a setting in a TOML text, or else of the nearest table around it, as text."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(source.split("\n"), 1):
        if found := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            table = found[1].replace('"', "")
            lines.setdefault(table, number)
        elif found := re.match(r"\s*([\w.\"-]+)\s*=", line):
            lines.setdefault(_join(table, found[1].replace('"', "")), number)
    while path and path not in lines:
        path = path.rpartition(".")[0]
    return f" (line {lines[path]})" if path else ""


def type_name(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    if typing.get_origin(hint) is tuple:
        return "a list"
    if dataclasses.is_dataclass(hint):
        return "a table"
    return names.get(hint, getattr(hint, "__name__", str(hint)))
