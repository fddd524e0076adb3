"""Recipe files: TOML, YAML or JSON, told apart by their names and read strictly. No torch here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from headway.config.toml import read_toml
from headway.errors import ConfigError, NotFoundError
from headway.jsonfile import read_json, show, unreadable

SUFFIXES = (".toml", ".yaml", ".yml", ".json")
YAML_LIMIT = 1_000_000
"""The most bytes of a YAML file."""


def read_settings(path: Path) -> tuple[dict[str, Any], str]:
    """The values of a recipe file; also its text if it is TOML, for line numbers in errors."""
    if path.suffix == ".toml":
        return read_toml(path)
    return (read_json(path) if path.suffix == ".json" else _read_yaml(path)), ""


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        hint = "pip install pyyaml, or write the recipe as TOML"
        raise NotFoundError("F003", f"{show(path)} is YAML, which needs the package pyyaml", hint) from None
    try:
        text = path.read_bytes()[: YAML_LIMIT + 1].decode()
        if len(text) > YAML_LIMIT:
            raise ValueError(f"larger than {YAML_LIMIT:,} bytes")
        loader = _loader(yaml.SafeLoader)(text)
        values = loader.get_single_data()
    except FileNotFoundError:
        raise NotFoundError("F001", f"no such file: {show(path)}") from None
    except OSError as error:
        raise unreadable(path, error) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)  # its own text has several lines
        why = str(error) if mark is None else f"line {mark.line + 1}: {getattr(error, 'problem', '')}"
        raise ConfigError("C001", f"{show(path)} is not valid YAML: {' '.join(why.split())[:200]}") from None
    if not isinstance(values, dict):
        raise ConfigError("C001", f"{show(path)} is not a table of settings")
    return values


def _loader(safe: Any) -> Any:
    """A loader for plain values: no key twice, no aliases, and numbers and booleans as in YAML 1.2.

    YAML 1.1 reads `no` as false, and 1e-3 as text.
    """

    class Loader(safe):  # type: ignore[misc]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if (event := self.peek_event()).__class__.__name__ == "AliasEvent":
                raise ValueError(f"line {event.start_mark.line + 1}: a recipe has no aliases")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for key, _ in node.value:
                line = f"line {key.start_mark.line + 1}"
                if not str(key.tag).endswith(":str"):
                    raise ValueError(f"{line}: a key should be text")
                if key.value in seen:
                    raise ValueError(f"{line}: key {key.value!r} twice")
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    kept = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:str")
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag in kept]
        for first, found in safe.yaml_implicit_resolvers.items()
    }
    number = r"[-+]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
    for tag, pattern, starts in (
        ("bool", "true|false", "tf"),
        ("int", r"[-+]?(?:0|[1-9]\d*)", "-+0123456789"),
        ("float", number, "-+.0123456789"),
    ):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})$"), list(starts))
    return Loader
