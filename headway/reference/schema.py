"""The JSON Schema of recipe files, for editors that complete and check TOML, YAML or JSON. No torch here."""

from __future__ import annotations

import math
import types
import typing
from typing import Any, Literal

from headway.reference.settings import Section, Setting, options, section, shown
from headway.tasks.recipe import SECTIONS
from headway.tasks.registry import task_names

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN = {int: "integer", float: "number", str: "string", bool: "boolean"}


def recipe_schema() -> dict[str, Any]:
    """The schema of a recipe. The section of a task is allowed in recipes for that task only."""
    names = task_names()
    found = {name: section(name) for name in ("", *SECTIONS, *names)}
    top = {setting.key: _setting(setting) for setting in found[""].settings}
    top["task"] |= {"enum": names}
    own = [name for name in names if found[name].settings]
    return {
        "$schema": DIALECT,
        "title": "A recipe of headway",
        "type": "object",
        "properties": {**top, **{name: _section(found[name]) for name in (*SECTIONS, *own)}},
        "dependentSchemas": {name: {"properties": {"task": {"const": name}}, "required": ["task"]} for name in own},
        "additionalProperties": False,
    }


def _section(found: Section) -> dict[str, Any]:
    return {
        "type": "object",
        "description": found.doc,
        "properties": {setting.name: _setting(setting) for setting in found.settings},
        "additionalProperties": False,
    }


def _setting(setting: Setting) -> dict[str, Any]:
    found = _type(setting.hint)
    if (allowed := setting.range) is not None:
        found["exclusiveMinimum" if allowed.above else "minimum"] = allowed.low
        if allowed.high != math.inf:
            found["exclusiveMaximum" if allowed.below else "maximum"] = allowed.high
    if setting.default is not None:
        found["default"] = setting.default
    default = "" if setting.default is None else f" Default: {shown(setting.default)}."
    return {"description": f"{setting.doc}{default}".strip(), **found}


def _type(hint: Any) -> dict[str, Any]:
    """A type of Python as JSON Schema: plain values, literals, lists, and unions of these."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        parts = [_type(part) for part in options(hint)]
        parts += [{"type": "null"}] if type(None) in args else []
        simple = all(part.keys() == {"type"} for part in parts)
        return {"type": [part["type"] for part in parts]} if simple else {"anyOf": parts}
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": _type(args[0])}
    return {"type": PLAIN[hint]} if hint in PLAIN else {}
